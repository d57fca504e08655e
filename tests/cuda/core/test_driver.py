"""The driver's calls against a fake of cuda.bindings; one clear sentence for every way in which CUDA can be missing."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
import minigrad.cuda
from minigrad.kernels.cuda import compiler, driver, runtime
from minigrad.kernels.cuda.driver import CudaError, Driver, OutOfMemory, Pointer
from minigrad.kernels.cuda.language import Kernel


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_LAUNCH_FAILED = 719


class Names:
    """Stands for the bindings' enumerations: every name is itself."""

    def __getattr__(self, name):
        return name


class FakeBindings:
    """cuda.bindings.driver as far as the driver uses it. `fails`: function -> status; `calls`: what was called;
    `pinned`: page-locked memory."""

    CUresult = Status
    CUdevice_attribute = CUstream_flags = CUevent_flags = CUfunction_attribute = CUstreamCaptureMode = Names()

    def __init__(self, version=13000, devices=1, capability=9, **fails):
        self.fails, self.calls, self.capability, self.pinned = fails, [], capability, []
        self.values = {
            "cuDriverGetVersion": (version,), "cuDeviceGetCount": (devices,), "cuDeviceGetName": (b"A GPU\0\0",),
            "cuMemGetInfo": (3 << 30, 4 << 30), "cuStreamCreate": (77,), "cuMemAlloc": (4096,),
            "cuEventElapsedTime": (1.5,), "cuGetErrorString": (b"it failed",),
        }  # fmt: skip

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, *arguments))
            if name == "cuMemAllocHost":
                self.pinned.append(np.full(arguments[0], 0xFF, np.uint8))
                self.values[name] = (self.pinned[-1].ctypes.data,)
            default = {"cuDeviceGetAttribute": (self.capability,)}.get(name, (f"<{name}>",))
            return (self.fails.get(name, Status.CUDA_SUCCESS), *self.values.get(name, default))

        return call

    def names(self):
        return [name for name, *_ in self.calls]


def made(monkeypatch, bindings):
    monkeypatch.setattr(driver, "_bindings", lambda: bindings)
    return Driver()


def test_a_launch_carries_values_by_address(monkeypatch):
    bindings = FakeBindings()
    gpu = made(monkeypatch, bindings)
    assert (gpu.name, gpu.capability, gpu.stream) == ("A GPU", (9, 9), 77)
    monkeypatch.setattr(
        compiler, "compile", lambda kernel, capability: SimpleNamespace(code=b"cubin", entry="entry", shared=1024)
    )
    kernel = Kernel("k", lambda x, n, a: None, ("float32*", "int32", "float32"))
    function = gpu.function(kernel)
    packed = gpu.pack(kernel.signature, [Pointer(0x1234, 16), 7, 0.5])
    addresses = packed[0]
    assert ctypes.c_uint64.from_address(addresses[0]).value == 0x1234
    assert ctypes.c_int32.from_address(addresses[1]).value == 7
    assert ctypes.c_float.from_address(addresses[2]).value == 0.5
    gpu.launch(function, (2, 1, 1), (64, 1, 1), 0, packed)
    assert bindings.calls[-1] == (
        "cuLaunchKernel", "<cuModuleGetFunction>", 2, 1, 1, 64, 1, 1, 0, 77, ctypes.addressof(addresses), 0,
    )  # fmt: skip
    gpu.launch(function, (1, 1, 1), (64, 1, 1), 100_000, packed)
    gpu.launch(function, (1, 1, 1), (64, 1, 1), 100_000, packed)
    assert bindings.names().count("cuFuncSetAttribute") == 1  # more than 48 KB of shared memory is allowed once


def test_words_of_the_host_are_zeroed_and_read_without_a_copy(monkeypatch):
    bindings = FakeBindings()
    gpu = made(monkeypatch, bindings)
    address, words = gpu.host_words(2)
    assert bindings.calls[-1] == ("cuMemAllocHost", 16)
    assert (address, words.tolist()) == (bindings.pinned[0].ctypes.data, [0, 0])
    bindings.pinned[0].view(np.int64)[1] = 5
    assert words[1] == 5


