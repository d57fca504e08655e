"""Small algebra of attention, and of layers and models that no role describes: experts, bags of words, alignments."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import ROLES
from conformance.reference.attention import attention, causal_mask, scaled_scores, softmax
from conformance.reference.feed_forward import swiglu
from conformance.verifications import erratum, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64, 16, 4)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# --- scores and masks -----------------------------------------------------------------------------

X = normal(5, 4)
W_Q, W_K = normal(3, 4, seed=1), normal(3, 4, seed=2)


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
        true("the softmax stays finite at 10,000 times the scores", np.isfinite(far).all(), far),
    )


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
    return true("the derivative of every step's context by every state is not zero", least > 1e-4, least, "> 1e-4")


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
