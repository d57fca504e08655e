"""Checks of softmax alone (document 000 section 2.2.3 step 3; 003 Attention, three steps)."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.reference import attention as f


def _bound(subject: Any, x: np.ndarray) -> float:
    """Rounding x by eps*|x| moves its exponential by as much, relatively; no result exceeds one."""
    return tolerance(subject.dtype, length=x.size, scale=1.0 + float(abs(x).max()))


@check("softmax-formula", roles=("softmax",))
def softmax_formula(impl: Any, draw: Draw) -> Evidence:
    """softmax(x)_i = exp(x_i) / sum_j exp(x_j), the sum over the asked axis only."""
    shape = (draw.int("rows", 1, 4, 3), draw.int("columns", 1, 5, 4), draw.int("depth", 1, 6, 5))
    dim = draw.choice("dim", (-1, 0, 1, 2, -2), 1)
    x = draw.normal("x", shape, 2.0)
    subject = impl.build("softmax", {"dim": dim})
    return close("exp(x_i) / sum_j exp(x_j)", subject(x=x)["out"], f.softmax(x, dim), _bound(subject, x))


@check("softmax-sums-to-one", roles=("softmax",))
def softmax_sums_to_one(impl: Any, draw: Draw) -> Evidence:
    """Softmax turns any scores into numbers in [0, 1] that sum to one, up to scores of size 1000."""
    rows, columns = draw.int("rows", 1, 6, 5), draw.int("columns", 1, 100, 7)
    x = draw.normal("x", (rows, columns), draw.choice("scale", (1.0, 30.0, 1000.0), 1.0))
    subject = impl.build("softmax", {})
    got = np.asarray(subject(x=x)["out"], np.float64)
    return all_of(
        true("every probability lies in [0, 1]", np.all((got >= 0) & (got <= 1 + 1e-6)), got=got),
        close("row sums", got.sum(-1), np.ones(rows), tolerance(subject.dtype, length=columns)),
    )


@check("softmax-is-stable", roles=("softmax",))
def softmax_is_stable(impl: Any, draw: Draw) -> Evidence:
    """Adding a constant changes nothing, and scores whose exponential overflows or vanishes stay finite."""
    shift = draw.choice("shift", (1000.0, -1000.0, 10000.0, -10000.0), 1000.0)
    x = draw.normal("x", (3, 4))
    subject = impl.build("softmax", {})
    # x + shift itself is rounded to eps * |shift| before the subject sees it.
    bound = tolerance(subject.dtype, length=4, scale=abs(shift))
    golden = [0.09003057, 0.24472847, 0.66524096]
    return all_of(
        close(f"softmax(x {shift:+g})", subject(x=x + shift)["out"], f.softmax(x), bound),
        close("softmax([1000, 1001, 1002])", subject(x=np.array([1000.0, 1001, 1002]))["out"], golden, 1e-6),
    )


@check("softmax-keeps-the-order", roles=("softmax",))
def softmax_keeps_the_order(impl: Any, draw: Draw) -> Evidence:
    """The highest score gets the highest weight: softmax is strictly increasing."""
    n = draw.int("n", 2, 9, 5)
    order = draw.rng("x").permutation(n)
    x = order * 0.5  # gaps of one half survive every dtype
    got = impl.build("softmax", {})(x=x)["out"]
    return same("order of the weights", np.argsort(got), np.argsort(x))


@check("softmax-worked-values", roles=("softmax",), examples=0)
def softmax_worked_values(impl: Any, draw: Draw) -> Evidence:
    """softmax([0, 0.125, 0.25]) = [0.29, 0.33, 0.38] and softmax([0, ln 8, 0]) = [0.1, 0.8, 0.1]."""
    subject = impl.build("softmax", {})
    bound = tolerance(subject.dtype, length=3, scale=2.0) + 1e-8  # the values are given to eight decimals
    return all_of(
        close(
            "softmax([0, 0.125, 0.25])",
            subject(x=np.array([0, 0.125, 0.25]))["out"],
            [0.29263948, 0.33160398, 0.37575654],
            bound,
        ),
        close("softmax([0, ln 8, 0])", subject(x=np.array([0, np.log(8), 0]))["out"], [0.1, 0.8, 0.1], bound),
    )


@check("scores-times-eight-make-softmax-extreme", roles=("softmax",), examples=0)
def scores_times_eight_make_softmax_extreme(impl: Any, draw: Draw) -> Evidence:
    """Scores eight times as large turn (0.09, 0.24, 0.67) into (0.0000001, 0.0003, 0.9997)."""
    subject = impl.build("softmax", {})
    bound = tolerance(subject.dtype, length=3, scale=1.0) + 1e-8
    return all_of(
        close(
            "softmax([0, 1, 2])",
            subject(x=np.array([0.0, 1, 2]))["out"],
            [0.09003057, 0.24472847, 0.66524096],
            bound,
        ),
        close("softmax([0, 8, 16])", subject(x=np.array([0.0, 8, 16]))["out"], [1.12e-7, 3.3535e-4, 0.99966454], bound),
    )


@check("extreme-softmax-has-no-gradient", roles=("softmax",), needs=("softmax.vjp",), examples=3)
def extreme_softmax_has_no_gradient(impl: Any, draw: Draw) -> Evidence:
    """The Jacobian is diag(p) - p p^T; its norm falls from 0.39 at scores [0, 1, 2] to 0.0007 at eight times those."""
    subject = impl.build("softmax", {})
    bound = tolerance(subject.dtype, length=5) + 1e-8  # central differences carry 1e-9, the printed norms six digits

    def jacobian(x: np.ndarray) -> np.ndarray:
        return np.stack([subject.vjp({"x": x}, row)[0]["x"] for row in np.eye(len(x))])

    x = draw.normal("x", (draw.int("n", 2, 5, 4),))
    p = f.softmax(x)
    norms = [np.linalg.norm(jacobian(np.array(scores))) for scores in ([0, 0.125, 0.25], [0.0, 1, 2], [0.0, 8, 16])]
    return all_of(
        close("d softmax / d x", jacobian(x), np.diag(p) - np.outer(p, p), bound),
        close("norm of the Jacobian", norms, [0.470174, 0.389390, 6.7053e-4], bound + 1e-6),
    )
