"""Feed-forward networks: any number of layers, the paper's position-wise network, and SwiGLU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from minigrad import Tensor, nn
from minigrad import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": F.gelu_tanh,
    "silu": F.silu,
    "sigmoid": F.sigmoid,
    "tanh": F.tanh,
    "identity": lambda x: x,
}


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise ValueError(f"there is no activation {name!r}: use one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class MLP(nn.Module):
    """Linear layers with an activation between them, none after the last: ``(..., sizes[0])`` to ``(..., sizes[-1])``.

    Raises ValueError for fewer than two sizes or an unknown activation (see ACTIVATIONS).
    """

    def __init__(self, sizes: Sequence[int], activation: str = "relu", bias: bool = True) -> None:
        super().__init__()
        if len(sizes) < 2:
            raise ValueError(f"MLP: sizes are those of the input, of each layer and of the output, got {list(sizes)}")
        self.activation = _activation(activation)
        self.layers = nn.ModuleList(nn.Linear(n_in, n_out, bias) for n_in, n_out in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


class FeedForward(nn.Module):
    """linear2(dropout(activation(linear1(x)))): ``(..., d_model)`` to the same (Vaswani et al. 2017, 3.3).

    activation: "relu" (the documents'), "gelu", ... Raises ValueError for a name that is not in ACTIVATIONS.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "relu", bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activation = _activation(activation)
        self.linear1 = nn.Linear(d_model, d_ff, bias)
        self.linear2 = nn.Linear(d_ff, d_model, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class GatedFeedForward(nn.Module):
    """dropout(down_proj(activation(gate_proj(x)) * up_proj(x))): ``(..., d_model)`` to the same (Shazeer 2020).

    inner_dropout: of what down_proj is given.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "silu",
        bias: bool = False,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = _activation(activation)
        self.gate_proj = nn.Linear(d_model, d_ff, bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias)
        self.dropout, self.inner_dropout = nn.Dropout(dropout), nn.Dropout(inner_dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.gate_proj(x)) * self.up_proj(x)
        return self.dropout(self.down_proj(self.inner_dropout(inner)))


class SwiGLU(GatedFeedForward):
    """The gated network with silu, without biases (document 002, SwiGLUFFN)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__(d_model, d_ff, dropout=dropout)
