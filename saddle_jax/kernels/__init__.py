"""CPU kernels: convolutions and EvoNorm in C++ and in XLA, with what compiles and loads them."""
