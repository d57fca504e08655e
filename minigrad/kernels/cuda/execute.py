"""How an op is computed on the device: as a view, by its kernel, by its decomposition, or on the host.

A composite without a kernel runs as its decomposition, whose ops are on the device again. What is left is computed on
the host, which waits for the device: ops that say why (`Op.on_host`) and shapes that depend on values always, any other
op for dtypes that have no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad import kernels, later
from minigrad.decomposition import run_decomposition
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.memory import DeviceArray, name_of
from minigrad.kernels.cuda.runtime import Runtime, runtime

if TYPE_CHECKING:
    from minigrad.ops.registry import Op
    from minigrad.tensor import Tensor


def run(op: Op, arrays: Sequence[DeviceArray], attrs: Mapping[str, Any]) -> tuple[DeviceArray, ...]:
    """The outputs of `op` on the device."""
    if op.view:
        return (view(op, arrays[0], attrs),)
    if op.reference is None and kernels.spec(op, "cuda", name_of(arrays[0].dtype)) is None:
        return run_decomposition(op, arrays, attrs)
    device = arrays[0].runtime
    try:
        metas = op.output_metas([(array.shape, array.dtype) for array in arrays], attrs)
    except RuntimeError:  # the shape depends on values
        return _by_values(device, op, arrays, attrs)
    outputs = tuple([device.empty(shape, dtype) for shape, dtype in metas])
    calls = DeviceCalls(device)
    bind(calls, op, arrays, outputs, attrs)
    calls.run()
    return outputs


def bind(
    calls: DeviceCalls,
    op: Op,
    inputs: Sequence[Any],
    outputs: Sequence[DeviceArray],
    attrs: Mapping[str, Any],
) -> None:
    """Append calls that compute `op`: its kernel's, or one on the host. Inputs may be numbers (numpy scalar arrays)."""
    spec = kernels.spec(op, "cuda", name_of(inputs[0].dtype))
    if spec is not None and kernels.get_mode() != "reference":
        before = len(calls)
        if later.load(spec)(calls, inputs, outputs, **attrs):
            return
        del calls[before:]
    device = calls.runtime
    device.host_ops[op.name] = device.host_ops.get(op.name, 0) + 1
    arrays = [device.literal(array) if isinstance(array, np.ndarray) else array for array in inputs]
    calls.host(lambda *values: op.evaluate(values, attrs), arrays, outputs)


def view(op: Op, array: DeviceArray, attrs: Mapping[str, Any]) -> DeviceArray:
    """The output of a view op; a copy where a reshape cannot be one."""
    reference = op.reference
    assert reference is not None
    if op.name == "reshape":
        try:
            return array.reshape(attrs["shape"])
        except ValueError:
            return array.copy().reshape(attrs["shape"])
    if op.name == "as_strided" and not array.is_contiguous:
        array = array.copy()
    return array.through(lambda x: reference(x, **attrs))


def _by_values(
    device: Runtime, op: Op, arrays: Sequence[DeviceArray], attrs: Mapping[str, Any]
) -> tuple[DeviceArray, ...]:
    device.host_ops[op.name] = device.host_ops.get(op.name, 0) + 1
    return tuple(device.upload(output) for output in op.evaluate([array.numpy() for array in arrays], attrs))


def transfer(array: Any, device: str) -> Any:
    """A copy of `array` on `device`: up, down (waits), or where it is."""
    if device == "cpu":
        return array.numpy() if isinstance(array, DeviceArray) else array.copy()
    return array.copy() if isinstance(array, DeviceArray) else runtime().upload(array)


def literal(array: np.ndarray) -> DeviceArray:
    """A scalar of the host on the device, not to be changed there."""
    return runtime().literal(array)


def arrays(tensors: Sequence[Tensor]) -> list[DeviceArray]:
    """The arrays of tensors on the device, and of numbers."""
    return [literal(t.array) if t.storage.device == "cpu" else t.array for t in tensors]  # type: ignore[misc]


def copy(target: Any, source: Any) -> None:
    """Copy values between arrays of one shape, wherever they are; casts on the host only."""
    if isinstance(target, DeviceArray):
        device = target.runtime
        if isinstance(source, DeviceArray):
            device.copy(target, source)
        elif target.is_contiguous:
            device.fill(target, np.asarray(source, target.dtype))
        else:
            device.copy(target, device.upload(np.asarray(source, target.dtype)))
    else:
        np.copyto(target, source.numpy() if isinstance(source, DeviceArray) else source, casting="unsafe")
