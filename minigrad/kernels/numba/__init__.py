"""CPU kernels compiled by numba: float32, contiguous rows, serial and GIL-free (see `minigrad.kernels.threads`)."""
