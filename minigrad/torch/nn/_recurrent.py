"""torch's recurrent modules: RNN, LSTM, GRU with layers and directions, and their cells.

Parameters have torch's names and shapes (`weight_ih_l0` ``(gates d_h, d_in)``, `weight_hh_l0`, `bias_ih_l0`,
`bias_hh_l0`, with `_reverse` behind them for the other direction), so state dicts go both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad
import minigrad.nn as _nn
from minigrad import Tensor
from minigrad.torch._creation import check_device
from minigrad.torch._missing import refuse
from minigrad.torch.nn import functional

State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM, each (N, d_h)


def _tanh_step(given: Tensor, hidden: Tensor, state: State) -> State:
    return ((given + hidden).tanh(),)


def _relu_step(given: Tensor, hidden: Tensor, state: State) -> State:
    return ((given + hidden).relu(),)


def _lstm_step(given: Tensor, hidden: Tensor, state: State) -> State:
    """Gates in torch's order: input, forget, cell, output."""
    i, f, g, o = (given + hidden).chunk(4, -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_step(given: Tensor, hidden: Tensor, state: State) -> State:
    """Gates in torch's order: reset, update, new; reset is applied behind the product with the hidden state."""
    reset, update, new = zip(given.chunk(3, -1), hidden.chunk(3, -1), strict=True)
    r, z = (reset[0] + reset[1]).sigmoid(), (update[0] + update[1]).sigmoid()
    n = (new[0] + r * new[1]).tanh()
    return ((1 - z) * n + z * state[0],)


Step = Callable[[Tensor, Tensor, State], State]
_STEPS: dict[str, tuple[int, int, Step]] = {  # kind -> gates, tensors of a state, step
    "tanh": (1, 1, _tanh_step),
    "relu": (1, 1, _relu_step),
    "lstm": (4, 2, _lstm_step),
    "gru": (3, 1, _gru_step),
}


class _Recurrent(_nn.Module):
    """What RNN, LSTM and GRU share.

    The input is ``(T, N, d_in)``, ``(N, T, d_in)`` if batch_first, or ``(T, d_in)``; the output ``(..., D d_h)``, D = 2
    if bidirectional, and the last state of each layer and direction ``(n_layers D, N, d_h)``. dropout: between layers.
    """

    kind = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = f"nn.{type(self).__name__}"
        check_device(name, device)
        refuse(name, ("proj_size", proj_size, 0))
        if hidden_size < 1 or num_layers < 1:
            raise ValueError(f"{name}: hidden_size and num_layers must be positive, got {hidden_size} and {num_layers}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"{name}: dropout must lie in [0, 1], got {dropout}")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        gates = _STEPS[self.kind][0]
        for layer, ending in self._places():
            wide = input_size if layer == 0 else hidden_size * (2 if bidirectional else 1)
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (gates * hidden_size, wide),
                "weight_hh": (gates * hidden_size, hidden_size),
            }
            if bias:
                shapes |= {"bias_ih": (gates * hidden_size,), "bias_hh": (gates * hidden_size,)}
            for part, shape in shapes.items():
                self.register_parameter(f"{part}{ending}", _nn.Parameter(minigrad.empty(*shape, dtype=dtype)))
        self.reset_parameters()

    def _places(self) -> list[tuple[int, str]]:
        """(layer, what stands behind the names of its parameters) for each layer and direction."""
        ways = ("", "_reverse") if self.bidirectional else ("",)
        return [(layer, f"_l{layer}{way}") for layer in range(self.num_layers) for way in ways]

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(d_h), as torch draws them."""
        bound = self.hidden_size**-0.5
        with minigrad.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: it is for GPUs."""

    def _over(self, x: Tensor, given: State | None) -> tuple[Tensor, State]:
        """Output and last states of an input, states ``(n_layers D, N, d_h)`` or None for zeros."""
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"{type(self).__name__}: expected an input (T, N, {self.input_size}) or (T, {self.input_size}), got "
                f"{list(x.shape)}"
            )
        alone = x.ndim == 2
        steps = x.unsqueeze(1) if alone else x.transpose(0, 1) if self.batch_first else x
        _, tensors, _ = _STEPS[self.kind]
        places = self._places()
        shape = (len(places), steps.shape[1], self.hidden_size)
        if given is None:
            given = (minigrad.zeros(*shape, dtype=x.dtype),) * tensors
        elif alone:
            given = tuple(part.unsqueeze(1) for part in given)
        for part in given:
            if tuple(part.shape) != shape:
                raise ValueError(f"{type(self).__name__}: expected a state {list(shape)}, got {list(part.shape)}")
        last: list[State] = []
        ways = len(places) // self.num_layers
        for layer in range(self.num_layers):
            if layer:
                steps = functional.dropout(steps, self.dropout, self.training)
            outputs = []
            for number in range(layer * ways, (layer + 1) * ways):
                state = tuple(part[number] for part in given)
                outputs.append(self._direction(steps, places[number][1], state, last))
            steps = minigrad.cat(outputs, -1) if ways > 1 else outputs[0]
        states = tuple(minigrad.stack([state[i] for state in last]) for i in range(tensors))
        if alone:
            return steps.squeeze(1), tuple(state.squeeze(1) for state in states)
        return (steps.transpose(0, 1) if self.batch_first else steps), states

    def _direction(self, x: Tensor, ending: str, state: State, last: list[State]) -> Tensor:
        """The outputs ``(T, N, d_h)`` of one layer in one direction; its last state goes to `last`."""
        w_ih, w_hh = (getattr(self, f"{part}{ending}") for part in ("weight_ih", "weight_hh"))
        b_ih, b_hh = (getattr(self, f"{part}{ending}") if self.bias else None for part in ("bias_ih", "bias_hh"))
        step = _STEPS[self.kind][2]
        given = functional.linear(x, w_ih, b_ih)  # of all steps at once
        done: list[Tensor] = []
        times, backwards = range(x.shape[0]), ending.endswith("_reverse")
        for t in reversed(times) if backwards else times:
            state = step(given[t], functional.linear(state[0], w_hh, b_hh), state)
            done.append(state[0])
        last.append(state)
        return minigrad.stack(done[::-1] if backwards else done)

    def extra_repr(self) -> str:
        said = [f"{self.input_size}, {self.hidden_size}"]
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        said += [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join(said)


class RNN(_Recurrent):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), or relu of it: (output, h_n). See `_Recurrent` for shapes."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.kind = self.nonlinearity = nonlinearity
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )  # fmt: skip

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, (hidden,) = self._over(input, None if hx is None else (hx,))
        return output, hidden


