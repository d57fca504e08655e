"""Sums that are added up while their elements are computed: which are, and that they are right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad.compiler import compile, optimise
from minigrad.compiler.reduction import fuse_sums, sum_in_products
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
    before = dict(optimise(mg.trace(lambda x: (x.tanh() * x).sum())(x)))["drop_dead"]
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


# --- sums of columns, with a product ----------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(*[st.integers(1, 90)] * 3),
    lead=st.sampled_from([(), (2,), (3, 2)]),
    keepdim=st.booleans(),
    sum_first=st.booleans(),
)
def test_the_sum_of_columns_is_computed_with_the_product_of_the_transpose(sizes, lead, keepdim, sum_first):
    m, k, n = sizes
    rng = np.random.default_rng(m * k + n)
    x = mg.tensor(rng.standard_normal((*lead, k, m)).astype(np.float32))
    y = mg.tensor(rng.standard_normal((int(np.prod(lead)) * k, n)).astype(np.float32))

    def both(x, y):
        total = x.sum(tuple(range(x.dim() - 1)), keepdim=keepdim) if sum_first else None
        product = x.reshape(-1, m).T @ y
        return product, x.sum(tuple(range(x.dim() - 1)), keepdim=keepdim) if total is None else total * 2

    results, ops = planned(both, x, y)
    assert "matmul_sum" in ops
    assert "sum" not in ops
    for result, want in zip(results, both(x, y), strict=True):
        assert result.shape == want.shape
        np.testing.assert_allclose(result.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x.T @ (y * x.sum(0, keepdim=True).sum()), x.sum(1)),  # the product needs the sum; another sum
        lambda x, y: (x.T @ y, x.sum(1), x.sum((0, 1))),
        lambda x, y: (x.T @ y, (x * 2).sum(0)),
        lambda x, y: (y.T @ x, x.sum(0)),
        lambda x, y: (x.double().T @ y.double(), x.double().sum(0)),
    ],
)
def test_other_sums_stay_as_they_are(function):
    rng = np.random.default_rng(0)
    x, y = (mg.tensor(rng.standard_normal((30, n)).astype(np.float32)) for n in (20, 24))
    results, ops = planned(function, x, y)
    assert "matmul_sum" not in ops
    for result, want in zip(results, function(x, y), strict=True):
        np.testing.assert_allclose(result.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_what_is_not_finite_stays_in_its_column(kind):
    x = np.ones((600, 40), np.float32)
    x[7, 3] = np.nan if kind == "nan" else np.inf
    (product, total), ops = planned(
        lambda x, y: (x.T @ y, x.sum(0)), mg.tensor(x), mg.tensor(np.ones((600, 20), np.float32))
    )
    assert "matmul_sum" in ops
    want = np.full(40, 600, np.float32)
    want[3] = x[7, 3]
    np.testing.assert_array_equal(total.numpy(), want)
    np.testing.assert_array_equal(product.numpy(), np.repeat(want[:, None], 20, 1))


def test_sums_of_columns_are_bit_equal_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    x, y = (mg.tensor(rng.standard_normal((512, n)).astype(np.float32)) for n in (100, 64))
    before, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 5):
            threads.set_num_threads(count)
            results.append(planned(lambda x, y: (x.T @ y, x.sum(0)), x, y)[0])
    finally:
        threads.set_num_threads(before)
    from minigrad.kernels.numba.gemm_tile import SERVED  # else products are numpy's, whose sums follow its threads

    for product, total in results[1:]:
        if SERVED:
            np.testing.assert_array_equal(product.numpy(), results[0][0].numpy())
        np.testing.assert_array_equal(total.numpy(), results[0][1].numpy())


def test_the_pass_for_products_alone_keeps_results():
    rng = np.random.default_rng(0)
    x, y = (mg.tensor(rng.standard_normal((30, n)).astype(np.float32)) for n in (7, 5))
    before = dict(optimise(mg.trace(lambda x, y: (x.sum(0), x.T @ y))(x, y)))["drop_dead"]
    after = sum_in_products(before)
    assert [node.op for node in after.nodes if node.op not in ("input", "permute")] == ["matmul_sum"]
    for result, want in zip(after.run(x, y), before.run(x, y), strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-5)


def test_products_that_need_each_others_sums_do_not_both_compute_them():
    rng = np.random.default_rng(4)
    a, b, c, d = (mg.tensor(rng.standard_normal((64, 32)).astype(np.float32)) for _ in range(4))

    def crossed(a, b, c, d):
        first, second = a.sum(0), c.sum(0)
        return a.T @ (b * second), c.T @ (d * first), first, second

    results, ops = planned(crossed, a, b, c, d)
    assert ops.count("matmul_sum") == 1
    for mine, want in zip(results, crossed(a, b, c, d), strict=True):
        np.testing.assert_allclose(mine.numpy(), want.numpy(), rtol=1e-4, atol=1e-3)
