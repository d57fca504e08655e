"""Worked numbers of the documents: attention examples, statistics of scores, parameter counts, losses, schedules."""

from __future__ import annotations

from functools import cache

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.reference.attention import attention, causal_mask, softmax
from conformance.verifications.base import erratum, rounds_to, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64)


# --- the worked example of attention (000 2.2.3): one query, three keys ---------------------------

QUERY = np.array([1.0, 0, 1])
KEYS = np.array([[0.0, 1, 0], [1, 0, 0], [1, 0, 1]])


@verify("worked-query-scores-are-0-1-2")
def worked_scores() -> Evidence:
    return same("Q K^T of the printed query and keys", KEYS @ QUERY, [0, 1, 2])


@verify("worked-scores-over-8")
def worked_scaled_scores() -> Evidence:
    return all_of(
        same("the scale for d_k = 64", np.sqrt(64), 8),
        same("[0, 1, 2] / sqrt(64)", KEYS @ QUERY / np.sqrt(64), [0, 0.125, 0.25]),
    )


@verify("worked-example-needs-the-scale-of-its-own-width")
def worked_scale() -> Evidence:
    d_k = len(QUERY)
    _, weights = attention(QUERY[None], KEYS, np.eye(3))
    right = close("weights with sqrt(3)", weights[0], [0.16794345, 0.29915971, 0.53289684], 1e-8, "given to 8 digits")
    return erratum("scale of 3-dimensional keys", 8, np.sqrt(d_k), right, by=1)


@verify("longer-keys-get-more-weight")
def length_counts() -> Evidence:
    query, keys = np.array([[1.0, 0]]), np.array([[3.0, 4], [1, 0]])
    cosine = (keys @ query[0]) / np.linalg.norm(keys, axis=1)
    _, weights = attention(query, keys, keys)
    units = np.random.default_rng(3).standard_normal((9, 2))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    right = all_of(
        true("the larger dot product gets the larger weight", weights[0, 0] > weights[0, 1], got=weights[0]),
        same("unit keys: dot products rank as cosines", np.argsort(units @ query[0]), np.argsort(units[:, 0])),
    )
    return erratum("the most similar key", int(np.argmax(keys @ query[0])), int(np.argmax(cosine)), right)


@verify("worked-weights-sum-to-one")
def worked_softmax() -> Evidence:
    rounded = np.round(softmax(KEYS @ QUERY / 8), 2)
    return close("sum of the rounded weights", rounded.sum(), 1, ROUNDING)


@verify("worked-output-is-029-033-038-of-the-values")
def worked_output() -> Evidence:
    values = np.random.default_rng(0).standard_normal((3, 4))
    by_print = 0.29 * values[0] + 0.33 * values[1] + 0.38 * values[2]
    bound = 0.005 * float(np.abs(values).sum(0).max())
    return close("weights @ V", softmax(KEYS @ QUERY / 8) @ values, by_print, bound, "coefficients of two digits")


@verify("worked-example-leaves-the-query-word-out")
def query_word_left_out() -> Evidence:
    printed = np.array([0.5, 0.3, 0.2])
    _, weights = attention(*np.random.default_rng(1).standard_normal((3, 4, 4)))
    others = np.where(np.eye(4, dtype=bool), 0, weights).sum(-1)
    right = all_of(
        true("all 16 weights of a 4-word sentence are positive", weights.min() > 0, got=weights.min(), expected="> 0"),
        true("the three other words' weights sum to less than 1", others.max() < 1, got=others.max(), expected="< 1"),
    )
    return erratum("weight left for the query word itself", 1 - printed.sum(), float(weights.diagonal().min()), right)


@verify("the-three-verb-weights-sum-to-one")
def verb_weights() -> Evidence:
    return close("0.5 + 0.3 + 0.2", np.array([0.5, 0.3, 0.2]).sum(), 1, ROUNDING)


@verify("the-new-representation-sums-value-vectors")
def sums_values() -> Evidence:
    x = np.random.default_rng(2).standard_normal((3, 4))
    output, weights = attention(x, x, x @ (2 * np.eye(4)))
    right = close("output = weights @ (X W_V)", output, 2 * (weights @ x), tolerance(np.float64, 3, 4))
    return erratum("weighted sum of embeddings, W_V = 2 I", weights @ x, output, right, by=1e-3)


def softmax_jacobian(scores: Array) -> Array:
    """diag(p) - p p^T for every row of scores ``(..., n)``: ``(..., n, n)``."""
    p = softmax(scores)
    return p[..., None] * (np.eye(p.shape[-1]) - p[..., None, :])


