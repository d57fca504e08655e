"""Dropout: its node and kernel against the draw written out, and what a compiled step makes of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import functional as F
from minigrad import kernels, nn, random
from minigrad.compiler import compile
from minigrad.kernels import threads
from minigrad.kernels.numba.dropout import threshold
from minigrad.ops.registry import OPS


def factors(shape, p, seed, offset=0):
    """What dropout multiplies by, straight from the generator's words."""
    words = random.philox(seed, offset, int(np.prod(shape))).reshape(shape)
    kept = (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-24) >= np.float32(p)
    return kept.astype(np.float32) * np.float32(1 / (1 - p))


def fast(x, key, p, *residual):
    y = np.full(x.shape, 7, np.float32)
    calls = kernels.bind(OPS["dropout"], [x, np.array(key), *residual], [y], {"p": p})
    assert calls is not None, "the kernel declined"
    calls.run()
    return y


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 1 - 2**-24]),
    key=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**40)),
    turned=st.booleans(),
    added=st.booleans(),
)
def test_the_kernel_drops_what_the_generator_says(shape, p, key, turned, added):
    rng = np.random.default_rng(0)
    x, residual = rng.standard_normal((2, *shape)).astype(np.float32)
    given = np.ascontiguousarray(x.T).T if turned else x
    expected = x * factors(shape, p, *key)
    y = fast(given, key, p, residual) if added else fast(given, key, p)
    np.testing.assert_allclose(y, residual + expected if added else expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.25, 1 / 3, 0.9, 1 - 2**-24])
def test_the_first_number_that_the_kernel_keeps_is_the_first_that_is_not_below_p(p):
    first = threshold(p)[0]
    assert np.float32(first * 2.0**-24) >= np.float32(p)
    assert np.float32((first - 1) * 2.0**-24) < np.float32(p)


def test_nan_and_infinity_stay_where_they_are_dropped():
    """As in a product with 0: a NaN that is dropped does not vanish."""
    y = fast(np.array([np.nan, np.inf, -np.inf] * 700, np.float32), (0, 0), 0.5)
    assert np.isnan(y[::3]).all()
    kept = factors((2100,), 0.5, 0) > 0
    assert (np.isinf(y) == (kept & (np.arange(2100) % 3 > 0))).all()


def test_equal_numbers_for_any_number_of_threads():
    x = np.random.default_rng(0).standard_normal((500, 777)).astype(np.float32)
    before = threads.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            threads.set_num_threads(count)
            results.append(fast(x, (3, 5), 0.3))
    finally:
        threads.set_num_threads(before)
    assert (results[0] == results[1]).all()
    assert (results[0] == results[2]).all()


@pytest.mark.parametrize("mode", ["reference", "always"])
def test_gradient_meets_the_same_draw(mode):
    generator = random.Generator(9)
    x = mg.randn(3, 41).requires_grad_()
    with kernels.use(mode):
        y = F.dropout(x, 0.4, generator=generator)
        y.backward(mg.ones(3, 41))
    expected = factors((3, 41), 0.4, 9)
    np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy() * expected, rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)


def test_a_compiled_step_adds_the_residual_in_the_same_pass():
    weight = (mg.randn(64, 64) * 0.1).requires_grad_()
    drop = nn.Dropout(0.2)

    def step(x):
        x = x + drop(x @ weight)
        x = drop(x @ weight) + x
        x.sum().backward()
        return x

    x = mg.randn(8, 50, 64)
    compiled = compile(step)
    outputs, gradients = [], []
    for run in (step, compiled, compiled):  # traced, then replayed
        mg.manual_seed(5)
        weight.grad = None
        outputs.append(run(x).detach().numpy().copy())
        gradients.append(weight.grad.numpy().copy())
    for output, gradient in zip(outputs[1:], gradients[1:], strict=True):
        np.testing.assert_allclose(output, outputs[0], atol=1e-4)
        np.testing.assert_allclose(gradient, gradients[0], rtol=1e-4, atol=1e-3)
    plan, _ = next(iter(compiled.plans.values()))
    found = [len(node.inputs) for node in plan.graph.nodes if node.op == "dropout"]
    assert sorted(found) == [2, 2, 3, 3], "two of the forward pass with a residual, two of the backward pass without"


def test_what_is_spread_over_dropout_is_not_added_by_its_kernel():
    x, bias = mg.randn(40, 6), mg.randn(6)

    def step(x, bias):
        return F.dropout(x, 0.5) + bias

    compiled = compile(step)
    compiled(x, bias)
    found = []
    for run in (step, compiled):
        mg.manual_seed(2)
        found.append(run(x, bias).numpy())
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6)
