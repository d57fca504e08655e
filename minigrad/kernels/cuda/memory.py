"""Device memory: arrays that look like numpy's without their values, and the allocator that keeps freed memory.

A `DeviceArray` has shape, strides (bytes) and dtype as numpy has them, so that the engine's views work on both. The
allocator takes large segments from the driver and cuts blocks from them. A block that is freed is used again at once:
all work is on one stream, so that a later kernel cannot overtake an earlier one's reads.
"""

from __future__ import annotations

import math
import sys
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels.cuda.driver import OutOfMemory

ALIGN = 512  # bytes: blocks begin and end at multiples of it
SEGMENT = 2 << 20  # the least that the driver is asked for; larger requests are rounded up to a multiple


class Flags(NamedTuple):
    """What numpy's `flags` says that the engine asks for."""

    c_contiguous: bool
    writeable: bool


class Memory:
    """A piece of device memory; `release` is called with it when nobody refers to it any more."""

    __slots__ = ("__weakref__", "address", "nbytes", "release", "runtime")

    def __init__(self, address: int, nbytes: int, runtime: Any, release: Callable[[Memory], None]) -> None:
        self.address = address
        self.nbytes = nbytes
        self.runtime = runtime
        self.release = release

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # at the interpreter's end the driver takes everything back by itself
            self.release(self)


class _Address:
    """What numpy needs to lay a view over an address that it must not read."""

    __slots__ = ("__array_interface__",)

    def __init__(self, array: DeviceArray) -> None:
        self.__array_interface__ = {
            "data": (array.pointer, not array.writeable),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.itemsize}",
            "version": 3,
        }


@cache
def name_of(dtype: np.dtype) -> str:
    """numpy's name of a dtype, which numpy puts together anew whenever it is asked."""
    return dtype.name


