"""Checks of scaled dot-product attention and of the layers around one head."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, refused, same, tolerance, true
from conformance.protocol import Array
from conformance.reference import attention as f


def draw_attention(draw: Draw, scale: float = 1.0) -> tuple[Array, Array, Array]:
    """Query, key and value with B, H, Tq, Tk, d_k and d_v all different in the pinned example."""
    b, h = draw.int("B", 1, 3, 2), draw.int("H", 1, 4, 3)
    t_query, t_key = draw.int("Tq", 1, 6, 4), draw.int("Tk", 1, 7, 5)
    d_k, d_v = draw.int("d_k", 1, 8, 6), draw.int("d_v", 1, 9, 7)
    return (
        draw.normal("query", (b, h, t_query, d_k), scale),
        draw.normal("key", (b, h, t_key, d_k), scale),
        draw.normal("value", (b, h, t_key, d_v)),
    )


def attention_bound(subject: Any, query: Array, key: Array, value: Array) -> float:
    """An error of eps*sum|q_i k_i|/sqrt(d_k) in a score is a relative error of the weights."""
    scores = float(f.scaled_scores(abs(query), abs(key)).max())
    length = query.shape[-1] + key.shape[-2]
    return tolerance(subject.dtype, length=length, scale=(1.0 + scores) * float(abs(value).max()))


def weights_of(subject: Any, query: Array, key: Array, mask: Array | None = None) -> Array:
    """The weights ``(B, H, Tq, Tk)`` of any subject, read from its output: the values are unit vectors."""
    value = np.broadcast_to(np.eye(key.shape[-2]), (*key.shape[:-1], key.shape[-2]))
    inputs = {"query": query, "key": key, "value": value}
    out = subject(**inputs)["out"] if mask is None else subject(**inputs, mask=mask)["out"]
    return np.asarray(out, np.float64)


def one_head(rows: Any) -> Array:
    """A matrix as batch 1, head 1."""
    return np.asarray(rows, np.float64)[None, None]


def score_differences(weights: Array) -> Array:
    """What weights say about scores: log w_ij - log w_i0 = s_ij - s_i0."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a weight of 0 shows as an infinite difference
        logs = np.log(weights)
        return logs - logs[..., :1]


# --- the formula ----------------------------------------------------------------------------------


@check("attention-formula", roles=("attention",))
def attention_formula(impl: Any, draw: Draw) -> Evidence:
    """out = softmax(Q K^T / sqrt(d_k)) V, with B, H, Tq, Tk, d_k and d_v all different."""
    query, key, value = draw_attention(draw)
    subject = impl.build("attention", {})
    got = subject(query=query, key=key, value=value)["out"]
    expected, _ = f.attention(query, key, value)
    return close("softmax(Q K^T / sqrt(d_k)) V", got, expected, attention_bound(subject, query, key, value))


@check("attention-is-scaled-by-sqrt-d-k", roles=("attention",))
def attention_is_scaled_by_sqrt_d_k(impl: Any, draw: Draw) -> Evidence:
    """Differences of the log-weights are differences of Q K^T divided by sqrt(d_k), d_k the query's last axis."""
    d_k = draw.choice("d_k", (1, 2, 3, 16, 64), 16)
    query, key = draw.normal("query", (1, 2, 3, d_k), 0.5), draw.normal("key", (1, 2, 4, d_k), 0.5)
    subject = impl.build("attention", {})
    got = score_differences(weights_of(subject, query, key))
    raw = query @ np.swapaxes(key, -1, -2)
    # A weight of e^-s carries a relative error of eps * e^s once it is subtracted in the logarithm.
    bound = tolerance(subject.dtype, length=d_k, scale=float(np.exp(abs(raw).max() / np.sqrt(d_k))))
    return close("score differences / sqrt(d_k)", got, (raw - raw[..., :1]) / np.sqrt(d_k), bound)


