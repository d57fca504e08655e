"""Updates of a compiled step are those of the eager optimizer, whatever reads what another one writes."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.compiler import compile
from minigrad.inplace import write
from minigrad.kernels import threads
from minigrad.ops.optimise import adam

SHAPES = ((5, 3), (1,), (70,), (33, 40), (), (0, 4), (16,))


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    return [nn.Parameter(mg.tensor(rng.standard_normal(shape).astype(np.float32))) for shape in SHAPES]


def trained(step, steps=4, seed=0):
    """The parameters after some calls of `step(parameters)`, eager and compiled."""
    results = []
    for wrap in (lambda f: f, compile):
        made = parameters(seed)
        run = wrap(step(made))
        for i in range(steps):
            run(mg.tensor(float(i + 1)))
        results.append([p.detach().numpy().copy() for p in made])
    return results


def same(eager, compiled):
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)


def loss_of(made, x):
    total = x * 0.0
    for i, p in enumerate(made):
        total = total + (p * p * x).sum() * (i + 1) + p.sum()
    return total


def stepping(make, times=1):
    """For `trained`: so many steps a call of the optimizer that `make(parameters)` makes, on `loss_of`."""

    def step(made):
        optimizer = make(made)

        def run(x):
            for _ in range(times):
                optimizer.zero_grad()
                loss_of(made, x).backward()
                optimizer.step()
            return x

        return run

    return step


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_all_parameters_are_updated(kind, count):
    before = threads.get_num_threads()
    threads.set_num_threads(count)
    try:
        eager, compiled = trained(stepping(lambda made: kind(made, lr=0.05, weight_decay=0.1)))
    finally:
        threads.set_num_threads(before)
    same(eager, compiled)


def test_groups_with_other_settings():
    def optimizer(made):
        groups = [{"params": made[:3], "weight_decay": 0.2}, {"params": made[3:], "lr": 0.01}]
        return optim.AdamW(groups, lr=0.05)

    eager, compiled = trained(stepping(optimizer))
    same(eager, compiled)


def test_a_gradient_that_is_another_parameter_is_read_before_that_changes():
    settings = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-8, "decay": 0.0, "decoupled": False}

    def crossed(wrap):
        rng = np.random.default_rng(0)
        first, second = (mg.tensor(rng.standard_normal(500).astype(np.float32)) for _ in range(2))
        one, other = ([mg.zeros(500), mg.zeros(500), mg.zeros((), dtype="float64")] for _ in range(2))

        def run(rate):
            made = adam(first, second, *one, rate, **settings), adam(second, first, *other, rate, **settings)
            with mg.no_grad():
                write(first, made[0][0])
                write(second, made[1][0])
            return rate

        run = wrap(run)
        for _ in range(3):
            run(mg.tensor(0.1, dtype="float64"))
        return first.numpy(), second.numpy()

    same(crossed(lambda f: f), crossed(compile))


def test_a_rate_that_is_a_parameter_is_read_before_that_changes():
    settings = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-8, "decay": 0.0, "decoupled": False}

    def crossed(wrap):
        weight, rate = mg.tensor(np.ones(500, np.float32)), mg.tensor(np.float32(0.1))
        one, other = ([mg.zeros(shape), mg.zeros(shape), mg.zeros((), dtype="float64")] for shape in (500, ()))

        def run(x):
            made = adam(weight, weight * x, *one, rate, **settings), adam(rate, x, *other, rate, **settings)
            with mg.no_grad():
                write(weight, made[0][0])
                write(rate, made[1][0])
            return x

        run = wrap(run)
        for _ in range(3):
            run(mg.tensor(1.0))
        return weight.numpy(), rate.numpy()

    same(crossed(lambda f: f), crossed(compile))


def test_one_gradient_of_two_parameters():
    def step(made):
        optimizer = optim.Adam([made[3], made[0], made[2]], lr=0.1)

        def run(x):
            optimizer.zero_grad()
            ((made[0] + made[0] * x).sum() + (made[3] + made[2][:40] * x).sum()).backward()
            made[2].grad = made[2].grad + 1.0
            optimizer.step()
            return x

        return run

    eager, compiled = trained(step)
    same(eager, compiled)


def test_a_second_step_sees_the_first_one():
    eager, compiled = trained(stepping(lambda made: optim.Adam(made, lr=0.05), times=2))
    same(eager, compiled)


def test_one_tensor_in_two_optimizers():
    def step(made):
        first, second = optim.Adam(made, lr=0.05), optim.Adam(made[1:], lr=0.05)

        def run(x):
            first.zero_grad()
            loss_of(made, x).backward()
            first.step()
            second.step()
            return x

        return run

    eager, compiled = trained(step)
    same(eager, compiled)
