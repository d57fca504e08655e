"""Verifications of the documents' statements on gradients, networks, training and decoding."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, close
from conformance.programs import gradients, step
from conformance.reference import engine as gradient
from conformance.verifications import erratum, verify

# --- back propagation and residuals -------------------------------------------------------------------


@verify("an-activation-derivative-enters-delta-once")
def delta_once() -> Evidence:
    """At z = 1 the sigmoid's slope is 0.1966; applying it to delta = dL/dY of a bare product shrinks it so."""
    x, w = np.array([[1.0, 0.5]]), np.array([[0.5], [1.0]])
    bare = gradients((step("Y", "matmul", "X", "W"),), {"X": x, "W": w}, 1.0)["W"]
    active = gradients((step("Y", "matmul", "X", "W"), step("A", "sigmoid", "Y")), {"X": x, "W": w}, 1.0)["W"]
    slope = float(gradient.derivative("sigmoid", x @ w)[0, 0])
    return erratum(
        "dL/dW of Y = X W with L = sum(Y)",
        x.T * slope,
        bare,
        close("delta is dL/dY alone", bare, x.T, 1e-8),
        close("with A = sigmoid(Y) as output, the slope enters once", active, x.T * slope, 1e-8),
        by=0.1,
    )


TANH_WEIGHTS, TANH_INPUT = (0.5, -1.5, 2.0), 0.7


@verify("gradient-of-stacked-residual-blocks-is-a-product")
def residual_product() -> Evidence:
    slopes, x = [], TANH_INPUT
    for w in TANH_WEIGHTS:
        slopes.append(w * (1.0 - np.tanh(w * x) ** 2))
        x += np.tanh(w * x)

    def output(x0: float) -> float:
        for w in TANH_WEIGHTS:
            x0 += np.tanh(w * x0)
        return x0

    measured = (output(TANH_INPUT + 1e-6) - output(TANH_INPUT - 1e-6)) / 2e-6
    return erratum(
        "gradient through three residual blocks",
        1.0 + sum(slopes),
        measured,
        close("the product of 1 + f'", np.prod([1.0 + s for s in slopes]), measured, 1e-8),
        close("as printed in the example", measured, 3.1430684331, 1e-8),
        by=0.05,
    )


@verify("a-bare-skip-path-passes-the-gradient-unchanged")
def post_norm_loses() -> Evidence:
    x, ones = np.array([0.3, -1.2, 0.8, 2.0]), np.ones(4)
    normed = gradients((step("y", "layer_norm", "x", "w", "b"),), {"x": x, "w": ones, "b": np.zeros(4)}, ones)["x"]
    bare = gradients((step("y", "add", "x", "dead"),), {"x": x, "dead": np.zeros(4)}, ones)["x"]
    return erratum(
        "gradient of ones through a dead post-norm block",
        ones,
        normed,
        close("the norm removes the component along 1", normed, np.zeros(4), 1e-8),
        close("a bare skip path copies it", bare, ones, 1e-8),
        by=0.5,
    )


@verify("a-residual-block-can-stop-the-gradient")
def residual_stops() -> Evidence:
    program = (step("f", "neg", "x"), step("y", "add", "x", "f"))
    got = gradients(program, {"x": np.array([0.7])})["x"]
    return erratum("gradient through x + f(x) with f(x) = -x", [1.0], got, close("it is 0", got, [0.0], 0.0), by=0.5)
