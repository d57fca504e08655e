"""Comparisons of integers in plans: numpy's results, by machine code where shapes allow."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import minigrad as mg
from minigrad.compiler import compile
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import compare

LIMITS = np.iinfo(np.int64)
NUMBERS = st.one_of(st.integers(-3, 3), st.integers(LIMITS.min, LIMITS.max))
names = pytest.mark.parametrize("name", sorted(compare.COMPARISONS))


@names
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_they_are_numpys(name, data):
    shape = data.draw(array_shapes(min_dims=0, max_dims=3, max_side=9))
    a = data.draw(arrays(np.int64, shape, elements=NUMBERS))
    b = data.draw(arrays(np.int64, data.draw(st.sampled_from([shape, (), (1,) * len(shape)])), elements=NUMBERS))
    calls, out = Calls(), np.empty(shape, bool)
    assert compare.comparison(calls, name, a, b, out)
    calls.run()
    np.testing.assert_array_equal(out, getattr(operator, name)(a, b))


@names
def test_many_are_cut_over_threads(name):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (2, 700, 300))
    for right in (b, np.array(1)):
        calls, out = Calls(), np.empty(a.shape, bool)
        assert compare.comparison(calls, name, a, right, out)
        calls.run()
        np.testing.assert_array_equal(out, getattr(operator, name)(a, right))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros((3, 4), np.int64), np.zeros(4, np.int64)),
        (np.zeros((3, 1), np.int64), np.zeros((1, 3), np.int64)),
        (np.array(1), np.zeros(3, np.int64)),
        (np.zeros((4, 4), np.int64).T[:, ::2], np.array(1)),
        (np.zeros((0, 2), np.int64), np.array(1)),
        (np.zeros(3, np.int32), np.zeros(3, np.int32)),
        (np.zeros(3), np.zeros(3)),
        (np.zeros(3, bool), np.zeros(3, bool)),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_all_else_is_left_to_numpy(a, b):
    calls = Calls()
    assert not compare.comparison(calls, "lt", a, b, np.empty(np.broadcast_shapes(a.shape, b.shape), bool))
    assert not calls


def test_a_plan_that_compares_positions_is_one_piece_of_machine_code():
    values = mg.randn(2, 64)

    @compile
    def step(position):
        return values.masked_fill(mg.arange(64) > position, 0.0) * 2.0

    for position in (3, 40):
        expected = np.where(np.arange(64) > position, 0, 2 * values.numpy())
        np.testing.assert_array_equal(step(mg.tensor(position)).numpy(), expected)
    ((plan, _),) = step.plans.values()
    assert len(plan.program) == 1
