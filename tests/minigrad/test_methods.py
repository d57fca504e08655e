"""The methods of Tensor: the ops themselves, each with words and a signature that `help` shows."""

import inspect
from typing import Any

import pytest

import minigrad as mg
from minigrad.methods import Methods
from minigrad.torch._functions import METHODS

# names that the stand-in for torch gives the class when it is imported, by whichever test comes first, are not its own
GIVEN = {name for name, method in METHODS.items() if vars(mg.Tensor).get(name) is method}
PUBLIC = sorted({name for name in dir(mg.Tensor) if not name.startswith("_")} - GIVEN - set(mg.Tensor.__slots__))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_method_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(mg.Tensor, name))


def test_a_method_is_the_function_of_that_name() -> None:
    """Where both exist, and the method has no arguments of its own."""
    own = {name for name, method in vars(Methods).items() if getattr(method, "__qualname__", "") == f"Methods.{name}"}
    own.add("multinomial")  # loaded at its first use
    common = {name for name in PUBLIC if name in vars(Methods) and callable(getattr(mg, name, None))}
    assert common & own == {"add", "backward", "multinomial", "sub", "where"}
    shared = common - own
    assert len(shared) > 70
    for name in shared:
        assert getattr(mg.Tensor, name) is getattr(mg, name), name


def test_all_of_methods_is_taken_over() -> None:
    for name, method in vars(Methods).items():
        if callable(method):
            assert getattr(mg.Tensor, name) is method, name


def test_in_place_functions_are_named_and_signed_like_their_functions() -> None:
    assert mg.Tensor.exp_.__name__ == "exp_"  # type: ignore[attr-defined]
    assert inspect.signature(mg.Tensor.clamp_) == inspect.signature(mg.clamp)


INDEX = mg.tensor([[0, 1], [1, 0]])
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "masked_fill": (INDEX == 0, 0.5),
    "clamp": (0.7, 1.2),
    "scatter": (1, INDEX, mg.ones(2, 2)),
    "scatter_add": (1, INDEX, mg.ones(2, 2)),
    **dict.fromkeys(("add", "sub", "mul", "div", "pow"), (mg.tensor([2.0, 3.0]),)),
}
IN_PLACE = sorted(name for name in PUBLIC if name.endswith("_") and name[:-1] in PUBLIC and name != "requires_grad_")


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_is_the_same_function_in_the_same_memory(name: str) -> None:
    """Values, gradients, and every other view of the memory."""
    arguments = ARGUMENTS.get(name[:-1], ())
    x = mg.tensor([[0.6, 1.1], [1.4, 0.9]], requires_grad=True)
    wanted = getattr(x, name[:-1])(*arguments)
    changed = x.clone()
    view = changed[1]
    assert getattr(changed, name)(*arguments) is changed
    assert mg.equal(changed, wanted)
    assert mg.equal(view, wanted[1])
    weights = mg.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert mg.equal(*[mg.grad((result * weights).sum(), x) for result in (changed, wanted)])


def test_shapes_and_dtypes_of_another_tensor() -> None:
    x = mg.arange(6)
    assert x.view_as(mg.ones(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.type_as(mg.ones(1)).dtype == mg.float32