@check("scaled-scores-have-unit-variance", roles=("attention",), examples=0)
def scaled_scores_have_unit_variance(impl: Any, draw: Draw) -> Evidence:
    """For standard normal q and k the scaled scores have standard deviation 1, whatever d_k."""
    subject = impl.build("attention", {})
    deviations = []
    for d_k in (4, 16, 64, 256):
        query, key = draw.normal(f"query {d_k}", (4, 1, 48, d_k)), draw.normal(f"key {d_k}", (4, 1, 48, d_k))
        logs = np.log(np.maximum(weights_of(subject, query, key), 1e-30))
        deviations.append(np.std(logs - logs.mean(-1, keepdims=True)) * np.sqrt(48 / 47))
    # 4*48 rows of 48 dependent scores: the estimate scatters by about 0.04 (at d_k = 4, the worst).
    return close("standard deviation of the scores for d_k = 4, 16, 64, 256", deviations, np.ones(4), 0.15, "sampling")


@check("scaling-keeps-softmax-spread", roles=("attention",), examples=0)
def scaling_keeps_softmax_spread(impl: Any, draw: Draw) -> Evidence:
    """With 64 keys the mean largest weight stays below 0.15 for every d_k (without the scale: 0.91 at 256)."""
    subject = impl.build("attention", {})
    largest = []
    for d_k in (16, 64, 256):
        query, key = draw.normal(f"query {d_k}", (1, 1, 64, d_k)), draw.normal(f"key {d_k}", (1, 1, 64, d_k))
        largest.append(weights_of(subject, query, key).max(-1).mean())
    return all_of(
        *(
            true(f"mean largest of 64 weights at d_k = {d_k}", 0.07 < w < 0.15, got=w, expected="0.10 to 0.12")
            for d_k, w in zip((16, 64, 256), largest, strict=True)
        )
    )


@check("attention-scores-are-dot-products", roles=("attention",))
def attention_scores_are_dot_products(impl: Any, draw: Draw) -> Evidence:
    """Scores are bilinear: a query twice as long doubles all score differences, and so does a key."""
    query, key = draw.normal("query", (2, 1, 3, 5), 0.5), draw.normal("key", (2, 1, 4, 5), 0.5)
    other = draw.normal("other", (2, 1, 3, 5), 0.5)
    subject = impl.build("attention", {})
    scores = {
        name: score_differences(weights_of(subject, q, k))
        for name, q, k in (
            ("s(q, k)", query, key),
            ("s(p, k)", other, key),
            ("s(q + p, k)", query + other, key),
            ("s(q, 2k)", query, 2 * key),
        )
    }
    size = max(float(abs(s).max()) for s in scores.values())
    bound = tolerance(subject.dtype, length=9, scale=float(np.exp(min(size, 20.0))))
    return all_of(
        close("s(q + p, k) = s(q, k) + s(p, k)", scores["s(q + p, k)"], scores["s(q, k)"] + scores["s(p, k)"], bound),
        close("s(q, 2k) = 2 s(q, k)", scores["s(q, 2k)"], 2 * scores["s(q, k)"], bound),
    )


@check("longer-keys-get-more-weight", roles=("attention",), examples=0)
def longer_keys_get_more_weight(impl: Any, draw: Draw) -> Evidence:
    """q = [1, 0] prefers the key [3, 4] (cosine 0.6) to [1, 0] (cosine 1): 0.8044 against 0.1956."""
    subject = impl.build("attention", {})
    got = weights_of(subject, one_head([[1, 0]]), one_head([[3, 4], [1, 0]]))
    return close("weights", got, one_head([[0.80442968, 0.19557032]]), tolerance(subject.dtype, scale=4.0) + 1e-8)


