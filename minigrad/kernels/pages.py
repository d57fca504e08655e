"""Large pages under memory that a plan reads again and again: the weights of a model that is used.

A core remembers where some 2,000 pages lie: 8 MB in pages of 4 kB. Reading more than that looks pages up as it goes,
and fetching ahead stops at the end of each: two cores of a Xeon read 42 MB at 47 GB/s, in pages of 2 MB at 55.
Arrays come from everywhere and stay where they are: the system moves what lies there to large pages. Training gained
nothing from them (0.98 to 1.01 of the time, a tenth more memory): weights that a plan changes stay in small ones.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

SIZE = 1 << 21  # bytes of a large page
LEAST = 4 * SIZE  # bytes: less lies in pages that a core remembers
_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1: move these pages to a large one now
_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")


@functools.cache
def _collapse() -> Callable[[int, int, int], int] | None:
    """The system's call, None where there is none, or where the machine's owner turned large pages off."""
    try:
        settings = {name: (_SETTINGS / name).read_text() for name in ("enabled", "hpage_pmd_size")}
    except OSError:  # another system, or a kernel without them
        return None
    if not sys.platform.startswith("linux") or "[never]" in settings["enabled"]:
        return None
    if int(settings["hpage_pmd_size"]) != SIZE:
        return None
    call = ctypes.CDLL(None).madvise
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return call


def enlarge(arrays: Iterable[np.ndarray]) -> int:
    """Put large pages under `arrays`, where the system can; how many there are now. Values and addresses stay.

    It is advice: a page that holds memory of another kind (a file's, or none) stays as it is. 1.5 ms a page, once.
    """
    collapse = _collapse()
    spans = {(array.ctypes.data, array.nbytes) for array in arrays if array.flags.forc}
    if collapse is None or sum(size for _, size in spans) < LEAST:
        return 0
    pages = {page for start, size in spans for page in range(start // SIZE, -(-(start + size) // SIZE))}
    return sum(collapse(page * SIZE, SIZE, _COLLAPSE) == 0 for page in sorted(pages))
