"""Attention that stores no weights, and what is done to its scores: equal to the formula and to the unfused steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import functional as F
from minigrad import kernels
from minigrad.compiler import compile
from minigrad.kernels import threads
from minigrad.ops.attention import attention
from minigrad.ops.flash import distances, flash_attention, visible
from minigrad.ops.registry import OPS


def fast(name, arrays, attrs):
    metas = OPS[name].output_metas([(a.shape, a.dtype) for a in arrays], attrs)
    outputs = [np.full(shape, 7, dtype) for shape, dtype in metas]
    calls = kernels.bind(OPS[name], arrays, outputs, attrs)
    assert calls is not None, "the kernel declined"
    calls.run()
    return outputs


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)),
    lengths=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    widths=st.tuples(st.integers(1, 40), st.integers(1, 70)),
    causal=st.booleans(),
    window=st.sampled_from([0, 1, 5, 64, 100]),
    alibi=st.booleans(),
    dropout=st.sampled_from([0.0, 0.3]),
    mask=st.sampled_from(["none", "keys", "all", "heads", "triangle"]),
    layout=st.sampled_from(["C", "heads inside", "strided", "backwards"]),
    seed=st.integers(0, 99),
)
def test_kernels_equal_the_reference(
    sizes, lengths, widths, causal, window, alibi, dropout, mask, layout, seed
):  # fmt: skip
    rng = np.random.default_rng(seed)
    (batch, kv_heads, group), (t_query, t_key), (d, d_value) = sizes, lengths, widths
    heads = kv_heads * group

    def laid_out(h, t, width):
        if layout == "C":
            return normal(rng, batch, h, t, width)
        if layout == "heads inside":
            return normal(rng, batch, t, h, width).transpose(0, 2, 1, 3)
        if layout == "backwards":
            return normal(rng, batch, h, t, width)[:, ::-1, ::-1]
        return normal(rng, batch, h, t, 2 * width)[..., ::2]

    q, k, v = laid_out(heads, t_query, d), laid_out(kv_heads, t_key, d), laid_out(kv_heads, t_key, d_value)
    rest = []
    if mask == "keys":
        rest.append(rng.random((batch, 1, 1, t_key)) < 0.7)
    elif mask == "all":
        rest.append(rng.random((batch, heads, t_query, t_key)) < 0.7)
    elif mask == "heads":
        rest.append(rng.random((heads, 1, 1)) < 0.7)
    elif mask == "triangle":
        rest.append(visible(t_query, t_key, True, 70))
    attrs = {"scale": d**-0.5, "causal": causal}
    if window:
        attrs["window"] = window
    if alibi:
        attrs["slopes"] = tuple(2.0**-i for i in range(heads))
    if dropout:
        attrs["dropout"] = dropout
        rest.append(np.array([seed, 11]))
    wide = [a.astype(np.float64) for a in (q, k, v)]
    out, lse = fast("flash_attention", [q, k, v, *rest], attrs)
    expected = OPS["flash_attention"].evaluate([*wide, *rest], attrs)
    np.testing.assert_allclose(out, expected[0], atol=1e-5)
    np.testing.assert_allclose(lse, expected[1], rtol=1e-6, atol=5e-6)
    g = normal(rng, *out.shape)
    got = fast("flash_attention_grad", [g, q, k, v, out, lse, *rest], attrs)
    wanted = OPS["flash_attention_grad"].evaluate([g.astype(np.float64), *wide, *expected, *rest], attrs)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("shown", ["from the start", "to the end", "here and there", "none"])
def test_one_query_reads_what_its_mask_shows(shown):
    """Whatever stands in the rest of a cache."""
    rng = np.random.default_rng(5)
    q, k, v = normal(rng, 3, 4, 1, 6), normal(rng, 3, 2, 37, 6), normal(rng, 3, 2, 37, 5)
    place = np.arange(37)
    masks = {
        "from the start": place < 20,
        "to the end": place >= 20,
        "here and there": place % 3 == 1,
        "none": place < 0,
    }
    mask = np.stack([masks[shown], place < 30, np.roll(masks[shown], 1)])[:, None, None]
    attrs = {"scale": 0.4, "causal": False}
    expected = OPS["flash_attention"].evaluate([a.astype(np.float64) for a in (q, k, v)] + [mask], attrs)
    hidden = np.broadcast_to(~mask[:, 0, 0, None, :], (3, 2, 37))
    k[hidden], v[hidden] = np.nan, np.inf
    for got, wanted in zip(fast("flash_attention", [q, k, v, mask], attrs), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def tensors(rng, *shapes, dtype=mg.float32):
    return [mg.tensor(rng.standard_normal(shape), dtype=dtype, requires_grad=True) for shape in shapes]


def gradients(function, inputs):
    return [g.numpy() for g in mg.grad((function(*inputs) ** 2).sum(), inputs)]


@pytest.mark.parametrize("mode", ["always", "reference"])
@pytest.mark.parametrize("dtype", [mg.float32, mg.float64])
def test_dropout_equals_dropout_of_the_weights(mode, dtype):
    q, k, v = tensors(np.random.default_rng(0), (2, 3, 70, 8), (2, 3, 70, 8), (2, 3, 70, 8), dtype=dtype)

    def unfused(q, k, v):
        mg.manual_seed(7)
        scores = (q @ k.transpose(-1, -2) * 8**-0.5).masked_fill(~mg.from_numpy(visible(70, 70)), float("-inf"))
        return F.dropout(F.softmax(scores, -1), 0.3) @ v, mg.rand(2)

    def fused(q, k, v):
        mg.manual_seed(7)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True), mg.rand(2)

    with kernels.use(mode):
        for a, b in zip(fused(q, k, v), unfused(q, k, v), strict=True):  # and the stream moved on as far
            np.testing.assert_allclose(a.detach(), b.detach(), atol=1e-5)
        ours = gradients(lambda *x: fused(*x)[0], [q, k, v])
        for a, b in zip(ours, gradients(lambda *x: unfused(*x)[0], [q, k, v]), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)


def test_a_compiled_step_draws_anew_at_every_replay():
    q, k, v = (mg.tensor(normal(np.random.default_rng(i), 1, 2, 64, 16)) for i in range(3))
    step = compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    mg.manual_seed(3)
    eager = [F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).numpy() for _ in range(3)]
    step(q, k, v)
    mg.manual_seed(3)
    for expected in eager:
        np.testing.assert_allclose(step(q, k, v), expected, atol=1e-5)
    assert np.abs(eager[0] - eager[1]).max() > 0.1


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 3}, {"slopes": (1.0, 0.5, 0.25, 0.125)}])
def test_shared_heads_equal_repeated_ones(options):
    q, k, v = tensors(np.random.default_rng(1), (2, 4, 6, 5), (2, 2, 9, 5), (2, 2, 9, 3), dtype=mg.float64)

    def repeated(q, k, v):
        return flash_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), **options)

    def shared(q, k, v):
        return flash_attention(q, k, v, **options)

    np.testing.assert_allclose(shared(q, k, v).detach(), repeated(q, k, v).detach(), atol=1e-12)
    for a, b in zip(gradients(shared, [q, k, v]), gradients(repeated, [q, k, v]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11)


def test_slopes_are_a_bias_that_falls_with_the_distance():
    q, k, v = tensors(np.random.default_rng(2), (1, 2, 5, 4), (1, 2, 7, 4), (1, 2, 7, 4), dtype=mg.float64)
    bias = -np.array([0.5, 0.1])[:, None, None] * abs(distances(5, 7))
    expected = F.softmax(q @ k.transpose(-1, -2) * 0.5 + mg.from_numpy(bias), -1) @ v
    np.testing.assert_allclose(flash_attention(q, k, v, slopes=(0.5, 0.1)).detach(), expected.detach(), atol=1e-12)


def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(3)
    q, k, v, g = (normal(rng, 2, 3, 200, 24) for _ in range(4))
    attrs, results = {"scale": 0.2, "causal": True}, []
    before = threads.get_num_threads()
    try:
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            out, lse = fast("flash_attention", [q, k, v], attrs)
            results.append([out, lse, *fast("flash_attention_grad", [g, q, k, v, out, lse], attrs)])
    finally:
        threads.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("bad", "hidden"),
    [(np.nan, slice(80, None)), (np.inf, slice(80, None)), (1e30, slice(80, None)), (3e38, slice(20, 60, 3))],
)
def test_what_is_hidden_is_not_felt(bad, hidden):
    """Keys and values that the mask hides may hold anything at the end, and any number between others."""
    rng = np.random.default_rng(4)
    q, k, v, g = (normal(rng, 1, 2, 100, 16) for _ in range(4))
    poisoned = k.copy(), v.copy()
    attrs, mask = {"scale": 0.25, "causal": False}, np.ones((1, 1, 1, 100), bool)
    mask[..., hidden] = False
    for array in poisoned:
        array[:, :, hidden] = bad
    out, lse = fast("flash_attention", [q, k, v, mask], attrs)
    again, lse_again = fast("flash_attention", [q, *poisoned, mask], attrs)
    np.testing.assert_array_equal(out, again)
    np.testing.assert_array_equal(lse, lse_again)
    for a, b in zip(
        fast("flash_attention_grad", [g, q, k, v, out, lse, mask], attrs),
        fast("flash_attention_grad", [g, q, *poisoned, out, lse, mask], attrs),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dropout": 1.0}, r"must lie in \[0, 1\)"),
        ({"window": -1}, "must not be negative"),
        ({"slopes": (1.0,)}, "give one for each"),
    ],
)
def test_options_that_make_no_sense(options, text):
    x = mg.ones(1, 2, 3, 4)
    with pytest.raises(ValueError, match=text):
        flash_attention(x, x, x, **options)


def test_heads_are_shared_only_on_request():
    q, k = mg.ones(1, 4, 3, 2), mg.ones(1, 2, 3, 2)
    with pytest.raises(ValueError, match="do not fit"):
        F.scaled_dot_product_attention(q, k, k)
    assert F.scaled_dot_product_attention(q, k, k, enable_gqa=True).shape == (1, 4, 3, 2)


def test_attention_with_weights_is_scaled_alike():
    q, k, v = mg.randn(2, 3, 4), mg.randn(2, 5, 4), mg.randn(2, 5, 6)
    output, weights = attention(q, k, v)
    np.testing.assert_allclose(output, F.scaled_dot_product_attention(q, k, v), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights, (q @ k.mT / 2.0).softmax(-1), rtol=1e-5, atol=1e-6)
