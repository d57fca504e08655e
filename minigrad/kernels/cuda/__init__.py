"""CUDA kernels, and what compiles, launches and simulates them. Nothing here is imported without a CUDA tensor."""
