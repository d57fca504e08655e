"""The stand-in's recurrent modules against torch's, from the same weights: outputs, states, gradients, every option."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.torch as standin

torch = pytest.importorskip("torch")

OPTIONS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "both ways": {"bidirectional": True, "num_layers": 2},
    "batch first": {"batch_first": True},
    "without bias": {"bias": False, "bidirectional": True},
}


def twins(kind: str, **options: object):
    theirs = getattr(torch.nn, kind)(3, 4, dtype=torch.float64, **options)
    ours = getattr(standin.nn, kind)(3, 4, dtype=standin.float64, **options)
    weights = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(weights)
    ours.load_state_dict({name: standin.from_numpy(value.copy()) for name, value in weights.items()})
    return theirs, ours


def flat(result: object) -> list:
    return [leaf for part in result for leaf in flat(part)] if isinstance(result, tuple) else [result]


def agree(theirs, ours, given, states) -> None:
    x, y = torch.tensor(given, requires_grad=True), standin.tensor(given).requires_grad_()
    assert y.dtype == standin.float64
    expected = flat(
        theirs(x, *[tuple(map(torch.tensor, s)) if isinstance(s, tuple) else torch.tensor(s) for s in states])
    )
    got = flat(ours(y, *[tuple(map(standin.tensor, s)) if isinstance(s, tuple) else standin.tensor(s) for s in states]))
    assert len(expected) == len(got)
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(other.detach().numpy(), one.detach().numpy(), rtol=1e-10, atol=1e-12)
    sum((one * one).sum() for one in expected).backward()
    sum(((other * other).sum() for other in got[1:]), (got[0] * got[0]).sum()).backward()
    np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-9, atol=1e-12)
    for (name, one), (_, other) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
        np.testing.assert_allclose(other.grad.numpy(), one.grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_outputs_states_and_gradients_are_torchs(kind: str, options: str) -> None:
    theirs, ours = twins(kind, **OPTIONS[options])
    rng = np.random.default_rng(0)
    agree(theirs, ours, rng.standard_normal((5, 2, 3)), [])


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_given_state_is_where_it_begins(kind: str, alone: bool) -> None:
    theirs, ours = twins(kind, num_layers=2)
    rng = np.random.default_rng(1)
    batch = () if alone else (2,)
    states = [rng.standard_normal((2, *batch, 4)) for _ in range(2)]
    agree(theirs, ours, rng.standard_normal((5, *batch, 3)), [tuple(states)] if kind == "LSTM" else states[:1])


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_are_torchs(kind: str) -> None:
    theirs, ours = twins(kind)
    rng = np.random.default_rng(2)
    state = [rng.standard_normal((2, 4)) for _ in range(2)]
    agree(theirs, ours, rng.standard_normal((2, 3)), [])
    theirs, ours = twins(kind)
    agree(theirs, ours, rng.standard_normal((2, 3)), [tuple(state)] if kind == "LSTMCell" else state[:1])


def test_relu_is_the_other_nonlinearity_of_rnns() -> None:
    agree(*twins("RNN", nonlinearity="relu"), np.random.default_rng(3).standard_normal((4, 2, 3)), [])


def test_a_compiled_lstm_gives_what_the_eager_one_does() -> None:
    layer = standin.nn.LSTM(3, 4, dtype=standin.float64)
    x = standin.randn(3, 2, 3, dtype=standin.float64)

    def step(x):
        output, (_, cell) = layer(x)
        loss = (output * output).sum() + cell.sum()
        return loss, *mg.grad(loss, list(layer.parameters()))

    plan = mg.compile(step)
    plan(x)
    for one, other in zip(step(x), plan(x), strict=True):
        np.testing.assert_allclose(other.detach().numpy(), one.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_wrong_inputs_are_refused_in_one_sentence() -> None:
    layer = standin.nn.LSTM(3, 4)
    with pytest.raises(ValueError, match=r"expected an input \(T, N, 3\)"):
        layer(standin.ones(5, 2, 4))
    with pytest.raises(ValueError, match=r"expected a state \[1, 2, 4\], got \[1, 3, 4\]"):
        layer(standin.ones(5, 2, 3), (standin.ones(1, 3, 4), standin.ones(1, 3, 4)))
    with pytest.raises(NotImplementedError, match="proj_size=2"):
        standin.nn.LSTM(3, 4, proj_size=2)
    with pytest.raises(ValueError, match="nonlinearity must be"):
        standin.nn.RNN(3, 4, nonlinearity="gelu")
    with pytest.raises(ValueError, match="dropout must lie"):
        standin.nn.GRU(3, 4, dropout=2.0)
