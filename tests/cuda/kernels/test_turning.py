"""Rotary positions on the device: the CPU kernel's, read and written where the heads lie, in one launch each way."""

import ml_dtypes
import numpy as np
import pytest
from on_device import computed

import minigrad as mg
from minigrad import kernels
from minigrad.compiler import compile
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.rotary import rope as on_the_device
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.registry import OPS
from minigrad.ops.rotary import rope

RNG = np.random.default_rng(0)


def made(shape):
    angles = RNG.standard_normal((shape[-2], shape[-1] // 2))
    return [RNG.standard_normal(shape).astype(np.float32), *(f(angles).astype(np.float32) for f in (np.cos, np.sin))]


def on_the_cpu(arrays, attrs):
    y = np.empty(arrays[0].shape, np.float32)
    calls = kernels.bind(OPS["rope"], arrays, [y], attrs)
    calls.run()
    return y


def heads_inside(x):
    return x.transpose(0, 2, 1, 3)


def every_other(x):
    return x[:, :, ::2]


def rows_apart(x):
    return x[:, :, :, :16]


LAYOUTS = {
    "contiguous": ((2, 3, 5, 8), None),
    "ragged": ((2, 3, 5, 6), None),
    "heads inside of rows": ((2, 5, 3, 16), heads_inside),
    "ragged heads inside": ((2, 5, 3, 10), heads_inside),
    "rows apart": ((2, 2, 7, 20), rows_apart),
    "elements apart": ((2, 5, 16), every_other),
    "one head": ((9, 8), None),
    "many dimensions": ((2, 1, 2, 3, 4, 8), None),
}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_the_cpu_kernels(layout, back, interleaved):
    shape, view = LAYOUTS[layout]
    attrs = {"interleaved": interleaved, "back": back}
    x = RNG.standard_normal(shape).astype(np.float32)
    given = view(x) if view else x
    tables = made(given.shape)[1:]
    dense = np.ascontiguousarray(given).reshape(-1, *given.shape[-2:])
    wanted = on_the_cpu([dense, *tables], attrs).reshape(given.shape)
    (y,) = computed("rope", [x, *tables], attrs, seed=1, layouts=[view] if view else [], races=True)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("d", [8, 10])
@pytest.mark.parametrize("lies", [(0, 2, 1, 3), (0, 2, 3, 1)])
def test_results_are_written_where_they_lie(d, lies):
    arrays = made((2, 3, 5, d))
    attrs = {"interleaved": False, "back": False}
    with runtime.use(SimulatedDriver()) as device:
        inputs = [device.upload(array) for array in arrays]
        memory = device.empty(tuple((2, 3, 5, d)[i] for i in lies), np.float32)
        target = memory.transpose(tuple(int(i) for i in np.argsort(lies)))
        calls = DeviceCalls(device)
        assert on_the_device(calls, inputs, [target], **attrs)
        assert len(calls) == (1 if lies[-1] == 3 else 2)  # a copy where elements do not lie side by side
        calls.run()
        np.testing.assert_allclose(target.numpy(), on_the_cpu(arrays, attrs), rtol=1e-5, atol=1e-6)


def test_halves_are_rounded_once():
    arrays = [array.astype(ml_dtypes.bfloat16) for array in made((2, 7, 10))]
    attrs = {"interleaved": True, "back": False}
    wanted = on_the_cpu([array.astype(np.float32) for array in arrays], attrs)
    (y,) = computed("rope", arrays, attrs)
    np.testing.assert_array_equal(y, wanted.astype(ml_dtypes.bfloat16))


def test_nothing_to_turn():
    assert computed("rope", made((0, 4, 6)), {"interleaved": True, "back": False})[0].shape == (0, 4, 6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_one_launch_each_way_eagerly_and_in_a_plan(interleaved):
    x, *tables = (mg.tensor(array) for array in made((2, 3, 5, 8)))
    g = mg.randn(2, 3, 5, 8)

    def turned(x, cos, sin, g):
        x = x.detach().requires_grad_()
        y = rope(x, cos, sin, interleaved)
        (y * g).sum().backward()
        return y.detach(), x.grad

    wanted = turned(x, *tables, g)
    with runtime.use(SimulatedDriver()) as device:
        there = [tensor.to("cuda") for tensor in (x, *tables, g)]
        before = device.driver.counts["launch"]
        rope(*there[:3], interleaved)
        assert device.driver.counts["launch"] == before + 1
        step = compile(turned)
        for _ in range(3):
            for found, want in zip(step(*there), wanted, strict=True):
                np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
        ((plan, _),) = step.plans.values()
        names = [arguments[0].name for _, arguments in plan.calls if hasattr(arguments[0], "name")]
        assert names.count("rope_vectors") == 2
        assert device.host_ops == {}


def test_a_layer_turns_heads_where_they_lie():
    """Queries and keys come from a projection and go to attention without a copy."""
    from transformer import GroupedQueryAttention, RoPE

    layer, x = GroupedQueryAttention(32, 2, 1, rope=RoPE(16)), mg.randn(1, 6, 32)
    mask = mg.ones(6, 6, dtype=mg.bool).tril()
    wanted = layer(x, mask).detach().numpy()
    with runtime.use(SimulatedDriver()):
        layer, step = layer.to("cuda"), compile(lambda x, mask: layer(x, mask).detach())
        there = x.to("cuda"), mask.to("cuda")
        for _ in range(2):
            np.testing.assert_allclose(step(*there).numpy(), wanted, rtol=1e-4, atol=1e-5)
        ((plan, _),) = step.plans.values()
        names = [arguments[0].name for _, arguments in plan.calls if hasattr(arguments[0], "name")]
        assert names.count("rope_vectors") == 2
        assert not any(name.startswith("fused") for name in names), names  # no copy, no cut, no cat
