"""Verifications about normalisation: what LayerNorm and RMSNorm do and do not do to their input."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, true
from conformance.protocol import Array
from conformance.reference.norms import layer_norm, rms_norm
from conformance.verifications.base import erratum, verify


def moments(x: Array) -> tuple[float, float]:
    """Skewness and kurtosis (0 and 3 for a normal distribution)."""
    z = (x - x.mean()) / x.std()
    return float((z**3).mean()), float((z**4).mean())


@verify("layer-norm-standardises-the-layer-output")
def each_token_by_itself() -> Evidence:
    """[1, 2, 3, 4] and [10, 20, 30, 40] become the same row; standardised together they stay ten times apart."""
    x = np.array([[1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]])
    out = layer_norm(x)
    return erratum(
        "the output of the layer as a whole",
        (x - x.mean()) / x.std(),
        out,
        close("the two tokens", out[0], out[1], 1e-5, "eps against variances 1.25 and 125"),
        by=0.5,
    )


@verify("layer-norm-output-has-mean-zero-and-unit-variance")
def variance_below_one() -> Evidence:
    """[0, 0.001, 0, 0.001] leaves with variance 0.024, and gamma 2, beta 1 leave mean 1 and deviation 2."""
    small = np.array([0.0, 1e-3, 0.0, 1e-3])
    moved = layer_norm(np.array([1.0, 2.0, 3.0, 4.0]), 2.0 * np.ones(4), np.ones(4))
    return erratum(
        "variance of a small token",
        1.0,
        layer_norm(small).var(),
        close("v / (v + eps)", layer_norm(small).var(), 2.5e-7 / (2.5e-7 + 1e-5), 1e-12),
        close("mean with beta = 1", moved.mean(), 1.0, 1e-12),
        close("deviation with gamma = 2", moved.std(), 2.0, 1e-4, "eps against variance 1.25"),
        by=0.9,
    )


@verify("normalisation-is-x-minus-mu-over-sigma")
def eps_gain_and_shift_are_missing() -> Evidence:
    """(x - mu) / sigma of a constant is 0/0; with eps, gamma and beta it is beta."""
    gamma, beta = np.array([2.0, 2.0, 2.0, 2.0]), np.ones(4)
    x = np.array([1.0, 2.0, 3.0, 4.0])
    bare = (x - x.mean()) / x.std()
    return erratum(
        "the bare formula",
        bare,
        layer_norm(x, gamma, beta),
        close("gamma and beta", layer_norm(x, gamma, beta), gamma * layer_norm(x) + beta, 1e-12),
        close("a constant token", layer_norm(np.full(4, 3.0), gamma, beta), beta, 0.0, "exact"),
        by=0.5,
    )


@verify("layer-norm-output-is-standard-normal")
def shape_stays() -> Evidence:
    """Exponential features keep their skewness of about 2; a normal vector would have 0."""
    x = np.random.default_rng(0).exponential(size=4096)
    out = layer_norm(x)
    return erratum(
        "skewness and kurtosis",
        (0.0, 3.0),
        moments(out),
        close("they are those of the input", moments(out), moments(x), 1e-9),
        by=1.0,
    )


@verify("normalisation-makes-the-surface-a-round-bowl")
def dimensions_keep_their_scales() -> Evidence:
    """A feature 100 times as large stays more than 10 times as large after LayerNorm; batch statistics equalise it."""
    x = np.random.default_rng(1).uniform(-1, 1, (1000, 16))
    x[:, 0] *= 100
    spread = layer_norm(x).std(0)
    batch = (x - x.mean(0)) / x.std(0)
    return all_of(
        true(
            "largest / smallest deviation after LayerNorm", spread[0] / spread[1:].max() > 10, got=spread[0] / spread[1]
        ),
        close("deviations after batch normalisation", batch.std(0), np.ones(16), 1e-12),
    )


@verify("a-ravine-makes-gradient-descent-oscillate")
def ravine() -> Evidence:
    """On (100 a^2 + b^2) / 2 a rate of 0.019 creeps along b, 0.021 diverges; on (a^2 + b^2) / 2 one step arrives."""
    start, curvature = np.ones(2), np.array([100.0, 1.0])
    slow, diverged = start * (1 - 0.019 * curvature) ** 100, start * (1 - 0.021 * curvature) ** 100
    return all_of(
        close("rate 0.019 after 100 steps", slow, [2.6561e-5, 0.1468591], 1e-7),
        true("steps on the steep wall change sign", (1 - 0.019 * 100) < 0),
        true("rate 0.021 diverges", diverged[0] > 1e4, got=float(diverged[0])),
        close("round bowl, rate 1, one step", start * (1 - np.ones(2)), np.zeros(2), 0.0, "exact"),
    )


@verify("rms-norm-computes-the-variance")
def root_of_the_mean_square() -> Evidence:
    """[1, 2, 3, 4] is divided by sqrt(7.5), not by the standard deviation sqrt(1.25)."""
    x, one = np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4)
    return erratum(
        "division by the deviation",
        x / x.std(),
        rms_norm(x, one),
        close("division by sqrt(7.5)", rms_norm(x, one), x / np.sqrt(7.5), 1e-6, "eps against 7.5"),
        by=0.5,
    )


@verify("half-precision-squares-overflow")
def float16_overflow() -> Evidence:
    """300 squared is infinite in float16, so that the listing's result is 0; taken in float32 it is 1."""
    x = np.full(4, 300.0, np.float16)
    with np.errstate(over="ignore"):
        own = x / np.sqrt((x**2).mean(dtype=np.float16) + np.float16(1e-6))
    return all_of(
        close("in float16", own, np.zeros(4), 0.0, "exact"),
        close("in float32", rms_norm(x.astype(np.float32), np.ones(4, np.float32)), np.ones(4), 1e-6),
    )
