"""The paper's convergence theorem: its bound, a problem to test it on, and its constants in real runs."""
