"""Fast kernels: which exist, and when they run instead of the reference.

A kernel is registered here by op, device and dtype as "module:function", imported on first use. It takes the arrays and
attributes of the op's reference and returns the same outputs, or None to decline (a layout that it does not serve).

    mode "auto"       kernels run from `MIN_SIZE` elements on (below, a numpy call is cheaper)      the default
         "always"     kernels run at every size (tests and conformance runs: the kernels are what is tested)
         "reference"  numpy only
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minigrad.ops.registry import Op

MIN_SIZE = 4096
MODES = ("auto", "always", "reference")
_mode = "auto"

# (op, device, dtype) -> "module:function"
FAST: dict[tuple[str, str, str], str] = {
    ("softmax", "cpu", "float32"): "minigrad.kernels.numba.softmax:softmax",
    ("softmax_grad", "cpu", "float32"): "minigrad.kernels.numba.softmax:softmax_grad",
    ("layer_norm", "cpu", "float32"): "minigrad.kernels.numba.layer_norm:layer_norm",
    ("layer_norm_grad", "cpu", "float32"): "minigrad.kernels.numba.layer_norm:layer_norm_grad",
}
_loaded: dict[str, Callable[..., Any]] = {}
_names = frozenset(op for op, _, _ in FAST)


def load(spec: str) -> Callable[..., Any]:
    """The kernel function of "module:function"."""
    found = _loaded.get(spec)
    if found is None:
        module, function = spec.split(":")
        found = _loaded[spec] = getattr(importlib.import_module(module), function)
    return found


def set_mode(mode: str) -> None:
    """Choose when kernels run. Raises ValueError for an unknown mode."""
    global _mode
    if mode not in MODES:
        raise ValueError(f"kernel mode {mode!r} does not exist: use one of {', '.join(MODES)}")
    _mode = mode


def get_mode() -> str:
    return _mode


@contextmanager
def use(mode: str) -> Iterator[None]:
    """`set_mode` for the duration of a block."""
    before = _mode
    set_mode(mode)
    try:
        yield
    finally:
        set_mode(before)


def run(op: Op, arrays: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """The outputs of `op`: by its kernel where one serves, else by its reference."""
    if op.name in _names and _mode != "reference":
        first = arrays[0]
        spec = FAST.get((op.name, "cpu", first.dtype.name))
        if spec is not None and (first.size >= MIN_SIZE or _mode == "always"):
            result = load(spec)(*arrays, **attrs)
            if result is not None:
                return result if type(result) is tuple else (result,)
    return op.evaluate(arrays, attrs)
