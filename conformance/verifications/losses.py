"""Numbers of training: targets and their optima, sequence probabilities, dropout, initialisation, gates of experts."""

from __future__ import annotations

from itertools import combinations, product
from math import log

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.reference.attention import softmax
from conformance.reference.training import cross_entropy, cross_entropy_gradient, smoothed_targets
from conformance.verifications.base import erratum, rounds_to, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64, 16)


# --- targets -------------------------------------------------------------------------------------------


def logit_gap(eps: float, steps: int, classes: int = 10) -> float:
    """Gap of the target's logit over another's after gradient descent (rate 1) on free logits."""
    logits, target = np.zeros((1, classes)), np.array([0])
    for _ in range(steps):
        logits = logits - cross_entropy_gradient(logits, target, label_smoothing=eps, smoothing_over="others")
    return float(logits[0, 0] - logits[0, 1])


@verify("one-hot-targets-have-no-finite-optimum")
def one_hot_grows() -> Evidence:
    gaps = [logit_gap(0.0, steps) for steps in (10, 100)]
    slope = gaps[1] - gaps[0]
    return all_of(
        close("gap after 100 steps", gaps[1], 6.870, 5e-4, "given to 4 digits"),
        true(
            "it grows by about ln 10 with ten times the steps",
            0.8 * log(10) < slope < 1.5 * log(10),
            got=slope,
            expected=log(10),
        ),
    )


@verify("smoothing-has-a-finite-optimum")
def smoothing_settles() -> Evidence:
    target = np.array([0])
    optimum = np.log(smoothed_targets(target, 10, 0.1, over="others"))
    losses = [
        float(cross_entropy(optimum + change, target, label_smoothing=0.1, smoothing_over="others"))
        for change in (0, 0.1 * np.eye(10)[:1], -0.1 * np.eye(10)[:1])
    ]
    return all_of(
        close("logit gap after 100 steps: ln(0.9 * 9 / 0.1)", logit_gap(0.1, 100), log(81), 1e-4, "converged"),
        true("the smallest loss is there", losses[0] == min(losses), got=losses),
        rounds_to("the smallest loss, the target's entropy", losses[0], 0.5448054, 7),
    )


@verify("the-smoothed-filler-depends-on-the-vocabulary")
def filler() -> Evidence:
    sizes = (101, 300, 500)
    sums = [0.9 + (v - 1) * 0.001 for v in sizes]
    targets = [smoothed_targets(np.array([3]), v, 0.1, over="others")[0] for v in sizes]
    right = all_of(
        close("0.1 / (V - 1) sums to 1", [t.sum() for t in targets], np.ones(3), 1e-9),
        close("it is 0.001 for 101 words only", [t[0] for t in targets], [0.1 / (v - 1) for v in sizes], ROUNDING),
        close("0.9 and a hundred 0.001 sum to 1", sums[0], 1, ROUNDING),
    )
    return erratum("sum of 0.9 and V - 1 fillers of 0.001", np.ones(2), sums[1:], right, by=0.1)


@verify("uniform-predictions-cost-ln-v")
def uniform_cost() -> Evidence:
    costs = [float(cross_entropy(np.zeros((1, 1000)), np.array([3]), label_smoothing=eps)) for eps in (0, 0.1)]
    return close("zero logits, V = 1000, without and with smoothing", costs, [log(1000)] * 2, 1e-9)


@verify("sequence-probability-is-a-product-of-conditionals")
def sequence_probability() -> Evidence:
    conditionals = np.array([0.5, 0.25, 0.8])
    nll = -np.log(conditionals)
    table = softmax(np.random.default_rng(0).standard_normal((6, 5)))
    continuations = [table[5, a] * table[a, b] for a, b in product(range(5), repeat=2)]
    return all_of(
        close("exp(-sum of losses)", np.exp(-nll.sum()), conditionals.prod(), ROUNDING),
        close(
            "summed loss, mean loss, perplexity",
            [nll.sum(), nll.mean(), np.exp(nll.mean())],
            [log(10), log(10) / 3, 10 ** (1 / 3)],
            ROUNDING,
        ),
        close("all 25 continuations of length 2 have probability 1", sum(continuations), 1, ROUNDING),
    )


# --- dropout ------------------------------------------------------------------------------------------------


def masks(n: int, p: float) -> tuple[Array, Array]:
    """All 2^n inverted dropout masks ``(2^n, n)`` and their probabilities."""
    kept = np.array(list(product((0, 1), repeat=n)))
    return kept / (1 - p), np.prod(np.where(kept, 1 - p, p), axis=1)


@verify("dropout-is-an-adaptive-ridge-penalty")
def ridge() -> Evidence:
    rng, p = np.random.default_rng(1), 0.3
    x, y, w = rng.standard_normal((9, 4)), rng.standard_normal(9), rng.standard_normal(4)
    kept, chance = masks(4, p)
    one_row = np.array([[(chance * (y[i] - (kept * x[i]) @ w) ** 2).sum()] for i in range(9)])
    penalty = p / (1 - p) * (w**2 * (x**2).sum(0)).sum()
    return close("expected loss over all masks", one_row.sum(), ((y - x @ w) ** 2).sum() + penalty, 1e-9)


@verify("without-dropout-duplicated-features-may-split-anyhow")
def any_split() -> Evidence:
    splits = np.array([[1.5, -0.5], [0.5, 0.5], [1.0, 0.0]])
    gradient = -2 * (1 - splits.sum(1))
    broken = np.abs(1 - splits)
    return all_of(
        same("gradient of (1 - w1 - w2)^2: every split that sums to 1 is optimal", gradient, np.zeros(3)),
        true("the uneven one breaks most when a feature fails", broken.max(1).argmax() == 0, got=broken),
    )


