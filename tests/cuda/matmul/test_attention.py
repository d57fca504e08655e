"""Attention on the device against the exact reference: hidden keys, rows that see none, shared heads, ragged sizes."""

import ml_dtypes
import numpy as np
import pytest
from simulated_ops import bound, heads_inside

from minigrad import kernels, later
from minigrad.kernels.cuda import attention, decode_attention, flash
from minigrad.kernels.cuda.attention import flash_attention, flash_attention_grad
from minigrad.kernels.cuda.flash import Shape
from minigrad.ops.flash import _flash, _flash_grad
from minigrad.ops.registry import OPS

pytestmark = pytest.mark.slow

BFLOAT16, FLOAT32 = np.dtype(ml_dtypes.bfloat16), np.dtype("float32")
CLOSE = {FLOAT32: 2e-6, BFLOAT16: 1.5e-2}


class Case:
    """Inputs of attention, and the exact results, in float64."""

    def __init__(
        self, t_query, t_key, d, d_value=None, *, heads=1, group=1, mask=None, causal=False, dtype=FLOAT32, **options
    ):
        rng = np.random.default_rng(t_query + 7 * t_key + 31 * d)
        d_value = d if d_value is None else d_value

        def normal(*shape):
            return rng.standard_normal(shape).astype(dtype)

        self.query, self.g = normal(2, heads, t_query, d), normal(2, heads, t_query, d_value)
        self.key, self.value = normal(2, heads // group, t_key, d), normal(2, heads // group, t_key, d_value)
        self.attrs = {"scale": d**-0.5, "causal": causal, **options}
        self.mask = []
        if mask == "padding":
            lengths = np.array([t_key, t_key // 2]).reshape(2, 1, 1, 1)
            self.mask = [np.arange(t_key) < lengths]
        elif mask == "any":
            shown = rng.random((2, 1, t_query, t_key)) < 0.5
            shown[0, 0, 1] = False  # a query that sees nothing
            self.mask = [shown]
        self.rest = [*self.mask, *([np.array([3, 5])] if "dropout" in options else [])]
        self.dtype = dtype
        wide = [x.astype(np.float64) for x in (self.query, self.key, self.value, self.g)]
        query, key, value, g = wide[0], wide[1].repeat(group, 1), wide[2].repeat(group, 1), wide[3]
        with np.errstate(divide="ignore"):
            self.out, self.lse = _flash(query, key, value, *self.rest, **self.attrs)
        grads = _flash_grad(g, query, key, value, self.out, self.lse, *self.rest, **self.attrs)
        self.grads = [
            grads[0],
            *(x.reshape(2, heads // group, group, *x.shape[2:]).sum(2) for x in grads[1:]),
        ]

    def forward(self, **how):
        outputs = [(self.out.shape, self.dtype), (self.lse.shape, FLOAT32)]
        inputs = [self.query, self.key, self.value, *self.rest]
        return bound(flash_attention, inputs, outputs, **self.attrs, **how)

    def backward(self, **how):
        outputs = [(x.shape, self.dtype) for x in (self.query, self.key, self.value)]
        lse = self.lse.astype(np.float32)
        inputs = [self.g, self.query, self.key, self.value, self.out.astype(self.dtype), lse, *self.rest]
        return bound(flash_attention_grad, inputs, outputs, **self.attrs, **how)

    def check(self, seed=None, **how):
        """Both directions; returns the names of the kernels."""
        (out, lse), names = self.forward(seed=seed, **how)
        self.close(out, self.out)
        np.testing.assert_allclose(lse, self.lse, rtol=1e-5, atol=1e-5 if self.dtype == FLOAT32 else 2e-2)
        grads, more = self.backward(seed=seed, **how)
        for grad, exact in zip(grads, self.grads, strict=True):
            self.close(grad, exact)
        return names + more

    def close(self, found, exact):
        assert np.abs(found.astype(np.float64) - exact).max() <= CLOSE[self.dtype] * np.abs(exact).max()


@pytest.fixture
def tiles(monkeypatch):
    """Use one cut of the work for every kernel, whatever the size."""

    def use(shape):
        for name in ("forward_shape", "grad_query_shape", "grad_key_shape"):
            monkeypatch.setattr(flash, name, lambda *_: shape)

    return use


# --- flash ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "padding", "any"])
def test_float32(tiles, causal, mask):
    tiles(Shape(1, 16, 2))
    names = Case(18, 20, 32, causal=causal, mask=mask).check(seed=1)
    assert [name.split("_float32")[0] for name in names] == ["flash_forward", "flash_grad_query", "flash_grad_key"]


@pytest.mark.parametrize(("t_query", "t_key"), [(20, 6), (6, 37)])
def test_causal_is_aligned_at_the_end(tiles, t_query, t_key):
    """With more queries than keys the first queries see nothing."""
    tiles(Shape(2, 16, 1))
    case = Case(t_query, t_key, 32, causal=True)
    case.check(seed=2)
    assert (np.isneginf(case.lse).sum() == 2 * max(t_query - t_key, 0)).all()


def test_several_warps_and_threads_in_any_order(tiles):
    tiles(Shape(2, 16, 2))
    case = Case(18, 19, 32, causal=True)
    first, second = (case.forward(seed=seed)[0] + case.backward(seed=seed)[0] for seed in (None, 9))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    case.close(first[0], case.out)


def test_no_races(tiles):
    tiles(Shape(2, 16, 2))
    case = Case(18, 17, 32, causal=True)
    case.forward(seed=3, races=True)
    case.backward(seed=3, races=True)


def test_query_heads_share_key_heads(tiles):
    tiles(Shape(1, 16, 2))
    Case(17, 9, 32, heads=4, group=2, causal=True, mask="any").check(seed=4)


@pytest.mark.parametrize(("d", "d_value"), [(6, 7), (24, 40)])
def test_sizes_of_heads_are_filled_up(tiles, d, d_value):
    tiles(Shape(1, 16, 2))
    names = Case(9, 10, d, d_value).check(seed=5)
    assert all(("ragged" in name) == (d == 6) for name in names)


def test_head_size_128(tiles):
    tiles(Shape(1, 16, 1))
    (out, _), names = Case(5, 6, 128).forward(seed=6)
    assert "_128_" in names[0]
    Case(5, 6, 128).close(out, Case(5, 6, 128).out)


@pytest.mark.parametrize("d", [32, 64])
def test_halves(tiles, d):
    tiles(Shape(1, 32, 2))
    Case(18, 35, d, causal=True, mask="padding", dtype=BFLOAT16).check(seed=7)


def test_heads_inside_of_rows_are_read_and_written_where_they_are():
    case = Case(9, 9, 32, heads=2, causal=True)
    inputs = [np.ascontiguousarray(heads_inside(x)) for x in (case.query, case.key, case.value)]
    outputs = [((2, 9, 2, 32), FLOAT32), (case.lse.shape, FLOAT32)]
    (out, _), names = bound(
        flash_attention, inputs, outputs, layouts=[heads_inside] * 3, out_layouts=[heads_inside], **case.attrs
    )
    assert len(names) == 1  # no copies
    case.close(out, case.out)


def test_head_sizes_beyond_the_tiles_go_by_the_weights():
    names = Case(5, 4, 130, causal=True, mask="any").check()
    assert not any(name.startswith("flash") for name in names)
    assert any(name.startswith("attention_weights") for name in names)


# --- windows, slopes, dropout ---------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("t_query", "t_key"), [(35, 37), (20, 50)])
def test_a_window_hides_what_is_far(tiles, causal, t_query, t_key):
    tiles(Shape(1, 16, 2))
    Case(t_query, t_key, 32, causal=causal, window=4).check(seed=1)


def test_tiles_outside_of_the_window_are_not_visited(tiles):
    tiles(Shape(1, 16, 2))
    case = Case(20, 50, 32, window=4)  # the first query stands at 30
    case.key[:, :, :16], case.value[:, :, :16] = np.nan, np.nan
    (out, _), _ = case.forward()
    case.close(out, case.out)


@pytest.mark.parametrize(("mask", "window"), [(None, 0), ("any", 9)])
def test_slopes_of_every_head(tiles, mask, window):
    tiles(Shape(2, 16, 1))
    options = {"window": window} if window else {}
    Case(18, 21, 32, heads=4, group=2, causal=True, mask=mask, slopes=(1.0, 0.5, 0.25, 0.0), **options).check(seed=2)


@pytest.mark.parametrize(
    ("mask", "dtype", "t_key", "shape"),
    [
        (None, FLOAT32, 18, Shape(1, 16, 2)),
        ("padding", FLOAT32, 35, Shape(1, 32, 1)),
        (None, BFLOAT16, 35, Shape(1, 32, 2)),
    ],
)
def test_dropout_drops_what_the_cpu_drops(tiles, mask, dtype, t_key, shape):
    tiles(shape)
    names = Case(17, t_key, 32, heads=2, causal=True, mask=mask, dtype=dtype, dropout=0.3).check(seed=3)
    assert all(name.endswith("_dropping") for name in names)


def test_few_queries_with_all_of_it():
    options = {"window": 9, "slopes": (0.5, 0.125)}
    case = Case(3, 21, 20, heads=2, mask="padding", causal=True, **options)
    (out, lse), (name,) = case.forward(seed=4)
    assert name.startswith("decode_attention")
    case.close(out, case.out)
    np.testing.assert_allclose(lse, case.lse, rtol=1e-5, atol=1e-5)
    names = Case(3, 21, 20, causal=True, dropout=0.5).forward(seed=4)[1]
    assert names[0].startswith("flash_forward")


@pytest.mark.parametrize(
    ("heads", "mask", "dtype", "options"),
    [
        (4, "padding", FLOAT32, {"window": 3, "slopes": (1.0, 0.5, 0.25, 0.0)}),
        (2, "any", FLOAT32, {"dropout": 0.3}),
        (2, None, BFLOAT16, {}),
    ],
)
def test_by_the_weights_with_shared_heads(heads, mask, dtype, options):
    names = Case(5, 6, 130, 129, heads=heads, group=2, causal=True, mask=mask, dtype=dtype, **options).check(seed=6)
    assert any(name.startswith("attention_weights") for name in names)


def test_shared_wide_heads_inside_of_rows():
    case = Case(5, 4, 130, heads=2, group=2, causal=True)
    inputs = [np.ascontiguousarray(heads_inside(x)) for x in (case.query, case.key, case.value)]
    outputs = [((2, 5, 2, 130), FLOAT32), (case.lse.shape, FLOAT32)]
    (out, _), _ = bound(
        flash_attention, inputs, outputs, layouts=[heads_inside] * 3, out_layouts=[heads_inside], **case.attrs
    )
    case.close(out, case.out)


def test_few_queries_of_shared_wide_heads():
    case = Case(1, 9, 136, heads=2, group=2, mask="padding")
    (out, _), (name,) = case.forward(seed=4)
    assert name.startswith("decode_attention")
    case.close(out, case.out)


def test_by_the_weights_with_a_window_and_slopes():
    Case(6, 9, 130, heads=2, causal=True, window=3, slopes=(0.5, 0.25)).check()


@pytest.mark.parametrize(("t_query", "dtype"), [(6, FLOAT32), (2, FLOAT32), (6, BFLOAT16)])
def test_by_the_weights_with_dropout(t_query, dtype):
    names = Case(t_query, 9, 130, heads=2, causal=True, mask="any", dtype=dtype, dropout=0.3).check(seed=5)
    assert sum(name.startswith("dropout") for name in names) == 3  # the weights, twice, and their gradients


@pytest.mark.parametrize(("d", "d_value"), [(66, 66), (70, 33)])
def test_dropout_of_unaligned_wide_heads_goes_by_aligned_copies(tiles, d, d_value):
    tiles(Shape(1, 16, 1))
    names = Case(9, 10, d, d_value, heads=2, group=2, causal=True, dropout=0.3).check(seed=6)
    backward = names[1:]
    assert all("ragged" in name for name in names[:1])
    assert sum(name.startswith("flash_grad") for name in backward) == 2
    assert not any("ragged" in name for name in backward)


@pytest.mark.parametrize("binder", ["attention", "flash_attention"])
def test_scores_that_no_half_holds(binder):
    """A score is 117000 before it is scaled."""
    x = np.full((1, 1, 5, 130), 30, np.float16)
    outputs = [(x.shape, x.dtype), ((1, 1, 5, 5), x.dtype) if binder == "attention" else ((1, 1, 5), FLOAT32)]
    kernel = later.load(kernels.spec(OPS[binder], "cuda", "float16"))
    attrs = {"scale": 130**-0.5} | ({} if binder == "attention" else {"causal": False})
    (out, _), _ = bound(kernel, [x, x, x], outputs, **attrs)
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("t_query", [1, 6])
def test_more_heads_than_a_launch_has_blocks(monkeypatch, t_query):
    monkeypatch.setattr(attention, "GRID", 1)
    names = Case(t_query, 7, 32, heads=2, group=2, mask="padding").check(seed=7)
    assert not any(name.startswith(("flash", "decode")) for name in names)


# --- few queries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("t_query", "d", "mask", "causal"), [(1, 32, "padding", False), (3, 20, "any", True)])
def test_few_queries_over_one_block_of_keys(t_query, d, mask, causal):
    case = Case(t_query, 21, d, mask=mask, causal=causal)
    (out, lse), names = case.forward(seed=8)
    assert [name.split("_float32")[0] for name in names] == ["decode_attention"]
    case.close(out, case.out)
    np.testing.assert_allclose(lse, case.lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("group", [1, 2])
def test_keys_are_split_over_blocks_and_put_together(monkeypatch, dtype, group):
    keys = 32
    split = decode_attention.split_kernel
    monkeypatch.setattr(decode_attention, "KEYS", keys)
    monkeypatch.setattr(decode_attention, "split_kernel", lambda *how: split(*how, keys))
    case = Case(1, 75, 40, heads=2, group=group, mask="padding", dtype=dtype)
    (out, lse), names = case.forward(seed=9)
    assert [name.split("_")[1] for name in names] == ["attention", "combine"]
    case.close(out, case.out)
    np.testing.assert_allclose(lse, case.lse, rtol=1e-5, atol=1e-5 if dtype == FLOAT32 else 1e-2)


@pytest.mark.parametrize("what", ["query", "key", "value"])
@pytest.mark.parametrize("kind", ["float32", "halves", "decoding", "weights"])
def test_infinities(tiles, kind, what):
    """The reference's in all kernels but float32's flash, which has no answer where it sees an infinite one."""
    tiles(Shape(1, 16, 2))
    dtype = BFLOAT16 if kind == "halves" else FLOAT32
    case = Case(3 if kind == "decoding" else 18, 20, 32, dtype=dtype)
    infinite = getattr(case, what)
    infinite[:, :, 2, 3] = np.inf
    infinite[:, :, 1, 5] = -np.inf
    given = [case.query, case.key, case.value]
    with np.errstate(invalid="ignore"):
        exact, _ = _flash(*(x.astype(np.float64) for x in given), **case.attrs)
    if kind == "weights":
        outputs = [(case.out.shape, FLOAT32), ((*case.lse.shape, 20), FLOAT32)]
        (out, _), _ = bound(attention.attention, given, outputs, scale=case.attrs["scale"])
    else:
        (out, _), _ = case.forward()
    out, unknown = out.astype(np.float64), np.isnan(exact)
    assert unknown.all() == 0
    if kind == "float32":
        unknown |= what == "key"
        if what == "value":
            unknown[..., [3, 5]] = True
    np.testing.assert_array_equal(np.isnan(out), unknown)
    np.testing.assert_allclose(out[~unknown], exact[~unknown], rtol=CLOSE[dtype], atol=CLOSE[dtype])


def test_empty_sequences_are_declined():
    class Empty:
        size = 0

    assert not attention.flash_attention([], [Empty()] * 3, [Empty()] * 2, scale=1.0, causal=False)
