"""Fast kernels: which exist, and when they run instead of the reference.

A kernel is registered here by op, device and dtype as "module:function", imported on first use. It binds the op's
inputs and outputs to calls (see `minigrad.kernels.calls`), which run at once here, and many times in a compiled plan.

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

from minigrad import dtypes
from minigrad.kernels.cuda import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minigrad.kernels.calls import Calls
    from minigrad.ops.registry import Op

MIN_SIZE = 4096
ACCUMULATE = 65_536  # elements of a gradient from which several threads add it up
MODES = ("auto", "always", "reference")
_mode = "auto"

# (op, device, dtype) -> "module:function"
FAST: dict[tuple[str, str, str], str] = {
    ("adam", "cpu", "float32"): "minigrad.kernels.numba.adam:adam",
    ("adam_all", "cpu", "float32"): "minigrad.kernels.numba.adam:adam_all",
    ("argmax", "cpu", "float32"): "minigrad.kernels.numba.argmax:argmax",
    ("cross_entropy", "cpu", "float32"): "minigrad.kernels.numba.cross_entropy:cross_entropy",
    ("cross_entropy_grad", "cpu", "float32"): "minigrad.kernels.numba.cross_entropy:cross_entropy_grad",
    ("dropout", "cpu", "float32"): "minigrad.kernels.numba.dropout:dropout",
    ("embedding", "cpu", "float32"): "minigrad.kernels.numba.embedding:embedding",
    ("embedding_grad", "cpu", "float32"): "minigrad.kernels.numba.embedding:embedding_grad",
    ("flash_attention", "cpu", "float32"): "minigrad.kernels.numba.flash:flash_attention",
    ("flash_attention_grad", "cpu", "float32"): "minigrad.kernels.numba.flash:flash_attention_grad",
    ("layer_norm", "cpu", "float32"): "minigrad.kernels.numba.layer_norm:layer_norm",
    ("layer_norm_grad", "cpu", "float32"): "minigrad.kernels.numba.layer_norm:layer_norm_grad",
    ("linear_cross_entropy", "cpu", "float32"): "minigrad.kernels.numba.cross_entropy:linear_cross_entropy",
    ("linear_cross_entropy_grad", "cpu", "float32"): "minigrad.kernels.numba.cross_entropy:linear_cross_entropy_grad",
    ("matmul", "cpu", "float32"): "minigrad.kernels.numba.matvec:matmul",
    ("put", "cpu", "float32"): "minigrad.kernels.numba.put:put",
    ("rms_norm", "cpu", "float32"): "minigrad.kernels.numba.rms_norm:rms_norm",
    ("rms_norm_grad", "cpu", "float32"): "minigrad.kernels.numba.rms_norm:rms_norm_grad",
    ("rope", "cpu", "float32"): "minigrad.kernels.numba.rotary:rope",
    ("sum", "cpu", "float32"): "minigrad.kernels.numba.sums:sum",
    ("softmax", "cpu", "float32"): "minigrad.kernels.numba.softmax:softmax",
    ("softmax_grad", "cpu", "float32"): "minigrad.kernels.numba.softmax:softmax_grad",
    **table.FAST,
}
_loaded: dict[str, Callable[..., Any]] = {}
_names = frozenset(op for op, device, _ in FAST if device == "cpu")


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


def bind(op: Op, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> Calls | None:
    """Calls that compute `op` on these arrays, or None where no kernel serves."""
    spec = FAST.get((op.name, "cpu", dtypes.name(arrays[0].dtype))) if arrays else None
    if spec is None:
        return None
    from minigrad.kernels.calls import Calls

    calls = Calls()
    return calls if load(spec)(calls, arrays, outputs, **attrs) else None


def run(op: Op, arrays: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """The outputs of `op`: by its kernel where one serves, else by its reference."""
    if _watcher is not None:
        return _watched(op, arrays, attrs)
    if arrays[0].__class__ is not np.ndarray:
        return _on_device(op, arrays, attrs)
    if op.name in _names and _mode != "reference" and (arrays[0].size >= MIN_SIZE or _mode == "always"):
        metas = op.output_metas([(array.shape, array.dtype) for array in arrays], attrs)
        outputs = tuple([np.empty(shape, dtype) for shape, dtype in metas])
        calls = bind(op, arrays, outputs, attrs)
        if calls is not None:
            calls.run()
            return outputs
    return op.evaluate(arrays, attrs)


def accumulate(total: np.ndarray, more: np.ndarray) -> None:
    """total += more: a gradient that arrives. Arrays of the same shape and dtype."""
    plain = (
        (total.size >= ACCUMULATE or _mode == "always")
        and _mode != "reference"
        and total.dtype == dtypes.float32
        and total.flags.c_contiguous
        and more.flags.c_contiguous
    )
    if plain:
        load("minigrad.kernels.numba.accumulate:accumulate")(total, more)
    else:
        np.add(total, more, total)


def _on_device(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    from minigrad.kernels.cuda import execute

    return execute.run(op, arrays, attrs)


# --- watching -----------------------------------------------------------------------------------------

Watcher = Callable[["Op", Sequence[np.ndarray], Sequence[np.ndarray]], None]  # op, inputs, outputs
_watcher: Watcher | None = None


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` after every op that is computed inside; what a composite is made of is not shown to it.

    What is on a device is shown as copies on the host.
    """
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


def watched() -> bool:
    """Does anyone want to see every op?"""
    return _watcher is not None


def _watched(op: Op, arrays: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    global _watcher
    watcher, _watcher = _watcher, None
    assert watcher is not None
    try:
        outputs = run(op, arrays, attrs)
        watcher(op, *([a if isinstance(a, np.ndarray) else a.numpy() for a in part] for part in (arrays, outputs)))
    finally:
        _watcher = watcher
    return outputs
