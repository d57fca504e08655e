"""Memory shared with other libraries, without a copy: DLPack both ways, and `__cuda_array_interface__` both ways.

    torch.from_dlpack(x)                  x a tensor of ours, on the CPU or a GPU
    minigrad.from_dlpack(y)               y an array of torch, CuPy, numpy, JAX, ...
    minigrad.as_tensor(y)                 y anything with __cuda_array_interface__
    cupy.asarray(x)

Who lends memory keeps it alive until the borrower lets go. Work on a GPU is ordered by the streams that the protocols
name: nobody waits on the host. Formats: https://dmlc.github.io/dlpack and Numba's documentation of the interface, v3.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.device import CUDA
from minigrad.kernels.cuda.memory import DeviceArray, dense_strides
from minigrad.kernels.cuda.runtime import runtime
from minigrad.tensor import Storage, Tensor

CPU_KIND, CUDA_KIND = 1, 2
_LEGACY, _PER_THREAD = 1, 2  # how the protocols call CUDA's two default streams
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# a destructor's capsule is about to die and must not be counted as referred to: it comes as an address
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_of = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_NAME, _USED = b"dltensor", b"used_dltensor"
_lent: dict[int, Any] = {}  # address of a lent structure -> all that has to live as long


@_Deleter
def _returned(managed: Any) -> None:
    """The borrower lets go."""
    _lent.pop(ctypes.addressof(managed.contents), None)


@_Destructor
def _capsule_died(capsule: int) -> None:
    if _is_valid(capsule, _NAME):  # nobody took it
        _lent.pop(_pointer_of(capsule, _NAME), None)


# --- lending ----------------------------------------------------------------------------------------


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Where `x` is, in DLPack's words."""
    return x.array.runtime.driver.dlpack_device if x.is_cuda else (CPU_KIND, 0)  # type: ignore[attr-defined]


def to_dlpack(x: Tensor, stream: int | None = None) -> Any:
    """A capsule of the memory of `x`. stream: where a borrower on the GPU will read it; -1 for no ordering.

    Raises RuntimeError for a tensor that requires a gradient, and BufferError for memory that must not be written.
    """
    if x.requires_grad:
        raise RuntimeError("a tensor that requires a gradient cannot be lent, which would lose it: use .detach()")
    if not x.array.flags.writeable:
        raise BufferError("memory that must not be written (an expanded view, say) cannot be lent: use .clone()")
    array: Any = x._values("__dlpack__") if not x.is_cuda else x.array
    if x.is_cuda and stream != -1:
        array.runtime.driver.lead(_LEGACY if stream is None else stream)
    kind, number = dlpack_device(x)
    ndim = len(array.shape)
    shape = (ctypes.c_int64 * ndim)(*array.shape)
    strides = (ctypes.c_int64 * ndim)(*[stride // array.itemsize for stride in array.strides])
    pointer = array.pointer if x.is_cuda else array.ctypes.data
    code = _BFLOAT if array.dtype == dtypes.bfloat16 else _CODES[array.dtype.kind]
    managed = _Managed(
        _DLTensor(
            pointer, _Device(kind, number), ndim, _DType(code, 8 * array.itemsize, 1),
            ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)), 0,
        ),
        None,
        _returned,
    )  # fmt: skip
    address = ctypes.addressof(managed)
    _lent[address] = (managed, shape, strides, array)
    return _new(address, _NAME, _capsule_died)


def cuda_array_interface(x: Tensor) -> dict[str, Any]:
    """`__cuda_array_interface__`, version 3, of a tensor on the GPU."""
    if not x.is_cuda:
        raise AttributeError("a tensor on the CPU has no __cuda_array_interface__")
    if x.dtype == dtypes.bfloat16:
        raise AttributeError("__cuda_array_interface__ has no bfloat16: exchange it by DLPack")
    if x.requires_grad:
        raise AttributeError("a tensor that requires a gradient cannot be lent: use .detach()")
    array: Any = x.array
    return {
        "version": 3,
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.pointer if array.size else 0, not array.writeable),
        "strides": None if array.is_contiguous else array.strides,
        "stream": array.runtime.driver.stream,
    }


