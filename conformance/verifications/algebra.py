"""Small algebra of attention, and of layers and models that no role describes: experts, bags of words, alignments."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import ROLES
from conformance.reference.attention import attention, causal_mask, scaled_scores, softmax
from conformance.reference.feed_forward import swiglu
from conformance.verifications.base import erratum, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64, 16, 4)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# --- scores and masks -----------------------------------------------------------------------------

X = normal(5, 4)
W_Q, W_K, W_V = normal(3, 4, seed=1), normal(3, 4, seed=2), normal(6, 4, seed=3)
ROWS = attention(X @ W_Q.T, X @ W_K.T, X @ W_V.T)


@verify("a-causal-position-sees-itself")
def sees_itself() -> Evidence:
    strictly_left = np.tri(5, k=-1, dtype=bool)
    right = all_of(
        same("position 0 sees itself only", causal_mask(5)[0], np.eye(5)[0]),
        true("a strictly left mask leaves it nothing", not strictly_left[0].any()),
    )
    return erratum("visible positions", strictly_left.sum(-1), causal_mask(5).sum(-1), right)


@verify("relative-biases-depend-on-distances-only")
def relative_bias() -> Evidence:
    def weights_at(first: int) -> Array:
        place = first + np.arange(5)
        return softmax(scaled_scores(X, X) - 0.5 * np.abs(np.subtract.outer(place, place)))

    return close("the same words at positions 0 to 4 and 100 to 104", weights_at(100), weights_at(0), ROUNDING)


@verify("scores-are-bilinear-in-the-projections")
def bilinear() -> Evidence:
    scores, doubled = (scaled_scores(X @ (f * W_Q).T, X @ (f * W_K).T) for f in (1, 2))
    far = softmax(1e4 * scores)
    return all_of(
        close("both projections doubled: scores times 4", doubled, 4 * scores, ROUNDING * 16),
        true("the softmax stays finite at 10,000 times the scores", np.isfinite(far).all(), got=far),
    )


# --- column notation ------------------------------------------------------------------------------


@verify("inputs-as-columns-are-the-transposed-rows")
def columns() -> Evidence:
    one_by_one = np.stack([W_Q @ x for x in X], axis=1)
    return all_of(
        close("W x of one input equals a row of X W^T", W_Q @ X[2], (X @ W_Q.T)[2], ROUNDING),
        close("W X stacks all queries as columns", W_Q @ X.T, one_by_one, ROUNDING),
    )


@verify("scores-of-columns-are-normalised-over-axis-0")
def column_scores() -> Evidence:
    q, k = W_Q @ X.T, W_K @ X.T
    weights = softmax(k.T @ q / np.sqrt(3), dim=0)
    wrong = np.abs(softmax(k.T @ q / np.sqrt(3), dim=-1) - ROWS[1].T).max()
    return all_of(
        same("rows of K^T are keys", k.T.shape, (5, 3)),
        close("K^T Q is the transposed Q K^T", k.T @ q, (X @ W_Q.T @ (X @ W_K.T).T).T, ROUNDING),
        close("each column, one query's weights, sums to 1", weights.sum(0), np.ones(5), ROUNDING),
        true("the softmax over the last axis would be another", wrong > 0.05, got=wrong, expected="> 0.05"),
    )


@verify("contexts-of-columns-are-v-times-the-weights")
def column_contexts() -> Evidence:
    q, k, v = W_Q @ X.T, W_K @ X.T, W_V @ X.T
    return close("V softmax(K^T Q / sqrt(d_k))", v @ softmax(k.T @ q / np.sqrt(3), dim=0), ROWS[0].T, ROUNDING)


@verify("a-weight-matrix-need-not-be-a-change-of-basis")
def no_change_of_basis() -> Evidence:
    w = np.zeros((128, 128))
    w[100, [50, 60]] = 1
    source = np.eye(128)
    right = all_of(
        same("feature 100 becomes features 50 and 60", np.flatnonzero(source[100] @ w), [50, 60]),
        same("all other features are lost", np.abs(np.delete(source, 100, 0) @ w).max(), 0),
        close("it is linear", (2 * source[100] + source[1]) @ w, 2 * (source[100] @ w) + source[1] @ w, ROUNDING),
    )
    return erratum("rank of that matrix: a change of basis", 128, np.linalg.matrix_rank(w), right)


# --- keys and values shared by all heads ----------------------------------------------------------

HEADS = [(normal(8, 4, seed=10 + i), normal(8, 4, seed=20 + i), normal(8, 4, seed=30 + i)) for i in range(2)]
TOKENS, OUT = normal(5, 8, seed=4) / 4, normal(8, 8, seed=5)


def weights_of(query: Array, key: Array) -> Array:
    """Attention weights at the scale of one head, sqrt(4)."""
    return softmax(query @ key.T / 2)


@verify("shared-keys-lose-nothing")
def shared_keys() -> Evidence:
    own = [weights_of(TOKENS @ q, TOKENS @ k) for q, k, _ in HEADS]
    shared = [weights_of(TOKENS @ (q @ k.T), TOKENS) for q, k, _ in HEADS]
    right = close("queries X W_Q W_K^T against K = X", shared, own, ROUNDING)
    return erratum(
        "a global K changes every head's weights", True, bool(np.abs(np.subtract(own, shared)).max() > 1e-6), right
    )


@verify("shared-values-lose-nothing")
def shared_values() -> Evidence:
    weights = [weights_of(TOKENS @ q, TOKENS @ k) for q, k, _ in HEADS]
    own = np.concatenate([a @ TOKENS @ v for a, (_, _, v) in zip(weights, HEADS, strict=True)], axis=1) @ OUT
    wide = np.concatenate([v @ OUT[4 * i : 4 * i + 4] for i, (_, _, v) in enumerate(HEADS)])
    shared = np.concatenate([a @ TOKENS for a in weights], axis=1) @ wide
    right = all_of(
        close("V = X with an output projection of stacked W_V W_O", shared, own, ROUNDING * 16),
        same("whose shape is h d_model x d_model", wide.shape, (16, 8)),
    )
    return erratum("a global V loses what the heads select", True, bool(np.abs(own - shared).max() > 1e-6), right)


# --- stacks of attention alone --------------------------------------------------------------------


def spread(x: Array) -> float:
    """How far the tokens are from their mean, relative to their size."""
    return float(np.linalg.norm(x - x.mean(0)) / np.linalg.norm(x))


def stack(heads: int, layers: int, residual: bool) -> float:
    """`spread` after so many layers of attention with random weights of variance 1/d: 16 tokens, d = 32."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 32))
    for _ in range(layers):
        q, k, v = (x @ w / 32**0.5 for w in rng.standard_normal((3, 32, 32)))
        split = [a.reshape(16, heads, 32 // heads).swapaxes(0, 1) for a in (q, k, v)]
        out = attention(*split)[0].swapaxes(0, 1).reshape(16, 32)
        x = x + out if residual else out
    return spread(x)


@verify("attention-alone-is-not-enough")
def attention_alone() -> Evidence:
    alone, with_skips = stack(1, 8, residual=False), stack(1, 8, residual=True)
    right = true("with residual connections they stay apart", with_skips > 0.05, got=with_skips, expected="> 0.05")
    return erratum("tokens stay apart through 8 layers of attention alone", True, alone > 1e-6, right)


@verify("several-heads-do-not-prevent-collapse")
def heads_collapse() -> Evidence:
    many, with_skips = stack(8, 8, residual=False), stack(8, 8, residual=True)
    right = true("residual connections do", with_skips > 0.05, got=with_skips, expected="> 0.05")
    return erratum("8 heads keep the tokens apart", True, many > 1e-6, right)


# --- attention of an RNN decoder ------------------------------------------------------------------


@verify("a-context-reads-every-encoder-state")
def reads_every_state() -> Evidence:
    states, decoder, h = normal(7, 4, seed=6), normal(3, 4, seed=7), 1e-6
    moved = []
    for i in range(len(states)):
        change = np.zeros_like(states)
        change[i] = h
        contexts = [attention(decoder, states + sign * change, states + sign * change)[0] for sign in (1, -1)]
        moved.append(np.abs(contexts[0] - contexts[1]).max(-1) / (2 * h))
    least = float(np.min(moved))
    return true(
        "the derivative of every step's context by every state is not zero", least > 1e-4, got=least, expected="> 1e-4"
    )


@verify("scores-compare-the-state-before-the-step")
def state_before() -> Evidence:
    states, decoder = normal(7, 4, seed=6), normal(4, 4, seed=7)
    scores = decoder[:-1] @ states.T
    later = decoder.copy()
    later[-1] += 1
    return all_of(
        same("a row of scores for each step", scores.shape, (3, 7)),
        same("the state after the last step is not looked at", later[:-1] @ states.T, scores),
    )


@verify("the-context-joins-the-decoder-s-input")
def joined_context() -> Evidence:
    context, word = normal(4), normal(6)
    return same("width of [c_t; x_t]", np.concatenate([context, word]).size, context.size + word.size)


@verify("encoders-query-as-well")
def encoders_query() -> Evidence:
    names = [n for n in ROLES["encoder_layer"].params({"d_model": 8, "n_heads": 2, "d_ff": 16}) if "q_proj.weight" in n]
    _, weights = attention(X, X, X)
    right = close("its rows are distributions over the input", weights.sum(-1), np.ones(5), ROUNDING)
    return erratum("query projections of an encoder layer", 0, len(names), right)


# --- other layers and models ----------------------------------------------------------------------


@verify("one-expert-is-its-feed-forward-network")
def one_expert() -> Evidence:
    shapes = ROLES["swiglu"].params({"d_model": 4, "d_ff": 6})
    experts = [{n: normal(*s, seed=40 + e) for n, s in shapes.items()} for e in range(2)]

    def mixture(x: Array, chosen: list[int]) -> Array:
        gates = softmax(normal(len(x), len(chosen), seed=50))
        return sum(gates[:, [i]] * swiglu(experts[e], x) for i, e in enumerate(chosen))

    return all_of(
        close("a mixture of one", mixture(X, [1]), swiglu(experts[1], X), ROUNDING),
        same("shapes are the FFN's", mixture(X, [0, 1]).shape, X.shape),
    )


@verify("a-bag-of-words-counts")
def bag_of_words() -> Evidence:
    ids = np.array([2, 0, 2, 1])
    bag = np.eye(5)[ids].sum(0)
    return all_of(
        same("[2, 0, 2, 1] over 5 words", bag, [1, 1, 2, 0, 0]),
        same("the same in every order", np.eye(5)[ids[::-1]].sum(0), bag),
    )


@verify("an-encoder-decoder-caches-as-well")
def caches_as_well() -> Evidence:
    source, target = normal(6, 4, seed=8), normal(5, 4, seed=9)
    full = attention(target, target, target, causal_mask(5))[0]
    full = full + attention(full, source @ W_K.T @ W_K, source)[0]
    keys, steps = source @ W_K.T @ W_K, []
    for t in range(5):
        own, _ = attention(target[t : t + 1], target[: t + 1], target[: t + 1])
        steps.append((own + attention(own, keys, source)[0])[0])
    right = close("step by step, cross keys computed once", steps, full, ROUNDING)
    return erratum(
        "caching a decoder with cross-attention changes its output",
        True,
        bool(np.abs(steps - full).max() > 1e-6),
        right,
    )


@verify("a-causal-flag-needs-an-alignment")
def alignment() -> Evidence:
    query, memory = normal(1, 4, seed=10), normal(5, 4, seed=11)
    top_left, bottom_right = np.tri(1, 5, dtype=bool), np.tri(1, 5, k=5 - 1, dtype=bool)
    return all_of(
        close(
            "aligned at the top left the query sees key 0 only",
            attention(query, memory, memory, top_left)[0][0],
            memory[0],
            ROUNDING,
        ),
        close(
            "aligned at the bottom right it sees all 5, as a decoding step must",
            attention(query, memory, memory, bottom_right)[0],
            attention(query, memory, memory)[0],
            ROUNDING,
        ),
    )
