"""Elementwise ops on the device: the arrays' layouts are looked at here, and a kernel of the right form is launched.

Copies, casts, fills and fused groups are elementwise, too. Halves are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels.cuda import codegen
from minigrad.kernels.cuda.calls import same_place
from minigrad.kernels.cuda.codegen import DENSE, SINGLE, THREADS, VECTOR, Access, Form, Operand, Step, Strided
from minigrad.kernels.cuda.language import Kernel
from minigrad.kernels.cuda.layout import LARGEST, broadcast_strides, collapse, dense_strides, divisor, element_strides
from minigrad.ops.registry import OPS, Refusal

Array = Any  # a DeviceArray, or a numpy scalar array for a number that is known when the call is bound
WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype("uint8"),
    2: np.dtype("uint16"),
    4: np.dtype("float32"),
    8: np.dtype("int64"),
}  # moved as bits
_ALIGNED = 16  # bytes that a vector of float32 is loaded by
_PLANS = 8192  # launches remembered: most of a program's are made again and again


class Laid(NamedTuple):
    """All that a launch depends on of an operand: where its elements lie from its pointer on (in elements), or, of a
    number, its text."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int = 0
    aligned: bool = True
    number: str | None = None


def _laid(array: Array) -> Laid:
    if isinstance(array, np.ndarray):
        return Laid(array.dtype, (), (), number=repr(array.item()))
    return Laid(array.dtype, array.shape, element_strides(array), 0, array.pointer % _ALIGNED == 0)


class Launch(NamedTuple):
    """A kernel, its blocks, the numbers that follow the pointers, and what it refuses, noted as `faults` has it."""

    kernel: Kernel
    blocks: int
    numbers: tuple[int, ...]
    refused: tuple[Refusal, ...]


def launch(
    calls: Any, body: Sequence[Step], inputs: Sequence[Array], outputs: Sequence[Any], kept: Sequence[int]
) -> bool:
    """Append the launches that compute `body` of `inputs` (broadcast to the outputs' shape) into `outputs`.

    kept says which value each output is: below the number of inputs an input, else a step. Arrays too large to be
    counted in 32 bits are computed in parts. Always True, as a binder's answer.
    """
    if _launch(calls, body, inputs, outputs, kept, [_laid(x) for x in inputs], [_laid(y) for y in outputs]):
        return True
    shape = outputs[0].shape
    cut = next(d for d, size in enumerate(shape) if size > 1)
    half = shape[cut] // 2
    whole = [x if isinstance(x, np.ndarray) else _spread(x, shape) for x in inputs]
    for part in (slice(None, half), slice(half, None)):
        index = (slice(None),) * cut + (part,)
        given = [x if isinstance(x, np.ndarray) else x[index] for x in whole]
        launch(calls, body, given, [y[index] for y in outputs], kept)
    return True


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    steps = broadcast_strides(x.shape, element_strides(x), shape)
    return x.window(shape, tuple([step * x.itemsize for step in steps]), 0)


def _launch(
    calls: Any, body: Sequence[Step], inputs: Sequence[Array], outputs: Sequence[Any], kept: Sequence[int],
    inputs_laid: Sequence[Laid], outputs_laid: Sequence[Laid],
) -> bool:  # fmt: skip
    if not outputs[0].size:
        return True
    plan = _planned(tuple(body), tuple(kept), tuple(inputs_laid), tuple(outputs_laid))
    if plan is None:
        return False
    arrays = [array for array in (*outputs, *inputs) if not isinstance(array, np.ndarray)]
    faults = [part for refusal in plan.refused for part in calls.runtime.faults.place(*refusal)]
    calls.launch(plan.kernel, plan.blocks, THREADS, *arrays, *plan.numbers, *faults)
    return True


