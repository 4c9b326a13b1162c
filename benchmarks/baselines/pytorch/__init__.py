"""The opponent: the same networks and methods in plain PyTorch, as its user would write them.

All agents in one program: a loop over them, threads or `torch.func.vmap`, with or without `torch.compile`;
autograd; updates and gossip on one flat matrix of all agents' parameters [A, P]. Or a process for each agent,
which meet through torch.distributed. Nothing else of the package needs PyTorch.
"""
