"""`minigrad doctor` says what the machine has for CUDA and what is missing, with the command that mends it."""

from __future__ import annotations

import sys

import pytest

from minigrad.cli import doctor
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.driver import CudaError


def finding(name):
    return next(found for found in doctor.examine() if found.what == name)


def test_a_device_is_described_and_tried(cuda):
    assert "simulated, compute capability 9.0" in finding("device 'cuda'").found
    assert "gave 16, and 16 is right" in finding("device 'cuda'").found


def test_what_is_missing_comes_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    monkeypatch.setattr(runtime, "_runtime", None)
    monkeypatch.delenv("MINIGRAD_CUDA", raising=False)
    assert "cannot be used: device 'cuda' needs the package numba-cuda" in finding("device 'cuda'").found
    missing = doctor._package("no-such-package", "device='cuda'", doctor.INSTALL)
    assert missing.mend == 'pip install "minigrad-conformance[cuda]"'


def test_a_device_whose_kernels_cannot_be_compiled_is_not_broken(cuda, monkeypatch):
    def refuse(kernel):
        raise CudaError("kernels are compiled by NVIDIA's library nvJitLink, which is missing")

    monkeypatch.setattr(cuda.driver, "function", refuse)
    assert finding("device 'cuda'").found.startswith("cannot be used: kernels are compiled by NVIDIA's library")


def test_an_old_driver_is_named(monkeypatch):
    class Old:
        @staticmethod
        def cuInit(_):
            return 0

        @staticmethod
        def cuDriverGetVersion(number):
            number._obj.value = 12040
            return 0

        @staticmethod
        def cuDeviceGetCount(number):
            number._obj.value = 1

    if sys.platform not in ("linux", "win32"):
        pytest.skip("there is no CUDA on this system")
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda name: Old)
    found = doctor._driver()
    assert found.found == "CUDA 12.4, 1 device(s)"
    assert "driver 580" in found.mend
