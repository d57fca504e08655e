"""Witnesses of the errata about attention, and statements about it that no implementation is needed for."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.reference import multi_head as f
from conformance.reference.attention import attention, causal_mask, scaled_scores, softmax
from conformance.verifications.base import erratum, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64, 64)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def layer(d: int, heads: int, seed: int = 1) -> dict[str, Array]:
    """Random parameters of a multi-head layer, without biases."""
    rng = np.random.default_rng([seed, heads])
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    return {f"{name}.weight": rng.standard_normal((d, d)) / d**0.5 for name in names}


# --- scores and projections -----------------------------------------------------------------------


@verify("words-attend-to-themselves-too")
def own_position_is_included() -> Evidence:
    weights = softmax(scaled_scores(normal(5, 4), normal(5, 4, seed=1)))
    scores = scaled_scores(normal(5, 4), normal(5, 4, seed=1))
    right = all_of(
        true("every diagonal weight is positive", (np.diag(weights) > 0).all()),
        true("scores are not symmetric", abs(scores - scores.T).max() > 0.1),
    )
    return erratum(
        "weight of a word on itself, attending to the others only", 0.0, float(np.diag(weights).min()), right
    )


@verify("scores-are-divided-by-the-root-of-the-head-width")
def divided_by_head_width() -> Evidence:
    d, heads = 8, 2
    p, x = layer(d, heads), normal(1, 5, d)
    right, _ = f.multi_head_attention(p, x, x, x, heads)
    wide = {**p, "q_proj.weight": p["q_proj.weight"] / heads**0.5}
    written, _ = f.multi_head_attention(wide, x, x, x, heads)
    head = x[0] @ p["q_proj.weight"].T[:, : d // heads], x[0] @ p["k_proj.weight"].T[:, : d // heads]
    raw = head[0] @ head[1].T
    return erratum(
        "a layer that divides by sqrt(d_model)",
        written,
        right,
        close("scores of a head", scaled_scores(*head), raw / (d // heads) ** 0.5, ROUNDING),
        by=1e-3,
    )


@verify("the-score-under-the-mask-is-scaled")
def masked_score_is_scaled() -> Evidence:
    q, k = normal(4, 4), normal(4, 4, seed=1)
    hidden = np.where(causal_mask(4), 0.0, -np.inf)
    before, after = softmax((q @ k.T + hidden) / 2), softmax(q @ k.T / 2 + hidden)
    return erratum(
        "weights from Q K^T + mask",
        softmax(q @ k.T + hidden),
        after,
        same("masking before or after the division", before, after),
        by=1e-2,
    )


@verify("projections-are-affine")
def projections_are_affine() -> Evidence:
    w, b, x, y = normal(3, 4), normal(3, seed=1), normal(2, 4, seed=2), normal(2, 4, seed=3)

    def project(z: Array) -> Array:
        return z @ w.T + b

    linear_part = project(2 * x + 3 * y) - b, 2 * (project(x) - b) + 3 * (project(y) - b)
    return erratum(
        "f(2x + 3y) = 2 f(x) + 3 f(y) with a bias",
        2 * project(x) + 3 * project(y),
        project(2 * x + 3 * y),
        close("f(z) - f(0) is linear", *linear_part, ROUNDING),
        by=1e-2,
    )


@verify("identity-projections-still-discriminate")
def identity_projections_discriminate() -> Evidence:
    x = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.2, 0.3, 0.4, 0.5]])
    _, weights = attention(x, x, x)
    scores = scaled_scores(x, x)
    printed = [[0.30556054, 0.37321249, 0.32122697], [0.26172145, 0.44022272, 0.29805582]]
    right = all_of(
        close("rows 0 and 1 of the weights", weights[:2], printed, 1e-8),
        same("the scores are symmetric", scores, scores.T),
    )
    return erratum("rows without discrimination are uniform", np.full((3, 3), 1 / 3), weights, right, by=0.05)


@verify("scores-depend-on-the-product-of-the-projections")
def scores_depend_on_the_product() -> Evidence:
    x, w_q, w_k, a = normal(5, 4), normal(4, 3, seed=1), normal(4, 3, seed=2), normal(3, 3, seed=3)
    turned = (x @ w_q @ a) @ (x @ w_k @ np.linalg.inv(a).T).T
    keys = x @ w_k, x @ w_k @ np.linalg.inv(a).T
    right = close("scores in other coordinates", turned, (x @ w_q) @ (x @ w_k).T, 100 * ROUNDING)
    return erratum("keys in one common space with the queries", keys[0], keys[1], right, by=1e-2)


@verify("normalisation-need-not-be-softmax")
def other_normalisations() -> Evidence:
    scores, values = np.array([[1.0, -2.0, 3.0]]), normal(3, 4)
    positive = np.maximum(scores, 0.0)
    out = positive / positive.sum(-1, keepdims=True) @ values
    inside = (out >= values.min(0)).all() and (out <= values.max(0)).all()
    return all_of(
        true("relu(s) / sum relu(s) stays inside the values", inside),
        same("a row without a positive score has nothing to divide by", np.maximum(-abs(scores), 0).sum(), 0.0),
    )


@verify("a-weight-is-not-a-contribution")
def a_weight_is_not_a_contribution() -> Evidence:
    weights, values = np.array([0.9, 0.1]), np.array([[0.0, 0.0], [1.0, 1.0]])
    shares = weights * np.linalg.norm(values, axis=-1)
    right = close("output", weights @ values, [0.1, 0.1], ROUNDING)
    return erratum("share of the first token, read from its weight", 0.9, shares[0] / shares.sum(), right, by=0.5)


# --- attention between states ---------------------------------------------------------------------


@verify("an-unmasked-model-copies-the-answer")
def an_unmasked_model_copies() -> Evidence:
    n, vocabulary = 8, 6
    ids = np.random.default_rng(0).integers(0, vocabulary, n + 1)
    place = np.eye(n)
    content = np.eye(vocabulary)[ids[:-1]]
    # Position t asks for position t + 1 with a score of 60, and copies its token into logits of size 60.
    query = 60.0 * np.roll(place, -1, 0) * n**0.5

    def loss(mask: Array | None) -> float:
        copied, _ = attention(query, place, content, mask)
        p = softmax(60.0 * copied)
        return float(-np.log(np.maximum(p[np.arange(n - 1), ids[1:n]], 1e-30)).mean())

    return all_of(
        close("loss without a mask", loss(None), 0.0, 1e-6, "e^-60 of the probability is elsewhere"),
        true("loss of the same weights under the causal mask", loss(causal_mask(n)) > np.log(vocabulary)),
    )


# --- heads ----------------------------------------------------------------------------------------


@verify("every-head-reads-the-whole-embedding")
def every_head_reads_everything() -> Evidence:
    d, heads = 8, 2
    p, x = layer(d, heads), normal(1, 5, d)
    half = x * (np.arange(d) < 4)
    outs, _ = f.heads(p, x, x, x, heads)
    sliced, _ = f.heads(p, half, half, half, heads)
    return erratum(
        "head 0 without features 4 to 7",
        outs[:, 0],
        sliced[:, 0],
        same("features that a head's projection reads", p["q_proj.weight"][:4].shape[1], d),
        by=1e-2,
    )


@verify("more-heads-are-not-always-better")
def more_heads_are_not_always_better() -> Evidence:
    n = 6
    # Heads of width 1 score q_i k_j: each row prefers the largest or the smallest key, so a head can point at two
    # places at most. One head of the full width points anywhere.
    q, k = normal(n), normal(n, seed=1)
    pointed = np.unique((1e3 * np.outer(q, k)).argmax(-1))
    wide = softmax(60.0 * np.eye(n)).argmax(-1)
    parameters = {h: 4 * h * (n * n // h) for h in (1, 2, 3, 6)}
    right = all_of(
        same("places that one head of full width points at", len(np.unique(wide)), n),
        same("parameters do not grow with the heads", set(parameters.values()), {4 * n * n}),
    )
    return erratum("places that a head of width 1 points at", n, len(pointed), right)


@verify("the-output-projection-joins-heads-of-any-width")
def output_projection_shape() -> Evidence:
    heads, d_v, d = 2, 3, 8
    joined = np.concatenate([normal(5, d_v, seed=i) for i in range(heads)], -1)
    return same("[n, h d_v] W^O with W^O of shape (h d_v, d_model)", (joined @ normal(heads * d_v, d)).shape, (5, d))


@verify("one-key-head-is-multi-query-attention")
def any_divisor_of_heads() -> Evidence:
    d, heads = 8, 4
    p, x = layer(d, heads), normal(1, 5, d)
    full, _ = f.multi_head_attention(p, x, x, x, heads, heads)
    plain, _ = f.multi_head_attention(p, x, x, x, heads)
    one = {**p, "k_proj.weight": p["k_proj.weight"][:2], "v_proj.weight": p["v_proj.weight"][:2]}
    repeated = {name: np.tile(w, (heads, 1)) if name[0] in "kv" else w for name, w in one.items()}
    right = all_of(
        same("n_kv_heads = n_heads is multi-head attention", full, plain),
        close(
            "n_kv_heads = 1 shares one key head",
            f.multi_head_attention(one, x, x, x, heads, 1)[0],
            f.multi_head_attention(repeated, x, x, x, heads)[0],
            ROUNDING,
        ),
    )
    allowed = [kv for kv in range(1, heads + 1) if heads % kv == 0]
    return erratum("allowed numbers of key heads for 4 heads are below 4", [1, 2], allowed, right)


# --- cross-attention and padding ------------------------------------------------------------------


@verify("cross-attention-splits-into-heads")
def cross_attention_splits() -> Evidence:
    d, heads = 32, 8
    p, target, source = layer(d, heads), normal(1, 5, d), normal(1, 7, d, seed=1)
    q, k, v = f.project(p, "q_proj", target), f.project(p, "k_proj", source), f.project(p, "v_proj", source)
    listing = f.project(p, "out_proj", softmax(q @ k.swapaxes(-1, -2) / (d // heads) ** 0.5) @ v)
    right, weights = f.multi_head_attention(p, target, source, source, heads)
    ratio = np.std(q @ k.swapaxes(-1, -2) / (d // heads) ** 0.5) / np.std(scaled_scores(q, k))
    corrections = all_of(
        same("weights of multi-head cross-attention", weights.shape, (1, heads, 5, 7)),
        close("the unsplit scores are sqrt(heads) too large", ratio, heads**0.5, ROUNDING),
    )
    return erratum("output of the printed class", listing, right, corrections, by=1e-2)


@verify("keys-and-values-are-projections-of-the-source")
def keys_and_values_are_projected() -> Evidence:
    d, heads = 8, 2
    p, target, source = layer(d, heads), normal(1, 3, d), normal(1, 5, d, seed=1)
    identity = {**p, "k_proj.weight": np.eye(d), "v_proj.weight": np.eye(d)}
    doubled = {**p, "v_proj.weight": 2 * p["v_proj.weight"]}
    right, _ = f.multi_head_attention(p, target, source, source, heads)
    twice, _ = f.multi_head_attention(doubled, target, source, source, heads)
    written, _ = f.multi_head_attention(identity, target, source, source, heads)
    correction = close("doubling W_V doubles the output", twice, 2 * right, ROUNDING)
    return erratum("K = V = encoder output", written, right, correction, by=1e-2)


@verify("query-key-and-value-may-be-three-tensors")
def three_tensors() -> Evidence:
    d, heads = 8, 2
    p, a, b = layer(d, heads), normal(1, 5, d), normal(1, 5, d, seed=1)
    crossed, _ = f.multi_head_attention(p, a, b, b, heads)
    own, _ = f.multi_head_attention(p, a, a, a, heads)
    right = same("Q of cross-attention ignores the source", f.project(p, "q_proj", a), a @ p["q_proj.weight"].T)
    return erratum("cross-attention with Q, K and V from one input", own, crossed, right, by=1e-2)


def _padded(cross: bool) -> Evidence:
    """A sequence of 3 words and 2 of padding as source (and target), with and without its mask."""
    d, heads = 8, 2
    p, source = layer(d, heads), normal(1, 5, d, seed=1)
    query = normal(1, 4, d) if cross else source
    real = np.arange(5) < 3
    alone = source[:, real]
    unpadded, _ = f.multi_head_attention(p, query if cross else alone, alone, alone, heads)
    masked, _ = f.multi_head_attention(p, query, source, source, heads, mask=real)
    bare, _ = f.multi_head_attention(p, query, source, source, heads)
    rows = slice(None) if cross else real
    right = close("with a padding mask", masked[:, rows], unpadded, ROUNDING)
    return erratum("real words, without a mask", bare[:, rows], unpadded, right, by=1e-2)


@verify("padding-does-not-change-real-words")
def encoder_padding() -> Evidence:
    return _padded(cross=False)


@verify("source-padding-is-masked-in-cross-attention")
def source_padding() -> Evidence:
    return _padded(cross=True)
