"""Calling a binder on a simulated device, on numpy arrays and views of them."""

from __future__ import annotations

import numpy as np

from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.simulated import SimulatedDriver


def bound(binder, inputs, outputs, seed=None, layouts=(), out_layouts=(), races=False, **attrs):
    """The outputs of a binder as arrays, and the names of the kernels that it launched.

    outputs: (shape, dtype) each. layouts, out_layouts: functions from an array as it lies in memory to the view that
    the binder is given (in order; None leaves it as it is).
    """
    with runtime.use(SimulatedDriver(seed, races=races)) as device:
        given = [device.upload(np.ascontiguousarray(x)) for x in inputs]
        given = [view(x) if view else x for x, view in zip(given, padded(layouts, given), strict=True)]
        made = [device.empty(*meta) for meta in outputs]
        targets = [view(x) if view else x for x, view in zip(made, padded(out_layouts, made), strict=True)]
        calls = DeviceCalls(device)
        assert binder(calls, given, targets, **attrs)
        names = [arguments[0].name for _, arguments in calls if hasattr(arguments[0], "name")]
        calls.run()
        return [x.numpy() for x in targets], names


def padded(layouts, arrays):
    return [*layouts, *[None] * (len(arrays) - len(layouts))]


def seen(array, layout):
    """What numpy makes of the same layout."""
    return layout(array) if layout else array


def swapped(x):
    """The transpose of matrices, as a view."""
    return x.transpose(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


def heads_inside(x):
    """``(B, T, H, d)`` in memory seen as ``(B, H, T, d)``."""
    return x.transpose(0, 2, 1, 3)