@cache
def random_scores(d_k: int) -> Array:
    """Unscaled q.k of standard normal vectors: 40 queries, each with 64 keys of its own, ``(40, 64)``."""
    rng = np.random.default_rng(d_k)
    queries, keys = rng.standard_normal((40, d_k), np.float32), rng.standard_normal((40, 64, d_k), np.float32)
    return (keys @ queries[:, :, None])[..., 0].astype(np.float64)


@verify("dot-products-have-variance-d-k")
def dot_product_variance() -> Evidence:
    widths = (4, 16, 64, 256)
    ratio = [random_scores(d).var() / d for d in widths]
    return close("Var(q.k) / d_k for d_k = 4, 16, 64, 256", ratio, np.ones(4), 0.15, "2,560 samples of 40 queries")


@verify("scaling-prevents-saturation-not-explosion")
def not_explosion() -> Evidence:
    scores = random_scores(512)
    spectral = max(np.linalg.norm(softmax_jacobian(s), 2) for s in scores[:40])
    plain, scaled = (
        float(np.median(np.linalg.norm(softmax_jacobian(s), axis=(1, 2)))) for s in (scores, scores / 512**0.5)
    )
    right = all_of(
        true(
            "the softmax Jacobian's norm never exceeds 1/2", spectral <= 0.5 + ROUNDING, got=spectral, expected="<= 0.5"
        ),
        true(
            "unscaled gradients vanish, scaled ones do not",
            plain < 0.05 < 0.1 < scaled,
            got=(plain, scaled),
            expected="< 0.05, > 0.1",
        ),
    )
    return erratum("unscaled gradients are the larger ones", True, plain > scaled, right)


@verify("softmax-weights-are-never-zero")
def never_zero() -> Evidence:
    weights = softmax(np.array([0.0, -50]))
    right = close("exp(-50) / (1 + exp(-50))", weights[1] / np.exp(-50), 1, 1e-12)
    return erratum("weight of the ignored word", 0.0, float(weights[1]), right)


@verify("one-relevant-key-is-diluted")
def diluted() -> Evidence:
    lengths = np.array([128, 1000, 10_000, 100_000])
    weight = [float(softmax(np.r_[5.0, np.zeros(n - 1)])[0]) for n in lengths]
    right = close("weight of one key with logit 5", weight, np.exp(5) / (np.exp(5) + lengths - 1), 1e-12)
    return erratum("the weight is independent of the length", weight[0], weight[-1], right, by=0.5)


# --- illustrated weight matrices ------------------------------------------------------------------

ILLUSTRATED = np.array([[0.6, 0.2, 0.2], [0.2, 0.4, 0.4], [0.1, 0.3, 0.6]])


@verify("illustrated-weights-are-rows-of-distributions")
def illustrated_rows() -> Evidence:
    return all_of(
        close("row sums", ILLUSTRATED.sum(-1), np.ones(3), ROUNDING),
        true("every word sees every word", ILLUSTRATED.min() > 0, got=ILLUSTRATED.min(), expected="> 0"),
        same("words 1 and 3 attend mostly to themselves", ILLUSTRATED.argmax(-1)[[0, 2]], [0, 2]),
        same("word 2 attends equally to itself and to word 3", *ILLUSTRATED[1, 1:]),
    )


@verify("masking-keeps-the-ratio-of-visible-weights")
def masked_row_two() -> Evidence:
    masked = softmax(np.where(causal_mask(3), np.log(ILLUSTRATED), -np.inf))
    right = close("masking keeps the ratio 0.2 : 0.4", masked[1], [1 / 3, 2 / 3, 0], ROUNDING)
    return erratum("row 2 after the mask", [0.4, 0.6, 0], masked[1], right, by=0.05)


@verify("all-weights-sum-to-the-number-of-queries")
def sum_of_all_weights() -> Evidence:
    _, weights = attention(*np.random.default_rng(4).standard_normal((3, 5, 4)))
    right = close("each row sums to 1", weights.sum(-1), np.ones(5), ROUNDING)
    return erratum("sum of all weights", 1.0, weights.sum(), right, by=1)


@verify("the-cross-matrix-is-a-diagonal-alignment")
def cross_matrix() -> Evidence:
    matrix = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    return all_of(
        close("rows of the cross-attention picture sum to 1", matrix.sum(-1), np.ones(3), ROUNDING),
        same("each target word attends to its own source word", matrix.argmax(-1), np.arange(3)),
    )


@verify("the-example-weight-matrix-is-reachable")
def reachable_matrix() -> Evidence:
    printed = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
    scores = np.log(printed) * np.sqrt(64)
    return all_of(
        close("row sums", printed.sum(-1), np.ones(3), ROUNDING),
        close("softmax(scores / sqrt(64)) for scores = 8 log(rows)", softmax(scores / 8), printed, ROUNDING),
    )


