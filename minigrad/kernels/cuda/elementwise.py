"""Elementwise ops on the device: the arrays' layouts are looked at here, and a kernel of the right form is launched.

Copies, casts, fills and fused groups are elementwise, too. Halves are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.kernels.cuda import codegen
from minigrad.kernels.cuda.codegen import DENSE, SINGLE, THREADS, VECTOR, Access, Form, Operand, Step, Strided
from minigrad.kernels.cuda.expressions import TABLES
from minigrad.kernels.cuda.layout import LARGEST, broadcast_strides, collapse, dense_strides, divisor, element_strides

Array = Any  # a DeviceArray, or a numpy scalar array for a number that is known when the call is bound
WORDS: dict[int, np.dtype[Any]] = {
    1: np.dtype("uint8"),
    2: np.dtype("uint16"),
    4: np.dtype("float32"),
    8: np.dtype("int64"),
}  # moved as bits
_ALIGNED = 16  # bytes that a vector of float32 is loaded by


def launch(
    calls: Any, body: Sequence[Step], inputs: Sequence[Array], outputs: Sequence[Any], kept: Sequence[int]
) -> bool:
    """Append the launch that computes `body` of `inputs` (broadcast to the outputs' shape) into `outputs`.

    kept says which value each output is: below the number of inputs an input, else a step. False for arrays too large
    to be counted in 32 bits.
    """
    shape = outputs[0].shape
    if not outputs[0].size:
        return True
    arrays = [array for array in (*outputs, *inputs) if not isinstance(array, np.ndarray)]
    strides = [element_strides(array) for array in outputs]
    strides += [broadcast_strides(array, shape) for array in inputs if not isinstance(array, np.ndarray)]
    return _launch(calls, body, inputs, outputs, kept, arrays, shape, strides, [0] * len(arrays))


def _launch(
    calls: Any, body: Sequence[Step], inputs: Sequence[Array], outputs: Sequence[Any], kept: Sequence[int],
    arrays: Sequence[Any], shape: Sequence[int], strides: Sequence[Sequence[int]], starts: Sequence[int],
) -> bool:  # fmt: skip
    """The same with the strides (in elements) and first elements of `arrays` given: outputs, then inputs in memory."""
    dims = collapse(shape, strides)
    total = int(np.prod(dims.sizes, dtype=np.int64))
    if total > LARGEST - THREADS * VECTOR or any(array.extent // array.itemsize > LARGEST for array in arrays):
        return False
    dense = dense_strides(dims.sizes)
    groups: dict[tuple[int, tuple[int, ...]], int] = {}
    accesses: list[Access] = []
    for steps, start in zip(dims.strides, starts, strict=True):
        if start == 0 and steps == dense:
            accesses.append(DENSE)
        elif not any(steps) and start == 0:
            accesses.append(SINGLE)
        else:
            inner = steps[-1] if steps[-1] in (0, 1) else "any"
            accesses.append(Strided(groups.setdefault((start, steps), len(groups)), inner))
    flat = iter(accesses)
    wide = all(_in_vectors(*layout) for layout in zip(arrays, accesses, dims.strides, starts, strict=True))
    wide = wide and (dims.sizes[-1] % VECTOR == 0 or len(dims.sizes) == 1)
    form = Form(
        tuple(body),
        outputs=tuple([Operand(array.dtype.name, next(flat)) for array in outputs]),
        inputs=tuple(
            [
                Operand(array.dtype.name, SINGLE, array.item())
                if isinstance(array, np.ndarray)
                else Operand(array.dtype.name, next(flat))
                for array in inputs
            ]
        ),
        kept=tuple(kept),
        dims=len(dims.sizes) if groups else 1,
        width=VECTOR if wide and total >= VECTOR else 1,
    )
    numbers = [number for size in dims.sizes[1:] for number in divisor(size)] if groups else []
    for start, steps in groups:
        numbers += [start, *steps]
    threads = -(-total // form.width)
    calls.launch(codegen.made(form), -(-threads // THREADS), THREADS, *arrays, total, *numbers)
    return True


def _in_vectors(array: Any, access: Access, steps: Sequence[int], start: int) -> bool:
    """May a thread take four neighbouring elements: float32 from aligned memory at once, anything else one by one."""
    if array.dtype.name != "float32" or access == SINGLE:
        return True
    if isinstance(access, Strided) and access.inner != 1:
        return True
    outer = steps[:-1] if isinstance(access, Strided) else ()
    return array.pointer % _ALIGNED == 0 and start % VECTOR == 0 and all(step % VECTOR == 0 for step in outer)


# --- ops ----------------------------------------------------------------------------------------------


def _binder(name: str) -> Callable[..., bool]:
    def bind(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        count = len(inputs)
        return launch(calls, [(name, tuple(range(count)))], inputs, outputs, [count])

    bind.__name__ = bind.__qualname__ = name
    return bind


def __getattr__(name: str) -> Callable[..., bool]:
    """The binder of an op that is one expression, by its name."""
    if any(name in table for table in TABLES):
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


def leaky_relu(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, negative_slope: float) -> bool:
    slope = np.array(negative_slope, np.float64 if inputs[0].dtype.name == "float64" else np.float32)
    return launch(calls, [("leaky_relu", (0, 1))], [inputs[0], slope], outputs, [2])


def fused(
    calls: Any, inputs: Sequence[Array], outputs: Sequence[Any], *, body: Sequence[Step], kept: Sequence[int]
) -> bool:
    """A group of steps in one pass (see `minigrad.compile.fusion`); inputs may be numpy numbers."""
    steps = [("cast:float32" if name == "cast" else name, operands) for name, operands in body]
    return launch(calls, steps, inputs, outputs, kept)


def copy(calls: Any, target: Any, source: Any) -> None:
    """Append the launches that copy `source`, broadcast, to `target`; of one dtype, and of any strides.

    Arrays too large to be counted in 32 bits are copied in parts.
    """
    word = WORDS[target.itemsize]
    if not launch(calls, (), [source.view(word)], [target.view(word)], [0]):
        cut = next(d for d, size in enumerate(target.shape) if size > 1)
        half = target.shape[cut] // 2
        for part in (slice(None, half), slice(half, None)):
            index = (slice(None),) * cut + (part,)
            copy(calls, target[index], source[index])


def fill(calls: Any, target: Any, value: float) -> None:
    """Append the launch that sets every element of `target`."""
    if not launch(calls, (), [np.array(value, target.dtype)], [target], [0]):
        raise ValueError(f"{target!r} is too large to be filled")


def flip(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dims: Sequence[int]) -> bool:
    """Read backwards: from the last element on, by negative strides."""
    (x,), (y,) = inputs, outputs
    if not y.size:
        return True
    steps = element_strides(x)
    start = sum((x.shape[d] - 1) * steps[d] for d in dims)
    back = [-step if d in dims else step for d, step in enumerate(steps)]
    x, y = x.view(WORDS[x.itemsize]), y.view(WORDS[y.itemsize])
    return _launch(calls, (), [x], [y], [0], [y, x], x.shape, [element_strides(y), back], [0, start])