class GRU(_Recurrent):
    """The gated recurrent unit (Cho et al. 2014) in torch's form: (output, h_n). See `_Recurrent` for shapes."""

    kind = "gru"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, (hidden,) = self._over(input, None if hx is None else (hx,))
        return output, hidden


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997): (output, (h_n, c_n)). See `_Recurrent` for shapes."""

    kind = "lstm"

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, (hidden, cell) = self._over(input, None if hx is None else tuple(hx))
        return output, (hidden, cell)


class _Cell(_nn.Module):
    """One step of a recurrent module: an input ``(N, d_in)`` or ``(d_in,)``, a state like it, zeros if None."""

    kind = ""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        check_device(f"nn.{type(self).__name__}", device)
        gates = _STEPS[self.kind][0]
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_ih = _nn.Parameter(minigrad.empty(gates * hidden_size, input_size, dtype=dtype))
        self.weight_hh = _nn.Parameter(minigrad.empty(gates * hidden_size, hidden_size, dtype=dtype))
        if bias:
            self.bias_ih = _nn.Parameter(minigrad.empty(gates * hidden_size, dtype=dtype))
            self.bias_hh = _nn.Parameter(minigrad.empty(gates * hidden_size, dtype=dtype))
        bound = hidden_size**-0.5
        with minigrad.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-bound, bound)

    def _step(self, x: Tensor, state: State | None) -> State:
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(f"{type(self).__name__}: expected (N, {self.input_size}), got {list(x.shape)}")
        _, tensors, step = _STEPS[self.kind]
        if state is None:
            state = (minigrad.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype),) * tensors
        biases = (self.bias_ih, self.bias_hh) if self.bias else (None, None)
        given = functional.linear(x, self.weight_ih, biases[0])
        return step(given, functional.linear(state[0], self.weight_hh, biases[1]), state)


class RNNCell(_Cell):
    """One step of an RNN: h."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.kind = self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else (hx,))[0]


class GRUCell(_Cell):
    """One step of a GRU: h."""

    kind = "gru"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, None if hx is None else (hx,))[0]


class LSTMCell(_Cell):
    """One step of an LSTM: (h, c)."""

    kind = "lstm"

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        hidden, cell = self._step(input, None if hx is None else tuple(hx))
        return hidden, cell
