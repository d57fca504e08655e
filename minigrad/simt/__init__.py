"""A SIMT simulator: CUDA kernels written in Python run, and are found wrong, without a GPU.

    from minigrad.simt import Simulator
    from numba import cuda                      # or any object: inside of the launch the simulator stands for it

    def reverse(x, n):
        tile = cuda.shared.array(64, np.float32)
        i = cuda.threadIdx.x
        tile[i] = x[i]
        cuda.syncthreads()
        x[i] = tile[n - 1 - i]

    Simulator(seed=1).launch(reverse, grid=1, block=64, args=(array, 64))

Every thread is a greenlet; threads take turns where they must meet (barriers, shuffles, votes). The kernel is the plain
function (or a compiled one's `py_func`), copied with other globals: `cuda` and `math` are replaced, Python functions
that it calls are copied the same way, and an intrinsic is replaced by its emulation, which it carries as an attribute:

    emulate(lanes)          of a warp-wide operation: {lane: its arguments} -> {lane: its result}, or None
    emulate_thread(*args)   of one that each thread does by itself; memory comes as `Memory`, its array as `.array`

Found wrong, with kernel, block, thread and line: an index out of bounds (also a negative one), a barrier that part of a
block never reaches (DeadlockError), threads of a barrier or lanes of a warp operation at different places
(DivergenceError), with `races=True` two accesses that no barrier orders (RaceError). Shared and local memory start as
NaN (integers: -1), and so does what a shuffle reads from a lane that takes no part: using it shows in the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minigrad.simt.clone import clone
from minigrad.simt.errors import DeadlockError, DivergenceError, OutOfBoundsError, RaceError, SimulationError
from minigrad.simt.memory import Memory

if TYPE_CHECKING:
    from minigrad.simt.simulator import Simulator, this_thread


def __getattr__(name: str) -> Any:
    """What needs greenlet is imported when it is asked for: `clone` serves where greenlet is not installed."""
    if name in ("Simulator", "this_thread"):
        from minigrad.simt import simulator

        return getattr(simulator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