@lru_cache(maxsize=_PLANS)
def _planned(
    body: tuple[Step, ...], kept: tuple[int, ...], inputs: tuple[Laid, ...], outputs: tuple[Laid, ...]
) -> Launch | None:
    """The launch for operands that lie so, or None where 32 bits do not count them."""
    shape = outputs[0].shape
    arrays = [x for x in (*outputs, *inputs) if x.number is None]
    dims = collapse(shape, [broadcast_strides(x.shape, x.strides, shape) for x in arrays])
    total = math.prod(dims.sizes)
    if total > LARGEST - THREADS * VECTOR or max(map(_reach, arrays)) > LARGEST:
        return None
    dense = dense_strides(dims.sizes)
    groups: dict[tuple[int, tuple[int, ...]], int] = {}
    accesses: list[Access] = []
    for x, steps in zip(arrays, dims.strides, strict=True):
        if x.start == 0 and steps == dense:
            accesses.append(DENSE)
        elif x.start == 0 and not any(steps):
            accesses.append(SINGLE)
        else:
            inner = steps[-1] if steps[-1] in (0, 1) else "any"
            accesses.append(Strided(groups.setdefault((x.start, steps), len(groups)), inner))
    wide = dims.sizes[-1] % VECTOR == 0 or len(dims.sizes) == 1
    wide = wide and all(map(_in_vectors, arrays, accesses, dims.strides))
    operands = iter([Operand(x.dtype.name, access) for x, access in zip(arrays, accesses, strict=True)])
    form = Form(
        body,
        outputs=tuple([next(operands) for _ in outputs]),
        inputs=tuple([next(operands) if x.number is None else Operand(x.dtype.name, SINGLE, x.number) for x in inputs]),
        kept=kept,
        dims=len(dims.sizes) if groups else 1,
        width=VECTOR if wide and total >= VECTOR else 1,
    )
    numbers = [number for size in dims.sizes[1:] for number in divisor(size)] if groups else []
    for start, steps in groups:
        numbers += [start, *steps]
    blocks = -(-total // (form.width * THREADS))
    refused = tuple([_refusal(body[step][0]) for step in codegen.written(form).refused])
    return Launch(codegen.made(form), blocks, (total, *numbers), refused)


def _refusal(name: str) -> Refusal:
    refusal = OPS[name].refuses
    assert refusal is not None, f"the expression of {name} notes values, but the op does not say why"
    return refusal


def _reach(x: Laid) -> int:
    """How far from its pointer an element may lie."""
    return x.start + sum((size - 1) * abs(step) for size, step in zip(x.shape, x.strides, strict=True))


def _in_vectors(x: Laid, access: Access, steps: Sequence[int]) -> bool:
    """May a thread take four neighbouring elements: float32 from aligned memory at once, anything else one by one."""
    if x.dtype.name != "float32" or access == SINGLE or (isinstance(access, Strided) and access.inner != 1):
        return True
    outer = steps[:-1] if isinstance(access, Strided) else ()
    return x.aligned and x.start % VECTOR == 0 and all(step % VECTOR == 0 for step in outer)


# --- ops ----------------------------------------------------------------------------------------------


def _binder(name: str) -> Callable[..., bool]:
    attributes = OPS[name].attributes
    bodies = tuple(((name, tuple(range(count + len(attributes)))),) for count in range(4))

    def bind(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], **attrs: float) -> bool:
        dtype = np.float64 if inputs[0].dtype.name == "float64" else np.float32
        numbers = [np.array(attrs[attribute], dtype) for attribute in attributes]
        return launch(calls, bodies[len(inputs)], [*inputs, *numbers], outputs, (len(inputs) + len(numbers),))

    bind.__name__ = bind.__qualname__ = name
    return bind


def __getattr__(name: str) -> Callable[..., bool]:
    """The binder of an op that is an expression, by its name. Its attributes are numbers."""
    if name in OPS and OPS[name].tree is not None:
        return _binder(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def cast(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dtype: np.dtype) -> bool:
    return launch(calls, [(f"cast:{outputs[0].dtype.name}", (0,))], inputs, outputs, [1])


def converted(calls: Any, x: Any, name: str) -> Any:
    """`x` itself where it has the dtype `name`, else a copy in it."""
    if x.dtype.name == name:
        return x
    copy = calls.scratch(x.shape, np.dtype(name))
    cast(calls, [x], [copy], dtype=copy.dtype)
    return copy


def fused(
    calls: Any, inputs: Sequence[Array], outputs: Sequence[Any], *, body: Sequence[Step], kept: Sequence[int]
) -> bool:
    """A group of steps in one pass (see `minigrad.compiler.fusion`); inputs may be numpy numbers."""
    return launch(calls, codegen.typed(body), inputs, outputs, kept)


def copy(calls: Any, target: Any, source: Any) -> None:
    """Append the launches that copy `source`, broadcast, to `target`; of one dtype, and of any strides."""
    if same_place(source, target):
        return
    word = WORDS[target.itemsize]
    launch(calls, (), [calls.apart(source, target).view(word)], [target.view(word)], [0])


def fill(calls: Any, target: Any, value: float) -> None:
    """Append the launches that set every element of `target`."""
    launch(calls, (), [np.array(value, target.dtype)], [target], [0])


def flip(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dims: Sequence[int]) -> bool:
    """Read backwards: from the last element on, by negative strides; declines what 32 bits do not count."""
    x, y = inputs[0].view(WORDS[inputs[0].itemsize]), outputs[0].view(WORDS[outputs[0].itemsize])
    laid = _laid(x)
    start = sum((x.shape[d] - 1) * laid.strides[d] for d in dims)
    back = tuple(-step if d in dims else step for d, step in enumerate(laid.strides))
    return _launch(calls, (), [x], [y], [0], [laid._replace(strides=back, start=start)], [_laid(y)])
