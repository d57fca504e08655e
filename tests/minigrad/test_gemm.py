"""Products in a plan, by our tiles and by the BLAS library: every layout, batch and split against numpy."""

import ctypes
import mmap
import os
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad.compiler import compile
from minigrad.kernels import blas
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import amx, gemm

needs_tiles = pytest.mark.skipif(not gemm.SERVED, reason="tiles are for 512-bit vectors")
needs_amx = pytest.mark.skipif(not amx.served(), reason="this processor has no matrix unit for bfloat16")
units = pytest.mark.parametrize("unit", ["vectors", pytest.param("matrix", marks=needs_amx)])
needs_sgemm = pytest.mark.skipif(not gemm.address(), reason="numpy bundles no OpenBLAS with 64-bit integers here")


def laid(shape, turned, rng):
    """A float32 array whose last two dimensions lie in memory as they are, or exchanged."""
    if not turned:
        return rng.standard_normal(shape).astype(np.float32)
    return rng.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(np.float32).swapaxes(-1, -2)


def at_the_end(array):
    """The same matrix, lying as it does, with memory behind its last number that nobody may read."""
    if not array.flags.c_contiguous:
        return at_the_end(array.T).T
    page = mmap.PAGESIZE
    room = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, room + page)
    guard = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory, room)))
    assert ctypes.CDLL(None).mprotect(guard, ctypes.c_size_t(page), 0) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, room - array.nbytes).reshape(array.shape)
    copy[:] = array
    return copy


def bound(a, b, c, unit, threads=1):
    """The calls of a product in tiles, on vectors or on the matrix unit, as `threads` would cut it."""
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "get_num_threads", lambda: threads)
        patch.setattr(gemm, "_splits", lambda m, n, k: unit == "matrix")
        assert gemm.product(calls, a, b, c)
    return calls


def run(calls, split=1):
    """The calls of a product, cut into ranges as threads would cut them."""
    with blas.single():
        for _, (kernel, rows, _, *rest) in calls:
            for start, stop in pairwise([rows * i // split for i in range(split + 1)]):
                if start < stop:
                    kernel(start, stop, *rest)


@needs_tiles
@units
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(
        st.integers(16, 90),
        st.integers(1, 90) | st.integers(500, 1100),
        st.integers(16, 150) | st.sampled_from([32, 64, 96, 128]),  # whole panels are read where they lie
    ),
    turned=st.tuples(st.booleans(), st.booleans()),
    count=st.integers(1, 6),
    split=st.integers(1, 3),
)
def test_tiles_equal_numpy_and_do_not_depend_on_the_threads(unit, sizes, turned, count, split):
    m, k, n = sizes
    rng = np.random.default_rng(m * k + n)
    a, b = laid((m, k), turned[0], rng), laid((k, n), turned[1], rng)
    got = []
    for threads in (count, 1):
        c = np.full((m + 1, n + 3), np.nan, np.float32)
        run(bound(a, b, c[:m, :n], unit, threads), split)
        assert np.isnan(c[m:]).all()
        assert np.isnan(c[:, n:]).all()
        got.append(c[:m, :n])
    np.testing.assert_allclose(got[0], np.matmul(a, b), rtol=1e-5, atol=1e-5 * k**0.5)
    np.testing.assert_array_equal(got[0], got[1])


@needs_tiles
@units
@pytest.mark.parametrize(("m", "k", "n"), [(64, 513, 192), (17, 90, 16), (128, 2048, 384)])
def test_a_long_sum_is_cut_in_two_whatever_the_threads(m, k, n, unit):
    rng = np.random.default_rng(k)
    a, b = laid((m, k), True, rng), laid((k, n), False, rng)
    got = []
    for threads in (1, 2, 3, 4):
        c = np.full((m, n + 3), np.nan, np.float32)
        calls = bound(a, b, c[:, :n], unit, threads)
        assert len(calls) == 2
        run(calls, threads)
        assert np.isnan(c[:, n:]).all()
        got.append(c[:, :n])
    np.testing.assert_allclose(got[0], a @ b, rtol=1e-5, atol=1e-5 * k**0.5)
    for other in got[1:]:
        np.testing.assert_array_equal(got[0], other)


@needs_tiles
@units
@pytest.mark.parametrize("width", [1024, 2048])
@pytest.mark.parametrize("by_rows", [True, False])
def test_lines_that_crowd_one_place_of_the_cache(width, by_rows, unit):
    rng = np.random.default_rng(width)
    a, b = laid((30, width), False, rng)[:, 7:907], laid((900 if by_rows else 30, 40), True, rng)
    a = a if by_rows else a.T
    c = np.full((len(a), 40), np.nan, np.float32)
    run(bound(a, b, c, unit))
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-4)


