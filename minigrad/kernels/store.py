"""Machine code on disk, so that a process loads what another has compiled, without the compiler.

One file holds the object files of one kernel. Its name is a digest of everything that the code depends on: the
sources, the types, the versions of the compilers, the processor. It is written whole or not at all, any number of
processes may write it at once, and what is read back is believed only if its own digest is right. A folder that cannot
be written costs time, nothing else.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm

from minigrad.version import __version__

Objects = tuple[bytes, ...]  # object files that are linked together

_MAGIC = b"minigrad machine code\n"
_DIGEST = 32  # bytes of a SHA-256
_FOLDER = Path(__file__).parent


def cache_folder() -> Path:
    """Where generated kernels and machine code live: MINIGRAD_CACHE, else the user's cache folder."""
    given = os.environ.get("MINIGRAD_CACHE")
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "minigrad"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minigrad"


@cache
def _surroundings() -> str:
    """What every piece of machine code depends on: all sources of CPU kernels and of what compiles them (a kernel's
    helpers and constants lie in any of these files), the compilers, their settings, and the processor."""
    sources = sorted([*_FOLDER.glob("*.py"), *(_FOLDER / "numba").glob("*.py")])
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    processor = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return repr((digest, settings, processor, version("numba"), version("llvmlite"), sys.version_info[:2]))


def name_of(*parts: str) -> str:
    """The name under which the code for `parts` is kept."""
    return hashlib.sha256("\0".join([_surroundings(), *parts]).encode()).hexdigest()[:40]


def _path(name: str) -> Path:
    return cache_folder() / __version__ / "machine" / name


def read(name: str) -> Objects | None:
    """The object files kept under `name`; None where there are none, or where the file is broken."""
    try:
        data = _path(name).read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST
    body = data[head:]
    if data[:head] != _MAGIC + hashlib.sha256(body).digest():
        return None
    count = struct.unpack_from("<Q", body)[0]
    sizes = struct.unpack_from(f"<{count}Q", body, 8)
    ends = [8 * (1 + count) + sum(sizes[: i + 1]) for i in range(count)]
    return tuple(body[end - size : end] for size, end in zip(sizes, ends, strict=True))


def write(name: str, objects: Sequence[bytes]) -> None:
    """Keep object files under `name`, if the folder can be written."""
    body = struct.pack(f"<{1 + len(objects)}Q", len(objects), *map(len, objects)) + b"".join(objects)
    write_whole(_path(name), _MAGIC + hashlib.sha256(body).digest() + body)


def write_whole(path: Path, data: bytes) -> bool:
    """Write a file such that readers find all of it or nothing; False where the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        return False
    return True