@check("attention-worked-example-001", roles=("attention",), examples=0)
def attention_worked_example(impl: Any, draw: Draw) -> Evidence:
    """Two queries against three keys by hand: (3.4011, 3.5989) and (4.1207, 4.2290)."""
    query, key = [[1, 0], [0, 2]], [[1, 0], [0, 1], [1, 1]]
    value = [[1, 2], [3, 4], [6, 5]]
    subject = impl.build("attention", {})
    got = subject(query=one_head(query), key=one_head(key), value=one_head(value))["out"]
    expected = one_head([[3.4011120927, 3.5988879073], [4.1206579188, 4.2290413705]])
    return close("softmax(Q K^T / sqrt(2)) V", got, expected, tolerance(subject.dtype, scale=12.0) + 1e-9)


@check("a-decoder-state-attends-to-encoder-states", roles=("attention",), examples=0)
def decoder_state_attends(impl: Any, draw: Draw) -> Evidence:
    """Query s = (1, 0), keys and values the encoder states: c = (0.8446, 0.5777), from the unscaled scores 1, 0, 1."""
    states = one_head([[1, 0], [0, 1], [1, 1]])
    subject = impl.build("attention", {})
    # The document's scores of an RNN are not scaled: sqrt(2) undoes the division.
    got = subject(query=one_head([[2**0.5, 0]]), key=states, value=states)["out"]
    return close("c", got, one_head([[0.8446375965, 0.5776812017]]), tolerance(subject.dtype, 5, 2.0) + 1e-9)


@check("worked-example-needs-the-scale-of-its-own-width", roles=("attention",), examples=0)
def worked_example_needs_its_own_scale(impl: Any, draw: Draw) -> Evidence:
    """The 3-dimensional example has scores [0, 1, 2] and divides by sqrt(3), not by 8: [0.168, 0.299, 0.533]."""
    query, key = one_head([[1, 0, 1]]), one_head([[0, 1, 0], [1, 0, 0], [1, 0, 1]])
    subject = impl.build("attention", {})
    expected = one_head([[0.16794345, 0.29915971, 0.53289684]])
    return close("weights", weights_of(subject, query, key), expected, tolerance(subject.dtype, scale=4.0) + 1e-8)


# --- the weights ----------------------------------------------------------------------------------


@check("attention-rows-sum-to-one", roles=("attention",))
def rows_sum_to_one(impl: Any, draw: Draw) -> Evidence:
    """Each query's weights are a distribution over the keys; columns are not normalised."""
    query, key, _ = draw_attention(draw)
    subject = impl.build("attention", {})
    got = weights_of(subject, query, key)
    sums = got.sum(-1)
    return all_of(
        true("every weight lies in [0, 1]", np.all((got >= 0) & (got <= 1 + 1e-5)), got=got),
        close("sum over the keys, for each query", sums, np.ones(sums.shape), tolerance(subject.dtype, key.shape[-2])),
    )


@check("attention-weights-multiply-the-values", roles=("attention",), needs=("attention.weights",))
def weights_multiply_the_values(impl: Any, draw: Draw) -> Evidence:
    """out = A V with A the weights that the implementation itself returns, of shape (B, H, Tq, Tk)."""
    query, key, value = draw_attention(draw)
    subject = impl.build("attention", {})
    got = subject(query=query, key=key, value=value)
    weights = np.asarray(got["weights"], np.float64)
    shape = (*query.shape[:-1], key.shape[-2])
    return all_of(
        same("shape of the weights", weights.shape, shape),
        close("weights V", got["out"], weights @ value, attention_bound(subject, query, key, value)),
    )


@check("attention-stays-inside-the-values", roles=("attention",))
def stays_inside_the_values(impl: Any, draw: Draw) -> Evidence:
    """Every output coordinate lies between the smallest and the largest value; equal values pass through."""
    query, key, value = draw_attention(draw, scale=2.0)
    subject = impl.build("attention", {})
    out = subject(query=query, key=key, value=value)["out"]
    low, high = value.min(-2, keepdims=True), value.max(-2, keepdims=True)
    outside = np.maximum(np.maximum(low - out, out - high), 0.0)
    constant = np.broadcast_to(value[..., :1, :] + 3.0, value.shape)
    bound = tolerance(subject.dtype, key.shape[-2], float(abs(constant).max()))
    return all_of(
        close("distance from the range of the values", outside, np.zeros(outside.shape), bound),
        close(
            "all values equal",
            subject(query=query, key=key, value=constant)["out"],
            np.broadcast_to(constant[..., :1, :], out.shape),
            bound,
        ),
    )


