"""Weights on disk: the safetensors format, read with care and written atomically.

A file is eight bytes (the header's length, little endian), a JSON header ``{name: {dtype, shape, data_offsets}}``, and
the tensors' bytes one after the other (https://github.com/huggingface/safetensors). Tensors that share memory are
stored once; the file's metadata says which other names they have.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.files import write_atomically
from minigrad.tensor import Tensor

_NAMES = {
    dtypes.float64: "F64", dtypes.float32: "F32", dtypes.float16: "F16", dtypes.bfloat16: "BF16", dtypes.int64: "I64",
    dtypes.int32: "I32", dtypes.int16: "I16", dtypes.int8: "I8", dtypes.uint8: "U8", dtypes.bool_: "BOOL",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_MAX_HEADER = 100_000_000
_MAX_DIMENSIONS = 64  # of numpy
_METADATA = "__metadata__"  # what stands under this name in a header is no tensor
_SHARED = "minigrad.shared"  # metadata: {other name: name under which the tensor is stored}


class FormatError(ValueError):
    """A file is not a safetensors file that can be read. The message is one sentence that says what is wrong."""


def save_file(
    tensors: Mapping[str, Tensor | np.ndarray], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors by name. A crash leaves the old file or the new one, never a broken one.

    Raises TypeError for what are no tensors by name, a dtype that the format does not have, and metadata that are not
    strings; ValueError for the one name that the format keeps to itself.
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(f"save_file needs tensors by name, got {type(tensors).__name__}: pass model.state_dict()")
    stored: dict[str, np.ndarray] = {}
    owners: dict[tuple[Any, ...], str] = {}
    shared: dict[str, str] = {}
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"save_file needs tensors by name, got the key {name!r}: names are strings")
        if name == _METADATA:
            raise ValueError(f"a tensor cannot be called {_METADATA}: safetensors keeps its notes under that name")
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype not in _NAMES:
            raise TypeError(f"{name}: safetensors cannot store {array.dtype}; it has {', '.join(_DTYPES)}")
        place = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
        owner = owners.setdefault(place, name) if array.size else name
        if owner == name:
            stored[name] = array
        else:
            shared[name] = owner
    notes = dict(metadata or {})
    if not all(isinstance(text, str) for pair in notes.items() for text in pair):
        raise TypeError("the metadata of a safetensors file are strings by name")
    if shared:
        notes[_SHARED] = json.dumps(shared)
    write_atomically(path, _serialise(stored, notes))


def _serialise(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> list[bytes]:
    """The file in pieces; wide dtypes first, so that every tensor is aligned."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    pieces, start = [], 0
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, start + len(data)],
        }
        start += len(data)
        pieces.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *pieces]


def load_file(path: str | os.PathLike[str], mapped: bool = False) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name; names of one shared tensor give the same Tensor.

    mapped: their memory is the file itself, where it is aligned; the system reads what is looked at, and changes stay
    in this process. Nobody may write over the file meanwhile; replacing it is all right, as `save_file` does. Raises
    FormatError when the file is truncated or breaks the format, FileNotFoundError when it is not there.
    """
    data, header, start = _read(Path(path))
    shared = _shared(path, header.pop(_METADATA, {}))
    tensors = {name: Tensor(_array(data, start, entry, mapped)) for name, entry in header.items()}
    for name, owner in shared.items():
        if owner not in tensors or name in tensors:
            raise FormatError(f"{path}: its metadata say that {name!r} shares the tensor {owner!r}, which cannot be")
        tensors[name] = tensors[owner]
    return tensors


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings that a safetensors file carries beside its tensors."""
    metadata = dict(_read(Path(path))[1].get(_METADATA, {}))
    metadata.pop(_SHARED, None)
    return metadata