def test_uploads_do_not_wait_until_two_pieces_are_under_way(monkeypatch):
    """The driver may wait where it copies out of ordinary memory, unless little."""
    monkeypatch.setattr(driver, "IMMEDIATE", 64)
    monkeypatch.setattr(driver, "STAGE", 1024)
    bindings = FakeBindings()
    gpu = made(monkeypatch, bindings)
    small, huge = np.zeros(16, np.float32), np.zeros(300, np.float32)
    for array in (small, huge):
        gpu.upload(4096, array)
        assert bindings.calls[-1] == ("cuMemcpyHtoDAsync", 4096, array.ctypes.data, array.nbytes, 77)
    array = np.zeros(100, np.float32)  # two of them fill a piece
    for number in range(1, 7):
        array[:] = number
        before = len(bindings.calls)
        gpu.upload(4096, array)
        array[:] = -1
        name, target, source, nbytes, _ = bindings.calls[-1]
        assert (name, target, nbytes) == ("cuMemcpyHtoDAsync", 4096, 400)
        assert np.frombuffer(ctypes.string_at(source, 400), np.float32).tolist() == [number] * 100
        assert any(piece.ctypes.data <= source <= piece.ctypes.data + 624 for piece in bindings.pinned)
        waited = [name for name, *_ in bindings.calls[before:] if "Synchronize" in name]
        assert waited == (["cuEventSynchronize"] if number == 5 else [])  # for what the second piece's mark follows
    assert len(bindings.pinned) == 2
    assert bindings.names().count("cuEventCreate") == bindings.names().count("cuEventDestroy") + 1


def test_nothing_but_what_says_so_waits(monkeypatch):
    bindings = FakeBindings()
    gpu = made(monkeypatch, bindings)
    host = np.zeros(4, np.float32)
    gpu.upload(64, host)
    gpu.copy(64, 128, 16)
    gpu.begin_capture()
    graph = gpu.end_capture()
    gpu.launch_graph(graph)
    gpu.follow(5)
    gpu.lead(5)
    assert not [name for name in bindings.names() if "Synchronize" in name]
    gpu.download(host, 64)
    assert bindings.names()[-2:] == ["cuMemcpyDtoHAsync", "cuStreamSynchronize"]
    assert gpu.elapsed(gpu.record(), gpu.record()) == 1.5
    assert bindings.names().count("cuEventDestroy") == 4


def test_a_second_thread_makes_the_context_current(monkeypatch):
    bindings = FakeBindings()
    gpu = made(monkeypatch, bindings)
    before = bindings.names().count("cuCtxSetCurrent")
    thread = threading.Thread(target=gpu.synchronize)
    thread.start()
    thread.join()
    gpu.synchronize()
    assert bindings.names().count("cuCtxSetCurrent") == before + 1


def test_the_bindings_have_every_function_that_is_called():
    """The fake accepts any name: the real package is asked whether it has them."""
    bindings = pytest.importorskip("cuda.bindings.driver", reason="needs the extra [cuda]")
    text = Path(driver.__file__).read_text()
    names = set(re.findall(r'"(cu[A-Z]\w+)"', text)) | set(re.findall(r"\bCU_\w+|\bCUDA_(?:ERROR|SUCCESS)\w*", text))
    assert len(names) > 30
    enumerations = [
        value for name, value in vars(bindings).items() if name.startswith("CU") and isinstance(value, type)
    ]
    for name in names:
        assert hasattr(bindings, name) or any(hasattr(enumeration, name) for enumeration in enumerations), name


# --- what can be missing ----------------------------------------------------------------------------

MISSING = {
    "no driver": (FakeBindings(), "there is no CUDA driver on this machine: install NVIDIA's driver 580 or later"),
    "an old driver": (
        FakeBindings(version=12040),
        "the CUDA driver supports CUDA 12.4, and minigrad's kernels need 13",
    ),
    "no device": (FakeBindings(devices=0), "the CUDA driver shows no device"),
    "a device before Ampere": (
        FakeBindings(capability=7),
        r"the GPU \(A GPU\) has compute capability 7\.7, and minigrad's kernels need 8\.0",
    ),
    "no memory for a context": (
        FakeBindings(cuDevicePrimaryCtxRetain=Status.CUDA_ERROR_OUT_OF_MEMORY),
        "the GPU has no memory left for cuDevicePrimaryCtxRetain: use a smaller batch, end other programs",
    ),
    "a hidden device": (FakeBindings(cuInit=Status.CUDA_ERROR_NO_DEVICE), "the CUDA driver shows no device"),
}


def _not_found(*_):
    raise OSError("libcuda.so.1: cannot open shared object file")


@pytest.mark.parametrize("what", MISSING)
def test_what_is_missing_is_said_in_one_sentence_and_the_cpu_goes_on(monkeypatch, what):
    bindings, sentence = MISSING[what]
    if what == "no driver":
        monkeypatch.setattr(bindings, "cuInit", _not_found, raising=False)
    monkeypatch.setattr(driver, "_bindings", lambda: bindings)
    _fresh(monkeypatch)
    with pytest.raises(CudaError, match=sentence) as caught:
        mg.ones(2).to("cuda")
    assert "\n" not in str(caught.value)
    assert minigrad.cuda.why_not() == str(caught.value)
    assert not minigrad.cuda.is_available()
    assert (mg.ones(2) * 2).tolist() == [2, 2]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    _fresh(monkeypatch)
    with pytest.raises(CudaError, match=r"needs the package numba-cuda, which is not installed: pip install"):
        mg.zeros(2, device="cuda")
    assert mg.ones(2).sum().item() == 2


