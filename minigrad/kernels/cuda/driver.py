"""The CUDA driver behind one class: memory, copies, kernel launches, graphs, events, all on one compute stream.

The only file that imports cuda.bindings; `simulated.py` has a class of the same face for machines without a GPU.
Nothing here waits for the device but `synchronize`, `download` and `elapsed`, and an upload that is very large or one
of very many. Pointers are integers.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from minigrad.kernels.cuda.language import Kernel

MIN_DRIVER = 13000  # CUDA 13.0, driver 580: older ones cannot load what the pinned toolkit compiles
MIN_CAPABILITY = (8, 0)  # Ampere: products on tensor cores in tf32, copies to shared memory without registers
IMMEDIATE = 64 << 10  # bytes of an upload that the driver takes along with the call
STAGE = 8 << 20  # bytes of each of two pieces of page-locked memory that larger uploads go through
STATIC_SHARED = 48 * 1024  # bytes of shared memory that a block may have without permission
Sizes = tuple[int, ...]
INSTALL = 'pip install "minigrad-conformance[cuda]"'


class CudaError(RuntimeError):
    """CUDA is not there, or a call of the driver failed. The message is one sentence that says what to do."""


class OutOfMemory(CudaError):
    """The device has no memory left for an allocation."""


class Pointer(NamedTuple):
    """A kernel's pointer argument: where the array begins, and the bytes that belong to it."""

    address: int
    nbytes: int


@dataclass
class Function:
    """A kernel that is loaded on the device. shared: the dynamic shared memory that it may use so far."""

    handle: Any
    kernel: Kernel
    shared: int


@dataclass
class Piece:
    """Page-locked memory of the host: where it begins, the bytes taken, and a mark behind the last copy out of it."""

    address: int
    taken: int = 0
    mark: Any = None


