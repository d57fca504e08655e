"""Machine code on disk, so that a process loads what another has compiled, without the compiler.

One file holds the object files of one kernel. Its name is a digest of everything that the code depends on: the
sources, the types, the versions of the compilers, the processor, Python's binary interface. It is written whole or not
at all, any number of processes may write it at once, and what is read back is believed only if its own digest, which
covers its name, is right, and if nobody else can have written it. Every failure of the cache costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm

from minigrad.files import write_atomically
from minigrad.version import __version__

Objects = tuple[bytes, ...]  # object files that are linked together

_MAGIC = b"minigrad machine code\n"
_HEAD = len(_MAGIC) + 32  # bytes, the last of them a SHA-256
_FILES = ("*/machine/*", "*/cuda/*", "*/minigrad_fused_*.py", "*/.minigrad_fused_*.tmp")
SWITCH = "NUMBA_DISABLE_JIT"  # is for users who debug functions of their own: kernels are compiled all the same
UNUSED = 60 * 86_400.0  # seconds: two months
_FOLDER = Path(__file__).parent


def cache_folder() -> Path | None:
    """Where generated kernels and machine code live: MINIGRAD_CACHE, else the user's cache folder. None where the
    system does not say who the user is."""
    given = os.environ.get("MINIGRAD_CACHE")
    try:
        if given:
            return Path(given)
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "minigrad"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minigrad"
    except RuntimeError:  # no home
        return None


def version_folder() -> Path | None:
    """The part of the cache that is this version's; None where there is no cache, or where others may write to it."""
    folder = cache_folder()
    return folder / __version__ if folder is not None and not distrust(folder) else None


@cache
def distrust(folder: Path) -> str:
    """Why what lies in a folder is not believed, which is said once; nothing, where it is."""
    try:
        found = folder.stat()
    except OSError:  # not there yet, or not to be had: what reads and writes there will see
        return ""
    if _is_ours(found):
        return ""
    why = f"minigrad does not use its cache {folder}, which others may write to, and compiles kernels in each process"
    warnings.warn(f"{why}: make it yours (chown, chmod go-w), or set MINIGRAD_CACHE to another folder", stacklevel=2)
    return why


def _is_ours(found: os.stat_result) -> bool:
    """Whether only this user, or the administrator, can have written a file or folder."""
    if sys.platform == "win32":
        return True
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _surroundings() -> str:
    """What every piece of machine code depends on: all sources of CPU kernels and of what compiles them (a kernel's
    helpers and constants lie in any of these files), the compilers, their settings, and the processor."""
    sources = sorted([*_FOLDER.glob("*.py"), *(_FOLDER / "numba").glob("*.py")])
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] != SWITCH)
    processor = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    python = sys.version_info[:2], sysconfig.get_config_var("SOABI"), getattr(sys, "abiflags", "")
    return repr((digest, settings, processor, version("numba"), version("llvmlite"), python))


def name_of(*parts: str) -> str:
    """The name under which the code for `parts` is kept."""
    return hashlib.sha256("\0".join([_surroundings(), *parts]).encode()).hexdigest()[:40]


def _path(name: str) -> Path | None:
    folder = version_folder()
    return None if folder is None else folder / "machine" / name


def read(name: str) -> Objects | None:
    """The object files kept under `name`; None where there are none, or where the file is not to be believed."""
    path = _path(name)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            data = file.read() if _is_ours(os.fstat(file.fileno())) else b""
    except (OSError, ValueError):
        return None
    body = data[_HEAD:]
    if data[:_HEAD] != _head(name, body):
        return None
    count = struct.unpack_from("<Q", body)[0]
    sizes = struct.unpack_from(f"<{count}Q", body, 8)
    ends = [8 * (1 + count) + sum(sizes[: i + 1]) for i in range(count)]
    return tuple(body[end - size : end] for size, end in zip(sizes, ends, strict=True))


def _head(name: str, body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(name.encode() + b"\0" + body).digest()


def write(name: str, objects: Sequence[bytes]) -> None:
    """Keep object files under `name`, if the folder can be written."""
    body = struct.pack(f"<{1 + len(objects)}Q", len(objects), *map(len, objects)) + b"".join(objects)
    path = _path(name)
    if path is not None and write_whole(path, _head(name, body) + body):
        _prune_once()


def write_whole(path: Path, data: bytes) -> bool:
    """Write a file such that readers find all of it or nothing; False where the folder cannot be written."""
    try:
        path.parent.mkdir(0o755, parents=True, exist_ok=True)
        write_atomically(path, [data], lasting=False)
    except (OSError, ValueError):
        return False
    return True


# --- what lies there ---------------------------------------------------------------------------------


def kept() -> Iterator[tuple[Path, os.stat_result]]:
    """Every file of the cache, of all versions, and nothing else that may lie in the same folder."""
    folder = cache_folder()
    if folder is None:
        return
    for pattern in _FILES:
        with contextlib.suppress(OSError):
            for path in folder.glob(pattern):
                with contextlib.suppress(OSError):
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        yield path, found


def clear(unused_for: float = 0.0) -> int:
    """Remove the cache's files, or those that nobody has read or written for so many seconds; how many there were."""
    count = 0
    for path, found in list(kept()):
        if time.time() - max(found.st_atime, found.st_mtime) >= unused_for:
            with contextlib.suppress(OSError):
                path.unlink()
                count += 1
                path.parent.rmdir()  # when nothing is left in it
                path.parent.parent.rmdir()
    return count


@cache
def _prune_once() -> None:
    """Remove what no process has used for a long time, such as the code of old versions: once a process that writes."""
    clear(UNUSED)
