"""What a kernel's binder hands over on the device: launches and copies on given arrays, run now or captured in a graph.

A binder is a function `kernel(calls, inputs, outputs, **attributes) -> bool` over DeviceArrays. It appends calls that
fill `outputs` from `inputs` and returns True, or returns False to decline. It launches nothing, waits for nothing and
looks at no values. Memory that it asks for stays alive as long as the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from minigrad.kernels.cuda.driver import Pointer
from minigrad.kernels.cuda.language import RECORDS, Kernel
from minigrad.kernels.cuda.memory import DeviceArray


class DeviceCalls(list[tuple[Callable[..., Any], tuple[Any, ...]]]):
    """Bound calls in order: (function, arguments)."""

    def __init__(self, runtime: Any) -> None:
        super().__init__()
        self.runtime = runtime
        self.kept: list[Any] = []

    def launch(
        self, kernel: Kernel, grid: int | tuple[int, ...], block: int | tuple[int, ...], *args: Any, shared: int = 0
    ) -> None:
        """A launch of `kernel`: DeviceArrays become pointers, Python numbers what the signature says.

        Raises TypeError for arguments that do not fit the signature. A grid without blocks launches nothing.
        """
        if len(args) != len(kernel.signature):
            raise TypeError(f"{kernel!r} was given {len(args)} arguments")
        sizes, threads = _three(grid), _three(block)
        if 0 in sizes:
            return
        values: list[Any] = []
        for wanted, value in zip(kernel.signature, args, strict=True):
            if wanted == "int32" and type(value) is int and -(2**31) <= value < 2**31:  # most of them
                values.append(value)
                continue
            if wanted in RECORDS:
                values.append(_checked(kernel, wanted, value))
                continue
            if wanted.endswith("*") != isinstance(value, DeviceArray):
                raise TypeError(f"{kernel!r} was given {value!r} for {wanted}")
            if isinstance(value, DeviceArray):
                if value.itemsize != _item_size(wanted):
                    raise TypeError(f"{kernel!r} was given {value!r} for {wanted}")
                self.kept.append(value.memory)
                values.append(Pointer(value.pointer, value.extent))
            else:
                values.append(_checked(kernel, wanted, value))
        packed = self.runtime.driver.pack(kernel.signature, values)
        self.append((self.runtime.driver.launch, (self.runtime.function(kernel), sizes, threads, shared, packed)))

    def scratch(self, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """Memory for intermediate values, of arbitrary content."""
        made = self.runtime.empty(tuple(shape), dtype)
        self.kept.append(made.memory)
        return made

    def contiguous(self, array: DeviceArray) -> DeviceArray:
        """`array` itself, or memory that a call before the kernel's copies it to."""
        if array.is_contiguous:
            return array
        dense = self.scratch(array.shape, array.dtype)
        self.copy(dense, array)
        return dense

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:  # type: ignore[override]  # a list's is not needed
        """Copy; both have one shape and one dtype, and any strides."""
        if target.shape != source.shape or target.dtype != source.dtype:
            raise TypeError(f"a copy of {source!r} does not fit {target!r}")
        source = self.apart(source, target)
        if not target.size or same_place(source, target):
            return
        self.kept += (target.memory, source.memory)
        if target.is_contiguous and source.is_contiguous:
            self.append((self.runtime.driver.copy, (target.pointer, source.pointer, target.nbytes)))
            return
        from minigrad.kernels.cuda.elementwise import copy

        copy(self, target, source)

    def apart(self, source: DeviceArray, target: DeviceArray) -> DeviceArray:
        """`source`, or a copy where it meets `target` in memory: threads would read what others wrote already."""
        meets = source.pointer < target.pointer + target.extent and target.pointer < source.pointer + source.extent
        if not meets or same_place(source, target):
            return source
        dense = self.scratch(source.shape, source.dtype)
        self.copy(dense, source)
        return dense

    def host(
        self, function: Callable[..., Sequence[np.ndarray]], inputs: Sequence[DeviceArray], outputs: Sequence[Any]
    ) -> None:
        """`function` on the host: inputs are copied there, results back. Waits for the device; cannot be captured."""
        self.kept += [array.memory for array in (*inputs, *outputs)]
        self.append((on_host, (self.runtime, function, tuple(inputs), tuple(outputs))))

    def run(self) -> None:
        for function, arguments in self:
            function(*arguments)


def same_place(a: DeviceArray, b: DeviceArray) -> bool:
    """Do the elements of both lie at the same addresses, in the same order?"""
    return (a.pointer, a.shape, a.strides) == (b.pointer, b.shape, b.strides)


def _checked(kernel: Kernel, wanted: str, value: Any) -> Any:
    """`value`, a number or a record of them. Raises TypeError for another record, OverflowError beyond int32."""
    if wanted in RECORDS and type(value) is not RECORDS[wanted]:
        raise TypeError(f"{kernel!r} was given {value!r} for {wanted}")
    numbers = value if wanted in RECORDS else (value,) if wanted == "int32" else ()
    if not all(-(2**31) <= number < 2**31 for number in numbers):
        raise OverflowError(f"{kernel!r} was given {value}, which does not fit {wanted}")
    return value


def on_host(
    runtime: Any,
    function: Callable[..., Sequence[np.ndarray]],
    inputs: Sequence[DeviceArray],
    outputs: Sequence[DeviceArray],
) -> None:
    """Copy to the host, compute, copy back."""
    values = function(*[runtime.download(array) for array in inputs])
    for output, value in zip(outputs, values, strict=True):
        host = np.asarray(value, output.dtype)
        if output.is_contiguous:
            runtime.fill(output, host)
        else:
            runtime.copy(output, runtime.upload(host))


@cache
def _item_size(pointer: str) -> int:
    """The bytes of an element behind a pointer, such as "float32*"."""
    return np.dtype(pointer[:-1]).itemsize


def _three(sizes: int | tuple[int, ...]) -> tuple[int, ...]:
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return (*given, *(1,) * (3 - len(given)))
