"""Products with matrices in fewer bytes: the kernels beside numpy's definition, and what cannot be stored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import functional as F
from minigrad import kernels, nn
from minigrad.compiler import compile
from minigrad.kernels import threads
from minigrad.kernels.numba import stored as stored_kernels
from minigrad.ops.stored import KINDS, to_stored

SEEDS = st.integers(0, 10_000)


def matrix_of(n, k, seed):
    """Rows of very different sizes, one of them zeros."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, k)).astype(np.float32) * np.float32(10.0) ** rng.integers(-6, 6, (n, 1))
    matrix[: n // 5] = 0
    return matrix


def by_definition(x, parts):
    """x W^T in float64, W as numpy makes it of what is stored."""
    stored, *scales = parts
    matrix = stored.astype(np.float64) * (scales[0].astype(np.float64)[:, None] if scales else 1)
    return x.astype(np.float64) @ matrix.T, np.abs(x.astype(np.float64)) @ np.abs(matrix).T


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    rows=st.integers(0, 9), n=st.integers(0, 70), k=st.integers(0, 70), kind=st.sampled_from(KINDS),
    lead=st.sampled_from([(), (1,), (2, 1)]), count=st.integers(1, 2), part=st.sampled_from([1, 50, 1 << 20]),
    seed=SEEDS,
)  # fmt: skip
def test_plans_and_kernels_and_the_reference_are_the_definition(rows, n, k, kind, lead, count, part, seed):
    parts = to_stored(matrix_of(n, k, seed), kind)
    x = np.random.default_rng(seed).standard_normal((*lead, rows, k)).astype(np.float32)
    given, before, size = [mg.from_numpy(each) for each in parts], threads.get_num_threads(), stored_kernels._PART
    threads.set_num_threads(min(count, threads.available()))
    stored_kernels._PART = part
    try:
        planned = compile(lambda x: F.stored_linear(x, *given))
        found = [planned(mg.tensor(x)) for _ in range(2)]
        for mode in ("always", "reference"):
            with kernels.use(mode):
                found.append(F.stored_linear(mg.tensor(x), *given))
    finally:
        threads.set_num_threads(before)
        stored_kernels._PART = size
    wanted, scale = by_definition(x, parts)
    for each in found:
        assert each.dtype == mg.float32
        assert each.shape == wanted.shape
        np.testing.assert_array_less(np.abs(each.numpy() - wanted), 1e-30 + scale * (k + 4) * 1.2e-7)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(n=st.integers(1, 20), k=st.integers(1, 40), seed=SEEDS)
def test_int8_is_within_half_a_step_of_each_row_and_bfloat16_within_an_eighth_bit(n, k, seed):
    matrix = matrix_of(n, k, seed)
    stored, scales = to_stored(matrix, "int8")
    assert np.abs(stored.astype(int)).max() <= 127
    error = np.abs(stored.astype(np.float64) * scales[:, None] - matrix)
    assert (error <= np.abs(matrix).max(1, keepdims=True) / 127 * 0.5001).all()
    (halves,) = to_stored(matrix, "bfloat16")
    assert (np.abs(halves.astype(np.float64) - matrix) <= np.abs(matrix) / 256).all()


def test_numbers_too_small_to_divide_by_are_zeros():
    stored, scales = to_stored(np.full((1, 3), 1e-44, np.float32), "int8")
    assert np.isfinite(scales).all()
    assert (stored == 0).all()


def test_a_plan_reads_the_stored_bytes():
    layer = nn.StoredLinear(nn.Stored(mg.randn(32, 48), "int8"), nn.Parameter(mg.randn(32)))
    step = compile(layer)
    with mg.no_grad():
        step(mg.randn(1, 48))
    ((plan, _),) = step.plans.values()
    assert "stored_linear" in [node.op for node in plan.graph.nodes]
    assert [array.dtype for array in plan.graph.constants.values() if array.size == 32 * 48] == [mg.int8]
    assert len(plan.calls) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_those_of_the_matrix_that_is_stored(kind):
    mg.manual_seed(0)
    linear, table = nn.Linear(6, 5), nn.Embedding(5, 6)
    stored = nn.StoredLinear(nn.Stored(linear.weight, kind), linear.bias)
    looked_up = nn.StoredEmbedding(nn.Stored(table.weight, kind))
    x, ids = mg.randn(2, 3, 6, requires_grad=True), mg.tensor([[4, 0], [2, 2]])
    np.testing.assert_allclose(stored(x).detach(), F.linear(x, stored.weight, linear.bias).detach(), rtol=1e-5)
    np.testing.assert_array_equal(looked_up(ids), looked_up.weight[ids])
    np.testing.assert_allclose(stored.weight, linear.weight.detach(), atol=0.01)
    assert {p.requires_grad for name, p in stored.named_parameters() if "matrix" in name} == {False}
    stored(x).sum().backward()
    np.testing.assert_allclose(x.grad, stored.weight.sum(0).expand(2, 3, 6), rtol=1e-5)
    for dtype in (mg.bfloat16, mg.float64):
        assert F.stored_linear(x.detach().to(dtype), stored.matrix.stored, stored.matrix.scales).dtype == dtype
    assert kind in repr(stored)


def test_what_cannot_be_stored_or_multiplied_is_one_sentence():
    matrix = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="stored as int8 or bfloat16, got 'int4'"):
        to_stored(matrix, "int4")
    for bad in (np.inf, -np.inf, np.nan):
        spoiled = matrix.copy()
        spoiled[1, 2] = bad
        for kind in KINDS:
            with pytest.raises(ValueError, match="infinite or undefined values"):
                to_stored(spoiled, kind)
    stored, scales = (mg.from_numpy(array) for array in to_stored(matrix, "int8"))
    x = mg.ones(2, 4)
    with pytest.raises(TypeError, match="the matrix int8 or bfloat16, got float32 and float32"):
        F.stored_linear(x, mg.ones(3, 4))
    with pytest.raises(TypeError, match="x must be floating"):
        F.stored_linear(x.long(), stored, scales)
    with pytest.raises(ValueError, match="of int8 has a scale for each row"):
        F.stored_linear(x, stored)
    with pytest.raises(ValueError, match="of bfloat16 has none"):
        F.stored_linear(x, mg.ones(3, 4).to(mg.bfloat16), scales)
    with pytest.raises(ValueError, match=r"needs scales \[3\], got \[2\]"):
        F.stored_linear(x, stored, scales[:2])
    with pytest.raises(ValueError, match=r"must be \(..., k\) and \(n, k\)"):
        F.stored_linear(mg.ones(2, 5), stored, scales)
    with pytest.raises(TypeError, match="stored must be a tensor"):
        F.stored_linear(x, matrix)
