"""Element types against torch: promotion, Python scalars, and the values of integer and boolean arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg

torch = pytest.importorskip("torch")

NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DATA = [[0, 1, 3], [1, 2, 1]]


def name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def make(library: Any, dtype: str, data: Any) -> Any:
    return library.tensor(data).to(getattr(library, dtype))


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda t, a, b: a + b,
    "sub": lambda t, a, b: a - b,
    "mul": lambda t, a, b: a * b,
    "div": lambda t, a, b: a / b,
    "pow": lambda t, a, b: a**b,
    "floordiv": lambda t, a, b: a // b,
    "mod": lambda t, a, b: a % b,
    "maximum": lambda t, a, b: t.maximum(a, b),
    "where": lambda t, a, b: t.where(a == b, a, b),
    "less": lambda t, a, b: a < b,
    "and": lambda t, a, b: a & b,
}


def both(operation: Callable[[Any, Any, Any], Any], arguments: Callable[[Any], tuple[Any, Any]]) -> None:
    """The two libraries give the same dtype and values, or both refuse."""
    try:
        want = operation(torch, *arguments(torch))
    except (RuntimeError, NotImplementedError, TypeError) as refusal:
        if "with a bool tensor is not supported" in str(refusal):
            pytest.skip("1 - mask is refused by torch, and a number here")
        with pytest.raises((RuntimeError, TypeError, ValueError, ZeroDivisionError)):
            operation(mg, *arguments(mg))
        return
    got = operation(mg, *arguments(mg))
    assert name(got.dtype) == name(want.dtype)
    rtol = 2e-2 if got.dtype == mg.bfloat16 else 2e-3
    np.testing.assert_allclose(got.double().numpy(), want.double().numpy(), rtol=rtol)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("a", "b"), itertools.product(NAMES, NAMES))
def test_promotion(operation: str, a: str, b: str) -> None:
    """Two dtypes meet as in torch, also where one operand has no dimensions and so counts less."""
    run = OPERATIONS[operation]
    both(run, lambda t: (make(t, a, DATA), make(t, b, [[1, 2, 1], [1, 1, 2]])))
    if operation != "maximum":
        both(run, lambda t: (make(t, a, DATA), make(t, b, 2)))
        both(run, lambda t: (make(t, a, 1), make(t, b, [1, 2, 1])))


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o != "maximum"])
@pytest.mark.parametrize("a", NAMES)
@pytest.mark.parametrize("scalar", [True, 2, 1.5])
def test_python_scalars_are_weak(operation: str, a: str, scalar: Any) -> None:
    if (operation, a) == ("pow", "bool"):
        pytest.skip("torch has a rule of its own for some exponents")
    both(OPERATIONS[operation], lambda t: (make(t, a, DATA), scalar))
    if operation != "where":
        both(OPERATIONS[operation], lambda t: (scalar, make(t, a, [[1, 2, 1]])))


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(1),
    "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(0),
    "amax": lambda x: x.amax(1),
    "max": lambda x: x.max(1)[0],
    "argmax": lambda x: x.argmax(1),
    "sort": lambda x: x.sort(1)[0],
    "all": lambda x: x.all(1),
    "any": lambda x: x.any(),
    "exp": lambda x: x.exp(),
    "sqrt": lambda x: x.sqrt(),
    "floor": lambda x: x.floor(),
    "sign": lambda x: x.sign(),
    "neg": lambda x: -x,
    "invert": lambda x: ~x,
    "mean": lambda x: x.mean(),
    "clamp": lambda x: x.clamp(1, 2),
    "clamp float": lambda x: x.clamp(min=0.5),
    "masked_fill": lambda x: x.masked_fill(x == 1, 2),
    "tril": lambda x: x.tril(),
    "one": lambda x: x[0, 1],
    "float": lambda x: x.float(),
    "long": lambda x: x.long(),
    "bool": lambda x: x.bool(),
    "softmax": lambda x: x.softmax(0),
    "matmul": lambda x: x @ x.t(),
}
# torch implements these for fewer dtypes, or (all and any of uint8) by a rule of its own
WIDER = {
    ("argmax", "bool"),
    ("floor", "bool"),
    ("matmul", "bool"),
    ("clamp", "bool"),
    ("all", "uint8"),
    ("any", "uint8"),
}


@pytest.mark.parametrize("function", REDUCTIONS)
@pytest.mark.parametrize("a", NAMES)
def test_functions_of_one_tensor(function: str, a: str) -> None:
    if (function, a) in WIDER or (function == "softmax" and a not in FLOATS):
        pytest.skip("not implemented in torch for this dtype")
    both(lambda t, x, _: REDUCTIONS[function](x), lambda t: (make(t, a, DATA), None))


def test_float_too_large_for_a_dtype_is_infinite_without_a_warning(recwarn: Any) -> None:
    assert (mg.ones(2) * 1e300).tolist() == [float("inf")] * 2
    assert (mg.ones(2, dtype=mg.float16) * -1e9).tolist() == [float("-inf")] * 2
    assert not recwarn.list


def test_masked_fill_refuses_what_the_dtype_cannot_hold() -> None:
    x = mg.zeros(2, dtype=mg.float16)
    with pytest.raises(OverflowError, match="largest float16, 65504"):
        x.masked_fill(x == 0, -1e9)
    assert x.masked_fill(x == 0, float("-inf")).tolist() == [float("-inf")] * 2
    with pytest.raises(OverflowError):
        mg.tensor([1]).masked_fill(mg.tensor([True]), float("inf"))


def test_numpy_operands() -> None:
    x = mg.ones(2, 3, requires_grad=True)
    for left in (np.float32(2), np.float64(2), np.int64(2), np.full((2, 3), 2, np.float32)):
        product = left * x
        assert isinstance(product, mg.Tensor)
        assert product.dtype == mg.float32
        assert product.requires_grad
    assert (np.ones((2, 3)) + x).dtype == mg.float64  # an array is not weak
    with pytest.raises(TypeError, match="must be a tensor, got ndarray"):
        np.ones((2, 2), np.float32) @ x


def test_large_integers_are_exact() -> None:
    big = 2**53 + 1
    assert mg.tensor([big]).item() == big
    assert (mg.tensor([big]) + 1).item() == big + 1
    assert mg.tensor([big, big]).sum().item() == 2 * big
    with pytest.raises(OverflowError):
        mg.tensor([1], dtype=mg.int32) + 2**40


def test_half_reductions_do_not_overflow_on_the_way() -> None:
    x = mg.full((1000,), 100.0, dtype=mg.float16)
    assert x.mean().item() == 100
    assert x.var().item() == 0
    assert (x.logsumexp(0) > 100).item()
    assert x.norm().item() == pytest.approx(100 * 1000**0.5, rel=1e-3)


@pytest.mark.parametrize("function", ["var", "std"])
def test_deviations_stay_in_the_dtype_that_kernels_compute_in(function: str) -> None:
    def step(x: mg.Tensor) -> mg.Tensor:
        result = getattr(x, function)(-1)
        result.sum().backward()
        return result

    graph = mg.trace(step)(mg.randn(3, 5, requires_grad=True))
    assert mg.float64 not in {dtype for node in graph for _, dtype in node.outputs}


def test_numbers_become_the_dtype_that_is_asked_for_at_once() -> None:
    assert mg.tensor(0.1, dtype=mg.float64).item() == 0.1
    assert mg.tensor([0.1, 1e300], dtype=mg.float64).tolist() == [0.1, 1e300]
    assert mg.tensor([16777217.0], dtype=mg.int64).item() == 16777217


@pytest.mark.parametrize("dtype", [mg.int64, mg.int8, mg.uint8, mg.bool])
def test_the_square_of_integers_is_an_integer(dtype: np.dtype) -> None:
    got = mg.tensor([1, 3, 0]).to(dtype).square()
    assert got.dtype == (mg.int64 if dtype == mg.bool else dtype)
    assert got.tolist() == ([1, 1, 0] if dtype == mg.bool else [1, 9, 0])


def test_to_nothing_in_particular_is_the_tensor_itself():
    x = mg.ones(2)
    assert x.to(None) is x
