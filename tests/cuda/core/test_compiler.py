"""Compiling without a GPU: the cache, what a fingerprint sees, and one sentence where the package is not there."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from minigrad.kernels.cuda import compiler
from minigrad.kernels.cuda.driver import CudaError
from minigrad.kernels.cuda.language import Kernel, cuda, float32

HALF = float32(0.5)


def helper(x):
    return x * HALF


def halved(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = helper(x[i])


KERNEL = Kernel("halved", halved, ("float32*", "int32"))
CAPABILITY = (9, 0)


def test_a_kernel_is_compiled_once(monkeypatch, tmp_path):
    pytest.importorskip("numba_cuda", reason="compiling needs the extra [cuda]")
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    made = compiler.compile(KERNEL, CAPABILITY)
    assert made.code[:4] == b"\x7fELF"
    assert "halved" in made.entry
    assert made.spills == 0 < made.registers
    monkeypatch.setattr(compiler, "ptx", None)  # a second compilation would fail
    assert compiler.compile(KERNEL, CAPABILITY) == made
    (path,) = tmp_path.rglob("*.cubin")
    path.write_bytes(path.read_bytes()[:20])  # a file that was cut off is made anew
    with pytest.raises(TypeError):
        compiler.compile(KERNEL, CAPABILITY)


def test_double_arithmetic_is_reported():
    pytest.importorskip("numba_cuda", reason="compiling needs the extra [cuda]")

    def doubled(x, n):
        i = cuda.grid(1)
        if i < n:
            x[i] = x[i] * 0.1

    assert not compiler.report(KERNEL).float64
    assert any("mul" in line for line in compiler.report(Kernel("doubled", doubled, KERNEL.signature)).float64)


def test_a_fingerprint_sees_what_the_code_depends_on(monkeypatch):
    pytest.importorskip("numba_cuda", reason="compiling needs the extra [cuda]")
    first = compiler._fingerprint(KERNEL, CAPABILITY)
    assert compiler._fingerprint(KERNEL, CAPABILITY) == first
    assert compiler._fingerprint(KERNEL, (10, 0)) != first
    monkeypatch.setitem(globals(), "HALF", np.float32(0.25))  # a constant of a function that the kernel calls
    assert compiler._fingerprint(KERNEL, CAPABILITY) != first


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(
        CudaError, match=r'numba-cuda, which is not installed: pip install "minigrad-conformance\[cuda\]"'
    ):
        compiler.ptx(KERNEL, CAPABILITY)


@pytest.mark.parametrize("library", compiler.LIBRARIES)
def test_without_a_library_one_sentence_says_what_to_install(monkeypatch, library):
    """numba-cuda without its extra [cu13] brings none of them."""
    pathfinder = pytest.importorskip("cuda.pathfinder", reason="compiling needs the extra [cuda]")

    def find(name):
        if name == library:
            raise pathfinder.DynamicLibNotFoundError(f"{name} was not found\nin many places")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", find)
    with pytest.raises(CudaError, match=rf"NVIDIA's library {library}, which is missing: pip install") as caught:
        compiler.report(KERNEL)
    assert "\n" not in str(caught.value)


def test_a_numpy_that_numba_cuda_does_not_know_is_one_sentence(monkeypatch):
    pytest.importorskip("numba_cuda")
    monkeypatch.delattr(np, "row_stack", raising=False)
    with pytest.raises(CudaError, match=r"numba-cuda 0.*, which does not know numpy .*: pip install 'numpy<2.5'"):
        compiler.report(KERNEL)
