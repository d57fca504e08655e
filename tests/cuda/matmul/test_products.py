"""Products on the device: every layout, ragged edges, parts of k, few rows; float32's accuracy on tensor cores."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from simulated_ops import bound, heads_inside, seen, swapped

from minigrad.kernels.cuda import products, runtime
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.matmul import LARGE, SMALL, Tiling, simple_kernel
from minigrad.kernels.cuda.memory import DeviceArray
from minigrad.kernels.cuda.products import choose, matmul
from minigrad.kernels.cuda.simulated import SimulatedDriver

pytestmark = pytest.mark.slow

HALF = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
TINY = Tiling(32, 32, 1, 1)  # the large tilings' code, one warp of them
FOUR = Tiling(64, 64, 2, 2)


def product_of(a, b, seed=None, layouts=(None, None), out=None, races=False):
    """The kernel's product, the exact one, the sum of its absolute terms, and the kernels' names."""
    left, right = (seen(x, layout).astype(np.float64) for x, layout in zip((a, b), layouts, strict=True))
    shape = (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    whole = shape if out is None else np.empty(shape, bool).transpose(np.argsort(out)).shape
    out_layouts = [lambda x: x.transpose(out)] if out else ()
    (c,), names = bound(matmul, [a, b], [(whole, a.dtype)], seed, layouts, out_layouts, races)
    return c, left @ right, np.abs(left) @ np.abs(right), names


def check(a, b, bound_of_error=4e-7, **how):
    c, exact, terms, names = product_of(a, b, **how)
    assert c.shape == exact.shape
    error = np.abs(c.astype(np.float64) - exact)
    assert (error <= bound_of_error * terms + 1e-30).all(), (names, (error / terms).max())
    return names


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@pytest.fixture
def tiled(monkeypatch):
    """Use one tiling, whatever the size, and cut k into so many parts."""

    def use(tiling, splits=1):
        monkeypatch.setattr(products, "choose", lambda *_: (tiling, splits))
        monkeypatch.setattr(products, "_simple", lambda calls, problem, _: products._tiled(calls, problem))

    return use


# --- tensor cores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a_view", "b_view"), [*itertools.product((None, swapped), repeat=2)])
def test_float32_tiles_of_every_layout(tiled, a_view, b_view):
    """Aligned pieces of 16 bytes, tiles that stick out, a depth that is no multiple of the tile's."""
    tiled(TINY)
    rng = np.random.default_rng(0)
    a = normal(rng, 20, 36) if a_view else normal(rng, 36, 20)
    b = normal(rng, 40, 20) if b_view else normal(rng, 20, 40)
    (name,) = check(a, b, layouts=(a_view, b_view), seed=1)
    assert name == f"matmul_float32_32x32_{'w' if a_view else 'd'}4{'d' if b_view else 'w'}4"


@pytest.mark.parametrize("views", [(None, None), (swapped, swapped)])
def test_float32_tiles_element_by_element_in_any_order_of_threads(tiled, views):
    tiled(Tiling(32, 64, 2, 2))
    rng = np.random.default_rng(1)
    a, b = (normal(rng, 19, 35), normal(rng, 41, 19)) if views[0] else (normal(rng, 35, 19), normal(rng, 19, 41))
    for seed in (None, 5):
        (name,) = check(a, b, layouts=views, seed=seed)
    assert "1" in name.rpartition("_")[2]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("views", "width"), [((None, None), 4), ((swapped, swapped), 4), ((None, swapped), 1)])
def test_half_tiles(tiled, dtype, views, width):
    tiled(FOUR)
    rng = np.random.default_rng(2)
    m, n, k = (40, 72, 48) if width == 4 else (35, 41, 39)
    a = normal(rng, *((k, m) if views[0] else (m, k)), dtype=HALF[dtype])
    b = normal(rng, *((n, k) if views[1] else (k, n)), dtype=HALF[dtype])
    (name,) = check(a, b, 2.0**-8 if dtype == "bfloat16" else 2.0**-10, layouts=views, seed=2)
    assert dtype in name
    assert name.endswith("4" if width == 4 else "1")


def test_warps_of_a_block_share_tiles_without_races(tiled):
    tiled(Tiling(64, 32, 2, 1))
    rng = np.random.default_rng(3)
    check(normal(rng, 36, 48), normal(rng, 48, 32), races=True, seed=4)


