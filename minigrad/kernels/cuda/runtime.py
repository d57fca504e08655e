"""The device as the engine sees it: one driver, its memory, loaded kernels, and moving values there and back.

`runtime()` starts the device on first use (never at import: a process that forks before it is fine), or raises
CudaError. `use(driver)` puts another driver in its place: the simulated one, or a fake of the tests.
With MINIGRAD_CUDA=simulate in the environment the first use starts the simulated driver.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigrad.kernels.cuda.driver import CudaError, Driver
from minigrad.kernels.cuda.faults import Faults
from minigrad.kernels.cuda.language import Kernel
from minigrad.kernels.cuda.memory import Allocator, DeviceArray, Memory

LITERALS = 4096  # numbers kept on the device


class Runtime:
    """A driver with an allocator, the kernels that it has loaded, and numbers that programs wrote.

    host_ops counts, by name, the ops that were computed on the host for want of a kernel.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.process = os.getpid()
        self.allocator = Allocator(self)
        self.faults = Faults(self)
        self.host_ops: dict[str, int] = {}
        self._functions: dict[Kernel, Any] = {}
        self._literals: OrderedDict[tuple[Any, ...], DeviceArray] = OrderedDict()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """Memory of arbitrary content."""
        dtype = np.dtype(dtype)
        memory = self.allocator.allocate(math.prod(shape) * dtype.itemsize)
        return DeviceArray(memory, memory.address, tuple(shape), dtype)

    def full(self, shape: tuple[int, ...], value: np.ndarray) -> DeviceArray:
        """A number everywhere."""
        made = self.empty(shape, value.dtype)
        self.copy(made, self.literal(value).through(lambda x: np.broadcast_to(x, shape)))
        return made

    def upload(self, array: np.ndarray) -> DeviceArray:
        """A copy on the device of a host array; does not wait."""
        made = self.empty(array.shape, array.dtype)
        self.fill(made, array)
        return made

    def fill(self, target: DeviceArray, array: np.ndarray) -> None:
        """Copy a host array of the same shape and dtype into contiguous device memory."""
        assert target.is_contiguous
        if array.size:
            self.driver.upload(target.pointer, np.ascontiguousarray(array))

    def download(self, array: DeviceArray) -> np.ndarray:
        """A copy on the host; waits for the device. Raises what kernels noted until then (`Faults`)."""
        source = array if array.is_contiguous else array.copy()
        made = np.empty(array.shape, array.dtype)
        if array.size:
            self.driver.download(made, source.pointer)
            self.faults.check()
        else:
            self.synchronize()
        return made

    def synchronize(self) -> None:
        """Wait until the device has done all that was launched. Raises what kernels noted until then (`Faults`)."""
        self.driver.synchronize()
        self.faults.check()

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Copy on the device; both have one shape and one dtype, and any strides."""
        from minigrad.kernels.cuda.calls import DeviceCalls

        calls = DeviceCalls(self)
        calls.copy(target, source)
        calls.run()

    def literal(self, value: np.ndarray) -> DeviceArray:
        """A host scalar, or a few numbers, on the device; uploaded once, kept for the next use of the same."""
        key = (value.dtype, value.shape, value.tobytes())
        found = self._literals.get(key)
        if found is None:
            found = self._literals[key] = self.upload(value)
            found.writeable = False
            if len(self._literals) > LITERALS:
                self._literals.popitem(last=False)
        else:
            self._literals.move_to_end(key)
        return found

    def function(self, kernel: Kernel) -> Any:
        """`kernel` loaded on the device."""
        found = self._functions.get(kernel)
        if found is None:
            found = self._functions[kernel] = self.driver.function(kernel)
        return found

    def foreign(self, address: int, nbytes: int, owner: Any) -> Memory:
        """Memory of another library; `owner` lives as long as it is used here."""
        return Memory(address, nbytes, self, lambda _, owner=owner: None)  # type: ignore[misc]


_runtime: Runtime | None = None


def runtime() -> Runtime:
    """The device. Raises CudaError where there is none, and in a process forked from one that had started it."""
    global _runtime
    if _runtime is None:
        _runtime = Runtime(_driver())
    elif _runtime.process != os.getpid():
        raise CudaError(
            "CUDA was started before this process was forked, and a driver does not survive that: "
            'start workers with the "spawn" method, or use device "cuda" in them only'
        )
    return _runtime


def _driver() -> Any:
    if os.environ.get("MINIGRAD_CUDA") == "simulate":
        from minigrad.kernels.cuda.simulated import SimulatedDriver

        return SimulatedDriver()
    return Driver()


@contextmanager
def use(driver: Any) -> Iterator[Runtime]:
    """`driver` is the device inside; what it holds is forgotten afterwards."""
    global _runtime
    before, _runtime = _runtime, Runtime(driver)
    try:
        yield _runtime
    finally:
        _runtime = before
