"""A row times a matrix with the elementwise steps behind it, as decoding has them, in a compiled step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import functional as F
from minigrad import nn
from minigrad.compiler import compile
from minigrad.kernels import threads

STEPS = {
    "bias": lambda y, x, bias: y + bias,
    "gelu": lambda y, x, bias: F.gelu(y + bias),
    "residual": lambda y, x, bias: x + (y + bias),
    "numbers": lambda y, x, bias: (2.0 * y - 1.0).maximum(0.0) / 3.0,
    "twice": lambda y, x, bias: y * y + y,
    "chosen": lambda y, x, bias: mg.where(y > bias, y, x),
}


@pytest.fixture(autouse=True)
def seeded():
    mg.manual_seed(0)


def matrix_of(k, n, layout, rng):
    """A matrix ``(k, n)`` whose rows are in order, or its columns, or neither."""
    if layout == "columns":
        return mg.tensor(rng.standard_normal((n, k)).astype(np.float32)).transpose(0, 1)
    if layout == "neither":
        return mg.tensor(rng.standard_normal((k, 2 * n)).astype(np.float32))[:, ::2]
    return mg.tensor(rng.standard_normal((k, n)).astype(np.float32))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    k=st.integers(0, 70),
    n=st.integers(0, 200),
    name=st.sampled_from(sorted(STEPS)),
    layout=st.sampled_from(["rows", "columns", "neither"]),
    lead=st.sampled_from([(1,), (1, 1), (1, 1, 1)]),
    count=st.integers(1, 2),
)
def test_steps_on_a_row_equal_the_eager_ones(k, n, name, layout, lead, count):
    rng = np.random.default_rng(k * n)
    matrix = matrix_of(k, n, layout, rng)
    row, x = (mg.tensor(rng.standard_normal((*lead, size)).astype(np.float32)) for size in (k, n))
    bias = mg.tensor(rng.standard_normal(n).astype(np.float32))

    def step(row, x):
        return STEPS[name](row @ matrix, x, bias)

    before = threads.get_num_threads()
    threads.set_num_threads(min(count, threads.available()))
    try:
        compiled = compile(step)
        for _ in range(2):
            np.testing.assert_allclose(compiled(row, x).numpy(), step(row, x).numpy(), rtol=2e-5, atol=2e-5)
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_goes_where_it_goes_eagerly(bad):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((40, 24)).astype(np.float32)
    weight[:, 5] = bad
    matrix, bias = mg.tensor(weight), mg.tensor(rng.standard_normal(24).astype(np.float32))
    x = mg.tensor(np.abs(rng.standard_normal((1, 40))).astype(np.float32))

    def step(x):
        return F.relu(x @ matrix + bias)

    got = compile(step)(x).numpy()
    np.testing.assert_allclose(got, step(x).numpy(), rtol=2e-5, atol=2e-5)
    assert np.flatnonzero(~np.isfinite(got[0])).tolist() == [5]


def test_gradients_through_a_row_are_those_of_an_eager_step():
    layer = nn.Linear(6, 10)

    def step(x):
        layer.zero_grad()
        loss = F.gelu(layer(x)).sum()
        loss.backward()
        return loss

    x = mg.randn(1, 6)
    expected = step(x).item(), layer.weight.grad.numpy().copy(), layer.bias.grad.numpy().copy()
    got = compile(step)(x).item(), layer.weight.grad.numpy(), layer.bias.grad.numpy()
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
