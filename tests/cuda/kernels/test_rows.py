"""Softmax, norms, cross-entropy: every team of threads, NaN and infinities, any dimension, other thread orders."""

import numpy as np
import pytest
from on_device import agrees, computed
from slow import slow_but

from minigrad.kernels.cuda.rows import TEAMS, team_for
from minigrad.ops.registry import OPS

LENGTHS = (1, 33, 64, 65, 250, 300, 1100, 4100, 8200)  # every team of threads, full and ragged
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def rows_of(n):
    return 5 if n < 200 else 1


def test_the_lengths_meet_every_team():
    assert {team_for(n) for n in LENGTHS} == set(TEAMS)


@pytest.mark.parametrize("n", slow_but(LENGTHS, lambda n: n < 4000))
def test_softmax(n):
    x = normal(rows_of(n), n) * 4
    for name in ("softmax", "log_softmax"):
        agrees(name, [x], {"dim": 1}, seed=n, rtol=2e-5, atol=1e-6, twice=False)
    y = OPS["softmax"].evaluate([x], {"dim": 1})[0]
    agrees("softmax_grad", [normal(*x.shape), y], {"dim": 1}, seed=n, atol=1e-5, twice=False)


@pytest.mark.parametrize("n", [5, 300, 8200])
def test_softmax_of_nan_and_infinities_is_the_references(n):
    x = np.zeros((1 if n > 5000 else 5, n), np.float32)
    x[0, -1] = -np.inf
    if len(x) > 1:
        x[1], x[2, 2], x[3, :] = -np.inf, np.nan, 80
        x[4, 3] = np.inf
    for name in ("softmax", "log_softmax"):
        agrees(name, [x], {"dim": 1}, seed=1, twice=False)


def test_softmax_along_another_dimension():
    for dim in (0, 1, 2):
        agrees("softmax", [normal(3, 4, 5)], {"dim": dim}, seed=dim)
        agrees("softmax", [normal(3, 4, 5)], {"dim": dim}, layouts=[lambda x: x.transpose(2, 0, 1)])


@pytest.mark.parametrize("n", slow_but([n for n in LENGTHS if n != 4100], lambda n: n < 1000))
def test_norms(n):
    rows, eps = rows_of(n), {"eps": 1e-5}
    x, g, weight, bias = normal(rows, n) + 1, normal(rows, n), normal(n), normal(n)
    agrees("layer_norm", [x, weight, bias], eps, seed=n, rtol=1e-4, atol=1e-5, twice=False)
    agrees("rms_norm", [x, weight], eps, seed=n, rtol=1e-4, atol=1e-5, twice=False)
    _, average, rstd = OPS["layer_norm"].evaluate([x, weight, bias], eps)
    if n > 1:  # of one element the deviation is nothing but rounding
        agrees("layer_norm_grad", [g, x, weight, average, rstd], eps, seed=n, rtol=1e-3, atol=1e-4, twice=False)
    _, rstd = OPS["rms_norm"].evaluate([x, weight], eps)
    agrees("rms_norm_grad", [g, x, weight, rstd], eps, seed=n, rtol=1e-3, atol=1e-4, twice=False)


def test_a_norms_weight_gets_the_sum_over_more_rows_than_teams():
    x, g, weight, bias = normal(600, 3), normal(600, 3), normal(3), normal(3)
    _, average, rstd = OPS["layer_norm"].evaluate([x, weight, bias], {"eps": 1e-5})
    agrees("layer_norm_grad", [g, x, weight, average, rstd], {"eps": 1e-5}, seed=1, rtol=1e-3, atol=1e-3, twice=False)


def test_norms_of_nothing():
    x, weight = np.zeros((0, 4), np.float32), np.ones(4, np.float32)
    agrees("layer_norm", [x, weight, weight], {"eps": 1e-5})
    empty = np.zeros((0, 1), np.float32)
    agrees("layer_norm_grad", [x, x, weight, empty, empty], {"eps": 1e-5})


@pytest.mark.parametrize("classes", [3, 130, 4100])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(classes, reduction):
    rows = 4 if classes < 4000 else 1
    attrs = {"ignore_index": 1, "label_smoothing": 0.1, "reduction": reduction}
    logits, targets = normal(rows, classes) * 3, np.array([2, 1, 0, 2])[:rows]
    agrees("cross_entropy", [logits, targets], attrs, seed=1, atol=1e-5, twice=False)
    up = normal(rows) if reduction == "none" else normal()
    log_probs = OPS["log_softmax"].evaluate([logits], {"dim": 1})[0]
    agrees("cross_entropy_grad", [np.asarray(up), logits, targets, log_probs], attrs, seed=1, twice=False)


def test_a_target_that_is_no_class_is_said():
    attrs = {"ignore_index": None, "label_smoothing": 0.0, "reduction": "mean"}
    for bad in (-1, 3):
        with pytest.raises(ValueError, match=f"target {bad} is not a class id from 0 to 2$"):
            computed("cross_entropy", [normal(2, 3), np.array([0, bad])], attrs)
