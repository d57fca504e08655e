"""Dropout on the device: the CPU kernel's draw bit for bit, in vectors and one by one, in one launch each way."""

import ml_dtypes
import numpy as np
import pytest
from on_device import computed

import minigrad as mg
import minigrad.functional as F
from minigrad import kernels
from minigrad.compiler import compile
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.registry import OPS

RNG = np.random.default_rng(0)


def on_the_cpu(arrays, p):
    y = np.empty(arrays[0].shape, np.float32)
    calls = kernels.bind(OPS["dropout"], arrays, [y], {"p": p})
    calls.run()
    return y


def transposed(x):
    return x.transpose()


def shifted(x):
    return x[1:]


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(
    ("shape", "layout"), [((40, 32), None), ((7, 9), None), ((31, 33), transposed), ((9, 7), shifted)]
)
@pytest.mark.parametrize("key", [(0, 0), (2**63 - 1, 2**33 - 3)])
@pytest.mark.parametrize("p", [1e-9, 0.3, 1 - 2**-24])
def test_it_is_the_cpu_kernels(shape, layout, key, p, added):
    x, residual = RNG.standard_normal((2, *shape)).astype(np.float32)
    given = layout(x) if layout else x
    rest = [residual.reshape(-1)[: given.size].reshape(given.shape)] if added else []
    wanted = on_the_cpu([given, np.array(key), *rest], p)
    layouts = [layout] if layout else []
    (y,) = computed("dropout", [x, np.array(key), *rest], {"p": p}, seed=1, layouts=layouts, races=True)
    if added:
        np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)  # the CPU may round a product and a sum at once
    else:
        np.testing.assert_array_equal(y, wanted)


def test_halves_are_rounded_once():
    x = RNG.standard_normal(1030).astype(ml_dtypes.bfloat16)
    wanted = on_the_cpu([x.astype(np.float32), np.array([3, 5])], 0.3).astype(ml_dtypes.bfloat16)
    (y,) = computed("dropout", [x, np.array([3, 5])], {"p": 0.3})
    np.testing.assert_array_equal(y, wanted)


def test_nothing_and_what_is_not_finite():
    assert computed("dropout", [np.empty((0, 3), np.float32), np.array([1, 2])], {"p": 0.5})[0].shape == (0, 3)
    x = np.array([np.nan, np.inf, -np.inf] * 30, np.float32)
    (y,) = computed("dropout", [x, np.array([1, 2])], {"p": 0.5})
    np.testing.assert_array_equal(y, on_the_cpu([x, np.array([1, 2])], 0.5))  # what is dropped is multiplied by 0


def test_one_launch_each_way_and_the_residual_with_it_in_a_plan():
    with runtime.use(SimulatedDriver()) as device:
        generator = mg.random.Generator(3)
        x = mg.randn(5, 8).to("cuda").requires_grad_()
        key = generator.take(40, "cuda:0")
        y = mg.ops.dropout.dropout(x, key, 0.4)
        before = device.driver.counts["launch"]
        again = mg.ops.dropout.dropout(x, key, 0.4)
        assert device.driver.counts["launch"] == before + 1
        np.testing.assert_array_equal(again.detach().numpy(), y.detach().numpy())
        y.sum().backward()
        np.testing.assert_allclose((x.grad * x.detach()).numpy(), y.detach().numpy(), rtol=1e-6)

        step = compile(lambda a, b: b + F.dropout(a, 0.4, generator=generator))
        b, draws = mg.randn(5, 8), mg.random.Generator(3)
        draws.take(40)
        for _ in range(3):
            wanted = b + F.dropout(x.detach().cpu(), 0.4, generator=draws)
            np.testing.assert_allclose(step(x.detach(), b.to("cuda")).numpy(), wanted.numpy(), rtol=1e-6)
        ((plan, _),) = step.plans.values()
        names = [arguments[0].name for _, arguments in plan.calls if hasattr(arguments[0], "name")]
        assert names.count("dropout_float32_added") == 1
        assert not any("uniform" in name for name in names)
        assert device.host_ops == {}


def test_float64_takes_its_steps():
    with runtime.use(SimulatedDriver()) as device:
        x = mg.ones(20, dtype=mg.float64)
        here = F.dropout(x, 0.5, generator=mg.random.Generator(1))
        there = F.dropout(x.to("cuda"), 0.5, generator=mg.random.Generator(1))
        np.testing.assert_array_equal(there.numpy(), here.numpy())
        assert device.host_ops == {}