@verify("dropout-makes-duplicated-features-share")
def features_share() -> Evidence:
    results = []
    for p in (0.1, 0.5):
        kept, chance = masks(2, p)
        w = np.array([1.5, -0.5])
        for _ in range(500):
            w = w + 0.4 * (chance[:, None] * (1 - kept @ w)[:, None] * kept).sum(0)
        results.append(w)
    shares = [1 / (2 + p / (1 - p)) for p in (0.1, 0.5)]
    return close(
        "gradient descent on the expected loss ends at equal shares",
        results,
        [[s, s] for s in shares],
        1e-6,
        "converged",
    )


@verify("dropout-trains-two-to-the-n-networks")
def sub_networks() -> Evidence:
    rng = np.random.default_rng(2)
    seen = {tuple(mask) for mask in rng.random((2000, 5)) < 0.5}
    return all_of(
        same("different masks of 5 units in 2000 draws", len(seen), 2**5),
        same("with exactly two dropped", sum(sum(m) == 3 for m in seen), len(list(combinations(range(5), 2)))),
    )


@verify("the-ensemble-average-is-exact-for-linear-read-outs-only")
def ensemble() -> Evidence:
    rng, p = np.random.default_rng(3), 0.5
    x, w = rng.standard_normal(6), rng.standard_normal(6)
    kept, chance = masks(6, p)
    outputs = (kept * x) @ w
    right = close("linear read-out: mean over all masks", (chance * outputs).sum(), x @ w, ROUNDING)
    threshold = 3.0
    mean = (chance * np.maximum(kept @ np.abs(x) - threshold, 0)).sum()
    evaluated = max(np.abs(x).sum() - threshold, 0)
    return erratum("mean of the sub-networks with a ReLU behind the dropout", evaluated, mean, right, by=0.1)


@verify("survivors-are-rescaled-once")
def rescaled_once() -> Evidence:
    p, values = 0.1, np.array([0.5, 0.3, 0.2, 0.8, 0.2, 0.1, 0.6, 0.4, 0.1, 0.7])
    kept, chance = masks(10, p)
    inverted = (chance[:, None] * kept * values).sum()
    plain = (chance[:, None] * (kept > 0) * values).sum()
    right = all_of(
        close("with survivors times 1/(1 - p)", inverted, values.sum(), ROUNDING),
        close("or everything times 1 - p at test time", plain, values.sum() * (1 - p), ROUNDING),
    )
    return erratum(
        "expected sum in training of outputs that are used whole at test time", values.sum(), plain, right, by=0.3
    )


# --- initialisation and experts -------------------------------------------------------------------------------


def kaiming_uniform_bound(fan_in: int, a: float) -> float:
    """sqrt(6 / ((1 + a^2) fan_in)) (He et al. 2015)."""
    return float(np.sqrt(6 / ((1 + a**2) * fan_in)))


def xavier_uniform_bound(fan_in: int, fan_out: int) -> float:
    """sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return float(np.sqrt(6 / (fan_in + fan_out)))


@verify("the-default-initialisation-is-kaiming-uniform")
def default_initialisation() -> Evidence:
    default, kaiming = 1 / np.sqrt(256), kaiming_uniform_bound(256, 0)
    right = all_of(
        close("Kaiming-uniform with a = sqrt(5)", kaiming_uniform_bound(256, 5**0.5), default, ROUNDING),
        rounds_to(
            "Xavier's bound and std for 256 x 256",
            [xavier_uniform_bound(256, 256), xavier_uniform_bound(256, 256) / 3**0.5],
            [0.108253, 0.0625],
            6,
        ),
    )
    is_another = not np.isclose(default, [kaiming_uniform_bound(256, a) for a in (0, 1, 5**0.5)]).any()
    return erratum(
        f"the default (bound {default}, a = 0 has {kaiming:.4f}) is none of Kaiming's", True, is_another, right
    )


@verify("xavier-embeddings-are-weaker-than-their-positions")
def xavier_embeddings() -> Evidence:
    std = xavier_uniform_bound(5000, 256) / 3**0.5
    return all_of(
        rounds_to("std of the (5000, 256) embedding times sqrt(256)", 16 * std, 0.3121, 4),
        rounds_to("over the position code's root mean square", 16 * std / 0.5**0.5, 0.44, 2),
        close("scale 1 would need std d_model^-0.5", 256**-0.5 * 16, 1, ROUNDING),
    )


@verify("two-experts-a-token-share-a-softmax")
def two_experts() -> Evidence:
    logits = np.array([1, 2, 3, 0, -1, 0.5, 0.25, 1.5])
    chosen = np.argsort(-logits)[:2]
    gates, over_all = softmax(logits[chosen]), softmax(logits)[chosen]
    experts = np.random.default_rng(4).standard_normal((8, 3))
    unused = np.setdiff1d(np.arange(8), chosen)
    output = gates @ experts[chosen]
    experts[unused] = np.nan
    return all_of(
        same("chosen experts", chosen, [2, 1]),
        rounds_to("gates, renormalized over the two", gates, [0.7310585786, 0.2689414214], 10),
        rounds_to("unnormalized, the other convention", over_all, [0.5153416032, 0.1895835810], 10),
        same("experts not chosen have no effect", gates @ experts[chosen], output),
    )
