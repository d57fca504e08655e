"""Compiled steps and the gradients that leaves have before a call: added to, read, changed, forgotten, as eagerly."""

from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.compiler import compile
from minigrad.nn.utils import clip_grad_norm_


def _steps(build, count, outside=lambda call, model: None):
    """Loss, gradients and parameters after each call of the step that `build(model, x)` makes, eager and compiled."""
    found = []
    for wrap in (lambda step: step, compile):
        mg.manual_seed(0)
        model = nn.Linear(3, 2)
        x = mg.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]])
        step, seen = wrap(build(model, x)), []
        for call in range(count):
            outside(call, model)
            loss = step()
            gradients = [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]
            seen.append((loss.item(), gradients, [p.detach().numpy().copy() for p in model.parameters()]))
        found.append(seen)
    return found, step


def _equal(found):
    for eager, compiled in zip(*found, strict=True):
        assert eager[0] == pytest.approx(compiled[0], rel=1e-6)
        for mine, want in zip(compiled[1] + compiled[2], eager[1] + eager[2], strict=True):
            assert (mine is None) == (want is None)
            if want is not None:
                np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6)


def _backward_only(model, x):
    def step():
        loss = model(x).square().mean()
        loss.backward()
        return loss

    return step


def test_gradients_of_what_is_captured_add_up_over_calls():
    found, step = _steps(_backward_only, 4)
    _equal(found)
    assert len(step.plans) == 2  # without a gradient before, and with one


def test_gradients_add_to_those_that_the_outside_puts_or_forgets_between_calls():
    def outside(call, model):
        if call in (0, 3):
            model.weight.grad = mg.ones_like(model.weight) * (call + 1)
        elif call == 2:
            model.zero_grad()
        elif call == 4:
            model.zero_grad(set_to_none=False)

    found, _ = _steps(_backward_only, 6, outside)
    _equal(found)


@pytest.mark.parametrize("when", ["first", "last", "zeros"])
def test_a_step_that_forgets_gradients_has_one_plan(when):
    def build(model, x):
        optimizer = optim.AdamW(model.parameters(), lr=0.1)

        def step():
            if when != "last":
                optimizer.zero_grad(set_to_none=when == "first")
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if when == "last":
                optimizer.zero_grad()
            return loss

        return step

    found, step = _steps(build, 4)
    _equal(found)
    assert len(step.plans) == (2 if when == "zeros" else 1)  # zeros are written into what is there, if anything is


def test_an_optimizer_reads_the_gradients_that_the_outside_has_made_since():
    def build(model, x):
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step():
            optimizer.step()
            return model.weight.sum()

        return step

    def outside(call, model):
        if call == 3:
            model.zero_grad()
        elif call != 2:
            model.zero_grad()
            (model(mg.ones(1, 3)) * (call + 1)).sum().backward()

    found, _ = _steps(build, 6, outside)
    _equal(found)


def test_clipping_inside_reads_accumulated_gradients_and_changes_them():
    def build(model, x):
        def step():
            loss = model(x).square().sum()
            loss.backward()
            clip_grad_norm_(list(model.parameters()), 1.0)
            return loss

        return step

    found, _ = _steps(build, 4)
    _equal(found)


def test_plans_of_forgotten_calls_take_their_leaves_along():
    weight = mg.tensor([1.0, 2.0], requires_grad=True)

    @partial(compile, keep=2)
    def step(x):
        loss = (weight * x.sum()).sum()
        loss.backward()
        return loss

    for size in range(1, 6):
        step(mg.ones(size))
    assert len(step.plans) == 2
    assert set(step._leaves) == {call for call, _ in step.plans}
    assert weight.grad.tolist() == [15.0, 15.0]


@pytest.mark.parametrize("of", ["an argument", "a result", "a captured tensor"])
def test_leaves_that_the_function_makes_are_new_at_every_call(of):
    weight = mg.tensor([1.0, 2.0], requires_grad=True)

    @compile
    def step(x):
        made = {"an argument": x, "a result": x * 1, "a captured tensor": weight}[of].detach().requires_grad_()
        (made * made * x).sum().backward()
        return made.grad

    for i in range(1, 4):
        x = mg.tensor([float(i), 1.0])
        source = weight.detach() if of == "a captured tensor" else x
        np.testing.assert_allclose(step(x).numpy(), (2 * source * x).numpy())
    assert len(step.plans) == 1
    assert weight.grad is None


def _forgetting(weight):
    """A compiled step of x whose gradient of `weight` is x."""

    @compile
    def step(x):
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        return loss

    return step


def test_a_gradient_that_a_replay_fills_again_is_known_to_have_changed():
    weight = mg.ones(3, requires_grad=True)
    step = _forgetting(weight)
    step(mg.tensor([1.0, 2.0, 3.0]))
    step(mg.tensor([1.0, 2.0, 3.0]))
    factor = mg.ones(3, requires_grad=True)
    before = factor * weight.grad
    step(mg.tensor([4.0, 5.0, 6.0]))
    assert weight.grad.tolist() == [4.0, 5.0, 6.0]
    with pytest.raises(RuntimeError, match="changed in place"):
        before.sum().backward()


def test_a_gradient_that_is_gone_is_made_beside_one_that_is_filled_again():
    first, second = mg.ones(2, requires_grad=True), mg.ones(2, requires_grad=True)

    @compile
    def step(x):
        first.grad = second.grad = None
        (first * second * x).sum().backward()

    for _ in range(2):
        step(mg.tensor([1.0, 2.0]))
    second.grad = None
    step(mg.tensor([3.0, 4.0]))
    assert first.grad.tolist() == second.grad.tolist() == [3.0, 4.0]


def test_a_gradient_that_was_made_part_of_a_graph_is_not_filled_again():
    weight = mg.ones(2, requires_grad=True)
    step = _forgetting(weight)
    step(mg.tensor([1.0, 2.0]))
    held = weight.grad.requires_grad_()
    step(mg.tensor([3.0, 4.0]))
    assert weight.grad is not held
    assert not weight.grad.requires_grad
    assert weight.grad.tolist() == [3.0, 4.0]
