"""Running an op's kernel in the simulator, on arrays of any layout, beside its reference."""

from __future__ import annotations

import numpy as np

import minigrad.compiler
import minigrad.functional
import minigrad.optim  # noqa: F401  (they register ops)
from minigrad import kernels, later
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.registry import OPS


def as_is(array):
    return array


def computed(name, arrays, attrs, seed=None, layouts=(), twice=True, races=False):
    """The outputs of the kernel of op `name`; run twice, they must be the same bit for bit.

    layouts: for each input a function from the uploaded array to a view of it (`as_is` where they end).
    """
    with runtime.use(SimulatedDriver(seed, races=races)) as device:
        views = [*layouts, *[as_is] * (len(arrays) - len(layouts))]
        inputs = [view(device.upload(array)) for view, array in zip(views, arrays, strict=True)]
        metas = OPS[name].output_metas([(x.shape, x.dtype) for x in inputs], attrs)
        outputs = [device.empty(*meta) for meta in metas]
        calls = DeviceCalls(device)
        spec = kernels.spec(OPS[name], "cuda", inputs[0].dtype.name)
        assert later.load(spec)(calls, inputs, outputs, **attrs), f"the kernel of {name} declined"
        calls.run()
        results = [device.download(output) for output in outputs]
        if twice:
            calls.run()
            for before, output in zip(results, outputs, strict=True):
                np.testing.assert_array_equal(before, device.download(output))
    return results


def agrees(name, arrays, attrs, seed=None, layouts=(), rtol=1e-5, atol=1e-6, twice=True, races=False):
    """The kernel's outputs are the reference's, in shape, dtype and value (NaN and infinities included)."""
    results = computed(name, arrays, attrs, seed, layouts, twice, races)
    views = [*layouts, *[as_is] * (len(arrays) - len(layouts))]
    wanted = OPS[name].evaluate([view(array) for view, array in zip(views, arrays, strict=True)], attrs)
    for result, want in zip(results, wanted, strict=True):
        assert (result.shape, result.dtype) == (want.shape, want.dtype)
        if result.dtype.name in ("float16", "bfloat16"):
            rtol, atol = 1e-2, 1e-2
        if result.dtype.kind in "biu":
            np.testing.assert_array_equal(result, want)
        else:
            np.testing.assert_allclose(
                result.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True
            )
