"""`@composite`: one node outside, its function inside; the same numbers and derivatives either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.study import gradcheck, gradgradcheck


def mish_steps(x: mg.Tensor) -> mg.Tensor:
    return x * mg.tanh(mg.log1p(mg.exp(x)))


@mg.composite
def mish(x: mg.Tensor) -> mg.Tensor:
    """x tanh(ln(1 + e^x))"""
    return mish_steps(x)


@mg.composite
def gated(x: mg.Tensor, weight: mg.Tensor, *, power: int = 2, transpose: bool = False) -> tuple[mg.Tensor, mg.Tensor]:
    hidden = x @ (weight.t() if transpose else weight)
    return hidden**power, mg.sigmoid(hidden).sum(-1)


def leaf(*shape: int, seed: int = 0) -> mg.Tensor:
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


def test_value_is_the_functions_and_the_tape_has_one_node() -> None:
    x = leaf(2, 3)
    y = mish(x)
    np.testing.assert_array_equal(y.detach().numpy(), mish_steps(x).detach().numpy())
    assert y.node.op == "mish"
    assert y.node.edges[0] == (x.node, 0)
    assert y.dtype == mg.float64
    assert mish(mg.ones(2, dtype=mg.float16)).dtype == mg.float16
    assert mish.__doc__ == "x tanh(ln(1 + e^x))"


def test_derivatives_of_every_order() -> None:
    x = leaf(2, 3)
    assert gradcheck(mish, [x])
    assert gradgradcheck(mish, [x])
    inputs = [leaf(2, 3), leaf(3, 4, seed=1)]
    assert gradcheck(gated, inputs)
    assert gradgradcheck(lambda a, b: gated(a, b.t(), power=3, transpose=True), inputs)

    def third(function: Any) -> np.ndarray:
        y = function(x).sum()
        for _ in range(3):
            (y,) = mg.grad(y, [x], create_graph=True)
            y = (y * y).sum()
        return y.detach().numpy()

    np.testing.assert_allclose(third(mish), third(mish_steps), rtol=1e-10)


def test_numbers_are_operands() -> None:
    @mg.composite
    def scaled(x: mg.Tensor, factor: mg.Tensor) -> mg.Tensor:
        return x * factor

    assert scaled(mg.ones(2), 3).tolist() == [3.0, 3.0]
    assert scaled(mg.ones(2), 3).dtype == mg.float32


def test_in_a_trace_it_is_one_node_with_its_backward() -> None:
    x, w = leaf(2, 3), leaf(3, 4, seed=1)

    def step(x: mg.Tensor, w: mg.Tensor) -> Any:
        out, norm = gated(mish(x), w, power=3)
        loss = out.sum() + norm.sum()
        return loss, *mg.grad(loss, [x, w])

    graph = mg.trace(step)(x, w)
    assert [node.op for node in graph if node.op in ("mish", "gated")] == ["mish", "gated"]
    for got, want in zip(graph.run(x, w), step(x, w), strict=True):
        np.testing.assert_array_equal(got, want.detach().numpy())


def test_a_second_definition_does_not_change_the_first() -> None:
    def define(factor: float) -> Any:
        @mg.composite
        def multiple(x: mg.Tensor) -> mg.Tensor:
            return x * x * factor

        return multiple

    first, second = define(1.0), define(5.0)
    x = leaf(3)
    y = first(x).sum()
    second(x)
    np.testing.assert_allclose(mg.grad(y, x).numpy(), 2 * x.detach().numpy())


def test_what_would_be_silently_wrong_is_refused() -> None:
    weight = leaf(3)

    @mg.composite
    def uses_the_outside(x: mg.Tensor) -> mg.Tensor:
        return x * weight

    with pytest.raises(RuntimeError, match=r"uses_the_outside uses a tensor .* pass it as an argument"):
        uses_the_outside(leaf(3)).sum().backward()

    @mg.composite
    def random_steps(x: mg.Tensor) -> mg.Tensor:
        return x * mg.rand(3)

    with pytest.raises(RuntimeError, match="random_steps draws random numbers"):
        random_steps(leaf(3))

    @mg.composite
    def changes_its_argument(x: mg.Tensor) -> mg.Tensor:
        return x.mul_(2)

    with pytest.raises(RuntimeError, match="read-only"):
        changes_its_argument(mg.ones(3))

    @mg.composite
    def returns_a_number(x: mg.Tensor) -> float:
        return 1.0

    with pytest.raises(TypeError, match="returned a float"):
        returns_a_number(mg.ones(3))
    with pytest.raises(TypeError, match="by position"):
        gated(mg.ones(2, 3), weight=mg.ones(3, 4))
    with pytest.raises(TypeError, match=r"\*\* cannot be recorded"):
        mg.composite(lambda x, **options: x)


def test_outputs_share_no_memory_with_inputs() -> None:
    @mg.composite
    def first_row(x: mg.Tensor) -> mg.Tensor:
        return x[0]

    x = mg.ones(2, 3)
    first_row(x).zero_()
    assert x.tolist() == [[1.0] * 3] * 2