def release(array: np.ndarray) -> None:
    """Give the pages under an array of a mapped file back to the system, which reads them again when they are wanted.

    What was changed in them is lost. Does nothing for an array in other memory.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    held = base.obj if isinstance(base, memoryview) else base
    if sys.platform == "win32" or not isinstance(held, mmap.mmap) or not array.size:
        return
    first = array.__array_interface__["data"][0] - np.frombuffer(held, np.uint8).__array_interface__["data"][0]
    spans = [stride * (count - 1) for stride, count in zip(array.strides, array.shape, strict=True)]
    first, last = first + sum(min(span, 0) for span in spans), first + sum(max(span, 0) for span in spans)
    page = mmap.PAGESIZE
    start, end = -(-first // page) * page, (last + array.itemsize) // page * page
    if end > start:
        held.madvise(mmap.MADV_DONTNEED, start, end - start)


def _array(data: Any, start: int, entry: Mapping[str, Any], mapped: bool) -> np.ndarray:
    dtype, (first, last) = _DTYPES[entry["dtype"]], entry["data_offsets"]
    array = np.frombuffer(data, np.uint8, last - first, start + first).view(dtype).reshape(entry["shape"])
    return array if mapped and array.flags.aligned and array.flags.writeable else array.copy()


def _shared(path: Any, metadata: Mapping[str, str]) -> dict[str, str]:
    try:
        shared = json.loads(metadata.get(_SHARED, "{}"))
    except (ValueError, RecursionError):
        shared = None
    if not isinstance(shared, dict) or not all(isinstance(owner, str) for owner in shared.values()):
        raise FormatError(f"{path}: its metadata {_SHARED!r} are not a table of names")
    return shared


def _content(path: Path) -> Any:
    """The bytes of a file: its pages, of which what this process changes is its own, or read where that cannot be."""
    with open(path, "rb") as file:
        if os.name == "posix":  # elsewhere a mapped file cannot be replaced
            try:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except (ValueError, OSError):  # an empty file, or one without pages
                pass
        return file.read()


def _read(path: Path) -> tuple[Any, dict[str, Any], int]:
    """(the file's bytes, its header, where the tensors' bytes begin), all checked."""
    data = _content(path)

    def broken(what: str) -> FormatError:
        return FormatError(f"{path} is not a readable safetensors file: {what}")

    if len(data) < 8:
        raise broken(f"it has {len(data)} bytes, and 8 are the least")
    length = int.from_bytes(data[:8], "little")
    if length > _MAX_HEADER:
        raise broken(f"its header claims {length} bytes, more than {_MAX_HEADER} (it may be another kind of file)")
    if 8 + length > len(data):
        raise broken(f"its header should have {length} bytes, but the file ends after {len(data) - 8} (truncated?)")
    try:
        header = json.loads(data[8 : 8 + length], object_pairs_hook=_without_repeats)
    except RecursionError:
        raise broken("its header is nested too deeply") from None
    except ValueError as error:
        raise broken(f"its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise broken("its header is not a table of tensors")
    metadata = header.get(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise broken("its metadata are not strings by name")
    entries = [(name, entry) for name, entry in header.items() if name != _METADATA]
    spans = [(*_span(broken, name, entry), name) for name, entry in entries]
    expected = 0
    for first, last, name in sorted(spans):
        if first != expected:
            raise broken(f"tensor {name!r} begins at byte {first}, where byte {expected} was expected (gap or overlap)")
        expected = last
    if expected != len(data) - 8 - length:
        raise broken(f"its tensors need {expected} bytes and {len(data) - 8 - length} are there (truncated?)")
    return data, header, 8 + length


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _span(broken: Any, name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor lies, once its entry makes sense."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise broken(f"tensor {name!r} does not say dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise broken(f"tensor {name!r} has dtype {dtype!r}, which is none of {', '.join(_DTYPES)}")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise broken(f"tensor {name!r} has shape {shape!r} and data_offsets {offsets!r}, which are no sizes")
    if len(shape) > _MAX_DIMENSIONS:
        raise broken(f"tensor {name!r} has {len(shape)} dimensions, and {_MAX_DIMENSIONS} are the most")
    needed = math.prod(shape) * _DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != needed:
        raise broken(
            f"tensor {name!r} of {dtype} {shape} needs {needed} bytes, its data_offsets give {offsets[1] - offsets[0]}"
        )
    return offsets[0], offsets[1]


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)
