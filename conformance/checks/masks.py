"""Checks of masks: causal, padding, both together, and rows that see nothing (document 000 section 2.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.attention import attention_bound, draw_attention, one_head, weights_of
from conformance.checks.subjects import POISON
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import Array
from conformance.reference import attention as f


def draw_mask(draw: Draw, query: Array, key: Array) -> Array:
    """A mask in one of the shapes that broadcast to (B, H, Tq, Tk); every row sees a key and hides one."""
    b, h, t_query, t_key = *query.shape[:3], key.shape[2]
    per = draw.choice("mask shape", ("Tq Tk", "1 1 Tq Tk", "B 1 Tq Tk", "B H Tq Tk", "B 1 1 Tk"), "B H Tq Tk")
    size = {"B": b, "H": h, "1": 1, "Tq": t_query, "Tk": t_key}
    return draw.mask("mask", [size[name] for name in per.split()])


def interior_padding(draw: Draw, b: int, t: int) -> Array:
    """Real words ``(B, T)``: each sample has one word of padding between its words, another for each sample."""
    real = np.ones((b, t), bool)
    if t > 1:
        real[np.arange(b), 1 + (draw.int("padding at", 0, 5, 1) + np.arange(b)) % (t - 1)] = False
    draw.bites(not real.all(), "some word is padding")
    return real


# --- what a mask does -----------------------------------------------------------------------------


@check("hidden-keys-have-weight-zero", roles=("attention",))
def hidden_keys_have_weight_zero(impl: Any, draw: Draw) -> Evidence:
    """Hidden keys get weight exactly 0, also where every visible score is -10^5; the others still sum to one."""
    query, key, _ = draw_attention(draw)
    mask = draw_mask(draw, query, key)
    if draw.bool("low visible scores", pin=True):
        # Query and key 0 oppose each other: visible scores near -10^5, below any half-hearted fill value.
        query = np.full(query.shape, -300.0)
        key = np.full(key.shape, 300.0) + np.where(np.arange(key.shape[2]) % 2, 0.0, 1.0)[:, None]
    shown = np.broadcast_to(mask, (*query.shape[:-1], key.shape[-2]))
    draw.bites(not shown.all(), "the mask hid a key")
    subject = impl.build("attention", {})
    got = weights_of(subject, query, key, mask)
    sums = got.sum(-1)
    return all_of(
        same("weights of hidden keys", got[~shown], np.zeros((~shown).sum())),
        close("row sums", sums, np.ones(sums.shape), tolerance(subject.dtype, key.shape[-2])),
    )


@check("masked-attention-is-attention-over-visible-keys", roles=("attention",))
def attention_over_visible_keys(impl: Any, draw: Draw) -> Evidence:
    """Masking keys equals leaving them out: the ratios of the visible weights stay, whatever the hidden keys hold."""
    query, key, value = draw_attention(draw)
    shown = draw.mask("visible", (key.shape[2],))
    mask = np.broadcast_to(shown, (*query.shape[:3], key.shape[2]))
    draw.bites(not shown.all(), "the mask hid a key")
    hidden = ~shown[:, None] * POISON
    subject = impl.build("attention", {})
    expected = subject(query=query, key=key[..., shown, :], value=value[..., shown, :])["out"]
    got = subject(query=query, key=key + hidden, value=value + hidden, mask=mask)["out"]
    return close("attention over the visible keys", got, expected, attention_bound(subject, query, key, value))


@check("mask-true-means-visible", roles=("attention",), examples=0)
def mask_true_means_visible(impl: Any, draw: Draw) -> Evidence:
    """Scores [1, 2, 3] under the mask [1, 0, 1] give [0.1192, 0, 0.8808]; a mask of ones changes nothing."""
    subject = impl.build("attention", {})
    query, key = one_head([[1.0]]), one_head([[1.0], [2.0], [3.0]])
    bound = tolerance(subject.dtype, 3, 3.0) + 1e-8
    masked = weights_of(subject, query, key, one_head([[1, 0, 1]]).astype(bool))
    plain = weights_of(subject, query, key)
    ones = weights_of(subject, query, key, np.ones((1, 1, 1, 3), bool))
    return all_of(
        close("weights", masked, one_head([[0.11920292, 0.0, 0.88079708]]), bound),
        close("without a mask", plain, one_head([[0.09003057, 0.24472847, 0.66524096]]), bound),
        close("a mask of ones", ones, plain, bound),
    )


@check("mask-broadcasts-over-heads-and-queries", roles=("attention",))
def mask_broadcasts(impl: Any, draw: Draw) -> Evidence:
    """A padding mask (B, 1, 1, Tk) hides its keys from every head and query of its own sequence, of no other."""
    # B = H = Tq = Tk in the pinned example: an axis taken for another raises nothing there.
    b, h = draw.int("B", 2, 3, 3), draw.int("H", 2, 4, 3)
    t_query, t_key = draw.int("Tq", 2, 5, 3), draw.int("Tk", 2, 5, 3)
    query, key = draw.normal("query", (b, h, t_query, 4)), draw.normal("key", (b, h, t_key, 4))
    value = draw.normal("value", (b, h, t_key, 5))
    lengths = 1 + (np.arange(b) + draw.int("first length", 0, t_key - 1, 0)) % t_key
    mask = (np.arange(t_key) < lengths[:, None])[:, None, None, :]
    draw.bites(len(set(lengths)) > 1, "the sequences differ in length")
    subject = impl.build("attention", {})
    got = subject(query=query, key=key, value=value, mask=mask)["out"]
    expected = [
        subject(query=query[i : i + 1], key=key[i : i + 1, :, :n], value=value[i : i + 1, :, :n])["out"]
        for i, n in enumerate(lengths)
    ]
    bound = attention_bound(subject, query, key, value)
    return close("each sequence cut to its length", got, np.concatenate(expected), bound)


@check("one-mask-serves-padding-and-causality", roles=("attention", "causal_mask"))
def both_masks_together(impl: Any, draw: Draw) -> Evidence:
    """Padding AND causal through one argument: the weights vanish exactly where either hides, nowhere else."""
    b, n = draw.int("B", 1, 3, 2), draw.int("T", 3, 6, 5)
    query, key = draw.normal("query", (b, 3, n, 4)), draw.normal("key", (b, 3, n, 4))
    real = interior_padding(draw, b, n)  # the first word is none, so that no row is left without a key
    mask = np.asarray(impl.build("causal_mask", {})(n=n)["out"], bool) & real[:, None, None, :]
    got = weights_of(impl.build("attention", {}), query, key, mask)
    visible = np.tri(n, dtype=bool) & real[:, None, None, :]
    return same("visible pairs", got > 0, np.broadcast_to(visible, got.shape))


@check("a-mask-adds-to-the-causal-option", roles=("attention",))
def mask_adds_to_the_causal_option(impl: Any, draw: Draw) -> Evidence:
    """Attention that is causal by itself also obeys a padding mask: neither overwrites the other."""
    n = draw.int("T", 2, 6, 5)
    query, key, value = (draw.normal(name, (2, 3, n, 4)) for name in ("query", "key", "value"))
    real = interior_padding(draw, 2, n)[:, None, None, :]
    subject = impl.build("attention", {"causal": True})
    got = subject(query=query, key=key, value=value, mask=real)["out"]
    expected, _ = f.attention(query, key, value, np.tri(n, dtype=bool) & real)
    return close("causal and padding", got, expected, attention_bound(subject, query, key, value))


@check("hidden-keys-get-no-gradient", roles=("attention",), needs=("attention.vjp",), examples=2)
def hidden_keys_get_no_gradient(impl: Any, draw: Draw) -> Evidence:
    """The gradient of hidden keys and values is exactly 0, and finite everywhere."""
    query, key, value = (draw.normal(name, (1, 2, n, 3)) for name, n in (("query", 2), ("key", 4), ("value", 4)))
    shown = draw.mask("visible", (4,))
    draw.bites(not shown.all(), "the mask hid a key")
    inputs = {"query": query, "key": key, "value": value, "mask": np.broadcast_to(shown, (1, 1, 2, 4))}
    gradients, _ = impl.build("attention", {}).vjp(inputs, draw.normal("cotangent", (1, 2, 2, 3)))
    seen = np.concatenate([np.ravel(g) for g in gradients.values()])
    return all_of(
        true("every gradient is finite", np.isfinite(seen).all(), got=seen),
        true("visible values have a gradient", np.any(gradients["value"][..., shown, :])),
        same("gradient of hidden keys", gradients["key"][..., ~shown, :], np.zeros((1, 2, (~shown).sum(), 3))),
        same("gradient of hidden values", gradients["value"][..., ~shown, :], np.zeros((1, 2, (~shown).sum(), 3))),
    )


# --- rows that see nothing --------------------------------------------------------------------------


def _masked_row(draw: Draw) -> tuple[dict[str, Array], Array]:
    """Inputs in which one query of one sequence sees no key, and where that is, as a (B, Tq) mask."""
    query, key, value = (
        draw.normal("query", (2, 3, 4, 6)),
        draw.normal("key", (2, 3, 5, 6)),
        draw.normal("v", (2, 3, 5, 7)),
    )
    mask = draw.mask("mask", (2, 1, 4, 5))
    blind = np.zeros((2, 4), bool)
    blind[draw.int("b", 0, 1, 1), draw.int("row", 0, 3, 2)] = True
    mask[blind[:, None]] = False
    return {"query": query, "key": key, "value": value, "mask": mask}, blind


@check("a-row-without-keys-is-a-convention", roles=("attention",))
def row_without_keys(impl: Any, draw: Draw) -> Evidence:
    """A query that sees no key gives 0, NaN or the mean of the values, as declared; it disturbs no other row."""
    inputs, blind = _masked_row(draw)
    subject = impl.build("attention", {})
    got = np.moveaxis(np.asarray(subject(**inputs)["out"], np.float64), 1, 2)  # (B, Tq, H, d_v)
    expected, _ = f.attention(**inputs)
    expected = np.moveaxis(expected, 1, 2)
    mean = np.broadcast_to(inputs["value"].mean(2)[:, None], got.shape)
    bound = attention_bound(subject, inputs["query"], inputs["key"], inputs["value"])
    row = got[blind]
    seen = {
        "zero": bool(np.all(row == 0)),
        "nan": bool(np.all(np.isnan(row))),
        "uniform": bool(np.all(abs(row - mean[blind]) <= bound)),
    }
    declared = subject.attributes.get("masked_row")
    known = seen[declared] if declared in seen else any(seen.values())
    return all_of(
        close("rows that see a key", got[~blind], expected[~blind], bound),
        true("the row without keys", known, got=row, expected=declared or "0, NaN or the mean of the values"),
    )


@check("a-row-without-keys-does-not-poison-gradients", roles=("attention",), needs=("attention.vjp",), examples=1)
def row_without_keys_gradient(impl: Any, draw: Draw) -> Evidence:
    """When the result of a query that sees no key is not used, every gradient stays finite and correct."""
    query, key, value = (draw.normal(name, (1, 2, n, 3)) for name, n in (("query", 3), ("key", 4), ("value", 4)))
    mask = np.ones((1, 1, 3, 4), bool)
    mask[..., draw.int("row", 0, 2, 1), :] = False
    used = mask.any(-1, keepdims=True)
    cotangent = draw.normal("cotangent", (1, 2, 3, 3)) * used
    subject = impl.build("attention", {})
    got, _ = subject.vjp({"query": query, "key": key, "value": value, "mask": mask}, cotangent)
    # With the blind row's cotangent zero, the values' gradient is A^T c, from the visible rows alone.
    _, weights = f.attention(query, key, value, mask)
    bound = attention_bound(subject, query, key, cotangent) + 1e-8  # central differences carry 1e-9
    return all_of(
        true("every gradient is finite", all(np.isfinite(g).all() for g in got.values()), got=got),
        close("gradient of the values", got["value"], np.swapaxes(weights, -1, -2) @ cotangent, bound),
    )


# --- the causal mask ------------------------------------------------------------------------------


@check("causal-mask-is-lower-triangular", roles=("causal_mask",))
def causal_mask_is_lower_triangular(impl: Any, draw: Draw) -> Evidence:
    """Row i of the mask is open for columns 0..i, itself included: n (n + 1) / 2 ones."""
    n = draw.int("n", 1, 9, 4)
    got = np.asarray(impl.build("causal_mask", {})(n=n)["out"])
    five = np.asarray(impl.build("causal_mask", {})(n=5)["out"]).astype(bool)  # of which no two mistakes are equal
    visible = np.tri(5, dtype=bool)
    others = {
        "The mask hides the diagonal: a position does not see itself.": np.tri(5, k=-1, dtype=bool),
        "The mask opens the column after the diagonal: a position sees the next one.": np.tri(5, k=1, dtype=bool),
        "The mask opens the upper triangle: a position sees the future and not the past.": visible.T,
        "The mask is turned round: it marks what is hidden, where its words or its file say what is visible.": ~visible,
        "The mask hides nothing: every position sees the future.": np.ones((5, 5), bool),
    }
    looks = next((said for said, mask in others.items() if np.array_equal(five, mask)), "")
    return all_of(
        same("shape", got.shape, (n, n)),
        same("mask", got.astype(bool), np.tri(n, dtype=bool)).saying(diagnosis=looks),
    )


@check("causal-attention-hides-the-future", roles=("attention",))
def causal_attention_hides_the_future(impl: Any, draw: Draw) -> Evidence:
    """Whatever later keys and values hold, outputs up to position t stay as they are, and t itself is visible."""
    n = draw.int("T", 2, 7, 6)
    t = draw.int("t", 0, n - 2, n // 2)
    query, key, value = (draw.normal(name, (2, 3, n, 4)) for name in ("query", "key", "value"))
    future = (np.arange(n) > t)[:, None] * POISON
    subject = impl.build("attention", {})
    mask = np.tri(n, dtype=bool)
    got = subject(query=query, key=key + future, value=value + future, mask=mask)["out"]
    expected = subject(query=query, key=key, value=value, mask=mask)["out"]
    bound = attention_bound(subject, query, key, value)
    return all_of(
        close("outputs up to t", got[..., : t + 1, :], expected[..., : t + 1, :], bound),
        close("position 0 sees only itself", expected[..., 0, :], value[..., 0, :], bound),
        true("later outputs see the change", (abs(got - expected)[..., t + 1 :, :] > 1.0).any()),
    )


@check("causal-option-hides-the-future", roles=("attention",))
def causal_option_hides_the_future(impl: Any, draw: Draw) -> Evidence:
    """Attention that is causal by itself is so in evaluation and in training, with and without dropout."""
    n = draw.int("T", 2, 7, 6)
    query, key = draw.normal("query", (2, 3, n, 4)), draw.normal("key", (2, 3, n, 4))
    rate = draw.choice("dropout", (0.0, 0.5), 0.5)
    subject = impl.build("attention", {"causal": True, "dropout": rate} if rate else {"causal": True})
    training = draw.bool("train")
    subject.train(training)
    weights_of(subject, query[..., :1, :], key[..., :1, :])  # a shorter sequence came first
    hidden = ~np.tri(n, dtype=bool)
    got = weights_of(subject, query, key)
    _, expected = f.attention(query, key, key, np.tri(n, dtype=bool))
    kept = got != 0 if rate else np.ones(got.shape, bool)
    scale = 1 / (1 - rate) if training else 1.0
    bound = 2 * attention_bound(subject, query, key, np.ones(1))
    return all_of(
        same("weights of the future", got[..., hidden], np.zeros(got[..., hidden].shape)),
        close("weights of the past", got[kept], scale * expected[kept], bound),
    )


@check("causal-rows-equal-prefixes", roles=("attention",))
def causal_rows_equal_prefixes(impl: Any, draw: Draw) -> Evidence:
    """Row i of causal attention is plain attention of query i over the keys 0..i: one pass serves all prefixes."""
    n = draw.int("T", 2, 7, 6)
    query, key, value = (draw.normal(name, (2, 3, n, 4)) for name in ("query", "key", "value"))
    subject = impl.build("attention", {})
    got = subject(query=query, key=key, value=value, mask=np.tri(n, dtype=bool))["out"]
    rows = [
        subject(query=query[..., i : i + 1, :], key=key[..., : i + 1, :], value=value[..., : i + 1, :])["out"]
        for i in range(n)
    ]
    bound = attention_bound(subject, query, key, value)
    return close("attention over each prefix", got, np.concatenate(rows, -2), bound)


def _masked_example(impl: Any) -> tuple[Array, float]:
    """The printed 3 x 3 matrix of document 000 section 2.5.2 under the causal mask: scores are its logarithms."""
    subject = impl.build("attention", {})
    matrix = np.array([[0.6, 0.2, 0.2], [0.2, 0.4, 0.4], [0.1, 0.3, 0.6]])
    query = one_head(np.log(matrix) * np.sqrt(3))
    got = weights_of(subject, query, one_head(np.eye(3)), np.tri(3, dtype=bool))
    return got[0, 0], tolerance(subject.dtype, 3, 4.0)


@check("causal-worked-example-keeps-full-rows", roles=("attention",), examples=0)
def causal_worked_example(impl: Any, draw: Draw) -> Evidence:
    """Under the mask the first row of the example becomes [1, 0, 0], and the last stays [0.1, 0.3, 0.6]."""
    got, bound = _masked_example(impl)
    return close("rows 1 and 3", got[[0, 2]], [[1, 0, 0], [0.1, 0.3, 0.6]], bound)


@check("masking-keeps-the-ratio-of-visible-weights", roles=("attention",), examples=0)
def masking_keeps_ratios(impl: Any, draw: Draw) -> Evidence:
    """The row [0.2, 0.4, 0.4] becomes [1/3, 2/3, 0] under the mask, not [0.4, 0.6, 0]."""
    got, bound = _masked_example(impl)
    return close("row 2", got[1], [1 / 3, 2 / 3, 0], bound)


# --- the padding mask -----------------------------------------------------------------------------


@check("padding-mask-marks-tokens", roles=("padding_mask",))
def padding_mask_marks_tokens(impl: Any, draw: Draw) -> Evidence:
    """The padding mask is (ids != pad_id), for any pad id and wherever the padding stands."""
    pad = draw.choice("pad_id", (0, 1, 7), 1)
    ids = draw.integers("ids", (draw.int("B", 1, 3, 2), draw.int("T", 1, 8, 6)), 0, 9)
    ids.flat[draw.int("at", 0, ids.size - 1, 2)] = pad
    got = np.asarray(impl.build("padding_mask", {"pad_id": pad})(ids=ids)["out"]).reshape(ids.shape)
    others = {
        "The mask is turned round: it marks padding, where its words or its file say tokens.": ids == pad,
        f"The mask hides every token whose id is below that of the padding, {pad}.": ids > pad,
        "The mask hides nothing.": np.ones(ids.shape, bool),
    }
    looks = next((said for said, mask in others.items() if np.array_equal(got.astype(bool), mask)), "")
    return same("True where a token stands", got.astype(bool), ids != pad).saying(diagnosis=looks)
