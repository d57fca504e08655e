"""How well a query fits a key: the scores of attention before the Transformer, and what they attend to.

Each score takes queries ``(B, Tq, d_query)`` and keys ``(B, Tk, d_key)`` to ``(B, Tq, Tk)``, not yet a softmax.
"""

from __future__ import annotations

import minigrad as mg
from minigrad import Tensor, nn
from minigrad.ops.attention import visible_softmax


class DotScore(nn.Module):
    """q . k (Luong et al. 2015, "dot"): d_query and d_key are equal, and nothing is learned."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return mg.matmul(query, key.transpose(-1, -2))


class GeneralScore(nn.Module):
    """q W k^T (Luong et al. 2015, "general"): W ``(d_query, d_key)``."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_key, d_query, bias=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return mg.matmul(query, self.proj(key).transpose(-1, -2))


class AdditiveScore(nn.Module):
    """v . tanh(W q + U k) (Bahdanau et al. 2015): a network with one hidden layer of d_hidden looks at both."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query_proj = nn.Linear(d_query, d_hidden, bias=False)
        self.key_proj = nn.Linear(d_key, d_hidden, bias=False)
        self.v = nn.Linear(d_hidden, 1, bias=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        both = self.query_proj(query).unsqueeze(-2) + self.key_proj(key).unsqueeze(-3)
        return self.v(both.tanh()).squeeze(-1)


def attend(scores: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """softmax(scores) V and the softmax: scores ``(B, Tq, Tk)``, value ``(B, Tk, d_v)``, mask bool to the scores.

    True = may attend; a query that may attend to nothing gets zeros.
    """
    weights = visible_softmax(scores, mask)
    return mg.matmul(weights, value), weights
