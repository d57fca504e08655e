"""The scheduler: every CUDA thread is a greenlet that runs until it has to meet others."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from minigrad.simt.clone import clone
from minigrad.simt.errors import DeadlockError, DivergenceError, SimulationError
from minigrad.simt.memory import Memory, Races, WatchedMemory, poison
from minigrad.simt.model import WARP, Cuda, Dim3, Math, Site, line_of, poisoned_like

_BLOCK = "syncthreads"  # what meetings of a whole block begin with


class Thread(greenlet):
    """One CUDA thread after the other: to make a greenlet costs forty times as much as to switch to one.

    `state` belongs to emulations that remember something (pending copies, say).
    """

    def begin(self, function: FunctionType, args: Sequence[Any], number: int, position: Dim3, block: int) -> None:
        """Be the thread at `position` of block number `block`; it runs when it is next switched to."""
        self.function, self.args = function, args
        self.position, self.block = position, block
        self.warp, self.lane = divmod(number, WARP)
        self.parent = getcurrent()
        self.state: dict[str, Any] = {}
        self.site: Site | None = None  # where it waits
        self.value: Any = None  # what it brought there
        self.answer: Any = None  # what it takes away
        self.shared_arrays = 0  # how many it has asked for
        self.syncs = 0  # how often its warp has met at a syncwarp
        self.ended = False

    def run(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                self.function(*self.args)
                self.ended = True
                self.parent.switch()


_idle = threading.local()  # .threads: those whose kernels have ended, to be used again


def _threads(count: int) -> list[Thread]:
    waiting: list[Thread] = _idle.__dict__.setdefault("threads", [])
    taken = waiting[-count:]
    del waiting[-count:]
    return [*taken, *(Thread() for _ in range(count - len(taken)))]


def this_thread() -> Thread:
    """The simulated thread that runs now; for emulations. Raises RuntimeError outside of a launch."""
    current = getcurrent()
    if not isinstance(current, Thread):
        raise RuntimeError("no simulated thread is running: this_thread() is for emulations of intrinsics")
    return current


class Simulator:
    """Runs CUDA kernels written in Python, without a GPU. See `minigrad.simt`.

    seed    None: blocks, warps and threads run in ascending order; a number: in an order drawn from it, in which a warp
            may run far ahead of another
    races   watch every access to shared and global memory and raise RaceError where no barrier orders two of them
            (about five times slower)
    """

    def __init__(self, seed: int | None = None, races: bool = False) -> None:
        self.random = None if seed is None else random.Random(seed)
        self.races = races

    def launch(
        self,
        function: FunctionType,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        """Run `function` for every thread of `grid` x `block`; returns when all have ended.

        args: numpy arrays (memory: the kernel changes them) and scalars (float32 and int32 as numpy scalars or Python
        numbers). shared: bytes of dynamic shared memory. names: what other globals of the kernel mean.
        Raises SimulationError, or what the kernel raised, with a note of where.
        """
        Launch(self, function, _dim3(grid), _dim3(block), shared, names or {}).run(args)


class Launch:
    """One launch: the blocks one after the other, each with its threads."""

    def __init__(
        self,
        simulator: Simulator,
        function: FunctionType,
        grid: Dim3,
        block: Dim3,
        shared: int,
        names: Mapping[str, Any],
    ) -> None:
        if not 0 < math.prod(block) <= 1024:
            raise ValueError(f"a block has 1 to 1024 threads, {function.__name__} was launched with {tuple(block)}")
        if min(grid) < 1:
            raise ValueError(f"a grid has at least one block, {function.__name__} was launched with {tuple(grid)}")
        self.random, self.grid, self.block, self.dynamic_bytes = simulator.random, grid, block, shared
        self.races = Races() if simulator.races else None
        self.name = function.__name__
        self.block_position = Dim3(0, 0, 0)
        self.running: Thread = None  # type: ignore[assignment]  # set before any kernel code runs
        self.scheduler = getcurrent()
        known = {"cuda": Cuda(self), "math": Math(), **names}
        self.function = clone(function, lambda name, value: known[name] if name in known else self._stand_in(value))

    def _stand_in(self, value: Any) -> Any:
        """The emulation of an intrinsic, the Python function of a compiled one, else the value itself."""
        collective, single = getattr(value, "emulate", None), getattr(value, "emulate_thread", None)
        if collective is not None:
            name = getattr(value, "__name__", type(value).__name__)
            return lambda *args: self._collective(name, collective, args)
        if single is not None:
            return single
        return getattr(value, "py_func", value)

    # --- running ---------------------------------------------------------------------------------------

    def run(self, args: Sequence[Any]) -> None:
        seen = [self._argument(i, value) for i, value in enumerate(args)]
        blocks = [(x, y, z) for z in range(self.grid.z) for y in range(self.grid.y) for x in range(self.grid.x)]
        order = list(range(len(blocks)))
        if self.random is not None:
            self.random.shuffle(order)
        for number in order:
            self.block_position = Dim3(*blocks[number])
            try:
                self._run_block(seen, number)
            except Exception as error:
                where = f"kernel {self.name}, block {tuple(self.block_position)}"
                if self.running is not None and not isinstance(error, (DeadlockError, DivergenceError)):
                    where += f", thread {tuple(self.running.position)}{_line(error, self.function)}"
                if isinstance(error, SimulationError):
                    raise type(error)(f"{where}: {error}") from None
                error.add_note(where)
                raise

    def _argument(self, number: int, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        names = self.function.__code__.co_varnames
        return self._memory(
            value, names[number] if number < self.function.__code__.co_argcount else f"argument {number}"
        )

    def _memory(self, array: np.ndarray, name: str, shared: bool = False) -> Memory:
        races = self.races
        if races is None:
            return Memory(array, name)

        def touched(address: int, write: bool, atomic: bool, text: str) -> None:
            races.touch(self.running, address, write, atomic, shared, text)

        return WatchedMemory(array, name, touched)

    def _run_block(self, args: Sequence[Any], number: int) -> None:
        self.shared_arrays: list[Memory] = []
        self.dynamic = poison(self.dynamic_bytes, np.dtype(np.uint8))
        if self.races is not None:
            self.races.barrier()
        positions = [
            Dim3(x, y, z) for z in range(self.block.z) for y in range(self.block.y) for x in range(self.block.x)
        ]
        threads = _threads(len(positions))
        for i, (thread, position) in enumerate(zip(threads, positions, strict=True)):
            thread.begin(self.function, args, i, position, number)
        warps = [threads[i : i + WARP] for i in range(0, len(threads), WARP)]
        ready = list(warps)  # warps with threads that can go on
        while True:
            while ready:
                warp = ready.pop(0 if self.random is None else self.random.randrange(len(ready)))
                self._run_warp(warp)
                if self._resolve_warp(warp):
                    ready.append(warp)
            if all(thread.ended for thread in threads):
                _idle.threads += threads
                return
            self._resolve_block(threads)
            ready = [warp for warp in warps if any(not thread.ended for thread in warp)]

    def _run_warp(self, warp: list[Thread]) -> None:
        """Let every thread of the warp that waits for nothing run to where it waits, or to its end."""
        going = [thread for thread in warp if thread.site is None and not thread.ended]
        if self.random is not None:
            self.random.shuffle(going)
        for thread in going:
            self.running = thread
            thread.switch()

    def meet(self, site: Site, value: Any) -> Any:
        """Called by a running thread: wait until those that it has to meet are there; what it takes away."""
        thread = self.running
        thread.site, thread.value = site, value
        self.scheduler.switch()
        return thread.answer

    def _collective(self, name: str, emulate: Any, args: tuple[Any, ...]) -> Any:
        return self.meet(Site(name, 0xFFFFFFFF, line_of(sys._getframe(2))), (emulate, args))

    def shared_array(self, shape: Any, dtype: np.dtype) -> Memory:
        """The running thread's next shared array: the one that the block's other threads get for the same call."""
        thread = self.running
        number = thread.shared_arrays
        thread.shared_arrays += 1
        if number == len(self.shared_arrays):
            if np.prod(shape) == 0:
                array = self.dynamic[: self.dynamic.size // dtype.itemsize * dtype.itemsize].view(dtype)
            else:
                array = poison(shape, dtype)
            self.shared_arrays.append(self._memory(array, "a shared array", shared=True))
        found = self.shared_arrays[number]
        if found.dtype != dtype:
            raise DivergenceError(f"threads ask for shared arrays in different orders: {found.dtype} and {dtype}")
        return found

    # --- meetings --------------------------------------------------------------------------------------

    def _resolve_warp(self, warp: list[Thread]) -> bool:
        """Carry out the warp operations for which all lanes are there. True if a thread can go on."""
        released = False
        for thread in warp:
            site = thread.site
            if site is None or site.kind.startswith(_BLOCK):
                continue
            if not site.mask >> thread.lane & 1:
                raise DivergenceError(f"lane {thread.lane} is not in the mask {site.mask:#010x} of its {_at(site)}")
            group = [other for other in warp if site.mask >> other.lane & 1 and not other.ended]
            if any(other.site is None for other in group):  # released just now: it may still come
                continue
            for other in group:
                if not _together(site, other.site):
                    raise DivergenceError(
                        f"lane {thread.lane} waits at {_at(site)} with mask {site.mask:#010x}, "
                        f"but lane {other.lane} of the same warp at {_at(other.site)}"
                    )
            for other, answer in zip(group, self._answers(site, group), strict=True):
                other.site, other.answer = None, answer
                other.syncs += site.kind == "syncwarp"
            released = True
        return released

    def _answers(self, site: Site, group: list[Thread]) -> list[Any]:
        kind, values = site.kind, [thread.value for thread in group]
        if kind == "syncwarp":
            return [None] * len(group)
        if kind.startswith("shfl"):
            brought = {thread.lane: thread.value[0] for thread in group}
            return [brought[lane] if lane in brought else poisoned_like(value) for value, lane in values]
        votes: dict[str, Any] = {
            "all_sync": lambda: all(values),
            "any_sync": lambda: any(values),
            "eq_sync": lambda: len(set(values)) == 1,
            "ballot_sync": lambda: sum(1 << thread.lane for thread in group if thread.value),
        }
        if kind in votes:
            return [votes[kind]()] * len(group)
        results = values[0][0]({thread.lane: thread.value[1] for thread in group})
        return [None if results is None else results[thread.lane] for thread in group]

    def _resolve_block(self, threads: list[Thread]) -> None:
        """Let the block pass its barrier. Raises where some have ended, or wait elsewhere."""
        waiting = [thread for thread in threads if not thread.ended]
        site = waiting[0].site
        assert site is not None
        strangers = [thread for thread in waiting if thread.site != site]
        if strangers:
            raise DivergenceError(
                f"thread {tuple(waiting[0].position)} waits at {_at(site)}, "
                f"but thread {tuple(strangers[0].position)} at {_at(strangers[0].site)}"
            )
        if len(waiting) < len(threads):
            ended = next(thread for thread in threads if thread.ended)
            raise DeadlockError(
                f"{len(waiting)} threads wait at {_at(site)}, which thread {tuple(ended.position)} and "
                f"{len(threads) - len(waiting) - 1} more will never reach: they have ended"
            )
        votes = [thread.value for thread in threads]
        answers = {
            "syncthreads_count": lambda: sum(votes),
            "syncthreads_and": lambda: int(all(votes)),
            "syncthreads_or": lambda: int(any(votes)),
        }
        answer = answers[site.kind]() if site.kind in answers else None
        for thread in threads:
            thread.site, thread.answer = None, answer
        if self.races is not None:
            self.races.barrier()


def _dim3(size: int | Sequence[int]) -> Dim3:
    given = (size,) if isinstance(size, int) else tuple(int(n) for n in size)
    return Dim3(*given, *(1,) * (3 - len(given)))


def _together(site: Site, other: Site | None) -> bool:
    """Do two lanes that wait there meet? A syncwarp may be met from different lines, nothing else."""
    return other == site or (other is not None and site.kind == "syncwarp" and other[:2] == site[:2])


def _at(site: Site | None) -> str:
    assert site is not None
    return f"{site.kind} ({site.line})"


def _line(error: BaseException, function: FunctionType) -> str:
    """The innermost line of the kernel's own file on the way to `error`."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == function.__code__.co_filename:
            found = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return found
