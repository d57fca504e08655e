"""Old and rare names of the stand-in beside torch's: computed parameters, padded sequences, softmax without dim."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.utils.parametrize as theirs  # noqa: E402

import minigrad as mg  # noqa: E402
import minigrad.torch as standin  # noqa: E402
from minigrad.torch.nn.utils import parametrize as ours  # noqa: E402

SIDES = {"torch": (torch, theirs), "minigrad": (standin, ours)}


def linear(t):
    made = t.nn.Linear(3, 3)
    with t.no_grad():
        made.weight.copy_(t.tensor(np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)))
        made.bias.copy_(t.tensor([0.1, 0.2, 0.3]))
    return made


def symmetric(t, back=False):
    class Symmetric(t.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

    if back:
        Symmetric.right_inverse = lambda self, x: x.triu() * 1.0
    return Symmetric()


def scaled(t):
    class Scaled(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = t.nn.Parameter(t.ones(1) * 2.0)

        def forward(self, x):
            return x * self.factor

    return Scaled()


def parts(t):
    class Parts(t.nn.Module):
        def forward(self, direction, size):
            return direction * size

        def right_inverse(self, x):
            size = x.norm(dim=1, keepdim=True)
            return x / size, size

    return Parts()


def told(t, p, make, assign=False, remove=None, twice=None):
    module = linear(t)
    returned = p.register_parametrization(module, "weight", make(t))
    assert returned is module
    if twice is not None:
        p.register_parametrization(module, "weight", twice(t))
    if assign:
        module.weight = t.tensor(np.diag([1.0, 2.0, 3.0]).astype(np.float32))
    x = t.tensor([[1.0, -2.0, 0.5]])
    (module(x) ** 2).sum().backward()
    found = {name: value.detach().numpy() for name, value in module.state_dict().items()}
    found |= {f"gradient of {name}": v.grad.numpy() for name, v in module.named_parameters() if v.grad is not None}
    found["class"] = type(module).__name__
    found["weight"] = module.weight.detach().numpy()
    if remove is not None:
        p.remove_parametrizations(module, "weight", leave_parametrized=remove)
        found["left"] = module.weight.detach().numpy()
        found["names"] = sorted(name for name, _ in module.named_parameters())
        found["class after"] = type(module).__name__
        assert not p.is_parametrized(module)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"make": symmetric},
        {"make": lambda t: symmetric(t, back=True), "assign": True},
        {"make": scaled, "twice": symmetric},
        {"make": symmetric, "twice": lambda t: symmetric(t, back=True)},
        {"make": parts},
        {"make": parts, "assign": True},
        {"make": parts, "remove": True},
        {"make": scaled, "remove": True},
        {"make": scaled, "remove": False},
    ],
    ids=["forward", "inverse", "two", "second inverse", "two originals", "set", "leave parts", "leave", "original"],
)
def test_parametrized_weights_are_torchs(options):
    expected, got = (told(t, p, **options) for t, p in SIDES.values())
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            assert got[name] == value


def test_a_buffer_can_be_made_and_is_computed_once_in_a_block():
    module = standin.nn.Module()
    module.register_buffer("codes", standin.ones(2))
    calls = []

    class Double(standin.nn.Module):
        def forward(self, x):
            calls.append(1)
            return x * 2.0

    ours.register_parametrization(module, "codes", Double())
    assert module.codes.tolist() == [2.0, 2.0]
    assert [name for name, _ in module.named_buffers()] == ["parametrizations.codes.original"]
    calls.clear()
    with ours.cached():
        assert module.codes is module.codes
    assert len(calls) == 1
    assert ours.remove_parametrizations(module, "codes") is module
    assert [name for name, _ in module.named_buffers()] == ["codes"]


def test_what_cannot_be_parametrized_is_refused():
    class Longer(standin.nn.Module):
        def forward(self, x):
            return standin.cat([x, x])

    module = linear(standin)
    with pytest.raises(ValueError, match="no parameter or buffer 'nothing'"):
        ours.register_parametrization(module, "nothing", Longer())
    with pytest.raises(ValueError, match=r"shape \[3, 3\] and would have \[6, 3\]"):
        ours.register_parametrization(module, "weight", Longer())
    assert isinstance(module.weight, standin.nn.Parameter)
    with pytest.raises(ValueError, match="has no parametrization"):
        ours.remove_parametrizations(module, "weight")
    ours.register_parametrization(module, "weight", Longer(), unsafe=True)
    assert module.weight.shape == (6, 3)
    ours.remove_parametrizations(module, "weight")
    ours.register_parametrization(module, "bias", parts_of_vector())
    with pytest.raises(ValueError, match="several originals"):
        ours.remove_parametrizations(module, "bias", leave_parametrized=False)


def parts_of_vector():
    class Halves(standin.nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, x):
            return x / 2, x / 2

    return Halves()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_sequences_are_padded_as_torch_pads_them(first, side):
    arrays = [np.random.default_rng(n).standard_normal((n, 2)) for n in (3, 1, 0, 2)]
    one = torch.nn.utils.rnn.pad_sequence([torch.tensor(a) for a in arrays], first, -1.0, padding_side=side)
    padded = standin.nn.utils.rnn.pad_sequence([mg.from_numpy(a) for a in arrays], first, -1.0, padding_side=side)
    np.testing.assert_array_equal(padded.numpy(), one.numpy())
    if side == "right":
        again = standin.nn.utils.rnn.unpad_sequence(padded, [3, 1, 0, 2], first)
        for array, back in zip(arrays, again, strict=True):
            np.testing.assert_array_equal(back.numpy(), array)
    with pytest.raises(ValueError, match="cannot be padded to one"):
        standin.nn.utils.rnn.pad_sequence([standin.ones(2, 3), standin.ones(2, 4)])
    with pytest.raises(ValueError, match="'left' or 'right'"):
        standin.nn.utils.rnn.pad_sequence([standin.ones(2)], padding_side="up")


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (2, 1, 3, 2)])
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_softmax_without_a_dimension_takes_the_one_that_torch_takes(name, shape):
    values = np.random.default_rng(0).standard_normal(shape)
    modules = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "softmin": "Softmin"}
    expected = getattr(torch.nn.functional, name)(torch.tensor(values))
    for function in (getattr(standin.nn.functional, name), getattr(standin.nn, modules[name])()):
        with pytest.warns(UserWarning, match="without a dimension takes dimension"):
            got = function(mg.from_numpy(values))
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12)


def test_a_variable_is_the_tensor_itself():
    x = standin.ones(2)
    assert standin.autograd.Variable(x) is x
    assert standin.autograd.Variable(x, requires_grad=True).requires_grad
