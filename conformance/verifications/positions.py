"""Verifications about positional encodings: what the documents say of the formula, its listings and its use."""

from __future__ import annotations

import math

import numpy as np

from conformance.evidence import Evidence, all_of, close, true
from conformance.protocol import Array
from conformance.reference.attention import scaled_scores, softmax
from conformance.reference.norms import layer_norm
from conformance.reference.positions import frequencies, rope, sinusoid
from conformance.verifications.base import verify

EXACT = 1e-12


def codes(n: int, d: int) -> Array:
    return sinusoid(np.arange(n), d)


def rotation(k: int, d: int) -> Array:
    """M_k with PE(t + k) = M_k PE(t), in the interleaved layout: ``(d, d)``."""
    matrix = np.zeros((d, d))
    for i, w in enumerate(frequencies(d)):
        c, s = np.cos(k * w), np.sin(k * w)
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, s], [-s, c]]
    return matrix


def self_attention(x: Array, mask: Array | None = None) -> Array:
    """Self-attention with identity projections: the plainest one that shows an effect of order."""
    scores = scaled_scores(x, x)
    return softmax(scores if mask is None else np.where(mask, scores, -np.inf)) @ x


@verify("each-dimension-has-its-own-frequency")
def one_frequency_per_pair() -> Evidence:
    """Columns 2i and 2i + 1 lie on one circle, so that d = 512 has 256 frequencies, not 512."""
    table = codes(200, 512)
    return all_of(
        true("number of frequencies", len(np.unique(frequencies(512))) == 256, got=len(np.unique(frequencies(512)))),
        close("sin^2 + cos^2 of a pair", table[:, 0::2] ** 2 + table[:, 1::2] ** 2, np.ones((200, 256)), EXACT),
    )


@verify("sinusoid-extrapolates")
def beyond_training() -> Evidence:
    """The code exists at position 100000, and 133 of 256 pairs meet new angles past 512 positions."""
    far = sinusoid(np.array([100000, 100007]), 512)
    short = frequencies(512) * 511 < 2 * np.pi
    return all_of(
        close("the rotation identity at position 100000", far[1], rotation(7, 512) @ far[0], 1e-9),
        true("pairs whose angle has not gone round by position 511", short.sum() == 133, got=int(short.sum())),
    )


@verify("sinusoid-works-for-any-given-width")
def odd_width_in_the_listing() -> Evidence:
    """At d = 5 there are three frequencies for two cosine columns, so the listing's assignment cannot fit."""
    table = np.zeros((4, 5))
    angles = np.multiply.outer(np.arange(4), frequencies(5))
    fits = table[:, 1::2].shape == np.cos(angles).shape
    return all_of(
        true("three cosines fit two columns", not fits, got=fits, expected=False),
        close("the first two cosines", codes(4, 5)[:, 1::2], np.cos(angles[:, :2]), EXACT),
    )


@verify("positions-run-along-the-sequence")
def table_cut_along_the_batch() -> Evidence:
    """pe[:x.size(0)] of a (max_len, 1, d) table on x of shape (2, 5, 8) gives every token of sample b the code of b."""
    table = codes(10, 8)
    printed = np.zeros((2, 5, 8)) + table[:, None][:2]
    corrected = np.zeros((2, 5, 8)) + table[None, :5]
    return all_of(
        close("the printed module's sample 1", printed[1], np.broadcast_to(table[1], (5, 8)), 0.0, "exact"),
        close("the corrected module's sample 1", corrected[1], table[:5], 0.0, "exact"),
        true("they differ", np.abs(printed - corrected).max() > 0.5, got=float(np.abs(printed - corrected).max())),
    )


@verify("position-code-of-the-listing-shows-word-order")
def printed_pair_is_order_blind() -> Evidence:
    """One code for all tokens keeps attention equivariant; one code a token breaks the symmetry."""
    x, order = np.random.default_rng(1).standard_normal((5, 8)), np.array([2, 0, 4, 1, 3])
    printed = codes(5, 8)[1]
    blind = self_attention(x[order] + printed) - self_attention(x + printed)[order]
    seeing = self_attention(x[order] + codes(5, 8)) - self_attention(x + codes(5, 8))[order]
    return all_of(
        close("as printed", blind, np.zeros_like(blind), EXACT),
        true("with a code for each token", np.abs(seeing).max() > 1e-3, got=float(np.abs(seeing).max())),
    )


