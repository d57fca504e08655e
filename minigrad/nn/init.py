"""Initialisation in place, with torch's fan rules: a weight ``(out, in)`` has fan-in `in` and fan-out `out`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from minigrad.gradmode import no_grad
from minigrad.ops.arguments import expect_tensors
from minigrad.random import Generator
from minigrad.tensor import Tensor

_skipped: ContextVar[bool] = ContextVar("minigrad.nn.init.skipped", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """Draw no random numbers in the block: `uniform_` and `normal_`, and what is made of them, leave memory as it is.

    For modules whose parameters are loaded next: a large model is then built in no time.
    """
    token = _skipped.set(True)
    try:
        yield
    finally:
        _skipped.reset(token)


def fans(tensor: Tensor) -> tuple[int, int]:
    """(fan-in, fan-out) of a weight ``(out, in, ...)``. Raises ValueError below two dimensions."""
    if tensor.ndim < 2:
        raise ValueError(f"fan-in and fan-out need at least two dimensions, this tensor has shape {list(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def calculate_gain(nonlinearity: str, a: float = 0.01) -> float:
    """What a nonlinearity needs for the variance to stay: sqrt(2) for relu, 5/3 for tanh, ... Raises ValueError."""
    gains = {
        "linear": 1.0,
        "sigmoid": 1.0,
        "tanh": 5.0 / 3.0,
        "relu": math.sqrt(2.0),
        "leaky_relu": math.sqrt(2.0 / (1.0 + a * a)),
        "selu": 0.75,
    }
    if nonlinearity not in gains:
        raise ValueError(f"no gain is known for {nonlinearity!r}: use one of {', '.join(gains)}")
    return gains[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """U(a, b)."""
    return tensor if _skipped.get() else tensor.uniform_(a, b, generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """N(mean, std^2)."""
    return tensor if _skipped.get() else tensor.normal_(mean, std, generator)


@no_grad()
def constant_(tensor: Tensor, value: float) -> Tensor:
    return tensor.fill_(value)


def zeros_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 1.0)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010; document 002, full model)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """N(0, gain^2 2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """U(-b, b), b = gain sqrt(3 / fan); `a` is the slope of leaky_relu (He et al. 2015)."""
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """N(0, gain^2 / fan); `a` is the slope of leaky_relu (He et al. 2015)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


expect_tensors(globals())