# --- borrowing --------------------------------------------------------------------------------------


def from_dlpack(source: Any) -> Tensor:
    """A tensor over the memory of `source`, which has `__dlpack__` and `__dlpack_device__`.

    Raises TypeError for anything else, and for a dtype that minigrad does not have; ValueError for memory of another
    kind of device.
    """
    if not hasattr(source, "__dlpack__"):
        raise TypeError(f"from_dlpack needs an object with __dlpack__, got {type(source).__name__}")
    kind, number = source.__dlpack_device__()
    if int(kind) == CPU_KIND:
        return _taken(source.__dlpack__(), None)
    if (int(kind), number) != (CUDA_KIND, 0):
        raise ValueError(f"from_dlpack: minigrad does not compute on DLPack device ({int(kind)}, {number})")
    device = runtime()
    return _taken(source.__dlpack__(stream=device.driver.stream), device)


def _taken(capsule: Any, device: Any) -> Tensor:
    """The tensor of a capsule, which from here on is ours. device: the runtime, None for the CPU."""
    address = _pointer(capsule, _NAME)
    managed = _Managed.from_address(address)
    lent = managed.tensor
    dtype = _dtype(lent.dtype)
    _rename(capsule, _USED)
    shape = tuple(lent.shape[i] for i in range(lent.ndim))
    strides = tuple(lent.strides[i] * dtype.itemsize for i in range(lent.ndim)) if lent.strides else None
    owner = _Borrowed(address)
    return _over(owner, (lent.data or 0) + lent.byte_offset, shape, strides, dtype, device)


class _Borrowed:
    """Keeps a lender's memory until nothing of ours refers to it."""

    def __init__(self, address: int) -> None:
        self.managed = _Managed.from_address(address)

    def __del__(self) -> None:
        if self.managed.deleter:
            self.managed.deleter(ctypes.byref(self.managed))


def from_cuda_array(source: Any) -> Tensor:
    """A tensor over the memory of an object with `__cuda_array_interface__`. Raises TypeError for a dtype that minigrad
    does not have."""
    facts = source.__cuda_array_interface__
    dtype = np.dtype(facts["typestr"])
    dtypes.category(dtype)
    device = runtime()
    if facts.get("stream"):
        device.driver.follow(facts["stream"])
    strides = facts.get("strides")
    return _over(source, facts["data"][0], tuple(facts["shape"]), strides, dtype, device, not facts["data"][1])


def _over(
    owner: Any,
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: np.dtype,
    device: Any,
    writeable: bool = True,
) -> Tensor:
    if strides is None:
        strides = dense_strides(shape, dtype.itemsize)
    if any(stride < 0 for stride in strides):
        raise ValueError("memory in reverse order cannot be borrowed: copy it first")
    steps = zip(shape, strides, strict=True)
    extent = 0 if 0 in shape else sum((n - 1) * stride for n, stride in steps) + dtype.itemsize
    if device is not None:
        memory = device.foreign(pointer, extent, owner)
        return Tensor(DeviceArray(memory, pointer, shape, dtype, strides, writeable), Storage(CUDA))  # type: ignore[arg-type]
    buffer: Any = (ctypes.c_uint8 * extent).from_address(pointer) if extent else (ctypes.c_uint8 * 1)()
    buffer.owner = owner  # numpy refers to this buffer, and the buffer to its owner
    return Tensor(np.ndarray(shape, dtype, buffer, 0, strides))


def _dtype(found: _DType) -> np.dtype:
    if found.lanes == 1:
        if found.code == _BFLOAT and found.bits == 16:
            return dtypes.bfloat16
        for kind, code in _CODES.items():
            if code == found.code and found.bits % 8 == 0:
                dtype = np.dtype(f"{kind}{found.bits // 8}")
                dtypes.category(dtype)
                return dtype
    raise TypeError(f"from_dlpack: minigrad has no dtype with DLPack's code {found.code} and {found.bits} bits")