@verify("sinusoid-exponential-form")
def exponential_form() -> Evidence:
    """exp(2i * -ln(10000) / d) is 10000^(-2i/d) to the last digits, in float64 and in float32."""
    pieces = []
    for d in (2, 4, 128, 512):
        for dtype, bound in (("float64", 1e-14), ("float32", 1e-6)):
            form = np.exp(np.arange(0, d, 2, dtype=dtype) * (-math.log(10000.0) / d))
            pieces.append(close(f"relative error, d = {d}", form / frequencies(d), np.ones(d // 2), bound))
    return all_of(*pieces)


@verify("sinusoid-exponential-form-is-the-denominator")
def exponential_form_is_a_frequency() -> Evidence:
    """The printed expression times the denominator is 1; it is not the denominator."""
    form = np.exp(np.arange(0, 512, 2) * (-np.log(10000.0) / 512))
    denominator = 10000.0 ** (np.arange(0, 512, 2) / 512)
    return all_of(
        close("expression * denominator", form * denominator, np.ones(256), EXACT),
        true("the two differ", denominator[-1] / form[-1] > 1e7, got=float(denominator[-1] / form[-1])),
    )


@verify("sinusoid-angles-in-float32")
def float32_angles() -> Evidence:
    """The error of float32 angles grows with the position; float64 angles cast afterwards keep 6e-8."""
    exact = codes(5000, 128)
    positions = np.arange(5000, dtype=np.float32)[:, None]
    div_term = np.exp(np.arange(0, 128, 2, dtype=np.float32) * np.float32(-np.log(10000.0) / 128))
    error = np.abs(np.sin(positions * div_term) - exact[:, 0::2]).max(-1)
    return all_of(
        true("error of the first 50 positions below 1e-5", error[:50].max() < 1e-5, got=float(error[:50].max())),
        true("error at 5000 positions above 1e-4", error.max() > 1e-4, got=float(error.max())),
        close("the table cast afterwards", exact.astype(np.float32), exact, 6e-8, "half a unit of float32 below 1"),
    )


@verify("relative-position-by-the-dot-product-is-linear")
def dot_product_is_bilinear() -> Evidence:
    """Doubling both codes multiplies the product by 4; the linear statement is the rotation."""
    table = codes(40, 16)
    a, b = table[12], table[7]
    return all_of(
        close("product of the doubled codes", (2 * a) @ (2 * b), 4 * (a @ b), EXACT),
        true("a linear map would double it", abs(4 * (a @ b) - 2 * (a @ b)) > 1, got=float(a @ b)),
        close("PE(t + 5) = M_5 PE(t)", table[5:], table[:-5] @ rotation(5, 16).T, EXACT),
    )


@verify("dot-product-needs-sine-and-cosine")
def sines_alone() -> Evidence:
    """With sines only, the product of neighbours depends on where they stand; with pairs it does not."""
    angles = np.multiply.outer(np.arange(40), 10000.0 ** (-np.arange(8) / 8))
    alone, paired = np.sin(angles), codes(40, 8)
    of_sines = (alone[1:] * alone[:-1]).sum(-1)
    of_pairs = (paired[1:] * paired[:-1]).sum(-1)
    return all_of(
        true("sines only: products of neighbours spread", np.ptp(of_sines) > 1, got=float(np.ptp(of_sines))),
        close("pairs: one product for all neighbours", of_pairs, np.full(39, of_pairs[0]), EXACT),
    )


@verify("dot-product-tells-previous-from-next")
def dot_product_is_even() -> Evidence:
    """PE(t) . PE(t+1) = PE(t) . PE(t-1), the product is not monotone, and M_1 gives the direction back."""
    table = codes(60, 512)
    product = table @ table[0]
    directed = (table @ rotation(1, 512).T) @ table.T
    return all_of(
        close("next against previous", table[20] @ table[21], table[20] @ table[19], 1e-10),
        true("the product rises from distance 43 to 44", product[44] > product[43], got=(product[43], product[44])),
        true("with M_1 the largest score is the next word's", directed[20].argmax() == 21, got=directed[20].argmax()),
    )


@verify("projection-distributes-over-the-sum")
def projection_distributes() -> Evidence:
    """(E + P) W = E W + P W; a bias is counted once."""
    rng = np.random.default_rng(7)
    e, p, w, bias = rng.standard_normal((6, 8)), codes(6, 8), rng.standard_normal((8, 8)), rng.standard_normal(8)
    return all_of(
        close("without bias", (e + p) @ w, e @ w + p @ w, EXACT),
        close("with bias", (e + p) @ w + bias, e @ w + p @ w + bias, EXACT),
    )


@verify("projection-can-separate-content-and-position")
def projector_separates() -> Evidence:
    """50 codes of width 512 span 31 numerical dimensions: a projector keeps them and drops content outside."""
    table = codes(50, 512)
    _, values, directions = np.linalg.svd(table, full_matrices=False)
    span = directions[values > 1e-10 * values[0]]
    onto = span.T @ span
    content = np.random.default_rng(0).standard_normal((50, 512))
    content -= content @ onto
    return all_of(
        true("dimensions of the span", len(span) == 31, got=len(span), expected=31),
        close("position kept", table @ onto, table, 1e-8),
        close("content dropped", content @ onto, np.zeros_like(content), 1e-8),
        close(
            "score terms with position under the complement",
            table @ (np.eye(512) - onto) @ table.T,
            np.zeros((50, 50)),
            1e-8,
        ),
    )


@verify("projection-keeps-contributions-separate")
def sum_cannot_be_taken_apart() -> Evidence:
    """E + D and P - D give the same input; through LayerNorm the sum is not even additive."""
    rng = np.random.default_rng(7)
    e, p, shift, w = rng.standard_normal((6, 8)), codes(6, 8), rng.standard_normal((6, 8)), rng.standard_normal((8, 8))
    excess = layer_norm(e + p) - layer_norm(e) - layer_norm(p)
    return all_of(
        close("the projection of E + D and P - D", ((e + shift) + (p - shift)) @ w, (e + p) @ w, EXACT),
        true("LayerNorm is not additive", np.abs(excess).max() > 0.5, got=float(np.abs(excess).max())),
    )


def score_parts() -> tuple[Array, Array, Array]:
    """Embeddings, codes and A = W_Q W_K^T of a small random layer."""
    rng = np.random.default_rng(3)
    w_query, w_key = rng.standard_normal((8, 8)), rng.standard_normal((8, 8))
    return rng.standard_normal((6, 8)), codes(6, 8), w_query @ w_key.T


@verify("score-expands-into-four-terms-without-weights")
def four_terms_carry_the_weights() -> Evidence:
    """The real score differs from X X^T; with A in the middle the four terms add up to it."""
    e, p, a = score_parts()
    score = (e + p) @ a @ (e + p).T
    bare = (e + p) @ (e + p).T
    return all_of(
        close("four terms with A", e @ a @ e.T + e @ a @ p.T + p @ a @ e.T + p @ a @ p.T, score, 1e-11),
        true("X X^T is far from the score", np.abs(score - bare).max() > 1, got=float(np.abs(score - bare).max())),
    )


@verify("score-terms-by-content-and-position")
def terms_depend_on_what_they_name() -> Evidence:
    """Replace the tokens at i or j, or permute the positions: only the terms that name them change."""
    e, p, a = score_parts()
    other, moved = e.copy(), p[::-1]
    other[4] += 1.0
    content_position = np.abs(other @ a @ p.T - e @ a @ p.T)
    position_content = np.abs(p @ a @ other.T - p @ a @ e.T)
    return all_of(
        true("content-position does not see token j", content_position[:4].max() == 0, got=content_position[:4].max()),
        true("and sees position j", np.abs(e @ a @ moved.T - e @ a @ p.T).max() > 0.1),
        true("position-content does not see token i", np.delete(position_content, 4, 1).max() == 0),
        true("and sees token j", position_content[:, 4].max() > 0.1, got=float(position_content[:, 4].max())),
    )


@verify("position-term-measures-relative-distance")
def position_term_is_absolute() -> Evidence:
    """Three pairs at distance 1: P P^T gives one value, P A P^T three; an A that commutes with M_k one again."""
    _, _, a = score_parts()
    table = codes(102, 8)
    pairs = [(0, 1), (10, 11), (100, 101)]
    bare = np.array([table[s] @ table[t] for s, t in pairs])
    real = np.array([table[s] @ a @ table[t] for s, t in pairs])
    commuting = np.array([table[s] @ rotation(3, 8) @ table[t] for s, t in pairs])
    return all_of(
        close("bare products", bare, np.full(3, bare[0]), EXACT),
        true("products with A spread", np.ptp(real) > 0.1, got=real.tolist()),
        close("products with a rotation", commuting, np.full(3, commuting[0]), 1e-11),
    )


@verify("absolute-codes-make-scores-depend-on-place")
def absolute_scores() -> Evidence:
    """Two tokens at (t, t + 1) for t = 0, 10, 40: the score with added codes changes, with RoPE it does not."""
    e, _, a = score_parts()
    table = codes(42, 8)
    added = [(e[0] + table[t]) @ a @ (e[1] + table[t + 1]) for t in (0, 10, 40)]
    rotated = [(rope(e[:1], t) @ rope(e[1:2], t + 1).T).item() for t in (0, 10, 40)]
    return all_of(
        true("added codes: spread over the places", np.ptp(added) > 0.1, got=[float(v) for v in added]),
        close("RoPE: the same everywhere", rotated, np.full(3, rotated[0]), 1e-11),
    )


@verify("position-interpolation-stays-within-training")
def interpolation() -> Evidence:
    """4096 positions scaled by one half stay below 2048, and every second one is a trained position."""
    scaled = np.arange(4096) * (2048 / 4096)
    return all_of(
        true("largest scaled position below 2048", scaled.max() < 2048, got=float(scaled.max())),
        close("every second code", sinusoid(scaled, 16)[0::2], codes(2048, 16), 0.0, "exact"),
    )


@verify("alibi-bias-is-linear-in-distance")
def alibi() -> Evidence:
    """Eight heads have the slopes 1/2 .. 1/256; the bias is 0 on the diagonal and the same along every diagonal."""
    slopes = 2.0 ** (-8 * np.arange(1, 9) / 8)
    distance = np.subtract.outer(np.arange(6), np.arange(6))
    bias = -slopes[:, None, None] * distance
    return all_of(
        close("slopes", slopes, 1 / np.array([2, 4, 8, 16, 32, 64, 128, 256]), 0.0, "exact"),
        close("bias along the diagonals", bias[:, 1:, 1:], bias[:, :-1, :-1], 0.0, "exact"),
        true("nearer keys weigh more", np.all(np.diff(bias[:, 5, :6]) > 0)),
    )


@verify("rope-table-has-the-width-of-the-model")
def rope_acts_on_heads() -> Evidence:
    """A cosine table of width 512 does not broadcast against heads of width 64; one of width 64 does."""
    heads = (2, 8, 10, 64)
    try:
        np.broadcast_shapes((1, 1, 10, 512), heads)
        fits = True
    except ValueError:
        fits = False
    return all_of(
        true("a table of width d_model fits", not fits, got=fits, expected=False),
        true("a table of width d_k fits", np.broadcast_shapes((1, 1, 10, 64), heads) == heads),
    )


@verify("rope-takes-the-position-of-the-first-row")
def one_token_is_rotated_as_row_zero() -> Evidence:
    """Rotating the seventh token by itself from position 0 leaves it unchanged; with its position it is row 6."""
    x = np.random.default_rng(0).standard_normal((7, 8))
    whole = rope(x)
    return all_of(
        close("from position 0: unchanged", rope(x[6:]), x[6:], 0.0, "exact"),
        true("which is not row 6", np.abs(rope(x[6:]) - whole[6:]).max() > 0.1),
        close("from position 6", rope(x[6:], 6), whole[6:], EXACT),
    )
