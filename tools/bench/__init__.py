"""Benchmarks side by side with torch, in one run: `python -m tools.bench train nano --against torch,torch.compile`."""