class DeviceArray:
    """An array on the device: shape, strides and dtype as numpy has them; values are reached by kernels only.

    memory keeps the bytes alive; pointer is the address of element 0. Indexing with slices, integers and None,
    `reshape` and `transpose` give views.
    """

    __slots__ = (
        "__weakref__",
        "dtype",
        "is_contiguous",
        "itemsize",
        "memory",
        "ndim",
        "pointer",
        "shape",
        "size",
        "strides",
        "writeable",
    )
    __array_ufunc__ = None  # numpy must not compute with it

    def __init__(
        self,
        memory: Memory,
        pointer: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...] | None = None,
        writeable: bool = True,
    ) -> None:
        self.memory = memory
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.itemsize = dtype.itemsize
        self.ndim = len(shape)
        self.size = math.prod(shape)
        dense = dense_strides(shape, dtype.itemsize)
        self.strides = dense if strides is None else strides
        self.is_contiguous = strides is None or _dense(shape, self.strides, dense)
        self.writeable = writeable

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def extent(self) -> int:
        """The bytes from the first element to the end of the last one (strides are never negative)."""
        if not self.size:
            return 0
        return sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)) + self.itemsize

    @property
    def flags(self) -> Flags:
        return Flags(self.is_contiguous, self.writeable)

    @property
    def runtime(self) -> Any:
        return self.memory.runtime

    @property
    def base(self) -> Memory | None:
        """None for an array that may be kept as it is; its memory where it is a view that must not be written."""
        return None if self.writeable else self.memory

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("the values of a tensor on 'cuda' are not on the host: call .cpu() first")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype.name}{list(self.shape)} at {self.pointer:#x})"

    # --- views --------------------------------------------------------------------------------------

    def through(self, function: Callable[[np.ndarray], np.ndarray]) -> DeviceArray:
        """The view that `function` gives of a numpy array laid out like this one; it may move, not read.

        Raises ValueError where the result does not lie in this array's memory (numpy made a copy).
        """
        hollow = np.asarray(_Address(self))
        view = function(hollow)
        pointer = view.__array_interface__["data"][0]
        end = self.memory.address + self.memory.nbytes
        if view.size and not self.memory.address <= pointer < end:
            raise ValueError(f"a view of {self!r} left its memory")
        return DeviceArray(
            self.memory, pointer if view.size else self.pointer, view.shape, self.dtype, view.strides,
            self.writeable and view.flags.writeable,
        )  # fmt: skip

    def __getitem__(self, index: Any) -> DeviceArray:
        return self.through(lambda x: x[(*index, ...)] if isinstance(index, tuple) else x[index, ...])

    def reshape(self, *shape: Any) -> DeviceArray:
        """The same elements in row-major order in another shape. Raises ValueError where that needs a copy."""
        return self.through(lambda x: np.reshape(x, shape[0] if len(shape) == 1 else shape, copy=False))

    def transpose(self, *dims: Any) -> DeviceArray:
        return self.through(lambda x: x.transpose(*dims))

    def window(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> DeviceArray:
        """Any layout inside the same memory; strides and offset in bytes."""
        return DeviceArray(self.memory, self.pointer + offset, shape, self.dtype, strides, self.writeable)

    def read_only(self) -> DeviceArray:
        """The same array, not to be changed."""
        return DeviceArray(self.memory, self.pointer, self.shape, self.dtype, self.strides, False)

    def view(self, dtype: np.dtype) -> DeviceArray:
        """The same bytes read as another dtype of the same size."""
        assert dtype.itemsize == self.itemsize
        return DeviceArray(self.memory, self.pointer, self.shape, dtype, self.strides, self.writeable)

    # --- copies -------------------------------------------------------------------------------------

    def copy(self) -> DeviceArray:
        """A contiguous copy on the device."""
        made = self.memory.runtime.empty(self.shape, self.dtype)
        self.memory.runtime.copy(made, self)
        return made

    def numpy(self) -> np.ndarray:
        """The values on the host; waits for the device."""
        return self.memory.runtime.download(self)

    def item(self) -> Any:
        return self.numpy().item()


def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of a contiguous array in bytes."""
    strides = [itemsize] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def _dense(shape: tuple[int, ...], strides: tuple[int, ...], dense: tuple[int, ...]) -> bool:
    return 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, strides, dense, strict=True))


# --- the allocator ------------------------------------------------------------------------------------


@dataclass
class Block:
    """A piece of a segment, in a list of neighbours."""

    address: int
    nbytes: int
    free: bool = True
    before: Block | None = None
    after: Block | None = None


@dataclass
class Statistics:
    """Bytes in use and taken from the driver, now and at most; how often the driver was asked."""

    in_use: int = 0
    peak: int = 0
    held: int = 0
    held_peak: int = 0
    driver_allocations: int = 0
    driver_frees: int = 0


class Allocator:
    """Blocks of device memory: the smallest free one that is large enough, cut to size, joined again when freed."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.driver = runtime.driver
        self.statistics = Statistics()
        self._free: list[tuple[int, int]] = []  # (bytes, address), sorted
        self._blocks: dict[int, Block] = {}  # by address
        self._lock = threading.Lock()
        self._returned: deque[int] = deque()  # given back by a destructor, which may run in the middle of anything

    def allocate(self, nbytes: int) -> Memory:
        """At least `nbytes` bytes. Raises OutOfMemory when neither the kept memory nor the driver has them."""
        size = max(-(-nbytes // ALIGN), 1) * ALIGN
        with self._lock:
            self._collect()
            block = self._take(size) or self._grow(size, nbytes)
            if block.nbytes > size:
                rest = Block(block.address + size, block.nbytes - size, True, block, block.after)
                if block.after is not None:
                    block.after.before = rest
                block.after, block.nbytes = rest, size
                self._blocks[rest.address] = rest
                insort(self._free, (rest.nbytes, rest.address))
            block.free = False
            found = self.statistics
            found.in_use += size
            found.peak = max(found.peak, found.in_use)
        return Memory(block.address, nbytes, self.runtime, self._release)

    def _take(self, size: int) -> Block | None:
        at = bisect_left(self._free, (size, 0))
        return self._blocks[self._free.pop(at)[1]] if at < len(self._free) else None

    def _grow(self, size: int, wanted: int) -> Block:
        """A new segment from the driver; all that is kept unused is given back first if it has none left."""
        segment = -(-size // SEGMENT) * SEGMENT
        try:
            address = self.driver.allocate(segment)
        except OutOfMemory:
            self._give_back()
            try:
                address = self.driver.allocate(segment)
            except OutOfMemory:
                free, total = self.driver.memory()
                raise OutOfMemory(
                    f"the GPU has no memory left for {_size(wanted)}: minigrad uses {_size(self.statistics.in_use)}, "
                    f"{_size(free)} of {_size(total)} are free; use a smaller batch, or compute on 'cpu'"
                ) from None
        block = self._blocks[address] = Block(address, segment)
        found = self.statistics
        found.driver_allocations += 1
        found.held += segment
        found.held_peak = max(found.held_peak, found.held)
        return block

    def _release(self, memory: Memory) -> None:
        self._returned.append(memory.address)
        if self._lock.acquire(blocking=False):  # else its holder, or the next one, collects
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        """Make blocks that were given back free again, joined with free neighbours."""
        while self._returned:
            block = self._blocks[self._returned.popleft()]
            self.statistics.in_use -= block.nbytes
            block.free = True
            for first, second in ((block, block.after), (block.before, block)):
                if first is not None and second is not None and first.free and second.free:
                    block = self._join(first, second, block)
            insort(self._free, (block.nbytes, block.address))

    def _join(self, first: Block, second: Block, new: Block) -> Block:
        """Two free neighbours as one; the one that is not `new` leaves the list of free ones."""
        other = second if first is new else first
        self._free.remove((other.nbytes, other.address))
        del self._blocks[second.address]
        first.nbytes += second.nbytes
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        return first

    def empty_cache(self) -> None:
        """Give every segment that is entirely unused back to the driver."""
        with self._lock:
            self._collect()
            self._give_back()

    def _give_back(self) -> None:
        for nbytes, address in list(self._free):
            block = self._blocks[address]
            if block.before is None and block.after is None:
                self._free.remove((nbytes, address))
                del self._blocks[address]
                self.driver.free(address)
                self.statistics.held -= nbytes
                self.statistics.driver_frees += 1

    def reset_peak(self) -> None:
        self.statistics.peak = self.statistics.in_use
        self.statistics.held_peak = self.statistics.held


def _size(nbytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} bytes"