class Driver:
    """The first CUDA device, its primary context and one stream.

    Raises CudaError where there is no package, no driver, no device, a driver older than CUDA 13.0, or a device older
    than Ampere.
    """

    name: str
    version: int  # of CUDA, that the driver supports: 13000 is 13.0
    dlpack_device = (2, 0)  # (kDLCUDA, the device's number)

    def __init__(self) -> None:
        self.api = _bindings()
        self._thread = threading.local()
        self._thread.active = True  # nothing to activate yet
        try:
            self._call("cuInit", 0)
        except CudaError:
            raise
        except Exception:  # the bindings raise when libcuda is not there
            raise CudaError(
                "there is no CUDA driver on this machine: install NVIDIA's driver 580 or later, or compute on 'cpu'"
            ) from None
        found = self.version = self._call("cuDriverGetVersion")
        if found < MIN_DRIVER:
            raise CudaError(
                f"the CUDA driver supports CUDA {found // 1000}.{found % 1000 // 10}, and minigrad's kernels need "
                "13.0: install driver 580 or later, or compute on 'cpu'"
            )
        if not self._call("cuDeviceGetCount"):
            raise CudaError("the CUDA driver shows no device (is CUDA_VISIBLE_DEVICES empty?): compute on 'cpu'")
        self.device = self._call("cuDeviceGet", 0)
        self.name = self._call("cuDeviceGetName", 256, self.device).split(b"\0")[0].decode()
        attributes = self.api.CUdevice_attribute
        major, minor, self.processors = (
            self._call("cuDeviceGetAttribute", attribute, self.device)
            for attribute in (
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )
        )
        self.capability = (major, minor)
        if self.capability < MIN_CAPABILITY:
            raise CudaError(
                f"the GPU ({self.name}) has compute capability {major}.{minor}, and minigrad's kernels need 8.0 "
                "(Ampere) or later: compute on 'cpu'"
            )
        self.context = self._call("cuDevicePrimaryCtxRetain", self.device)
        self._call("cuCtxSetCurrent", self.context)
        self._stream = self._call("cuStreamCreate", self.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._pieces: list[Piece] = []  # the one that is filled, and the other; made when an upload needs them
        self._staging = threading.Lock()

    @property
    def stream(self) -> int:
        """The compute stream's handle, as other libraries take it."""
        return int(self._stream)

    def _call(self, name: str, *arguments: Any) -> Any:
        """What a function of the driver returns. Raises CudaError (OutOfMemory) when it fails."""
        if not hasattr(self._thread, "active"):  # a thread's first call
            self._thread.active = True
            self._call("cuCtxSetCurrent", self.context)
        status, *values = getattr(self.api, name)(*arguments)
        if status != self.api.CUresult.CUDA_SUCCESS:
            if status == self.api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise OutOfMemory(
                    f"the GPU has no memory left for {name}: use a smaller batch, end other programs that use it, or "
                    "compute on 'cpu'"
                )
            if status == self.api.CUresult.CUDA_ERROR_NO_DEVICE:
                raise CudaError("the CUDA driver shows no device (is CUDA_VISIBLE_DEVICES empty?): compute on 'cpu'")
            _, text = self.api.cuGetErrorString(status)
            reason = text.decode() if isinstance(text, bytes) else str(status)
            raise CudaError(f"the CUDA driver refused {name}: {reason}; restart the process if this repeats")
        return values[0] if len(values) == 1 else tuple(values)

    # --- memory -------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        return int(self._call("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        """Give memory back; the driver waits until nothing uses it any more."""
        self._call("cuMemFree", address)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device."""
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def host_words(self, count: int) -> tuple[int, np.ndarray]:
        """Zeroed int64 of the host that kernels can write, too: their address, and the array. Never freed."""
        address = int(self._call("cuMemAllocHost", 8 * count))
        words = np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))
        words[:] = 0
        return address, words

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy a contiguous host array to the device; it may change as soon as this returns.

        Out of ordinary memory the driver may wait until it can copy: all but small arrays go through page-locked
        memory, as far as they fit there.
        """
        source, nbytes = array.ctypes.data, array.nbytes
        if not IMMEDIATE < nbytes <= STAGE:
            self._call("cuMemcpyHtoDAsync", address, source, nbytes, self._stream)
            return
        with self._staging:
            piece = self._with_room(nbytes)
            staged = piece.address + piece.taken
            piece.taken += nbytes
            ctypes.memmove(staged, source, nbytes)
            self._call("cuMemcpyHtoDAsync", address, staged, nbytes, self._stream)

    def _with_room(self, nbytes: int) -> Piece:
        """The piece that is filled, or else the other one, as soon as the device has read what was in it."""
        if not self._pieces:
            self._pieces = [Piece(int(self._call("cuMemAllocHost", STAGE))) for _ in range(2)]
        full, other = self._pieces
        if full.taken + nbytes <= STAGE:
            return full
        full.mark = self.record()
        if other.mark is not None:
            self._call("cuEventSynchronize", other.mark)
            self._call("cuEventDestroy", other.mark)
        other.taken, other.mark = 0, None
        self._pieces.reverse()
        return other

    def download(self, array: np.ndarray, address: int) -> None:
        """Copy from the device into a contiguous host array, after all that was launched before."""
        self._call("cuMemcpyDtoHAsync", array.ctypes.data, address, array.nbytes, self._stream)
        self.synchronize()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._call("cuMemcpyDtoDAsync", target, source, nbytes, self._stream)

    # --- kernels ------------------------------------------------------------------------------------

    def function(self, kernel: Kernel) -> Function:
        """`kernel` compiled for this device and loaded. Takes seconds the first time ever, then a file is read."""
        from minigrad.kernels.cuda import compiler

        binary = compiler.compile(kernel, self.capability)
        module = self._call("cuModuleLoadData", binary.code)
        handle = self._call("cuModuleGetFunction", module, binary.entry.encode())
        return Function(handle, kernel, STATIC_SHARED - binary.shared)  # both kinds together need no permission

    def pack(self, types: Sequence[str], values: Sequence[Any]) -> Any:
        """Arguments as the driver reads them: the values in memory of their C types, and their addresses."""
        cells: list[Any] = []
        for kind, value in zip(types, values, strict=True):
            if type(value) is Pointer:
                cells.append(ctypes.c_uint64(value.address))
            elif isinstance(value, tuple):  # a record: its numbers, one by one
                cells += map(ctypes.c_int32, value)
            else:
                cells.append(_C_TYPES[kind](value))
        return (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells]), cells

    def launch(
        self, function: Function, grid: tuple[int, ...], block: tuple[int, ...], shared: int, packed: Any
    ) -> None:
        if shared > function.shared:
            attribute = self.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function.handle, attribute, shared)
            function.shared = shared
        self._call(
            "cuLaunchKernel", function.handle, *grid, *block, shared, self._stream, ctypes.addressof(packed[0]), 0
        )

    # --- graphs -------------------------------------------------------------------------------------

    def begin_capture(self) -> None:
        """From now on launches and copies are recorded, not run."""
        mode = self.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._stream, mode)

    def end_capture(self) -> Any:
        """What was recorded, ready to be launched."""
        graph = self._call("cuStreamEndCapture", self._stream)
        try:
            return self._call("cuGraphInstantiate", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)

    def launch_graph(self, graph: Any) -> None:
        self._call("cuGraphLaunch", graph, self._stream)

    def free_graph(self, graph: Any) -> None:
        self._call("cuGraphExecDestroy", graph)

    # --- time and order -----------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until the device has done all that was launched."""
        self._call("cuStreamSynchronize", self._stream)

    def record(self) -> Any:
        """A mark in the stream whose time can be read."""
        event = self._call("cuEventCreate", 0)
        self._call("cuEventRecord", event, self._stream)
        return event

    def elapsed(self, start: Any, stop: Any) -> float:
        """Milliseconds of the device between two marks; waits for the second."""
        self._call("cuEventSynchronize", stop)
        milliseconds = float(self._call("cuEventElapsedTime", start, stop))
        for event in (start, stop):
            self._call("cuEventDestroy", event)
        return milliseconds

    def follow(self, stream: int) -> None:
        """What is launched from now on waits for what another library's stream has been given so far."""
        self._order(stream, self._stream)

    def lead(self, stream: int) -> None:
        """What another library's stream is given from now on waits for what was launched here so far."""
        self._order(self._stream, stream)

    def _order(self, first: Any, then: Any) -> None:
        event = self._call("cuEventCreate", self.api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._call("cuEventRecord", event, first)
        self._call("cuStreamWaitEvent", then, event, 0)
        self._call("cuEventDestroy", event)  # the driver keeps it until it is done


_C_TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "int64": ctypes.c_int64, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip


def _bindings() -> Any:
    """cuda.bindings.driver. Raises CudaError where numba-cuda and its companions are not installed."""
    try:
        importlib.import_module("numba_cuda")
        return importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise CudaError(f"device 'cuda' needs the package numba-cuda, which is not installed: {INSTALL}") from None
