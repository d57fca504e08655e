"""Ops whose kernels are float32's, on halves: widened before, rounded once after, as the reference does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad import kernels, later
from minigrad.kernels.cuda import elementwise
from minigrad.ops.registry import OPS

_HALVES = ("float16", "bfloat16")


def __getattr__(name: str) -> Callable[..., bool]:
    """The binder of op `name` for halves. Raises AttributeError where float32 has none."""
    spec = kernels.spec(OPS[name], "cuda", "float32") if name in OPS else None
    if spec is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def bind(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], **attrs: Any) -> bool:
        wide = [elementwise.converted(calls, x, "float32") if x.dtype.name in _HALVES else x for x in inputs]
        results = [calls.scratch(y.shape, np.dtype("float32")) if y.dtype.name in _HALVES else y for y in outputs]
        if not later.load(spec)(calls, wide, results, **attrs):
            return False
        for y, result in zip(outputs, results, strict=True):
            if y is not result:
                elementwise.cast(calls, [result], [y], dtype=y.dtype)
        return True

    bind.__name__ = bind.__qualname__ = name
    return bind
