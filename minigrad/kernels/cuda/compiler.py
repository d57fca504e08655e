"""From a recorded kernel to machine code: numba-cuda makes PTX of the Python function, NVIDIA's linker makes a cubin.

The only file that imports numba-cuda's compiler and cuda.core. No GPU is needed: `report` compiles for any compute
capability and says what the kernel takes. Compiled kernels are kept in the cache folder, under a fingerprint of
everything that their code depends on.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from minigrad.kernels import store
from minigrad.kernels.cuda.driver import INSTALL, CudaError
from minigrad.kernels.cuda.language import RECORDS, Cuda, Kernel
from minigrad.simt.clone import clone

Capability = tuple[int, int]
LIBRARIES = ("nvvm", "nvJitLink")  # NVIDIA's, that the packages load: the one makes PTX, the other machine code
_lock = threading.Lock()


@dataclass(frozen=True)
class Binary:
    """A compiled kernel. entry: its name in the code; registers and spills (bytes) as the assembler counted them."""

    code: bytes
    entry: str
    registers: int
    spills: int
    shared: int


def compile(kernel: Kernel, capability: Capability) -> Binary:
    """Machine code of `kernel`, from the cache or made now. Raises CudaError without numba-cuda and its libraries."""
    folder = store.version_folder()
    path = folder and folder / "cuda" / f"{kernel.name}_{_fingerprint(kernel, capability)}.cubin"
    try:
        head, code = path.read_bytes().split(b"\n", 1) if path else (b"", b"")
        return Binary(code, **json.loads(head))
    except (OSError, ValueError, TypeError):  # not there, or cut off: make it anew
        made = _assemble(kernel, ptx(kernel, capability), capability)
    head_of = {name: value for name, value in asdict(made).items() if name != "code"}
    if path:
        store.write_whole(path, json.dumps(head_of).encode() + b"\n" + made.code)
    return made


@dataclass(frozen=True)
class Report:
    """What compiling a kernel shows, with lines of PTX for proof.

    float64: double arithmetic; calls: of functions that were not inlined; local: threads' arrays that lie in memory,
    since an index of them is not known when compiling.
    """

    name: str
    registers: int
    spills: int
    shared: int
    float64: tuple[str, ...]
    calls: tuple[str, ...]
    local: tuple[str, ...]


def report(kernel: Kernel, capability: Capability = (9, 0)) -> Report:
    """Compile `kernel`, for a device that need not be there, and say what it takes.

    Raises CudaError without numba-cuda.
    """
    text = ptx(kernel, capability)
    made = _assemble(kernel, text, capability)
    lines = [line.strip() for line in text.splitlines()]
    doubles = tuple(line for line in lines if re.search(r"\.f64\b", line))
    calls = tuple(line for line in lines if re.match(r"(@%p\d+ )?call", line))
    local = tuple(line for line in lines if ".local" in line)
    return Report(kernel.name, made.registers, made.spills, made.shared, doubles, calls, local)


def ptx(kernel: Kernel, capability: Capability) -> str:
    """The PTX of `kernel`."""
    cuda = _numba_cuda()
    types = cuda.types

    def typed(part: str) -> Any:
        if part in RECORDS:
            return types.NamedUniTuple(types.int32, len(RECORDS[part]._fields), RECORDS[part])
        return types.CPointer(getattr(types, part[:-1])) if part.endswith("*") else getattr(types, part)

    arguments = tuple(map(typed, kernel.signature))
    bounds = (kernel.threads, kernel.blocks) if kernel.blocks else kernel.threads
    with _lock, _pretended_device(capability):
        function = clone(
            kernel.function,
            lambda name, value: cuda if isinstance(value, Cuda) else value,
            lambda copy: cuda.jit(device=True)(copy),
        )
        text, _ = cuda.compile_ptx(function, arguments, cc=capability, launch_bounds=bounds)
    return text


def _numba_cuda() -> Any:
    try:
        import numba_cuda  # noqa: F401  (numba's own, older numba.cuda would be found without it)
        from cuda import pathfinder
        from numba import cuda
    except ImportError:
        raise CudaError(f"kernels are compiled by the package numba-cuda, which is not installed: {INSTALL}") from None
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 reads it while it compiles; numpy 2.5 removed it
        raise CudaError(
            f"kernels are compiled by numba-cuda {version('numba-cuda')}, which does not know numpy {np.__version__}: "
            "pip install 'numpy<2.5'"
        )
    for library in LIBRARIES:  # once found, remembered there
        try:
            pathfinder.load_nvidia_dynamic_lib(library)
        except RuntimeError:
            raise CudaError(
                f"kernels are compiled by NVIDIA's library {library}, which is missing: {INSTALL}"
            ) from None
    return cuda


class _pretended_device:
    """While a kernel is compiled, numba-cuda is told of a device: it asks one, though it needs only what it can do."""

    def __init__(self, capability: Capability) -> None:
        self.compute_capability = capability

    def __enter__(self) -> None:
        import numba.cuda.dispatcher as dispatcher

        self._module, self._before = dispatcher, dispatcher.get_current_device
        dispatcher.get_current_device = lambda: self

    def __exit__(self, *_: Any) -> None:
        self._module.get_current_device = self._before


def _assemble(kernel: Kernel, text: str, capability: Capability) -> Binary:
    try:
        from cuda.core import Linker, LinkerOptions, ObjectCode
    except ImportError:  # before its release 1.0
        from cuda.core.experimental import Linker, LinkerOptions, ObjectCode

    entry = re.search(r"\.visible \.entry (\w+)", text)
    assert entry is not None
    options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}", ptxas_options=["-v"], verbose=True)
    linker = Linker(ObjectCode.from_ptx(text.encode(), name=kernel.name), options=options)
    code = bytes(linker.link("cubin").code)
    notes = linker.get_info_log() or ""

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, notes))

    return Binary(
        code,
        entry.group(1),
        registers=number(r"Used (\d+) registers"),
        spills=number(r"(\d+) bytes spill"),
        shared=number(r"(\d+) bytes smem"),
    )


# --- what compiled code depends on ------------------------------------------------------------------


def _fingerprint(kernel: Kernel, capability: Capability) -> str:
    digest = hashlib.sha256()
    records = [(part, RECORDS[part]._fields) for part in kernel.signature if part in RECORDS]
    facts = (records, kernel.name, kernel.signature, kernel.threads, kernel.blocks, capability, version("numba-cuda"))
    for part in (*facts, *_parts(kernel.function, set())):
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()[:20]


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Everything that the meaning of a value in a kernel depends on, as things whose text says it."""
    if isinstance(value, FunctionType):
        if id(value) in seen:
            return
        seen.add(id(value))
        yield from _code(value.__code__)
        names = sorted(_global_names(value.__code__) & value.__globals__.keys())
        for name in names:
            yield name
            yield from _parts(value.__globals__[name], seen)
        for cell in value.__closure__ or ():
            yield from _parts(cell.cell_contents, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _parts(item, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _parts(item, seen)
    elif value is None or isinstance(value, (bool, int, float, str, np.generic, np.dtype, type)):
        yield value
    elif isinstance(value, (ModuleType, BuiltinFunctionType, Cuda)):
        yield getattr(value, "__name__", "cuda")
    else:  # an intrinsic, say: what it does is written in its module
        yield getattr(value, "__name__", type(value).__name__)
        yield _source_of(type(value).__module__)


def _code(code: CodeType) -> Iterator[Any]:
    yield code.co_code
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield constant


def _global_names(code: CodeType) -> set[str]:
    inside = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_global_names, inside))


@lru_cache(maxsize=64)
def _source_of(module: str) -> str:
    path = getattr(sys.modules[module], "__file__", None)
    return "" if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()
