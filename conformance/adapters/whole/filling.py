"""Parameters that a constructor leaves as torch.empty made them, for a checkpoint to fill, get numbers.

What memory happens to hold is no model: it may be NaN, and differs from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

SPREAD = 0.02
"""The standard deviation of numbers that stand in for those of a checkpoint."""


@contextmanager
def empty_is_nan() -> Iterator[None]:
    """torch.empty gives NaN, and 1 less than the largest of an integer dtype."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def fill(module: nn.Module) -> None:
    """Normal numbers for every NaN of the parameters, 0 for every NaN of other tensors that the module's parts hold."""
    with torch.no_grad():
        for part in module.modules():
            held = {**part._buffers, **{name: value for name, value in vars(part).items() if type(value) is Tensor}}
            for tensor in held.values():
                if _is_open(tensor):
                    tensor.nan_to_num_(0.0, float("inf"), -float("inf"))
        for parameter in module.parameters():
            if _is_open(parameter):
                parameter.copy_(torch.where(parameter.isnan(), torch.randn_like(parameter) * SPREAD, parameter))


def _is_open(tensor: Tensor | None) -> bool:
    if tensor is None or nn.parameter.is_lazy(tensor) or tensor.layout is not torch.strided:
        return False
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(tensor.isnan().any())