@verify("the-cat-sentence-weights-sum-to-one")
def cat_sentence() -> Evidence:
    weights = np.array([0.1, 0.3, 0.4, 0.05, 0.05, 0.1])
    return all_of(
        close("sum of the six weights", weights.sum(), 1, ROUNDING),
        same("the verb after 'cat' gets the most", weights.argmax(), 2),
        true(
            "mass on later words: the row is bidirectional",
            weights[2:].sum() > 0.5,
            got=weights[2:].sum(),
            expected="> 0.5",
        ),
    )


@verify("the-worked-matrix-has-three-words-of-four-features")
def worked_matrix() -> Evidence:
    x = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.2, 0.3, 0.4, 0.5]])
    query, key, value = (x @ np.eye(4) for _ in range(3))
    output, weights = attention(query, key, value)
    return all_of(
        same("X, Q, K, V and output are 3 x 4", [x.shape, query.shape, output.shape], [(3, 4)] * 3),
        same("scores and weights are 3 x 3", [(query @ key.T).shape, weights.shape], [(3, 3)] * 2),
        rounds_to("Q K^T with identity projections", (query @ key.T)[0], [0.30, 0.70, 0.40], 2),
    )


# --- the classical scores of RNN attention (003 Attention) ----------------------------------------

STATE = np.array([1.0, 0])
STATES = np.array([[1.0, 0], [0, 1], [1, 1]])


def additive_score(state: Array, key: Array, w: Array, v: Array) -> Array:
    """v^T tanh(W [s; h])."""
    return v @ np.tanh(w @ np.concatenate([state, key]))


@verify("dot-score-and-context-of-a-decoder-state")
def dot_score() -> Evidence:
    scores = STATES @ STATE
    context = softmax(scores) @ STATES
    return all_of(
        same("s^T h_i", scores, [1, 0, 1]),
        close("context", context, [0.8446375965, 0.5776812017], 1e-9, "given to 10 digits"),
        true(
            "the context lies within the states",
            ((STATES.min(0) <= context) & (context <= STATES.max(0))).all(),
            got=context,
        ),
    )


@verify("general-score-is-bilinear")
def general_score() -> Evidence:
    w = np.array([[1.0, 2], [0, 1]])
    scores = STATES @ w.T @ STATE
    rectangular = np.array([[1.0, 0, 2], [0, 1, -1]])
    h = np.array([1.0, 2, 3])
    return all_of(
        same("s^T W h_i", scores, [1, 2, 3]),
        same("W h first or s^T W first", (STATE @ rectangular) @ h, STATE @ (rectangular @ h)),
        same("W of shape 2 x 3 joins states of 2 and 3 dimensions", STATE @ rectangular @ h, 7),
        same("orthogonal vectors may match", np.array([1, 0]) @ np.array([[0, 1], [1, 0]]) @ np.array([0, 1]), 1),
    )


@verify("additive-score-is-a-small-network")
def additive() -> Evidence:
    w, v = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0.5, 0.5, 0.5, 0.5]]), np.array([1.0, -1, 2])
    scores = np.array([additive_score(STATE, h, w, v) for h in STATES])
    split = np.array([v @ np.tanh(w[:, :2] @ STATE + w[:, 2:] @ h) for h in STATES])
    return all_of(
        close("v^T tanh(W [s; h_i])", scores, [1.5231883119, 2.4872158920, 2.0127299314], 1e-9, "given to 10 digits"),
        close("W [s; h] = W_s s + W_h h", split, scores, ROUNDING),
        true("|score| <= sum |v|", np.abs(scores).max() <= np.abs(v).sum(), got=scores, expected="<= 4"),
    )


@verify("additive-attention-is-bounded")
def additive_is_bounded() -> Evidence:
    w, v = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0.5, 0.5, 0.5, 0.5]]), np.array([1.0, -1, 2])
    sizes = np.array([1.0, 10, 100])
    scores = np.array([additive_score(t * STATE, t * STATE, w, v) for t in sizes])
    right = true("its scores stay below sum |v| = 4", scores.max() <= np.abs(v).sum(), got=scores, expected="<= 4")
    return erratum("it can follow the dot product t^2 of s = h = (t, 0)", sizes**2, scores, right, by=1000)


@verify("a-sum-under-tanh-is-no-similarity")
def sum_is_no_similarity() -> Evidence:
    pairs = [((3, 3), (3, 3)), ((-3, -3), (-3, -3)), ((3, 3), (-3, -3))]
    summed = [float(np.tanh(np.add(s, h)).sum()) for s, h in pairs]
    dot = [float(np.dot(s, h)) for s, h in pairs]
    right = same("the dot product tells equal from opposite", np.sign(dot), [1, 1, -1])
    return erratum(
        "sign of the score of equal, equal, opposite vectors", np.sign(dot), np.sign(np.round(summed, 9)), right
    )
