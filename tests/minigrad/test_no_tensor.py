"""Lists, arrays and numbers where a tensor is expected: one sentence that says so, from every function and module."""

import inspect
from types import FunctionType

import numpy as np
import pytest

import minigrad as mg
from minigrad import functional as F
from minigrad import nn

# functions of these take tensors that may be lists of tensors, and say what they miss themselves
ELSEWHERE = ("minigrad.tracing", "minigrad.composites")
FUNCTIONS = {
    f"{where}.{name}": function
    for where, space in (("mg", vars(mg)), ("F", {name: getattr(F, name) for name in F.__all__}))
    for name, function in space.items()
    if isinstance(function, FunctionType)
    and function.__module__ not in ELSEWHERE
    and any("Tensor" in str(said) for name, said in function.__annotations__.items() if name != "return")
}


def _arguments(function, stranger):
    """`stranger` for every tensor that has no default; numbers that fit for the rest."""
    return [
        stranger if "Tensor" in str(parameter.annotation) else 1
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("stranger", [[3.0, 1.0], None, "text", {1}], ids=["list", "None", "text", "set"])
def test_every_function_says_that_it_takes_tensors(name, stranger):
    function = FUNCTIONS[name]
    with pytest.raises(TypeError, match=r"tensor") as caught:
        function(*_arguments(function, stranger))
    inside = next(iter(stranger or [None]))
    assert type(stranger).__name__ in str(caught.value) or type(inside).__name__ in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_function_that_was_called_names_its_argument():
    sentence = r"^sort: x must be a tensor, got list: make it one with mg.tensor\(...\)$"
    with pytest.raises(TypeError, match=sentence):
        mg.sort([3, 1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^roll: x must be a tensor, got ndarray"):
        mg.roll(np.ones(3), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^gather: index must be a tensor, got list"):
        mg.ones(2).gather(0, [1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^cat: tensors must be tensors, got list among them"):
        mg.cat([mg.ones(2), [1.0]])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expected a tensor or a number, got list: make it a tensor with"):
        mg.einsum("i,i->", [1.0], mg.ones(1))
    with pytest.raises(TypeError, match="einsum: the equation must be text"):
        mg.einsum(mg.ones(2), "i->")  # type: ignore[arg-type]


def test_gradients_and_data_are_of_tensors():
    x = mg.ones(3, requires_grad=True)
    with pytest.raises(TypeError, match=r"^backward: tensors must be tensors, got float among them"):
        mg.backward([3.0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^grad: inputs must be tensors, got float among them"):
        mg.grad(x.sum(), [3.0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="data must be a tensor, got int"):
        x.data = 3  # type: ignore[assignment]


def test_other_mistakes_are_reported_as_they_are():
    with pytest.raises(IndexError, match="dimension 4 is out of range"):
        mg.sort(mg.ones(3), 4)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
        mg.sort(mg.ones(3), bogus=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"index 'j'.*sizes 3 and 2"):
        mg.einsum("ij,jk->ik", [mg.ones(2, 3), mg.ones(2, 3)])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(2, 3), "linear: x must be a tensor, got ndarray"),
        (nn.LayerNorm(2), "layer_norm: x must be a tensor, got ndarray"),
        (nn.Embedding(3, 2), "embedding: ids must be a tensor, got ndarray"),
        (nn.Dropout(0.5), "dropout: x must be a tensor, got ndarray"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_module_says_that_it_takes_tensors(module, message):
    with pytest.raises(TypeError, match=message) as caught:
        module(np.ones((3, 2), np.float32))
    assert caught.value.__notes__ == [f"in module the outermost one ({type(module).__name__})"]


def test_a_module_of_ones_own_says_what_its_forward_takes():
    class Mine(nn.Module):
        def forward(self, x: "Tensor", name: str = "unsqueeze"):  # noqa: F821
            return getattr(x, name)(0)

    with pytest.raises(TypeError, match=r"^x must be a tensor, got list"):
        Mine()([1.0])
    with pytest.raises(TypeError, match=r"^x must be a tensor, got list"):
        nn.RMSNorm(2)([1.0, 2.0])
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        Mine()(mg.ones(2), "no_such_thing")
