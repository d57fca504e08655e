"""Linear attention: a kernel in place of the softmax, so that cost grows with T and not with T^2.

exp(q . k) becomes phi(q) . phi(k) with phi > 0; then sum_j phi(q) . phi(k_j) v_j = phi(q) . (sum_j phi(k_j) v_j^T), and
the sum over keys is made once (Katharopoulos et al. 2020). Shapes as in attention: ``(..., T, d)``.
"""

from __future__ import annotations

from collections.abc import Callable

import minigrad as mg
from minigrad import Tensor
from transformer.masks import causal_mask

State = tuple[Tensor, Tensor]  # sum of phi(k) v^T (..., d, d_v), sum of phi(k) (..., 1, d)


def elu_features(x: Tensor) -> Tensor:
    """elu(x) + 1: x + 1 above zero, e^x below; always positive."""
    return mg.where(x > 0, x + 1, x.clamp(max=0).exp())


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None = None,
    features: Callable[[Tensor], Tensor] = elu_features,
) -> Tensor:
    """sum_j w_ij v_j / sum_j w_ij, w_ij = features(q_i) . features(k_j): ``(..., Tq, d_v)``.

    visible: which keys, bool to ``(..., Tk)``; where there is none the result is zero.
    """
    q, k = features(query), _hide(features(key), visible)
    return _divide(mg.matmul(q, mg.matmul(k.transpose(-1, -2), value)), mg.matmul(q, _total(k).transpose(-1, -2)))


def causal_linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None = None,
    features: Callable[[Tensor], Tensor] = elu_features,
    state: State | None = None,
    block: int = 64,
) -> tuple[Tensor, State]:
    """As `linear_attention`, but each position sees itself and those before it; also the state after the last one.

    `state` holds the positions before these: given back, it continues where it stopped, in constant memory whatever
    their number. Inside a block of `block` positions the weights are made as a matrix; what lies before comes from the
    state. Raises ValueError for a block below 1.
    """
    if block < 1:
        raise ValueError(f"causal_linear_attention: block must be at least 1, got {block}")
    q, k = features(query), _hide(features(key), visible)
    outputs = []
    for start in range(0, q.shape[-2], block):
        at = slice(start, start + block)
        q_now, k_now, v_now = q[..., at, :], k[..., at, :], value[..., at, :]
        hidden = ~causal_mask(q_now.shape[-2], device=query.device)
        weights = mg.matmul(q_now, k_now.transpose(-1, -2)).masked_fill(hidden, 0.0)
        above, below = mg.matmul(weights, v_now), weights.sum(-1, keepdim=True)
        new = mg.matmul(k_now.transpose(-1, -2), v_now), _total(k_now)
        if state is not None:
            above = above + mg.matmul(q_now, state[0])
            below = below + mg.matmul(q_now, state[1].transpose(-1, -2))
            new = state[0] + new[0], state[1] + new[1]
        outputs.append(_divide(above, below))
        state = new
    if state is None:
        raise ValueError("causal_linear_attention needs at least one position")
    return mg.cat(outputs, -2), state


def _hide(features: Tensor, visible: Tensor | None) -> Tensor:
    return features if visible is None else features.masked_fill(~visible.unsqueeze(-1), 0.0)


def _total(key: Tensor) -> Tensor:
    return key.sum(-2, keepdim=True)


def _divide(above: Tensor, below: Tensor) -> Tensor:
    return above / mg.where(below == 0, 1.0, below)
