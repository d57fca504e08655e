"""CUDA kernels, and what compiles, launches and simulates them. Without a CUDA tensor only `table` is imported."""
