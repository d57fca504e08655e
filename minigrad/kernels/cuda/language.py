"""The language of our CUDA kernels: Python functions over flat memory, recorded here, simulated or compiled elsewhere.

    from minigrad.kernels.cuda.language import cuda, device, float32, kernel

    @device
    def double(x):
        return x + x

    @kernel("float32*, float32*, int32", threads=256)
    def doubled(x, y, n):
        i = cuda.grid(1)
        if i < n:
            y[i] = double(x[i])

A kernel's arguments are pointers (indexed `x[i]`, whatever the shape was), int32 or float32 scalars, and records of
int32 (`record`). Types in a signature: float32, float64, int8 ... int64, uint8 ... uint64, a record's name; a bool
array is uint8*, one of half floats uint16*.
Every constant with a fraction is a module-level float32 (`HALF = float32(0.5)`): a literal would be float64, and make
the arithmetic so. `cuda` and `math` mean the device's; only names used directly (not behind a dot) can be replaced.

Nothing here imports a CUDA package: `KERNELS` records what there is, `minigrad.kernels.cuda.compiler` compiles it,
`minigrad.simt` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

float32, float64 = np.float32, np.float64
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
TYPES = (*(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64")

MAX_REGISTERS = 255

RECORDS: dict[str, Any] = {}


def record(kind: Any) -> Any:
    """Let kernels take `kind`, a NamedTuple of integers (int32), as one argument; a signature says its name."""
    RECORDS[kind.__name__] = kind
    return kind


class Cuda:
    """Stands for `cuda` in a kernel's module until the kernel is compiled or simulated."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"cuda.{name} has no meaning outside of a kernel that is compiled or simulated")


cuda: Any = Cuda()


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel, recorded: what is needed to compile and to launch it.

    signature    types of the arguments, a pointer's with a star
    threads      the most threads a block is launched with (the launch bound that registers are allotted by)
    blocks       how many blocks are meant to be resident on a multiprocessor (the second launch bound), 0 for any
    registers    how many registers a thread may need, checked by the tests; no kernel may spill
    float64      double arithmetic is meant; everywhere else the tests find it and fail
    """

    name: str
    function: FunctionType
    signature: tuple[str, ...]
    threads: int = 256
    blocks: int = 0
    registers: int = MAX_REGISTERS
    float64: bool = False

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self.signature)})>"


KERNELS: dict[str, Kernel] = {}


def kernel(
    signature: str,
    *,
    name: str = "",
    threads: int = 256,
    blocks: int = 0,
    registers: int = MAX_REGISTERS,
    float64: bool = False,
) -> Callable[[Any], Kernel]:
    """Record the function below as a kernel; a factory's variants differ by `name`. See `Kernel`.

    Raises ValueError for a signature that does not fit the function, or a name that is taken.
    """
    types = tuple(part.strip() for part in signature.split(","))
    for part in types:
        if part.removesuffix("*") not in TYPES and part not in RECORDS:
            raise ValueError(
                f"{part!r} is no type of a kernel's argument: use one of {', '.join(TYPES)}, or its pointer"
            )

    def record(function: Any) -> Kernel:
        count = function.__code__.co_argcount
        if count != len(types):
            raise ValueError(f"kernel {function.__name__} has {count} arguments, its signature {len(types)}")
        made = Kernel(name or function.__name__, function, types, threads, blocks, registers, float64)
        if made.name in KERNELS:
            raise ValueError(f"a kernel named {made.name!r} exists: give this variant a name of its own")
        KERNELS[made.name] = made
        return made

    return record


def device(function: Any) -> Any:
    """Mark a function that kernels call. It stays a plain function: compiled inline, or copied by the simulator."""
    function.is_device_function = True
    return function