@needs_tiles
@units
@pytest.mark.skipif(os.name != "posix", reason="guards memory with mprotect")
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
@pytest.mark.parametrize(("m", "k", "n"), [(1536, 20, 40), (520, 1024, 35), (31, 515, 64)])
def test_nothing_behind_a_factor_is_read(m, k, n, turned, unit):
    rng = np.random.default_rng(m)
    a, b = (at_the_end(laid(shape, turn, rng)) for shape, turn in zip([(m, k), (k, n)], turned, strict=True))
    c = np.empty((m, n), np.float32)
    run(bound(a, b, c, unit))
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5 * k**0.5)


@needs_tiles
@units
@pytest.mark.parametrize("at", [(3, 7), (40, 450), (99, 899)])
def test_tiles_keep_nan_and_infinity_where_they_belong(at, unit):
    rng = np.random.default_rng(0)
    a, b = laid((100, 900), False, rng), laid((900, 70), False, rng)
    b[at[1], 11] = 1.0
    for value in (np.nan, np.inf, -np.inf, np.float32(3.4e38)):
        broken = a.copy()
        broken[at] = value
        c, d = np.empty((100, 70), np.float32), np.empty((70, 100), np.float32)
        run(bound(broken, b, c, unit))
        run(bound(b.T, broken.T, d, unit))
        with np.errstate(all="ignore"):
            want = broken @ b
        for found in (c, d.T):
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))
            np.testing.assert_array_equal(
                found[at[0]][~np.isfinite(want[at[0]])], want[at[0]][~np.isfinite(want[at[0]])]
            )
            np.testing.assert_allclose(np.delete(found, at[0], 0), np.delete(want, at[0], 0), rtol=1e-5, atol=1e-3)
        if value == np.inf:
            assert c[at[0], 11] == np.inf


@needs_amx
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("m", "k", "n"), [(96, 32, 64), (70, 384, 100), (64, 2000, 64)])
def test_products_of_thirds_are_as_exact_as_those_of_float32(m, k, n, turned):
    rng = np.random.default_rng(k)
    a, b = laid((m, k), turned[0], rng), laid((k, n), turned[1], rng)
    a *= np.exp2(rng.integers(-60, 60, (m, 1))).astype(np.float32)
    b *= np.exp2(rng.integers(-30, 30, (1, n))).astype(np.float32)
    exact, size = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    worst = {}
    for unit in ("vectors", "matrix"):
        c = np.empty((m, n), np.float32)
        run(bound(a, b, c, unit))
        worst[unit] = np.max(np.abs(c - exact) / size)
    assert worst["matrix"] < 2.5e-7
    assert worst["matrix"] < max(2**-23, 1.2 * worst["vectors"])


@needs_amx
def test_numbers_that_fit_into_bfloat16_are_multiplied_exactly():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((100, 500), (500, 90)))
    c = np.empty((100, 90), np.float32)
    run(bound(a, b, c, "matrix"))
    np.testing.assert_array_equal(c, a @ b)


@needs_amx
def test_tiny_factors_count_for_what_the_unit_takes():
    a, b = np.full((32, 32), 2.0**-120, np.float32), np.eye(32, dtype=np.float32)
    a[1], a[2] = 1.2345678 * 2.0**-100, 2.0**-140
    c = np.empty((32, 32), np.float32)
    run(bound(a, b, c, "matrix"))
    np.testing.assert_array_equal(c[0], a[0])
    np.testing.assert_allclose(c[1], a[1], rtol=1e-7)
    np.testing.assert_array_equal(c[2], 0)


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "SERVED", False)
        assert gemm.product(calls, a, b, got)
    run(calls, split)
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
    monkeypatch.setattr(gemm, "SERVED", False)
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


def test_all_products_of_a_plan_use_the_same_scratch_memory():
    x = mg.tensor(np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32))
    compiled = mg.compile(lambda x: (x @ x) @ (x @ x.transpose(0, 1)))
    for _ in range(2):
        compiled(x)
    ((plan, _),) = compiled.plans.values()
    if not gemm.SERVED:
        pytest.skip("numpy's BLAS computes products here")
    rooms = {(array.size, array.ctypes.data) for array in plan.calls._scratch.values()}
    used = [(a.size, a.ctypes.data) for _, given in plan.calls for a in given if isinstance(a, np.ndarray)]
    assert sum(room in rooms for room in used) == 3