@check("values-do-not-decide-the-weights", roles=("attention",))
def values_do_not_decide_the_weights(impl: Any, draw: Draw) -> Evidence:
    """For fixed queries and keys the output is linear in the values: out(a V + W) = a out(V) + out(W)."""
    query, key, _ = draw_attention(draw)
    value = draw.normal("value", key.shape)
    other, factor = draw.normal("other", value.shape), draw.float("factor", -3.0, 3.0, 2.0)
    subject = impl.build("attention", {})

    def out(v: Array) -> Array:
        return subject(query=query, key=key, value=v)["out"]

    bound = attention_bound(subject, query, key, 4 * (abs(value) + abs(other)))
    return close("out(a V + W)", out(factor * value + other), factor * out(value) + out(other), bound)


@check("keys-decide-the-weights", roles=("attention",))
def keys_decide_the_weights(impl: Any, draw: Draw) -> Evidence:
    """Other keys under the same values give other weights; other weights follow the keys' order, not their place."""
    query, key = draw.normal("query", (2, 3, 4, 5)), draw.normal("key", (2, 3, 5, 5))
    order = draw.rng("order").permutation(5)
    order = order if (order != np.arange(5)).any() else order[::-1]
    subject = impl.build("attention", {})
    weights = weights_of(subject, query, key)
    # Keys permuted under unpermuted values: the columns of the weights move with the keys.
    moved = weights_of(subject, query, key[..., order, :])
    change = float(abs(weights - weights_of(subject, query, key + draw.normal("change", key.shape))).max())
    bound = attention_bound(subject, query, key, np.ones(1))
    return all_of(
        true("changed keys change the weights", change > 1e-3, got=change, expected="more than 0.001"),
        close("weights of permuted keys", moved, weights[..., order], bound),
    )


@check("equal-scores-give-the-mean", roles=("attention",))
def equal_scores_give_the_mean(impl: Any, draw: Draw) -> Evidence:
    """A zero query, or equal keys, weighs every value alike: the output is the mean of the values."""
    query, key, value = draw_attention(draw)
    subject = impl.build("attention", {})
    mean = np.broadcast_to(value.mean(-2, keepdims=True), (*query.shape[:-1], value.shape[-1]))
    bound = tolerance(subject.dtype, key.shape[-2], float(abs(value).max()))
    equal = np.broadcast_to(key[..., :1, :], key.shape)
    return all_of(
        close("query 0", subject(query=0 * query, key=key, value=value)["out"], mean, bound),
        close("equal keys", subject(query=query, key=equal, value=value)["out"], mean, bound),
    )


@check("values-may-differ-from-keys", roles=("attention",), examples=0)
def values_may_differ_from_keys(impl: Any, draw: Draw) -> Evidence:
    """Keys that are all equal can carry different content: K = 0, V = [[2, 0], [0, -2]] gives [1, -1]."""
    subject = impl.build("attention", {})
    got = subject(query=one_head([[1, 1]]), key=one_head(np.zeros((2, 2))), value=one_head([[2, 0], [0, -2]]))["out"]
    return close("output", got, one_head([[1, -1]]), tolerance(subject.dtype, 2, 2.0))


