"""The opponent: the same networks and methods in plain PyTorch, as its user would write them.

A loop over the agents, or `torch.func.vmap`; autograd; updates and gossip on one flat matrix of all
agents' parameters [A, P]. Nothing else of the package needs PyTorch.
"""
