"""Whether a run fits some devices, present or not: its memory, kernels and communication."""