@check("attention-gives-random-access", roles=("attention",))
def gives_random_access(impl: Any, draw: Draw) -> Evidence:
    """A query that matches one of n positions gets that position's value, however far away it is."""
    n = draw.int("n", 2, 100, 100)
    value = draw.normal("value", (1, 1, n, 3))
    here = np.arange(n)
    wanted = np.where(here % 2, here, n - 1 - here)  # its own place, or the mirrored one
    # The scaled score is 50 at the wanted key and 0 elsewhere: e^-50 of the rest is invisible.
    key, query = one_head(np.eye(n)), one_head(50.0 * np.sqrt(n) * np.eye(n)[wanted])
    subject = impl.build("attention", {})
    got = subject(query=query, key=key, value=value)["out"]
    bound = tolerance(subject.dtype, 1, float(abs(value).max()))
    return close("value at the wanted place", got, value[..., wanted, :], bound)


@check("rows-are-queries", roles=("attention",))
def rows_are_queries(impl: Any, draw: Draw) -> Evidence:
    """Entry (i, j) says how much query i attends to key j: query i and key j alone move row i and column j."""
    n = draw.int("n", 3, 6, 4)
    i, j = draw.int("i", 0, n - 1, 0), draw.int("j", 0, n - 1, 2)
    query, key = np.zeros((1, 1, n, 5)), np.zeros((1, 1, n, 5))
    query[0, 0, i, 1], key[0, 0, j, 1] = 30.0, 1.0
    got = weights_of(impl.build("attention", {}), query, key)[0, 0]
    rows = np.full((n, n), 1.0 / n)
    rows[i] = np.eye(n)[j]
    # e^(-30/sqrt(5)) = 1.5e-6 is the weight that the other keys of row i keep.
    return close("weights", got, rows, 1e-4, "a score of 30 / sqrt(5) against 0")


@check("attention-is-stable-under-large-scores", roles=("attention",))
def stable_under_large_scores(impl: Any, draw: Draw) -> Evidence:
    """Scores of size 10^4 give finite weights that sum to one and choose the best key."""
    query, key = draw.normal("query", (2, 3, 4, 5), 150.0), draw.normal("key", (2, 3, 6, 5), 150.0)
    subject = impl.build("attention", {})
    got = weights_of(subject, query, key)
    sums = got.sum(-1)
    scores = f.scaled_scores(query, key)
    gap = np.diff(np.sort(scores, axis=-1)[..., -2:])[..., 0]
    clear = gap > 100.0  # far above the rounding of a score of 10^5 in float32
    draw.bites(clear.any(), "some row has a clear winner")
    return all_of(
        close("row sums", sums, np.ones(sums.shape), tolerance(subject.dtype, 6)),
        same("chosen key", got.argmax(-1)[clear], scores.argmax(-1)[clear]),
    )


# --- shapes ---------------------------------------------------------------------------------------


@check("value-width-is-its-own", roles=("attention",))
def value_width_is_its_own(impl: Any, draw: Draw) -> Evidence:
    """Q (.., Tq, d_k), K (.., Tk, d_k), V (.., Tk, d_v) give (.., Tq, d_v): no length or width is another's."""
    query, key, value = draw_attention(draw)
    out = impl.build("attention", {})(query=query, key=key, value=value)["out"]
    return same("output shape", np.shape(out), (*query.shape[:-1], value.shape[-1]))


@check("query-and-key-must-agree-in-width", roles=("attention",))
def query_and_key_must_agree(impl: Any, draw: Draw) -> Evidence:
    """Queries and keys of different width, or keys and values of different number, are refused."""
    query, key, value = (
        draw.normal("query", (1, 2, 4, 6)),
        draw.normal("key", (1, 2, 5, 6)),
        draw.normal("v", (1, 2, 5, 7)),
    )
    subject = impl.build("attention", {})
    width = draw.int("width", 2, 5, 5)  # einsum broadcasts a width of 1
    return all_of(
        refused("d_k of query and key differ", lambda: subject(query=query, key=key[..., :width], value=value)),
        refused("more keys than values", lambda: subject(query=query, key=key, value=value[..., :4, :])),
    )


# --- positions ------------------------------------------------------------------------------------


