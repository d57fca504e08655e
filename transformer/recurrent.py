"""The recurrent network that the Transformer replaced (document 003, RNN; Elman 1990)."""

from __future__ import annotations

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F


class RNN(nn.Module):
    """h_t = tanh(x_t W_ih^T + h_(t-1) W_hh^T + b), h_0 = 0: x ``(B, T, d_input)`` to all states ``(B, T, d_hidden)``.

    Everything starts from U(-1/sqrt(d_hidden), 1/sqrt(d_hidden)).
    """

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(mg.empty(d_hidden, d_input))
        self.weight_hh = nn.Parameter(mg.empty(d_hidden, d_hidden))
        self.bias = nn.Parameter(mg.empty(d_hidden))
        bound = d_hidden**-0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        driven = F.linear(x, self.weight_ih, self.bias)  # of all steps at once
        state = mg.zeros(x.shape[0], self.bias.shape[0], dtype=x.dtype)
        states = []
        for t in range(x.shape[1]):
            state = F.tanh(driven[:, t] + F.linear(state, self.weight_hh))
            states.append(state)
        return mg.stack(states, 1)
