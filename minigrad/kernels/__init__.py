"""Fast kernels: which exist, and when they run instead of the reference.

Which there are, every op says (`Op.kernels`) as "module:function", imported on first use. A kernel binds the op's
inputs and outputs to calls (see `minigrad.kernels.calls`), which run at once here, and many times in a compiled plan.

    mode "auto"       kernels run from `MIN_SIZE` elements on (below, a numpy call is cheaper)      the default
         "always"     kernels run at every size (tests and conformance runs: the kernels are what is tested)
         "reference"  numpy only
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad import dtypes, later
from minigrad.device import resolve
from minigrad.ops.registry import ANY_DTYPE
from minigrad.state import state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minigrad.kernels.calls import Calls
    from minigrad.ops.registry import Op

MIN_SIZE = 4096
EPILOGUE_INPUTS = 3  # arrays that the kernel of a product reads at most for the steps behind the product
MODES = ("auto", "always", "reference")
_mode = "auto"  # of threads that have set none for a block


def spec(op: Op, device: str, dtype: str) -> str | None:
    """ "module:function" of the kernel of `op` whose first input has this dtype, or None where there is none."""
    found = op.kernels.get((device, dtype))
    if (
        found is None
        and device == "cuda"
        and op.tree is not None
        and later.load("minigrad.kernels.cuda.words:serve")(op, dtype)
    ):
        return f"minigrad.kernels.cuda.elementwise:{op.name}"
    return found


def specs(op: Op, device: str) -> dict[str, str]:
    """`spec` for each dtype that has a kernel."""
    found = {dtype: spec(op, device, dtype) for dtype in ANY_DTYPE.split()}
    return {dtype: name for dtype, name in found.items() if name is not None}


def gpu() -> Any:
    """What computes on the device: `minigrad.kernels.cuda.execute`, which no program without a GPU needs."""
    return later.load("minigrad.kernels.cuda.execute")


def usable(device: str) -> str:
    """The name under which storages know a device that this machine has: "cpu" or "cuda:0".

    Raises ValueError for a device that minigrad does not compute on, CudaError where CUDA cannot be used.
    """
    name = resolve(device)
    if name != "cpu":
        gpu().runtime()
    return name


def set_mode(mode: str) -> None:
    """Choose when kernels run, in all threads. Raises ValueError for an unknown mode."""
    global _mode
    _mode = _known(mode)


def get_mode() -> str:
    """The mode in force in this thread."""
    return state.kernel_mode or _mode


@contextmanager
def use(mode: str) -> Iterator[None]:
    """`mode` for the duration of a block, in this thread. Raises ValueError for an unknown one."""
    before, state.kernel_mode = state.kernel_mode, _known(mode)
    try:
        yield
    finally:
        state.kernel_mode = before


def _known(mode: str) -> str:
    if mode not in MODES:
        raise ValueError(f"kernel mode {mode!r} does not exist: use one of {', '.join(MODES)}")
    return mode


def bind(
    op: Op,
    arrays: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    attrs: Mapping[str, Any],
    calls: Calls | None = None,
    planned: bool = False,
) -> Calls | None:
    """Calls that compute `op` on these arrays, behind those that are in `calls`, whose scratch memory they share; None
    where no kernel serves. planned: a kernel for plans only."""
    found = (op.planned if planned else op.kernels).get(("cpu", dtypes.name(arrays[0].dtype))) if arrays else None
    if found is None:
        return None
    made: Calls = later.load("minigrad.kernels.calls:Calls")() if calls is None else calls
    before = len(made)
    if later.load(found)(made, arrays, outputs, **attrs):
        return made
    del made[before:]
    return None


def run(op: Op, arrays: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """The outputs of `op`: by its kernel where one serves, else by its reference."""
    if arrays[0].__class__ is not np.ndarray:
        on_device: tuple[Any, ...] = gpu().run(op, arrays, attrs)
        return on_device
    if (
        op.fast_on_cpu
        and (mode := state.kernel_mode or _mode) != "reference"
        and (arrays[0].size >= MIN_SIZE or mode == "always")
    ):
        metas = op.output_metas([(array.shape, array.dtype) for array in arrays], attrs)
        outputs = tuple([np.empty(shape, dtype) for shape, dtype in metas])
        calls = bind(op, arrays, outputs, attrs)
        if calls is not None:
            calls.run()
            return outputs
    return op.evaluate(arrays, attrs)