@check("queries-are-computed-independently", roles=("attention",))
def queries_are_computed_independently(impl: Any, draw: Draw) -> Evidence:
    """One query at a time gives the rows of all queries at once: nothing is carried from position to position."""
    query, key, value = draw_attention(draw)
    subject = impl.build("attention", {})
    together = subject(query=query, key=key, value=value)["out"]
    rows = [subject(query=query[..., i : i + 1, :], key=key, value=value)["out"] for i in range(query.shape[-2])]
    return close("row by row", np.concatenate(rows, -2), together, attention_bound(subject, query, key, value))


@check("batch-items-and-heads-are-independent", roles=("attention",))
def batch_items_are_independent(impl: Any, draw: Draw) -> Evidence:
    """Each sequence of the batch and each head is computed as if it were alone."""
    query, key, value = draw_attention(draw)
    subject = impl.build("attention", {})
    together = subject(query=query, key=key, value=value)["out"]
    b, h = draw.int("b", 0, query.shape[0] - 1, 1), draw.int("h", 0, query.shape[1] - 1, 1)
    alone = (slice(b, b + 1), slice(h, h + 1))
    got = subject(query=query[alone], key=key[alone], value=value[alone])["out"]
    return close("alone", got, together[alone], attention_bound(subject, query, key, value))


@check("the-order-of-keys-does-not-matter", roles=("attention",))
def order_of_keys_does_not_matter(impl: Any, draw: Draw) -> Evidence:
    """Attention has no notion of position: moving keys with their values changes nothing, moving queries moves rows."""
    query, key, value = draw_attention(draw)
    rng = draw.rng("order")
    keys, queries = rng.permutation(key.shape[-2]), rng.permutation(query.shape[-2])
    draw.bites((keys != np.arange(len(keys))).any(), "some key moved")
    subject = impl.build("attention", {})
    expected = subject(query=query, key=key, value=value)["out"]
    got = subject(query=query[..., queries, :], key=key[..., keys, :], value=value[..., keys, :])["out"]
    return close("permuted", got, expected[..., queries, :], attention_bound(subject, query, key, value))


# --- gradients ------------------------------------------------------------------------------------


@check("attention-gradients", roles=("attention",), needs=("attention.vjp",), examples=2)
def attention_gradients(impl: Any, draw: Draw) -> Evidence:
    """dV = A^T c, dS = A (c V^T - its mean under A), dQ = dS K / sqrt(d_k), dK = dS^T Q / sqrt(d_k)."""
    t = draw.int("T", 2, 3, 3)  # as many queries as keys, so that no shape betrays a missing transpose
    query, key, value = (draw.normal(name, (1, 2, t, n)) for name, n in (("query", 4), ("key", 4), ("value", 3)))
    cotangent = draw.normal("cotangent", (1, 2, t, 3))
    subject = impl.build("attention", {})
    got, _ = subject.vjp({"query": query, "key": key, "value": value}, cotangent)
    _, weights = f.attention(query, key, value)
    of_weights = cotangent @ np.swapaxes(value, -1, -2)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    size = float(abs(cotangent).sum(-1).max() * max(abs(query).max(), abs(key).max()))
    bound = attention_bound(subject, query, key, value) * (1.0 + size) + 1e-8  # central differences carry 1e-9
    return all_of(
        close("gradient of the values", got["value"], np.swapaxes(weights, -1, -2) @ cotangent, bound),
        close("gradient of the queries", got["query"], of_scores @ key / 2, bound),
        close("gradient of the keys", got["key"], np.swapaxes(of_scores, -1, -2) @ query / 2, bound),
    )


# --- dropout --------------------------------------------------------------------------------------