def _fresh(monkeypatch):
    monkeypatch.setattr(runtime, "_runtime", None)
    monkeypatch.delenv("MINIGRAD_CUDA", raising=False)


def test_a_call_that_fails_says_which(monkeypatch):
    gpu = made(monkeypatch, FakeBindings(cuStreamSynchronize=Status.CUDA_ERROR_LAUNCH_FAILED))
    with pytest.raises(CudaError, match="refused cuStreamSynchronize: it failed"):
        gpu.synchronize()
    gpu = made(monkeypatch, FakeBindings(cuMemAlloc=Status.CUDA_ERROR_OUT_OF_MEMORY))
    with pytest.raises(OutOfMemory):
        gpu.allocate(1)


def test_importing_minigrad_touches_neither_cuda_nor_its_packages():
    code = (
        "import sys, minigrad, minigrad.cuda, minigrad.nn, minigrad.optim, minigrad.compiler\n"
        "assert not {'numba', 'numba_cuda', 'cuda', 'greenlet'} & set(sys.modules), sorted(sys.modules)\n"
        "from minigrad.kernels.cuda import runtime\n"
        "assert runtime._runtime is None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "MINIGRAD_CUDA": "simulate"})


def test_a_forked_process_is_told_so(cuda, monkeypatch):
    monkeypatch.setattr(cuda, "process", os.getpid() + 1)
    with pytest.raises(CudaError, match=r'process was forked.*"spawn"'):
        mg.zeros(2, device="cuda")


def test_the_environment_chooses_the_simulated_driver(monkeypatch):
    monkeypatch.setattr(runtime, "_runtime", None)
    monkeypatch.setenv("MINIGRAD_CUDA", "simulate")
    assert mg.ones(2, device="cuda").tolist() == [1, 1]
    assert minigrad.cuda.device_name() == "simulated"


class CheckedBindings(FakeBindings):
    """The fake's answers, after the real functions have taken the arguments: without a driver they go no further."""

    def __init__(self, bindings):
        super().__init__()
        self.real = bindings
        self.CUresult, self.CUdevice_attribute = bindings.CUresult, bindings.CUdevice_attribute
        self.CUstream_flags, self.CUevent_flags = bindings.CUstream_flags, bindings.CUevent_flags
        self.CUfunction_attribute = bindings.CUfunction_attribute
        self.CUstreamCaptureMode = bindings.CUstreamCaptureMode
        self.values |= {
            "cuStreamCreate": (bindings.CUstream(77),), "cuEventCreate": (bindings.CUevent(78),),
            "cuModuleLoadData": (bindings.CUmodule(79),), "cuModuleGetFunction": (bindings.CUfunction(80),),
            "cuStreamEndCapture": (bindings.CUgraph(81),), "cuGraphInstantiate": (bindings.CUgraphExec(82),),
            "cuDeviceGet": (bindings.CUdevice(0),), "cuDevicePrimaryCtxRetain": (bindings.CUcontext(83),),
        }  # fmt: skip

    def __getattr__(self, name):
        answer = super().__getattr__(name)

        def call(*arguments):
            function = getattr(self.real, name)
            with pytest.raises(RuntimeError, match="library"):  # a TypeError says something else
                function(*arguments)
            status, *values = answer(*arguments)
            return (self.CUresult(int(status)), *values)

        return call


def test_the_real_functions_take_the_arguments(monkeypatch):
    """Without libcuda the bindings convert all arguments before they find that there is none."""
    bindings = pytest.importorskip("cuda.bindings.driver", reason="needs the extra [cuda]")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a driver here, which would carry the calls out: tests/gpu tries the real thing")
    gpu = made(monkeypatch, CheckedBindings(bindings))
    monkeypatch.setattr(
        compiler, "compile", lambda kernel, capability: SimpleNamespace(code=b"cubin", entry="entry", shared=1024)
    )
    host = np.zeros(4, np.float32)
    address = gpu.allocate(1024)
    gpu.memory()
    gpu.host_words(2)
    gpu.upload(address, host)
    gpu.upload(address, np.zeros(driver.IMMEDIATE + 1, np.uint8))
    gpu.copy(address, address, 16)
    gpu.download(host, address)
    kernel = Kernel("k", lambda x, n: None, ("float32*", "int32"))
    function = gpu.function(kernel)
    gpu.begin_capture()
    gpu.launch(function, (1, 1, 1), (32, 1, 1), 65536, gpu.pack(kernel.signature, [Pointer(address, 16), 4]))
    graph = gpu.end_capture()
    gpu.launch_graph(graph)
    gpu.free_graph(graph)
    gpu.elapsed(gpu.record(), gpu.record())
    gpu.follow(1)
    gpu.lead(2)
    assert gpu.stream == 77
    gpu.free(address)
