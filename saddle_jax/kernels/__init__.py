"""Convolutions and EvoNorm: C++ kernels for CPUs and forms in XLA, and how they are compiled and loaded."""
