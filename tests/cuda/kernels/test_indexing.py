"""Indices: look-ups, sums by key in a fixed order, writes in the order of the index; random numbers; Adam in place."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import agrees, computed

from minigrad.kernels.cuda import adam as adam_kernel
from minigrad.kernels.cuda import runtime, segments
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.index import ALL, SLOT
from minigrad.ops.registry import OPS

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def added(values, ids, rows, left_out=-1, seed=None, races=False):
    """The sums; IndexError where an id was outside, and none where all were inside, are asserted on the way."""
    with runtime.use(SimulatedDriver(seed, races=races)) as device:
        calls = DeviceCalls(device)
        fault = device.faults.place(IndexError, "row {}")
        table = device.empty((rows, values.shape[1]), values.dtype)
        arrays = device.upload(values), device.upload(ids)
        segments.add_rows(calls, *arrays, table, len(ids), values.shape[1], fault, left_out)
        calls.run()
        outside = ids[(ids < 0) | (ids >= rows)]
        with pytest.raises(IndexError, match="row") if len(outside) else nullcontext():
            device.synchronize()
        return device.download(table)


@pytest.mark.slow
@given(st.integers(1, 90), st.sampled_from([1, 2, 5, 300, 70_000]), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_rows_add_up_by_key(n, rows, width, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 9, (n, width)).astype(np.float32)  # sums of whole numbers are exact
    ids = rng.integers(-2, rows + 2, n)
    want = np.zeros((rows, width), np.float32)
    kept = (ids >= 0) & (ids < rows) & (ids != 1)
    np.add.at(want, ids[kept], values[kept])
    np.testing.assert_array_equal(added(values, ids, rows, left_out=1, seed=seed), want)


def test_several_tiles_are_sorted_in_order_and_runs_go_through_chunks():
    ids = np.concatenate([RNG.integers(0, 3, 600), np.full(450, 258), RNG.integers(250, 260, 30)])
    values = RNG.integers(-9, 9, (len(ids), 2)).astype(np.float32)
    want = np.zeros((300, 2), np.float32)
    np.add.at(want, ids, values)
    np.testing.assert_array_equal(added(values, ids, 300, seed=1), want)


def test_the_order_of_additions_is_fixed_and_free_of_races():
    ids, values = RNG.integers(0, 4, 200), normal(200, 3)
    first = added(values, ids, 4)
    for seed in (1, 2):
        np.testing.assert_array_equal(added(values, ids, 4, seed=seed), first)
    np.testing.assert_array_equal(added(values, ids, 4, seed=3, races=True), first)


def test_embedding_in_vectors_and_one_by_one():
    for d in (3, 8):
        agrees("embedding", [normal(6, d), RNG.integers(0, 6, (2, 5))], {"padding_idx": None}, seed=1)
    with pytest.raises(IndexError, match=r"id (6|-1) is outside the vocabulary of 6"):
        computed("embedding", [normal(6, 8), np.array([1, 6, -1])], {"padding_idx": None})


def test_embedding_gradient():
    g, ids = normal(4, 30, 5), RNG.integers(0, 6, (4, 30))
    for padding in (None, 2):
        agrees("embedding_grad", [g, ids], {"shape": (6, 5), "padding_idx": padding}, seed=1, atol=1e-5)
    agrees("embedding_grad", [g[:0], ids[:0]], {"shape": (6, 5), "padding_idx": None})


INDICES = [
    ((5, 3), (SLOT,), [(4,)]),
    ((4, 5, 3), (ALL, SLOT), [(2, 2)]),
    ((4, 5, 8), (ALL, ALL, SLOT), [(6,)]),
    ((4, 5, 3), (SLOT, SLOT), [(3,), (2, 1)]),
    ((4, 5, 3), (SLOT, ALL, SLOT), [(3,), (3,)]),
    ((4, 5, 3), (SLOT, SLOT, SLOT), [(2,), (2,), ()]),
    ((4, 5), (ALL, SLOT), [(0,)]),
]


@pytest.mark.parametrize(("shape", "index", "sizes"), INDICES)
def test_take_put_and_add(shape, index, sizes):
    slots = [d for d, item in enumerate(index) if item == SLOT]
    ids = [RNG.integers(-shape[d], shape[d], size) for d, size in zip(slots, sizes, strict=True)]  # negative ones, too
    x = normal(*shape)
    agrees("take", [x, *ids], {"index": index}, seed=1)
    taken = OPS["take"].evaluate([x, *ids], {"index": index})[0]
    g = RNG.integers(-9, 9, taken.shape).astype(np.float32)
    agrees("put_add", [g, *ids], {"shape": shape, "index": index}, seed=2)
    agrees("put", [x, g, *ids], {"index": index}, seed=3)
    agrees("put", [x, g[..., :1] * 0 + 7, *ids], {"index": index}, seed=3)


def test_a_mask_takes_a_number():
    x = normal(3, 4, 2)
    for mask in (RNG.random((3, 4)) < 0.5, RNG.random((3, 4, 2)) < 0.5, RNG.random(3) < 0.5):
        agrees("put", [x, np.float32(2).reshape(()), mask], {"index": (SLOT,)})
    agrees("put", [x, np.float32(2).reshape(()), RNG.random(4) < 0.5], {"index": (ALL, SLOT)})


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_along_a_dimension(dim):
    x = normal(3, 4, 5)
    shape = [2, 3, 4]
    shape[dim] = 6
    index = RNG.integers(0, x.shape[dim], shape)
    agrees("gather", [x, index], {"dim": dim}, seed=1)
    g = RNG.integers(-9, 9, shape).astype(np.float32)
    agrees("scatter_add_zeros", [g, index], {"dim": dim, "shape": x.shape}, seed=2)
    agrees("scatter", [x, g, index], {"dim": dim}, seed=3)  # of writes that meet the last stays, as in numpy
    agrees("scatter", [x, np.float32(1).reshape(()), index], {"dim": dim})


def test_many_additions_in_one_column():
    index = RNG.integers(0, 7, 400)
    values = RNG.integers(-9, 9, 400).astype(np.float32)
    agrees("scatter_add_zeros", [values, index], {"dim": 0, "shape": (7,)}, seed=1)


@pytest.mark.parametrize("count", [0, 1, 5, 1030])
@pytest.mark.parametrize("seed", [0, 2**40 + 17, 2**63 - 1])
def test_random_numbers_are_the_hosts_bit_for_bit(count, seed):
    key = np.array([seed, 2**33 - 3])  # the counter passes 32 bits
    for dtype in (np.float32, np.float64):
        agrees("random_uniform", [key], {"shape": (count,), "dtype": np.dtype(dtype)}, seed=1, rtol=0, atol=0)


@pytest.mark.parametrize("size", [300, 301])  # in fours, and one by one
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_writes_where_it_reads(decoupled, size):
    attrs = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "decay": 0.1, "decoupled": decoupled}
    w, g, m, v = normal(size), normal(size), normal(size), normal(size) ** 2
    inputs = [w, g, m, v, np.array(3.0), np.array(0.01)]
    wanted = OPS["adam"].evaluate(inputs, attrs)
    with runtime.use(SimulatedDriver(1, races=True)) as device:
        calls = DeviceCalls(device)
        arrays = [device.upload(array) for array in inputs]
        assert adam_kernel.adam(calls, arrays, [arrays[0], arrays[2], arrays[3], arrays[4]], **attrs)
        calls.run()
        for array, want in zip((arrays[0], *arrays[2:5]), wanted, strict=True):
            np.testing.assert_allclose(device.download(array), want, rtol=1e-5, atol=1e-6)
