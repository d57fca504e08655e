"""Compiled steps on the device: captured once, then replayed as graphs, without waiting, allocation or uploads."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad.compiler import compile
from minigrad.compiler.device_plan import DevicePlan


def plan_of(compiled):
    ((plan, _),) = compiled.plans.values()
    assert isinstance(plan, DevicePlan)
    return plan


def test_a_step_becomes_one_graph(cuda):
    w = mg.ones(3, device="cuda")

    @compile
    def step(x):
        w.add_(x * 2)
        return (w * x).sum()

    for i in range(4):
        x = mg.full((3,), float(i), device="cuda")
        before = dict(cuda.driver.counts)
        total = step(x)
        after = cuda.driver.counts
        if i > 1:  # the first replay warms up, the second captures
            assert after["launch_graph"] == before["launch_graph"] + 1
            assert after["launch"] == before["launch"]
            assert after["allocate"] == before["allocate"]
            assert after.get("synchronize", 0) == before.get("synchronize", 0)
            assert after["upload"] == before["upload"]
        expected = 1.0 + 2 * sum(range(i + 1))
        assert w.tolist() == [expected] * 3
        assert total.item() == pytest.approx(3 * i * expected)
    assert len(plan_of(step).graphs) == 1
    assert cuda.driver.counts["begin_capture"] == 1


def test_numbers_that_change_are_read_at_every_replay(cuda):
    rate = mg.tensor(1.0, device="cuda")
    on_host = mg.tensor(1.0)
    scaled = compile(lambda x: x * rate + on_host)
    x = mg.tensor([1.0, 2.0], device="cuda")
    for i in range(4):
        rate.fill_(float(i))
        on_host.fill_(10.0 * i)
        assert scaled(x).tolist() == [11.0 * i, 12.0 * i]


def test_random_numbers_differ_from_replay_to_replay_as_they_do_eagerly(cuda):
    x = mg.ones(40)
    mg.manual_seed(7)
    expected = [F.dropout(x, 0.5).tolist() for _ in range(4)]
    dropped = compile(lambda x: F.dropout(x, 0.5))
    mg.manual_seed(7)
    there = x.to("cuda")
    assert [dropped(there).tolist() for _ in range(2)] == expected[:2]
    assert F.dropout(x, 0.5).tolist() == expected[2]  # a draw on the host in between: the stream is one
    assert dropped(there).tolist() == expected[3]
    assert len(dropped.plans) == 1


def test_an_op_on_the_host_cuts_the_graph_in_two(cuda):
    ranked = compile(lambda x: (x * 2).sort()[0] + 1)
    x = mg.tensor([3.0, 1.0, 2.0], device="cuda")
    for _ in range(3):
        assert ranked(x).tolist() == [3.0, 5.0, 7.0]
    assert len(plan_of(ranked).graphs) == 3


def test_inputs_of_the_host_that_the_step_moves(cuda):
    w = mg.tensor([2.0, 3.0], device="cuda")
    step = compile(lambda x: x.to("cuda") * w)
    for i in range(3):
        assert step(mg.tensor([1.0, float(i)])).tolist() == [2.0, 3.0 * i]


def test_numbers_of_the_host_that_the_step_moves(cuda):
    mask = mg.tensor([True, False, True], device="cuda")

    @compile
    def step(x, number):
        y = x * number.to("cuda") + (number * 2).to("cuda")
        y[mask] = 7.0
        y[1] = mg.tensor(5.0)
        return y

    x = mg.tensor([1.0, 2.0, 3.0], device="cuda")
    for i in range(3):
        assert step(x, mg.tensor(float(i))).tolist() == [7.0, 5.0, 7.0]
    scaled = compile(lambda x, number: x * number.to("cuda") + (number * 2).to("cuda"))
    for i in range(3):
        assert scaled(x, mg.tensor(float(i))).tolist() == [3.0 * i, 4.0 * i, 5.0 * i]


def test_steps_after_a_product_of_vectors(cuda):
    doubled = compile(lambda a, b: a @ b * 2)
    a, b = mg.tensor([1.0, 2.0], device="cuda"), mg.tensor([3.0, 4.0], device="cuda")
    for _ in range(3):
        assert doubled(a, b).item() == 22.0


def test_what_a_plan_cannot_do_is_said(cuda):
    w = mg.tensor([2.0], device="cuda")
    with pytest.raises(RuntimeError, match=r"moves a tensor to 'cpu': return it"):
        compile(lambda x: (x * w).cpu())(w)
    counts = mg.zeros(1)

    def counting(x):
        counts.add_(1.0)
        return x * w

    with pytest.raises(RuntimeError, match="'cpu'"):
        compile(counting)(w)


def test_a_plan_on_each_device(cuda):
    double = compile(lambda x: x * 2)
    x = mg.tensor([1.0, 2.0])
    assert double(x).device.type == "cpu"
    assert double(x.to("cuda")).is_cuda
    assert len(double.plans) == 2


def test_a_plan_that_dies_gives_its_graphs_and_memory_back(cuda):
    x = mg.ones(8, device="cuda")
    before = cuda.allocator.statistics.in_use
    double = compile(lambda x: x * 2 + 1)
    for _ in range(3):
        double(x)
    assert cuda.allocator.statistics.in_use > before
    del double
    gc.collect()
    assert cuda.driver.counts["free_graph"] == 1
    assert cuda.allocator.statistics.in_use - before <= 4 * 512  # what stays are numbers of the program
    np.testing.assert_array_equal(x.numpy(), 1)