@pytest.mark.parametrize(("dtype", "views"), [("float32", (None, None)), ("bfloat16", (None, swapped))])
def test_parts_of_k_are_summed_in_one_order(tiled, dtype, views):
    tiled(TINY if dtype == "float32" else FOUR, splits=3)
    rng = np.random.default_rng(4)
    kind = HALF.get(dtype, np.dtype("float32"))
    a, b = normal(rng, 2, 20, 80, dtype=kind), normal(rng, *((24, 80) if views[1] else (80, 24)), dtype=kind)
    (first, exact, terms, names), (second, *_) = (product_of(a, b, seed, views) for seed in (1, 2))
    assert len(names) == 2
    np.testing.assert_array_equal(first, second)
    assert (np.abs(first.astype(np.float64) - exact) <= (4e-7 if dtype == "float32" else 2.0**-8) * terms).all()


def test_three_tf32_products_are_as_exact_as_float32(tiled):
    """Also over a long k, where sums that are rounded towards zero would drift, and for numbers of very unlike size."""
    tiled(TINY)
    rng = np.random.default_rng(5)
    a, b = np.abs(normal(rng, 16, 256)), np.abs(normal(rng, 256, 16))
    c, exact, _, _ = product_of(a, b)
    assert np.abs(c / exact - 1).max() <= 2.0**-21
    assert abs((c / exact - 1).mean()) < 2.0**-22  # 96 sums rounded towards zero would lose 2^-18.5
    a, b = a[:, :32] * 10.0 ** rng.integers(-12, 12, (16, 1)), b[:32] * 10.0 ** rng.integers(-12, 12, (1, 16))
    check(a.astype(np.float32), b.astype(np.float32))


def test_not_a_number_stays_and_touches_its_row_and_column_only(tiled):
    tiled(TINY)
    rng = np.random.default_rng(6)
    a, b = normal(rng, 20, 20), normal(rng, 20, 20)
    a[3, 5] = np.nan
    c = product_of(a, b)[0]
    assert np.isnan(c[3]).all()
    assert np.isfinite(np.delete(c, 3, 0)).all()


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("views", [(None, None), (swapped, swapped)])
def test_numbers_beyond_the_finite_give_what_float32_gives(tiled, views, splits):
    """Infinities of both signs, NaN, the largest float (its nearest tf32 is infinite); denormals in steps of 2^-136."""
    tiled(TINY, splits)
    rng = np.random.default_rng(15)
    k = 20 if splits == 1 else 256
    a, b = normal(rng, *((k, 35) if views[0] else (35, k))), normal(rng, *((33, k) if views[1] else (k, 33)))
    largest, tiny = np.finfo(np.float32).max, np.float32(2.0**-130)
    left, right = (seen(x, view) for x, view in zip((a, b), views, strict=True))
    left[0, 3], left[1, 4], left[2, 5], left[3, :7] = np.inf, -np.inf, np.nan, (np.inf, *[0] * 5, -np.inf)
    left[4], left[4, 6], left[5] = 0, largest, 0
    left[5, 7], left[6], left[34, 2] = tiny, 1, np.inf
    right[8, 0], right[9, 1:3] = np.inf, (np.nan, -np.inf)
    right[:, 5], right[6, 5], right[:, 6], right[7, 6] = 0, 1, 0, 3
    right[6, 7], right[:, 8], right[9, 8], right[3, 9] = 0.5, 0, largest, 0  # 0 times an infinity
    with np.errstate(invalid="ignore", over="ignore"):
        found, exact, terms, _ = product_of(a, b, layouts=views, seed=1)
        expected = exact.astype(np.float32)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    error = np.abs(found[finite].astype(np.float64) - exact[finite])
    assert (error <= k * 2.0**-24 * terms[finite] + 1e-44).all()  # as a chain of float32 additions
    assert found[4, 5] == largest
    assert found[5, 6] == 3 * tiny
    assert np.isinf(found[34, 32])


# --- any strides, small shapes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "views"),
    [
        ((2, 3), (3, 4), (None, None)),
        ((2, 1, 3, 4), (5, 4, 2), (None, None)),
        ((2, 5, 3, 8), (2, 5, 3, 8), (heads_inside, lambda x: x.transpose(0, 2, 3, 1))),
        ((2, 2, 2, 3, 4), (2, 1, 2, 4, 3), (lambda x: x.transpose(2, 1, 0, 3, 4), None)),  # three dims that do not fold
        ((6, 40), (20, 33), (lambda x: x[:, ::2], None)),
        ((0, 3), (3, 2), (None, None)),
        ((2, 0), (0, 3), (None, None)),
    ],
)
def test_products_of_any_strides(a, b, views):
    rng = np.random.default_rng(7)
    check(normal(rng, *a), normal(rng, *b), layouts=views, seed=3)


def test_results_of_any_strides():
    rng = np.random.default_rng(8)
    check(normal(rng, 2, 3, 9, 7), normal(rng, 2, 3, 7, 6), out=(0, 2, 1, 3))  # heads inside of rows
    check(normal(rng, 34, 65), normal(rng, 65, 33), out=(1, 0))
    check(normal(rng, 2, 0), normal(rng, 0, 3), out=(1, 0))


