"""Reductions over any dimensions, long and short, in parts; running sums; the places of extremes."""

import numpy as np
import pytest
from on_device import agrees, computed

SHAPES = [
    ((3, 4, 5), (1,)), ((3, 4, 5), (0, 2)), ((3, 4, 5), (0, 1, 2)), ((4, 3), (0,)), ((5,), (0,)), ((), ()),
    ((3, 257), (1,)), ((2, 300), (0, 1)), ((200, 40), (0,)), ((2, 70, 3), (1,)), ((2, 0, 3), (0,)), ((1, 5000), (1,)),
]  # fmt: skip
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("shape", "dims"), SHAPES)
@pytest.mark.parametrize("name", ["sum", "norm", "amax"])
def test_floats(name, shape, dims):
    x = RNG.standard_normal(shape).astype(np.float32)
    for keepdim in (False, True):
        agrees(name, [x], {"dims": dims, "keepdim": keepdim}, seed=keepdim, rtol=1e-4, atol=1e-4, twice=not keepdim)


def test_a_transposed_array():
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    agrees("sum", [x], {"dims": (2,), "keepdim": False}, layouts=[lambda a: a.transpose(1, 2, 0)])


def test_a_sum_over_nothing_is_zero_and_a_product_one():
    x = np.zeros((2, 0), np.float32)
    for name in ("sum", "prod", "norm"):
        agrees(name, [x], {"dims": (1,), "keepdim": False})


@pytest.mark.parametrize("name", ["amax", "amin", "sum"])
def test_nan_wins_and_infinities_stay(name):
    x = RNG.standard_normal((4, 300)).astype(np.float32)
    x[0, 299], x[1, 7], x[2, 5], x[2, 6] = np.nan, np.inf, np.inf, -np.inf
    for dims in ((0,), (1,)):
        agrees(name, [x], {"dims": dims, "keepdim": False}, seed=1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, bool, np.float64])
def test_other_dtypes(dtype):
    x = RNG.integers(-3, 4, (5, 6)).astype(dtype)
    for name in ("amax", "amin", "sum", "prod") if dtype is not bool else ("amax", "amin"):
        agrees(name, [x], {"dims": (0,), "keepdim": False})


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equal_extremes_and_nan_before_all(name):
    x = RNG.integers(0, 3, (4, 600)).astype(np.float32)
    x[1] = 5
    x[2, 400], x[2, 500] = np.nan, np.nan
    x[3] = np.inf if name == "argmin" else -np.inf
    agrees(name, [x], {"dim": 1, "keepdim": False}, seed=1)
    agrees(name, [x[:, :3]], {"dim": 0, "keepdim": True}, seed=2)


@pytest.mark.parametrize(("shape", "dim"), [((2, 700), 1), ((3, 4, 5), 1), ((5,), 0), ((), 0), ((0, 3), 1)])
def test_running_sums(shape, dim):
    agrees("cumsum", [RNG.standard_normal(shape).astype(np.float32)], {"dim": dim}, seed=1, rtol=1e-4, atol=1e-4)
    agrees("cumsum", [RNG.integers(-5, 5, shape)], {"dim": dim}, seed=2)


def test_a_long_sum_does_not_depend_on_the_order_of_threads():
    x = RNG.standard_normal(9000).astype(np.float32)
    sums = {computed("sum", [x], {"dims": (0,), "keepdim": False}, seed)[0].tobytes() for seed in (None, 1, 2)}
    assert len(sums) == 1
