"""Sums that are added up while their elements are computed: which are, and that they are right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad.compiler import compile, optimise
from minigrad.compiler.reduction import fuse_sums
from minigrad.kernels import threads
from minigrad.nn.utils import clip_grad_norm_


def planned(function, *tensors):
    """(the results of a second call of the compiled function, the ops of its plan)"""
    compiled = compile(function)
    compiled(*tensors)
    results = compiled(*tensors)
    ((plan, _),) = compiled.plans.values()
    return results, [node.op for node in plan.graph.nodes]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 40), min_size=0, max_size=3).map(tuple),
    factor=st.sampled_from(["number", "one element", "of its shape"]),
    keepdim=st.booleans(),
)
def test_a_fused_sum_equals_the_eager_one(shape, factor, keepdim):
    rng = np.random.default_rng(len(shape))
    x = mg.tensor(rng.standard_normal(shape).astype(np.float32))
    other = {"number": 0.5, "one element": mg.tensor([1.5]), "of its shape": x.exp()}[factor]

    def total(x):
        value = (x * other - 1).square()
        return value.sum(tuple(range(value.dim())), keepdim=keepdim)

    result, ops = planned(total, x)
    want = total(x)
    assert "fused_sum" in ops
    assert "sum" not in ops
    assert result.shape == want.shape
    np.testing.assert_allclose(result.numpy(), want.numpy(), rtol=1e-5)


def test_the_pass_alone_keeps_results():
    rng = np.random.default_rng(0)
    x = mg.tensor(rng.standard_normal((30, 7)).astype(np.float32))
    before = optimise(mg.trace(lambda x: (x.tanh() * x).sum())(x))[-1][1]
    after = fuse_sums(before)
    assert [node.op for node in after.nodes] == ["input", "fused_sum"]
    np.testing.assert_allclose(after.run(x), before.run(x), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.exp(), x.exp().sum()),  # the elements are a result too
        lambda x: (x * 2).sum(0),  # one dimension only
        lambda x: (x * mg.arange(4.0)).sum(),  # a row for all rows
        lambda x: (x[:0] * 2).sum(),  # nothing
        lambda x: (x.double() * 2).sum(),  # the reference's
        lambda x: (x > 0).sum(),  # a sum of integers
        lambda x: x.sum(),  # nothing to compute
    ],
)
def test_other_sums_stay(function):
    x = mg.tensor(np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32))
    results, ops = planned(function, x)
    wanted = function(x)
    assert "fused_sum" not in ops
    for mine, want in zip(
        results if isinstance(results, tuple) else [results],
        wanted if isinstance(wanted, tuple) else [wanted],
        strict=True,
    ):
        np.testing.assert_allclose(mine.numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_arrives(value):
    numbers = np.ones((70, 90), np.float32)
    numbers[11, 13] = value
    result, ops = planned(lambda x: x.square().sum(), mg.tensor(numbers))
    assert "fused_sum" in ops
    np.testing.assert_array_equal(result.numpy(), value)


def test_the_sum_does_not_depend_on_the_threads(monkeypatch):
    x = mg.tensor(np.random.default_rng(2).standard_normal((700, 900)).astype(np.float32))
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "_threads", count)
        found.append(planned(lambda x: (x * 3).square().sum(), x)[0].item())
    assert found[0] == found[1] == found[2]


def test_clipping_has_no_sum_of_stored_squares():
    weight = mg.tensor(np.ones((40, 50), np.float32), requires_grad=True)

    def step(x):
        weight.grad = None
        (x @ weight).sum().backward()
        return clip_grad_norm_([weight], 1.0)

    norm, ops = planned(step, mg.ones(30, 40))
    assert ops.count("fused_sum") == 1
    assert norm.item() == pytest.approx(30 * 2000**0.5)
    assert float(weight.grad.square().sum().item()) == pytest.approx(1, rel=1e-4)
