"""Operation counts as functions of the length n and the width d: counted from shapes, never timed.

Lengths and widths are integers or integer arrays.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import ROLES
from conformance.reference.attention import attention
from conformance.verifications.base import erratum, rounds_to, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64)


def projections(n: Any, d: Any, how_many: int = 4) -> Any:
    """Multiply-adds of so many products ``(n, d) @ (d, d)``."""
    return how_many * (n * d) * d


def scores(n: Any, d: Any, heads: int = 1) -> Any:
    """Multiply-adds of Q K^T over all heads: ``(n, d/h) @ (d/h, n)`` each. Weights times V costs the same."""
    return heads * (n * n) * (d // heads)


def attention_cost(n: Any, d: Any, heads: int = 1, how_many: int = 4) -> Any:
    """Multiply-adds of an attention layer with `how_many` projections."""
    return projections(n, d, how_many) + 2 * scores(n, d, heads)


def recurrent_cost(n: Any, d: Any) -> Any:
    """Multiply-adds of an RNN layer: two products ``(1, d) @ (d, d)`` a step."""
    return n * 2 * d * d


def growth(cost: Array, sizes: Array) -> float:
    """The exponent of size in the last doubling of `cost`."""
    return float(np.log(cost[-1] / cost[-2]) / np.log(sizes[-1] / sizes[-2]))


# --- one attention layer --------------------------------------------------------------------------


@verify("each-projection-costs-n-d-squared")
def projection_cost() -> Evidence:
    base = projections(512, 512, 3)
    return all_of(
        same("three of them at n = d = 512", base, 402_653_184),
        same("twice n, then twice d", [projections(1024, 512, 3) / base, projections(512, 1024, 3) / base], [2, 4]),
    )


@verify("scores-and-weighted-sum-cost-n-squared-d-each")
def score_cost() -> Evidence:
    base = scores(512, 512)
    return all_of(
        same("n = d = 512", base, 134_217_728),
        same("independent of the heads", {scores(512, 512, h) for h in (1, 2, 8)}, {base}),
        same("twice n, then twice d", [scores(1024, 512) / base, scores(512, 1024) / base], [4, 2]),
    )


@verify("softmax-costs-n-squared-a-head")
def softmax_cost() -> Evidence:
    heads, n = 3, 7
    _, weights = attention(*np.random.default_rng(0).standard_normal((3, heads, n, 4)))
    return same("exponentials of h heads", weights.size, heads * n * n)


@verify("attention-costs-n-squared-d-plus-n-d-squared")
def total_cost() -> Evidence:
    sizes = 2 ** np.arange(4, 24)
    by_length = (
        growth(attention_cost(sizes, 512, how_many=3), sizes),
        growth(attention_cost(16, sizes, how_many=3), sizes),
    )
    return all_of(
        same("n = d = 512, without W_O", attention_cost(512, 512, how_many=3), 268_435_456 + 402_653_184),
        close("exponent of long n and of wide d", by_length, [2, 2], 1e-3, "the other term has died out"),
    )


@verify("projection-activations-are-linear-in-length")
def projection_space() -> Evidence:
    n, d = np.array([64, 128]), 512
    activations, weights = 3 * n * d, 3 * d * d
    return all_of(
        same("Q, K and V of twice the length", activations[1] / activations[0], 2),
        true(
            "the weights, not counted, are larger while n < d",
            weights > activations.max(),
            got=weights,
            expected=activations,
        ),
    )


@verify("attention-is-quadratic-in-length-only-for-long-sequences")
def quadratic_only_when_long() -> Evidence:
    n = np.array([16, 128, 512, 4096, 65_536])
    ratio = attention_cost(2 * n, 512, how_many=3) / attention_cost(n, 512, how_many=3)
    alone = scores(2 * n, 512) / scores(n, 512)
    right = all_of(
        rounds_to("cost of twice the length, without W_O", ratio, [2.041, 2.286, 2.800, 3.684, 3.977], 3),
        same("of the scores alone", alone, np.full(5, 4.0)),
        same("with W_O the parts are equal at n = 2d", projections(1024, 512), 2 * scores(1024, 512)),
    )
    return erratum("four times the cost for twice the length", np.full(5, 4.0), ratio, right, by=1.5)


@verify("score-terms-dominate-from-one-and-a-half-widths")
def crossover() -> Evidence:
    d = 512
    at_n_equal_d = 2 * scores(d, d) / projections(d, d, 3)
    right = all_of(
        same("equal at n = 1.5 d without W_O", 2 * scores(768, d), projections(768, d, 3)),
        same("equal at n = 2 d with W_O", 2 * scores(1024, d), projections(1024, d)),
        same("equal at n = 6 d with the FFN", 2 * scores(3072, d), projections(3072, d) + 8 * 3072 * d * d),
    )
    return erratum("scores over projections at n = d", 1.0, at_n_equal_d, right, by=0.3)


@verify("multi-head-attention-costs-no-n-h-dk-dv")
def multi_head_cost() -> Evidence:
    n, d, heads = 64, 512, 8
    stated = n * n * d + n * heads * (d // heads) ** 2
    right = all_of(
        same("4 n d^2 + 2 n^2 d", attention_cost(n, d, heads), 71_303_168),
        same("the same for every number of heads", {attention_cost(n, d, h) for h in (1, 2, 4, 8)}, {71_303_168}),
        same("the projections alone are 4 h times n h d_k d_v", projections(n, d) / (n * heads * 64**2), 4 * heads),
    )
    return erratum("n^2 d + n h d_k d_v", stated, attention_cost(n, d, heads), right, by=10 * stated)


@verify("heads-multiply-the-softmax-work")
def heads_and_softmax() -> Evidence:
    n, d = 1024, 512
    exponentials = [h * n * n for h in (1, 8)]
    right = all_of(
        same(
            "products: 1 and 8 heads, in floating-point operations",
            [2 * attention_cost(n, d, h) for h in (1, 8)],
            [2**32] * 2,
        ),
        same("values of the score tensors", exponentials, [1_048_576, 8_388_608]),
    )
    return erratum("the same amount of computation", exponentials[0], exponentials[1], right)


@verify("attention-matrix-of-512-to-32768-tokens")
def matrix_entries() -> Evidence:
    n = np.array([512, 2048, 8192, 32_768])
    entries = n * n
    return all_of(
        same("entries", entries, [262_144, 4_194_304, 67_108_864, 1_073_741_824]),
        same("times that of 512 tokens", entries / entries[0], [1, 16, 256, 4096]),
    )


@verify("four-times-the-length-is-sixteen-times-the-scores")
def exercise_four() -> Evidence:
    ratio = [attention_cost(4096, d, how_many=3) / attention_cost(1024, d, how_many=3) for d in (64, 512, 1024)]
    return all_of(
        same("scores and weighted sum", scores(4096, 512) / scores(1024, 512), 16),
        rounds_to("whole layer at d = 64, 512, 1024", ratio, [14.97, 10.86, 8.80], 2),
        same("with W_O at d = 512", attention_cost(4096, 512) / attention_cost(1024, 512), 10),
    )


# --- against recurrence ---------------------------------------------------------------------------


@verify("o-n-against-o-n-squared-needs-the-width")
def width_matters() -> Evidence:
    n, d = 50, 512
    right = all_of(
        same("n^2 d and n d^2 are equal at n = d", scores(d, d), projections(d, d, 1)),
        true(
            "a sentence shorter than the width",
            scores(n, d) < projections(n, d, 1),
            got=(scores(n, d), projections(n, d, 1)),
        ),
        close("exponents of n", growth(recurrent_cost(2 ** np.arange(9), d), 2 ** np.arange(9)), 1, ROUNDING),
    )
    return erratum(
        "attention's scores cost n times an RNN's product", n, scores(n, d) / projections(n, d, 1), right, by=1
    )


@verify("parallel-steps-not-less-work")
def parallel_not_less() -> Evidence:
    lengths = np.array([128, 1024])
    work = attention_cost(lengths, 64, how_many=3) / recurrent_cost(lengths, 64)
    right = all_of(
        same("work of attention over an RNN, d = 64", work, [3.5, 17.5]),
        same("steps from input 1 to state 8: one cell each", reach(chained(8)) + 1, 8),
    )
    return erratum("a Transformer does less work", True, bool((work < 1).all()), right)


def chained(n: int) -> Array:
    """Which state reads which in an RNN: ``(n, n)`` bool, state i + 1 reads state i."""
    return np.eye(n, k=1, dtype=bool)


def reach(edges: Array) -> int:
    """Steps along ``edges[i, j]`` (j reads i) until the first vertex reaches the last."""
    reached, steps = np.arange(len(edges)) == 0, 0
    while not reached[-1]:
        reached = reached | (reached @ edges)
        steps += 1
    return steps


@verify("path-length-is-n-minus-1-in-an-rnn-and-1-in-attention")
def path_length() -> Evidence:
    lengths = (7, 101)
    recurrent = [reach(chained(n)) for n in lengths]
    direct = [reach(np.ones((n, n), dtype=bool)) for n in lengths]
    return all_of(
        same("steps between the ends of 7 and 101 words, RNN", recurrent, [6, 100]),
        same("the same in self-attention", direct, [1, 1]),
    )


@verify("generation-is-serial-for-both")
def serial_generation() -> Evidence:
    table = np.random.default_rng(5).integers(0, 50, 50)
    ids, calls = [7], 0
    while len(ids) <= 100:
        calls += 1
        ids.append(int(table[ids[-1]]))
    parallel = table[np.array(ids[:-1])]
    right = same("one call on the known sequence predicts every next token", parallel, ids[1:])
    return erratum("calls that generate 100 tokens", 1, calls, right)


# --- decoding with a cache ------------------------------------------------------------------------


def decode(prompt: int, new: int, cached: bool) -> tuple[int, int]:
    """(tokens projected, score entries) to process a prompt and then `new` single tokens."""
    projected = entries = length = 0
    for step in [prompt] * (prompt > 0) + [1] * new:
        length += step
        rows = step if cached else length
        projected += rows
        entries += rows * length
    return projected, entries


@verify("without-a-cache-every-step-recomputes-all-tokens")
def recomputation() -> Evidence:
    n = np.array([4, 100, 1024])
    plain = [decode(0, k, cached=False)[0] for k in n]
    return all_of(
        same("tokens projected without a cache", plain, n * (n + 1) // 2),
        same("4, 100 and 1024 tokens", plain, [10, 5050, 524_800]),
        same("with a cache", [decode(0, k, cached=True)[0] for k in n], n),
    )


@verify("a-cache-saves-a-factor-of-the-length-in-scores")
def saved_scores() -> Evidence:
    plain, cached = (np.array([decode(0, n, cached=c)[1] for n in (4, 100, 1024)]) for c in (False, True))
    return all_of(
        same("score entries without a cache", plain, [30, 338_350, 358_438_400]),
        same("with a cache", cached, [10, 5050, 524_800]),
        rounds_to("factor (2n + 1) / 3", plain / cached, [3, 67, 683], 0),
    )


@verify("a-cached-step-computes-one-row-of-scores")
def cached_rows() -> Evidence:
    return all_of(
        same("prompt of 10, then 5 steps", [decode(10, 5, cached=c)[1] for c in (True, False)], [165, 955]),
        same("five steps alone", decode(10, 5, cached=True)[1] - 10 * 10, 11 + 12 + 13 + 14 + 15),
    )


@verify("generate-without-a-cache-processes-290-tokens")
def generate_cost() -> Evidence:
    without = decode(5, 19, cached=False)[0]
    return same(
        "prompt 5 and 20 new tokens, without and with a cache", [without, decode(5, 19, cached=True)[0]], [290, 24]
    )


@verify("cache-cost-a-step-and-in-total")
def cache_orders() -> Evidence:
    n = 2 ** np.arange(4, 11)
    plain, cached = (np.array([decode(0, int(k), cached=c) for k in n]) for c in (False, True))
    exponents = [growth(column, n) for column in (*plain.T, *cached.T)]
    right = all_of(
        close(
            "exponents in n: K/V and scores without, then with a cache", exponents, [2, 3, 1, 2], 0.01, "leading term"
        ),
        same(
            "5 steps after a prompt of 10: tokens projected",
            [decode(10, 5, cached=c)[0] for c in (False, True)],
            [75, 15],
        ),
    )
    return erratum("K/V of a step: O(N^2) and O(N)", [2, 1], [exponents[0] - 1, exponents[2] - 1], right, by=0.5)


# --- cheaper attention ----------------------------------------------------------------------------


def band(n: int, width: int) -> Array:
    """Visible pairs |i - j| <= width: ``(n, n)`` bool."""
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= width


@verify("local-attention-computes-a-band")
def local_band() -> Evidence:
    n, w = np.array([8, 16, 32, 64]), 2
    visible = [int(band(k, w).sum()) for k in n]
    q, k, v = np.random.default_rng(2).standard_normal((3, 16, 4))
    out, _ = attention(q, k, v, band(16, w))
    gathered = [
        attention(q[i : i + 1], k[max(0, i - w) : i + w + 1], v[max(0, i - w) : i + w + 1])[0][0] for i in range(16)
    ]
    return all_of(
        same("visible pairs", visible, (2 * w + 1) * n - w * (w + 1)),
        same("n = 8 and n = 16 with two neighbours on each side", visible[:2], [34, 74]),
        close(
            "a masked row equals attention over the gathered neighbours",
            out,
            np.stack(gathered),
            tolerance(np.float64, 16),
        ),
    )


@verify("sliding-windows-have-no-global-tokens")
def sliding_window() -> Evidence:
    n, w, layers = 10, 3, 2
    one = band(n, w - 1) & np.tri(n, dtype=bool)
    seen = np.flatnonzero(np.linalg.matrix_power(one.astype(int), layers)[-1])
    right = same("tokens that the last one sees through L layers", len(seen), layers * (w - 1) + 1)
    return erratum("the last token sees a global first token", True, bool(0 in seen), right)


@verify("linear-attention-is-another-attention")
def linear_attention() -> Evidence:
    n, d = 7, 4
    q, k, v = np.random.default_rng(3).standard_normal((3, n, d))
    q, k = (np.where(x > 0, x + 1, np.exp(x)) for x in (q, k))
    weights = q @ k.T
    quadratic = weights / weights.sum(-1, keepdims=True) @ v
    linear = q @ (k.T @ v) / (q @ k.sum(0))[:, None]
    exact, _ = attention(q, k, v)
    right = all_of(
        close("(phi(Q) phi(K)^T) V = phi(Q) (phi(K)^T V)", linear, quadratic, tolerance(np.float64, n * d, 4)),
        same("work n^2 d over n d^2 at n = 4096, d = 64", scores(4096, 64) / (4096 * 64 * 64), 64),
        close(
            "the cost has no term in n^2",
            growth(np.array([2 * m * 64 * 64 for m in (512, 1024)]), np.array([512, 1024])),
            1,
            ROUNDING,
        ),
    )
    return erratum("elu + 1 approximates softmax attention", exact, linear, right, by=0.01)


@verify("dropout-saves-no-computation")
def dropout_saves_nothing() -> Evidence:
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((6, 8)), rng.standard_normal((8, 3))
    dropped = np.where(rng.random(x.shape) < 0.5, 0, x / 0.5)
    return same("shapes of the product in evaluation and in training", (x @ w).shape, (dropped @ w).shape)


@verify("experts-cost-by-the-chosen-ones")
def expert_cost() -> Evidence:
    d, d_ff, chosen = 64, 256, 2
    one = sum(prod(shape) for shape in ROLES["swiglu"].params({"d_model": d, "d_ff": d_ff}).values())
    cost, held = (
        [n * one + d * experts for n, experts in pairs] for pairs in (((chosen, 8), (chosen, 64)), ((8, 8), (64, 64)))
    )
    return all_of(
        true(
            "eight times the experts: multiply-adds a token grow by the router's only",
            cost[1] < 1.1 * cost[0],
            got=cost,
        ),
        close("their parameters eightfold", held[1] / held[0], 8, ROUNDING),
    )


@verify("a-look-up-copies-one-row")
def look_up() -> Evidence:
    v, d = 10_000, 300
    return same("multiply-adds of the one-hot product over numbers copied", (1 * v * d) / d, v)


@verify("the-dot-product-is-the-cheapest-score")
def score_costs() -> Evidence:
    n, m, d = 256, 256, 64
    dot, general, additive = n * m * d, n * m * d + m * d * d, n * m * (3 * d) + (n + m) * d * d
    return all_of(
        true("dot < general < additive in operations", dot < general < additive, got=(dot, general, additive)),
        same("values of the additive intermediate over the scores", n * m * d / (n * m), d),
        same("additive intermediate", n * m * d, 4_194_304),
    )


@verify("standard-attention-moves-more-than-it-computes")
def intensity() -> Evidence:
    n, d = 4096, 64
    operations, moved = 2 * 2 * scores(n, d), 2 * (4 * n * n + 4 * n * d)
    return all_of(
        rounds_to("operations a byte in float16", operations / moved, 31.5, 1),
        true("below the A100's 312e12 / 2e12", operations / moved < 312 / 2, got=operations / moved, expected="< 156"),
    )


@verify("standard-attention-moves-n-squared-numbers")
def traffic() -> Evidence:
    def moved(n: int, d: int) -> int:
        """Numbers read and written: Q, K, write S, read S, write P, read P, V, write O."""
        return 2 * n * d + 4 * n * n + n * d + n * d

    n = 4096
    right = all_of(
        same("d = 64 and d = 128", [moved(n, 64), moved(n, 128)], [68_157_440, 69_206_016]),
        close("twice the width", moved(n, 128) / moved(n, 64), 1, 0.02, "N^2 does not depend on d"),
        same("the arithmetic does double", scores(n, 128) / scores(n, 64), 2),
    )
    return erratum("O(N^2 d): traffic of twice the width", 2, moved(n, 128) / moved(n, 64), right, by=0.5)