@check("attention-dropout-is-off-in-evaluation", roles=("attention",))
def dropout_is_off_in_evaluation(impl: Any, draw: Draw) -> Evidence:
    """In evaluation dropout does nothing, also after a spell of training: the formula holds and calls agree."""
    query, key, value = draw_attention(draw)
    subject = impl.build("attention", {"dropout": 0.5})
    expected, _ = f.attention(query, key, value)
    bound = attention_bound(subject, query, key, value)
    fresh = subject(query=query, key=key, value=value)["out"]
    subject.train(True)
    subject(query=query, key=key, value=value)
    subject.train(False)
    return all_of(
        close("freshly built", fresh, expected, bound),
        close("after training", subject(query=query, key=key, value=value)["out"], expected, bound),
    )


@check("attention-dropout-acts-on-the-weights", roles=("attention",), examples=2)
def dropout_acts_on_the_weights(impl: Any, draw: Draw) -> Evidence:
    """In training each weight is either dropped or divided by 1 - p, after softmax: rows need not sum to one."""
    rate = draw.choice("p", (0.25, 0.5), 0.25)
    query, key = draw.normal("query", (2, 3, 8, 4)), draw.normal("key", (2, 3, 9, 4))
    _, full = f.attention(query, key, np.eye(9))
    subject = impl.build("attention", {"dropout": rate})
    subject.train(False)
    subject.train(True)
    got = weights_of(subject, query, key)
    dropped = got == 0
    draw.bites(dropped.any(), "some weight was dropped")
    # 432 weights: the dropped share scatters by 0.024 around p.
    return all_of(
        close("share of dropped weights", dropped.mean(), rate, 0.12, "five standard deviations"),
        true("the same keys are not dropped for every query", (dropped != dropped[..., :1, :]).any()),
        close(
            "kept weights",
            got,
            np.where(dropped, 0.0, full / (1 - rate)),
            2 * attention_bound(subject, query, key, np.ones(1)),
        ),
    )


@check("returned-weights-are-before-or-after-dropout", roles=("attention",), needs=("attention.weights",), examples=2)
def returned_weights_in_training(impl: Any, draw: Draw) -> Evidence:
    """In training the returned weights are the softmax's, or exactly the thinned ones that met the values."""
    query, key, value = (draw.normal(name, (2, 3, n, 4)) for name, n in (("query", 5), ("key", 6), ("value", 6)))
    subject = impl.build("attention", {"dropout": 0.5})
    subject.train(True)
    got = subject(query=query, key=key, value=value)
    weights = np.asarray(got["weights"], np.float64)
    _, full = f.attention(query, key, value)
    bound = 2 * attention_bound(subject, query, key, value)
    if np.any(weights == 0):
        return close("weights after dropout, times V", got["out"], weights @ value, bound)
    return close("weights before dropout", weights, full, bound)


# --- long sequences -------------------------------------------------------------------------------


@check("blockwise-attention-is-exact", roles=("attention",), examples=2)
def long_rows(impl: Any, draw: Draw) -> Evidence:
    """Over hundreds of keys whose scores rise, fall or scatter, the result is the formula's, in blocks or not.

    Rising scores raise the maximum in every block: what was summed before must be rescaled each time.
    """
    t_key, trend = draw.int("Tk", 257, 400, 301), draw.choice("trend", ("rising", "falling", "none"), "rising")
    causal = draw.bool("causal", True)
    t_query = t_key if causal else 3
    d_k, ramp = 4, np.linspace(-4.0, 4.0, t_key) * {"rising": 1, "falling": -1, "none": 0}[trend]
    query, key = draw.normal("query", (1, 2, t_query, d_k), 0.3), draw.normal("key", (1, 2, t_key, d_k), 0.3)
    query[..., 0], key[..., 0] = 2.0, ramp
    value = draw.normal("value", (1, 2, t_key, 3))
    subject = impl.build("attention", {"causal": causal})
    got = subject(query=query, key=key, value=value)["out"]
    expected, _ = f.attention(query, key, value, f.causal_mask(t_key) if causal else None)
    return close("attention over many keys", got, expected, attention_bound(subject, query, key, value))