def test_operands_without_contiguous_lines_are_copied_for_tensor_cores():
    rng = np.random.default_rng(9)
    (name,) = [
        n for n in check(normal(rng, 34, 80), normal(rng, 40, 34), layouts=(lambda x: x[:, ::2], None)) if "matmul" in n
    ]
    assert "64x64" in name


def test_the_larger_simple_tile():
    rng = np.random.default_rng(10)
    a, b = normal(rng, 70, 9), normal(rng, 9, 66)
    kernel = simple_kernel("float32", 64)
    c = np.full((70, 66), np.nan, np.float32)
    from minigrad.simt import Simulator

    args = (a.ravel(), b.ravel(), c.reshape(-1), 70, 66, 9, 9, 1, 1, 66, 66, 1, 1, 0, 0, 0, 0, 0, 0)
    Simulator(2).launch(kernel.function, 4, 256, args)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


# --- few rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "n", "k", "view", "name"),
    [
        (1, 48, 64, swapped, "matvec_deep_float32_1"),
        (3, 33, 35, swapped, "matvec_deep_float32_4_ragged"),
        (3, 36, 72, None, "matvec_wide_float32_4"),
        (5, 33, 37, None, "matvec_wide_float32_8_ragged"),
    ],
)
def test_few_rows(m, n, k, view, name):
    rng = np.random.default_rng(11)
    b = normal(rng, n, k) if view else normal(rng, k, n)
    names = check(normal(rng, m, k), b, layouts=(None, view), seed=4)
    assert names == [name]


def test_a_column_is_a_row_of_the_transpose():
    rng = np.random.default_rng(12)
    assert check(normal(rng, 40, 64), normal(rng, 64, 1)) == ["matvec_deep_float32_1"]
    names = check(normal(rng, 2, 40, 64), normal(rng, 2, 64, 2))
    assert names[-1] == "matvec_deep_float32_2"


def test_few_rows_over_a_long_k_are_cut_into_parts():
    rng = np.random.default_rng(13)
    names = check(normal(rng, 2, 300), normal(rng, 300, 8 * 4), seed=5)
    assert names == ["matvec_wide_float32_2", "matmul_sum_parts_float32"]


@pytest.mark.parametrize("view", [None, swapped])
def test_few_rows_of_halves(view):
    rng = np.random.default_rng(14)
    kind = HALF["bfloat16"]
    b = normal(rng, 40, 64, dtype=kind) if view else normal(rng, 64, 40, dtype=kind)
    check(normal(rng, 3, 64, dtype=kind), b, 2.0**-8, layouts=(None, view), seed=6)


# --- the choice -----------------------------------------------------------------------------------------


def test_large_products_take_large_tiles_and_small_ones_enough_blocks():
    assert choose("float32", 4096, 4096, 4096, 1, 132) == (LARGE, 1)
    assert choose("bfloat16", 8192, 8192, 8192, 1, 132)[0] == LARGE
    assert choose("float32", 512, 512, 512, 1, 132)[0] == SMALL
    assert choose("bfloat16", 8192, 8192, 8192, 1, 132, whole=False) == (SMALL, 1)
    tiling, splits = choose("float32", 128, 128, 16384, 1, 132)
    assert splits > 1
    for m, n, k, batches in itertools.product((64, 300, 2000), (64, 777), (32, 1000, 50257), (1, 96)):
        tiling, splits = choose("float32", m, n, k, batches, 132)
        assert splits == 1 or k >= 128 * splits
        assert tiling in (LARGE, SMALL)


@pytest.mark.parametrize("m", [8, 65536])
def test_results_of_more_elements_than_32_bits_count(m):
    """Bound, not computed: no machine for tests has the memory."""
    with runtime.use(SimulatedDriver()) as device:
        shapes = (m, 64), (64, 2**33 // m), (m, 2**33 // m)
        a, b, c = (DeviceArray(device.foreign(512, 2**40, None), 512, shape, np.dtype("float32")) for shape in shapes)
        calls = DeviceCalls(device)
        products.product(calls, a, b, c)
        assert len(calls) == 1


def test_a_model_of_a_wave_never_prefers_idle_processors():
    """With k cut into parts, or smaller tiles, at least as many blocks as without."""
    for m, n in itertools.product((128, 256, 512), repeat=2):
        tiling, splits = choose("float32", m, n, 4096, 1, 132)
        blocks = -(-m // tiling.m) * -(-n // tiling.n) * splits
        assert blocks >= -(-m // LARGE.m) * -(-n // LARGE.n)
