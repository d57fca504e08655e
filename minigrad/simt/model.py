"""What stands for `cuda` and `math` inside of a simulated kernel: the programming model, by numba's names."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minigrad.simt.memory import Memory, WatchedMemory, poison

if TYPE_CHECKING:
    from minigrad.simt.simulator import Launch

WARP = 32


class Dim3(NamedTuple):
    """Position or extent in three dimensions."""

    x: int
    y: int
    z: int


class Site(NamedTuple):
    """Where threads meet: what they do, with which mask, and on which line."""

    kind: str
    mask: int
    line: str


def as_dtype(dtype: Any) -> np.dtype:
    """The numpy dtype of a dtype, a numpy scalar type, or a numba type."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return np.dtype(str(dtype))


def poisoned_like(value: Any) -> Any:
    """What a lane gets that reads from one that takes no part."""
    dtype = np.asarray(value).dtype
    return poison(1, dtype)[0]


class Cuda:
    """The object that a simulated kernel knows as `cuda`."""

    warpsize = WARP

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.shared, self.local, self.atomic = Shared(launch), Local(), Atomic()
        self.gridDim, self.blockDim = launch.grid, launch.block

    @property
    def threadIdx(self) -> Dim3:
        return self._launch.running.position

    @property
    def blockIdx(self) -> Dim3:
        return self._launch.block_position

    @property
    def laneid(self) -> int:
        return self._launch.running.lane

    def grid(self, ndim: int) -> Any:
        """The thread's position in the whole grid: an integer, or a tuple of 2 or 3."""
        block, size, thread = self.blockIdx, self.blockDim, self.threadIdx
        position = tuple(b * s + t for b, s, t in zip(block, size, thread, strict=True))[:ndim]
        return position[0] if ndim == 1 else position

    def gridsize(self, ndim: int) -> Any:
        """The number of threads in the whole grid."""
        size = tuple(g * b for g, b in zip(self.gridDim, self.blockDim, strict=True))[:ndim]
        return size[0] if ndim == 1 else size

    # --- the block meets -------------------------------------------------------------------------------

    def _block(self, kind: str, value: Any = None) -> Any:
        return self._launch.meet(Site(kind, 0, line_of(sys._getframe(2))), value)

    def syncthreads(self) -> None:
        self._block("syncthreads")

    def syncthreads_count(self, predicate: Any) -> int:
        return self._block("syncthreads_count", bool(predicate))

    def syncthreads_and(self, predicate: Any) -> int:
        return self._block("syncthreads_and", bool(predicate))

    def syncthreads_or(self, predicate: Any) -> int:
        return self._block("syncthreads_or", bool(predicate))

    # --- the warp meets --------------------------------------------------------------------------------

    def _warp(self, kind: str, mask: int, value: Any = None) -> Any:
        return self._launch.meet(Site(kind, int(mask) & 0xFFFFFFFF, line_of(sys._getframe(2))), value)

    def syncwarp(self, mask: int = 0xFFFFFFFF) -> None:
        self._warp("syncwarp", mask)

    def shfl_sync(self, mask: int, value: Any, lane: int) -> Any:
        return self._warp("shfl_sync", mask, (value, int(lane) % WARP))

    def shfl_xor_sync(self, mask: int, value: Any, lane_mask: int) -> Any:
        return self._warp("shfl_xor_sync", mask, (value, self.laneid ^ int(lane_mask)))

    def shfl_up_sync(self, mask: int, value: Any, delta: int) -> Any:
        lane = self.laneid - int(delta)
        return self._warp("shfl_up_sync", mask, (value, lane if lane >= 0 else self.laneid))

    def shfl_down_sync(self, mask: int, value: Any, delta: int) -> Any:
        lane = self.laneid + int(delta)
        return self._warp("shfl_down_sync", mask, (value, lane if lane < WARP else self.laneid))

    def all_sync(self, mask: int, predicate: Any) -> bool:
        return self._warp("all_sync", mask, bool(predicate))

    def any_sync(self, mask: int, predicate: Any) -> bool:
        return self._warp("any_sync", mask, bool(predicate))

    def eq_sync(self, mask: int, predicate: Any) -> bool:
        return self._warp("eq_sync", mask, bool(predicate))

    def ballot_sync(self, mask: int, predicate: Any) -> int:
        return self._warp("ballot_sync", mask, bool(predicate))

    # --- fences order nothing more here: the simulator runs one thread at a time ------------------------

    def threadfence(self) -> None: ...

    def threadfence_block(self) -> None: ...

    def threadfence_system(self) -> None: ...

    # --- bits and numbers ------------------------------------------------------------------------------

    @staticmethod
    def popc(x: Any) -> int:
        return (int(x) & 0xFFFFFFFF).bit_count()

    @staticmethod
    def clz(x: Any) -> int:
        return 32 - (int(x) & 0xFFFFFFFF).bit_length()

    @staticmethod
    def ffs(x: Any) -> int:
        return (int(x) & -int(x)).bit_length()

    @staticmethod
    def brev(x: Any) -> int:
        return int(f"{int(x) & 0xFFFFFFFF:032b}"[::-1], 2)

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        """Rounded once, as the hardware does (through float64, exact for float32 up to a double rounding)."""
        return type(a)(float(a) * float(b) + float(c))

    @staticmethod
    def selp(condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b


class Shared:
    """`cuda.shared`: one array a call site and block, poisoned; shape 0 is the launch's dynamic memory."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Memory:
        return self._launch.shared_array(shape, as_dtype(dtype))


class Local:
    """`cuda.local`: a thread's own array, poisoned."""

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Memory:
        return Memory(poison(shape, as_dtype(dtype)), "a local array")


class Atomic:
    """`cuda.atomic`: read, change and write one element; the old value comes back."""

    @staticmethod
    def _change(memory: Memory, index: Any, new: Callable[[Any], Any]) -> Any:
        if isinstance(memory, WatchedMemory):
            memory.report(index, True, atomic=True)
        else:
            memory.check(index)
        old = memory.array[index]
        memory.array[index] = new(old)
        return old

    def add(self, memory: Memory, index: Any, value: Any) -> Any:
        return self._change(memory, index, lambda old: old + memory.dtype.type(value))

    def sub(self, memory: Memory, index: Any, value: Any) -> Any:
        return self._change(memory, index, lambda old: old - memory.dtype.type(value))

    def max(self, memory: Memory, index: Any, value: Any) -> Any:
        return self._change(memory, index, lambda old: max(old, value))

    def min(self, memory: Memory, index: Any, value: Any) -> Any:
        return self._change(memory, index, lambda old: min(old, value))

    def and_(self, memory: Memory, index: Any, value: Any) -> Any:
        return self._change(memory, index, lambda old: old & value)

    def or_(self, memory: Memory, index: Any, value: Any) -> Any:
        return self._change(memory, index, lambda old: old | value)

    def exch(self, memory: Memory, index: Any, value: Any) -> Any:
        return self._change(memory, index, lambda old: value)

    def cas(self, memory: Memory, index: Any, old: Any, value: Any) -> Any:
        return self._change(memory, index, lambda now: value if now == old else now)


def line_of(frame: Any) -> str:
    """ "function:line" of a frame."""
    return f"{frame.f_code.co_name}:{frame.f_lineno}"


class Math:
    """What stands for the module `math`: float32 in, float32 out; infinities and NaN instead of errors."""

    pi, e, tau, inf, nan = np.pi, np.e, 2 * np.pi, np.inf, np.nan

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, {"pow": "power"}.get(name, name), None)
        if not isinstance(function, np.ufunc):  # erf, lgamma and the like, which numpy lacks
            function = getattr(math, name)

        def call(*values: Any) -> Any:
            result = function(*values)
            return np.float32(result) if type(result) is float and isinstance(values[0], np.float32) else result

        setattr(self, name, call)
        return call
