"""The baseline: the same models and methods in plain PyTorch, as a PyTorch user would write them.

Either all agents are in one program: a loop over them, threads or `torch.func.vmap`, with or without
`torch.compile`, with updates and gossip on one matrix of all agents' parameters [A, P]. Or each agent has a
process, and they communicate through torch.distributed. Nothing else needs PyTorch.
"""
