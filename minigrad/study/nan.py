"""Which op made the first NaN or infinity? `find_nan(fn, *inputs)`, or `with find_nan():` around a training step."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.dispatch import watch
from minigrad.node import PACKAGE, Node
from minigrad.ops.registry import Op
from minigrad.state import state
from minigrad.viz.format import meta
from minigrad.viz.statistics import describe


class NotFinite(FloatingPointError):
    """An op produced a NaN or an infinity from finite inputs (or from inputs that had none of its kind).

    op, inputs, outputs: the op's name and arrays; forward: whether it was part of the forward pass; place: the line
    and module of the op, or of the op whose gradient it was computing.
    """

    def __init__(
        self, op: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], of: Node | None, place: str
    ) -> None:  # fmt: skip
        self.op, self.inputs, self.outputs = op, list(inputs), list(outputs)
        self.forward, self.place = of is None, place
        kind = "NaN" if any(np.isnan(o).any() for o in outputs if _floats(o)) else "infinity"
        where = f"{place}" if of is None else f"in the backward pass of {of.op}, {place}"
        shown = "\n".join(f"  input {i}: {_described(array)}" for i, array in enumerate(inputs))
        super().__init__(f"{op} made the first {kind} ({where})\n{shown}")


def _floats(array: np.ndarray) -> bool:
    return dtypes.is_floating(array.dtype)


def _bad(array: np.ndarray) -> bool:
    return _floats(array) and not bool(np.isfinite(array).all())


def _described(array: np.ndarray) -> str:
    head = meta(array.shape, array.dtype)
    if not _floats(array) or not array.size:
        return head
    if array.size <= 8:
        return f"{head} {np.array2string(array, precision=6, separator=', ').replace(chr(10), '')}"
    return f"{head} {describe(array)}"


class _Finder:
    def __init__(self, infinity: bool) -> None:
        self.infinity = infinity

    def __call__(self, op: Op, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        kept = outputs[: len(outputs) - op.aux] if op.aux else outputs
        if op.view or not any(map(_bad, kept)):
            return
        came_nan = any(np.isnan(array).any() for array in inputs if _floats(array))
        came_infinite = any(np.isinf(array).any() for array in inputs if _floats(array))
        made_nan = any(np.isnan(array).any() for array in kept if _floats(array))
        if (made_nan and not came_nan) or (self.infinity and not made_nan and not came_infinite and not came_nan):
            raise NotFinite(op.name, inputs, outputs, state.backward_of, _place())


def _place() -> str:
    node = state.backward_of
    if node is not None:
        return node.place
    words = [line] if (line := _user_line()) else []
    path = ".".join(name for name, _ in state.scope if name)
    return ", ".join([*words, *([f"in {path}"] if path else [])]) or "unknown line"


def _user_line() -> str:
    for frame, line in traceback.walk_stack(None):
        if not _ours(frame):
            return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{line}"
    return ""


def _ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE)


@contextmanager
def _guard(infinity: bool) -> Iterator[None]:
    with watch(_Finder(infinity)):
        yield


def find_nan(function: Callable[..., Any] | None = None, *inputs: Any, infinity: bool = True) -> Any:
    """Find the first op, forward or backward, that makes a NaN or an infinity out of inputs that had none.

    As `with find_nan(): ...` it raises NotFinite there. As `find_nan(fn, *inputs)` it runs fn, then the backward pass
    of what fn returns if that is one number with a gradient, and returns the NotFinite, or None if all is finite.
    An infinite mask value (`where(mask, x, -inf)`) is an input of its op, and no finding. `infinity=False` looks for
    NaN only.
    """
    if function is None:
        return _guard(infinity)
    try:
        with _guard(infinity):
            result = function(*inputs)
            if getattr(result, "requires_grad", False) and result.array.size == 1:
                result.backward()
    except NotFinite as found:
        return found
    return None
