"""Compiled functions and memory: values that are written to several places, signs of zero, half types, single
elements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import compile
from minigrad.compiler.layout import _sharing


def test_one_value_is_written_to_every_tensor_that_takes_it():
    """Both changes are one computation: it cannot lie in the memory of both."""
    first, second = mg.zeros(3), mg.zeros(3)

    @compile
    def step(x):
        first.copy_(x * 2 + 1)
        second.copy_(x * 2 + 1)
        return first + second

    for call in range(3):
        assert step(mg.ones(3) * call).tolist() == [4.0 * call + 2] * 3
        assert first.tolist() == second.tolist() == [2.0 * call + 1] * 3


def test_a_gradient_does_not_share_memory_with_a_tensor_that_takes_its_value():
    weight, kept = mg.ones(3, requires_grad=True), mg.ones(3)

    @compile
    def step(x):
        (weight * x).backward(kept)
        kept.mul_(x)

    step(mg.ones(3) * 3)
    weight.grad.zero_()
    assert kept.tolist() == [3.0] * 3


def test_zero_and_minus_zero_are_two_numbers():
    function = compile(lambda x: (1 / (x * 0.0), 1 / (x * -0.0)))
    for _ in range(2):
        plus, minus = function(mg.ones(2))
        assert (plus.tolist(), minus.tolist()) == ([np.inf] * 2, [-np.inf] * 2)


def test_fused_choices_pass_nan_and_infinities_on():
    numbers = [0.0, -1.5, 2.0, np.nan, np.inf, -np.inf]
    a, b = (mg.tensor(side) for side in np.array([(p, q) for p in numbers for q in numbers], np.float32).T)

    def choices(a, b):
        return mg.maximum(a, b) + 1, mg.minimum(a, b) + 1, a.relu() + 1, mg.where(a > b, a, b) + 1

    for got, want in zip(compile(choices)(a, b), choices(a, b), strict=True):
        np.testing.assert_array_equal(got, want)


def test_gradients_of_single_elements_and_slices_are_joined():
    x = mg.arange(5.0).requires_grad_()

    @compile
    def step(x):
        (x[0] * 4 + x[-1] + (x[1:3] * 2).sum()).backward()

    step(x)
    assert x.grad.tolist() == [4.0, 2.0, 2.0, 0.0, 1.0]
    ((plan, _),) = step.plans.values()
    plan.arena.fill(255)  # whatever lay there before
    x.grad = None
    step(x)
    assert x.grad.tolist() == [4.0, 2.0, 2.0, 0.0, 1.0]


@pytest.mark.parametrize("dtype", [mg.float16, mg.bfloat16])
def test_half_types_are_computed_in_float32_and_rounded_once(dtype):
    x = mg.tensor(np.random.default_rng(0).uniform(0, 1, (700, 3)), dtype=dtype)

    def function(x):
        return x.sum(0), x.T @ x, x.exp() * x

    compiled = compile(function)
    for _ in range(2):
        for got, want in zip(compiled(x), function(x), strict=True):
            assert got.float().tolist() == want.float().tolist()


def test_losses_of_every_row_keep_their_logits(monkeypatch):
    """The kernel that goes through a large projection in chunks computes one loss."""
    monkeypatch.setattr("minigrad.compiler.projection.LARGE", 0)
    x, weight = (mg.randn(5, 4, requires_grad=True) for _ in range(2))
    targets = mg.tensor([0, 3, 2, -100, 4])

    def step():
        x.grad = weight.grad = None
        loss = mg.functional.cross_entropy(x @ weight.T, targets, reduction="none")
        (loss * mg.arange(5.0)).sum().backward()
        return loss

    want = step().tolist(), x.grad.tolist(), weight.grad.tolist()
    got = compile(step)().tolist(), x.grad.tolist(), weight.grad.tolist()
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(spans=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(1, 2)), max_size=12))
def test_arrays_that_share_memory_are_found_as_pairs_of_them_would_be(spans):
    memory = np.zeros(100, np.float32)
    arrays = [memory[start : start + length * step : step] for start, length, step in spans]
    wanted = {id(a) for a in arrays for b in arrays if a is not b and np.may_share_memory(a, b)}
    assert _sharing(arrays + arrays[:2]) == wanted
