"""How a CPU kernel is compiled: cached on disk, GIL-free, and with NaN and infinities intact.

`fastmath=True` would let the compiler assume that no NaN or infinity exists; these flags only let it reorder and
contract. numba notices a change in the file of a cached function but not in the helpers that it inlines: so a kernel's
name, and with it its cache file, carries a digest of all kernel sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

FLAGS = {"reassoc", "contract", "arcp", "nsz"}
_DIGEST = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()[:8]


def _compiled(function: Callable[..., Any], flags: set[str]) -> Callable[..., Any]:
    function.__qualname__ = f"{function.__qualname__}_{_DIGEST}"
    return numba.njit(function, nogil=True, cache=True, fastmath=flags, error_model="numpy")


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled kernel `f(start, stop, ...)`.

    Flat arrays are cut to their range first (`x = x[start:stop]`) and indexed from 0: where numba cannot see that an
    index is not negative, it adds a test for counting from the end, and the loop stays scalar (8 times slower).
    """
    return _compiled(function, FLAGS)


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """A helper that LLVM inlines into each kernel that calls it. Its own sums keep their order: a range reduction in
    two steps loses its second step where the compiler may reassociate."""
    return _compiled(function, {"contract", "nsz"})
