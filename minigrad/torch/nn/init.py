"""torch.nn.init: minigrad's initialisations."""

from __future__ import annotations

from typing import Any

import minigrad
from minigrad.nn.init import (
    calculate_gain,
    constant_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)
from minigrad.tensor import Tensor as _Tensor
from minigrad.torch._missing import missing as _missing


@minigrad.no_grad()
def trunc_normal_(
    tensor: _Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> _Tensor:
    """N(mean, std) within [a, b]: what falls outside is drawn again. Raises ValueError for an empty interval."""
    if not a < b:
        raise ValueError(f"trunc_normal_: a must be below b, got {a} and {b}")
    normal_(tensor, mean, std, generator)
    while (outside := (tensor < a) | (tensor > b)).any():
        again = minigrad.randn(*tensor.shape, generator=generator) * std + mean
        tensor.copy_(minigrad.where(outside, again, tensor))
    return tensor


__getattr__ = _missing(__name__, globals())
