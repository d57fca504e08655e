"""PyTorch's own samples of its operators, run on torch and on minigrad: `python -m tools.opinfo`.

`samples` reads them, `bridge` carries tensors over, `runs` computes on both sides, `judge` compares, `__main__` tells.
"""
