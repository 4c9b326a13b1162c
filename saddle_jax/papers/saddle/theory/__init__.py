"""The paper's convergence theorem: its bound, a problem to hold it against, and what runs keep of it."""
