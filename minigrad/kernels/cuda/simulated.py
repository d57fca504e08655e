"""A driver without a GPU: memory is the host's, kernels run in the SIMT simulator, and failures can be ordered.

With MINIGRAD_CUDA=simulate (or `runtime.use(SimulatedDriver())` in a test) the whole engine computes on `device="cuda"`
this way: every launch, copy and graph as on a GPU, thousands of times slower. Memory is poisoned (NaN) when it is
handed out by the driver, a kernel sees no byte beyond its arguments' arrays, and every call is counted.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.kernels.cuda.driver import OutOfMemory, Pointer
from minigrad.kernels.cuda.language import Kernel
from minigrad.kernels.cuda.memory import ALIGN


class SimulatedDriver:
    """The face of `driver.Driver` over host memory.

    seed     order of threads in the simulator, and
    races    whether it watches for races (see `minigrad.simt.Simulator`)
    memory   bytes of the device
    counts   how often each call was made: "allocate", "launch", "copy", "synchronize", "launch_graph", ...
    """

    name = "simulated"
    version = 13000
    dlpack_device = (1, 0)  # host memory: other libraries may read it as such
    capability = (9, 0)
    processors = 4
    stream = 1

    def __init__(self, seed: int | None = None, memory: int = 1 << 30, races: bool = False) -> None:
        self.seed = seed
        self.races = races
        self.total = memory
        self.counts: Counter[str] = Counter()
        self.segments: dict[int, np.ndarray] = {}
        self.captured: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None

    # --- memory -------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        self._outside_capture("allocate")
        free, _ = self.memory()
        if nbytes > free:
            raise OutOfMemory("allocate: the device has no memory left")
        block = np.full(nbytes + ALIGN, 0xFF, np.uint8)
        start = -block.ctypes.data % ALIGN
        segment = block[start : start + nbytes]
        self.segments[segment.ctypes.data] = segment
        return segment.ctypes.data

    def free(self, address: int) -> None:
        self._outside_capture("free")
        del self.segments[address]

    def memory(self) -> tuple[int, int]:
        return self.total - sum(segment.nbytes for segment in self.segments.values()), self.total

    def host_words(self, count: int) -> tuple[int, np.ndarray]:
        self._outside_capture("host_words")
        words = np.zeros(count, np.int64)
        return words.ctypes.data, words

    def _bytes(self, address: int, nbytes: int) -> np.ndarray:
        """The host memory behind a range of device memory, which must lie in one segment."""
        for start, segment in self.segments.items():
            if start <= address and address + nbytes <= start + segment.nbytes:
                return segment[address - start : address - start + nbytes]
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))  # of the host, or imported

    def upload(self, address: int, array: np.ndarray) -> None:
        self._outside_capture("upload")
        self._bytes(address, array.nbytes)[...] = array.reshape(-1).view(np.uint8)

    def download(self, array: np.ndarray, address: int) -> None:
        self._outside_capture("download")
        self.counts["synchronize"] += 1
        array.reshape(-1).view(np.uint8)[...] = self._bytes(address, array.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._do("copy", self._copy, target, source, nbytes)

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        if abs(target - source) < nbytes:
            raise RuntimeError("a copy's source and target share memory: what a driver makes of that is not defined")
        self._bytes(target, nbytes)[...] = self._bytes(source, nbytes)

    # --- kernels ------------------------------------------------------------------------------------

    def function(self, kernel: Kernel) -> Kernel:
        self.counts["function"] += 1
        return kernel

    def pack(self, types: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
        """Pointers as flat arrays of exactly the bytes that belong to the argument, numbers as numpy scalars."""
        packed: list[Any] = []
        for kind, value in zip(types, values, strict=True):
            if type(value) is Pointer:
                dtype = np.dtype(kind.removesuffix("*"))
                packed.append(self._bytes(value.address, value.nbytes).view(dtype))
            else:  # records are tuples of Python's integers, as the rest of a kernel's index arithmetic
                packed.append(value if isinstance(value, tuple) else np.dtype(kind).type(value))
        return tuple(packed)

    def launch(self, function: Kernel, grid: tuple[int, ...], block: tuple[int, ...], shared: int, packed: Any) -> None:
        self._do("launch", self._launch, function, grid, block, shared, packed)

    def _launch(self, kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], shared: int, packed: Any) -> None:
        from minigrad.simt import Simulator

        Simulator(self.seed, self.races).launch(kernel.function, grid, block, packed, shared)

    # --- graphs -------------------------------------------------------------------------------------

    def _do(self, name: str, call: Callable[..., None], *arguments: Any) -> None:
        if self.captured is None:
            self.counts[name] += 1
            call(*arguments)
        else:
            self.captured.append((call, arguments))

    def _outside_capture(self, name: str) -> None:
        self.counts[name] += 1
        if self.captured is not None:
            raise RuntimeError(f"{name} was called while a graph is captured: a driver refuses that")

    def begin_capture(self) -> None:
        self._outside_capture("begin_capture")
        self.captured = []

    def end_capture(self) -> list[Any]:
        assert self.captured is not None
        graph, self.captured = self.captured, None
        return graph

    def launch_graph(self, graph: list[Any]) -> None:
        self.counts["launch_graph"] += 1
        for call, arguments in graph:
            call(*arguments)

    def free_graph(self, graph: list[Any]) -> None:
        self.counts["free_graph"] += 1

    # --- time and order -----------------------------------------------------------------------------

    def synchronize(self) -> None:
        self._outside_capture("synchronize")

    def record(self) -> float:
        return time.perf_counter()

    def elapsed(self, start: float, stop: float) -> float:
        return 1e3 * (stop - start)

    def follow(self, stream: int) -> None:
        self.counts["follow"] += 1

    def lead(self, stream: int) -> None:
        self.counts["lead"] += 1
