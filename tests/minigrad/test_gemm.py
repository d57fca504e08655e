"""Products by the BLAS library's own function: every layout, batch and split against numpy; what it declines."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad.compile import compile
from minigrad.kernels import blas, threads
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import gemm

needs_sgemm = pytest.mark.skipif(not gemm.address(), reason="numpy bundles no OpenBLAS with 64-bit integers here")


def laid(shape, turned, rng):
    """A float32 array whose last two dimensions lie in memory as they are, or exchanged."""
    if not turned:
        return rng.standard_normal(shape).astype(np.float32)
    return rng.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(np.float32).swapaxes(-1, -2)


@needs_sgemm
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    turned=st.tuples(st.booleans(), st.booleans()),
    batch=st.sampled_from([((), ()), ((3,), (3,)), ((2, 1), (1, 3)), ((4,), ()), ((), (2, 2))]),
    split=st.integers(1, 5),
)
def test_products_equal_numpys(sizes, turned, batch, split):
    m, k, n = sizes
    rng = np.random.default_rng(m * k + n)
    a, b = laid((*batch[0], m, k), turned[0], rng), laid((*batch[1], k, n), turned[1], rng)
    want = np.matmul(a, b)
    got = np.full(want.shape, np.nan, np.float32)
    calls = Calls()
    assert gemm.product(calls, a, b, got)
    [(function, arguments)] = calls
    if function is threads.over_rows:
        kernel, rows, _, *rest = arguments
    else:
        kernel, (_, rows, *rest) = function, arguments
    with blas.single():
        bounds = [rows * i // split for i in range(split + 1)]
        for start, stop in pairwise(bounds):
            if start < stop:
                kernel(start, stop, *rest)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * k**0.5)


@needs_sgemm
def test_rows_of_a_wider_array_are_read_in_place():
    wide = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    out = np.zeros((6, 40), np.float32)
    calls = Calls()
    assert gemm.product(calls, wide[:, 3:9], wide[:, 10:16].T, out[:, 5:11])
    calls.run()
    np.testing.assert_allclose(out[:, 5:11], wide[:, 3:9] @ wide[:, 10:16].T, rtol=1e-5, atol=1e-5)
    assert not out[:, :5].any()
    assert not out[:, 11:].any()


@pytest.mark.parametrize(
    "arrays",
    [
        [np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2))],  # float64
        [np.ones((0, 2), np.float32), np.ones((2, 2), np.float32), np.ones((0, 2), np.float32)],
        [np.ones((4, 8), np.float32)[::2, ::2], np.ones((4, 2), np.float32), np.ones((2, 2), np.float32)],
        [np.ones((2, 2), np.float32)] * 2 + [np.ones((4, 2), np.float32)[:2].T.copy().T],
    ],
)
def test_what_the_library_cannot_read_stays_with_numpy(arrays):
    calls = Calls()
    assert not gemm.product(calls, *arrays)
    assert not calls


def test_a_plan_without_the_library_computes_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (mg.tensor(rng.standard_normal((33, 33)), dtype=mg.float32) for _ in range(2))
    with_it = compile(lambda a, b: a @ b)(a, b).numpy()
    monkeypatch.setattr(gemm, "address", lambda: 0)
    np.testing.assert_allclose(compile(lambda a, b: a @ b)(a, b).numpy(), with_it, rtol=1e-5, atol=1e-5)


@needs_sgemm
def test_nan_and_infinity_pass_through_a_plan():
    a = np.ones((20, 20), np.float32)
    a[3, 4], a[5, 6] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        want = a @ a
    got = compile(lambda x: x @ x)(mg.from_numpy(a)).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))
