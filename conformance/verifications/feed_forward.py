"""Verifications about feed-forward networks: why they widen, and what the documents' short forms leave out."""

from __future__ import annotations

from math import comb

import numpy as np

from conformance.evidence import Evidence, all_of, close, true
from conformance.protocol import Array
from conformance.reference.feed_forward import feed_forward, relu, swiglu
from conformance.verifications.base import erratum, verify

XOR_INPUTS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR = np.array([0.0, 1.0, 1.0, 0.0])


def read_out_error(features: Array) -> float:
    """Mean squared error of the best affine read-out of XOR from `features` ``(4, n)``."""
    with_bias = np.concatenate([features, np.ones((4, 1))], axis=1)
    weights = np.linalg.lstsq(with_bias, XOR, rcond=None)[0]
    return float(((with_bias @ weights - XOR) ** 2).mean())


def lifted(width: int = 64) -> Array:
    """The XOR inputs after a random affine map to `width` features."""
    rng = np.random.default_rng(1)
    return XOR_INPUTS @ rng.uniform(-1, 1, (2, width)) + rng.uniform(-1, 1, width)


@verify("one-hot-product-clears-the-other-rows")
def one_hot_product() -> Evidence:
    """[0, 0, 1, 0, 0] times a 5 x 3 matrix is its third row, not a matrix."""
    matrix, one_hot = np.arange(1.0, 16.0).reshape(5, 3), np.eye(5)[2]
    return erratum(
        "a matrix with cleared rows",
        np.diag(one_hot) @ matrix,
        one_hot @ matrix,
        close("one-hot times matrix", one_hot @ matrix, np.array([7.0, 8.0, 9.0]), 0.0, "exact"),
    )


@verify("feed-forward-consists-of-linear-transformations")
def affine_not_linear() -> Evidence:
    """A linear map takes 0 to 0; the network takes it to relu(b1) W2 + b2."""
    p = {
        "linear1.weight": np.ones((3, 2)),
        "linear1.bias": np.array([1.0, -1.0, 0.5]),
        "linear2.weight": np.ones((2, 3)),
        "linear2.bias": np.array([0.1, -0.1]),
    }
    at_zero = feed_forward(p, np.zeros(2))
    return erratum(
        "FFN(0)",
        np.zeros(2),
        at_zero,
        close("relu(b1) W2 + b2", at_zero, np.array([1.6, 1.4]), 1e-12),
        by=1.0,
    )


@verify("widening-follows-covers-theorem")
def cover() -> Evidence:
    """The share of separable dichotomies of N points by a hyperplane through 0 in d dimensions grows with d."""

    def share(n: int, d: int) -> float:
        return 2 * sum(comb(n - 1, k) for k in range(d)) / 2**n

    return all_of(
        close("3 dimensions: 4, 6, 10 points", [share(n, 3) for n in (4, 6, 10)], [0.875, 0.5, 92 / 1024], 1e-12),
        close("10 dimensions: 10, 20 points", [share(n, 10) for n in (10, 20)], [1.0, 0.5], 1e-12),
        true("20 points: more dimensions, more separable", share(20, 15) > share(20, 10) > share(20, 3)),
    )


@verify("projection-alone-pulls-points-apart")
def linear_lift_separates_nothing() -> Evidence:
    """After an affine lift to 64 features XOR is as inseparable as before; after ReLU it is separable."""
    before, after = read_out_error(XOR_INPUTS), read_out_error(relu(lifted()))
    return all_of(
        close("error of the best read-out after the lift alone", read_out_error(lifted()), before, 1e-9),
        close("which is that of the plain inputs", before, 0.25, 1e-9),
        close("after ReLU", after, 0.0, 1e-20, "a solvable system"),
        true("rank of the centred lift", np.linalg.matrix_rank(lifted() - lifted().mean(0)) == 2),
    )


@verify("relu-separates-lifted-points")
def relu_separates() -> Evidence:
    """ReLU of the lifted inputs has full rank 4: every labelling of the four points can be read out."""
    return all_of(
        true("rank of the ReLU features", np.linalg.matrix_rank(relu(lifted())) == 4),
        close("error of the best read-out of XOR", read_out_error(relu(lifted())), 0.0, 1e-20, "a solvable system"),
    )


@verify("swiglu-is-gate-times-up-times-down")
def triple_product_has_no_shape() -> Evidence:
    """gate (5), up (5) and down (3) cannot be multiplied; without SiLU the result is another one as well."""
    rng = np.random.default_rng(0)
    p = {
        "gate_proj.weight": rng.standard_normal((5, 3)),
        "up_proj.weight": rng.standard_normal((5, 3)),
        "down_proj.weight": rng.standard_normal((3, 5)),
    }
    x = rng.standard_normal(3)
    gate, up = p["gate_proj.weight"] @ x, p["up_proj.weight"] @ x
    silu = gate / (1 + np.exp(-gate))
    try:
        np.broadcast_shapes(gate.shape, up.shape, x.shape)
        multiplies = True
    except ValueError:
        multiplies = False
    return all_of(
        true("the three outputs multiply", not multiplies, got=multiplies, expected=False),
        close("down(SiLU(gate) * up)", swiglu(p, x), p["down_proj.weight"] @ (silu * up), 1e-12),
        true("SiLU matters", np.abs(swiglu(p, x) - p["down_proj.weight"] @ (gate * up)).max() > 0.1),
    )
