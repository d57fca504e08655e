"""Attention: scaled dot-product, single-head, multi-head, grouped-query (documents 000 sections 2.2 to 2.4 and 002).

Masks are bool, True = may attend, and broadcast to the scores. A query that may attend to nothing gets zeros. Weights
are readable on request: those before dropout, without a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from minigrad.ops.attention import attention, attention_weights, visible_softmax
from minigrad.ops.flash import flash_attention
from transformer.cache import LayerCache, MemoryCache
from transformer.places import Start
from transformer.positions import RoPE, alibi, alibi_slopes


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Dropout | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V and the softmax (document 000 section 2.2.3; Vaswani et al. 2017, 3.2.1).

    query ``(..., Tq, d_k)``, key ``(..., Tk, d_k)``, value ``(..., Tk, d_v)``, mask to ``(..., Tq, Tk)``; returns the
    output ``(..., Tq, d_v)`` and the weights ``(..., Tq, Tk)``. `dropout` (in training) drops weights before they meet
    the values; `scale` replaces 1/sqrt(d_k); `bias` to ``(..., Tq, Tk)`` is added to the scaled scores (see
    `transformer.positions`).
    """
    drops = dropout is not None and dropout.training and dropout.p > 0.0
    if bias is None and not drops:
        return attention(query, key, value, mask, scale)
    weights = attention_weights(query, key, mask, query.shape[-1] ** -0.5 if scale is None else scale, bias)
    return mg.matmul(weights if dropout is None else dropout(weights), value), weights.detach()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: nn.Dropout,
    scale: float | None = None,
    bias: Tensor | None = None,
    need_weights: bool = False,
    sloped: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`scaled_dot_product` of heads ``(B, H, T, d)``, where consecutive heads of queries may share a head of keys.

    Weights are kept only where they are asked for, or where a bias needs them. sloped: with ALiBi, which needs none.
    """
    drop = dropout.p if dropout.training else 0.0
    if not need_weights and bias is None and drop < 1.0:
        slopes = tuple(alibi_slopes(query.shape[1])) if sloped else ()
        options: dict[str, Any] = {"scale": scale, "slopes": slopes, "dropout": drop, "generator": dropout.generator}
        return flash_attention(query, key, value, mask, **options), None
    if sloped:
        slope = alibi(query.shape[1], query.shape[-2], key.shape[-2], query.dtype, query.device)
        bias = slope if bias is None else bias + slope
    if query.ndim > 3 and query.shape[1] != key.shape[1]:
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    return scaled_dot_product(query, key, value, mask, dropout, scale, bias)


def capped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: nn.Dropout,
    scale: float | None,
    softcap: float,
) -> tuple[Tensor, Tensor]:
    """`attend` with scores that tanh keeps below `softcap` (Gemma 2): what the one kernel cannot do."""
    key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    scores = mg.matmul(query, key.transpose(-1, -2)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    weights = visible_softmax((scores / softcap).tanh() * softcap, mask)
    return mg.matmul(dropout(weights), value), weights.detach()


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """``(B, T, n_heads * d_head)`` to ``(B, n_heads, T, d_head)``: head i owns columns i*d_head .. (i+1)*d_head."""
    return x.unflatten(-1, (n_heads, x.shape[-1] // n_heads)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, T, d_head)`` to ``(B, T, H * d_head)``."""
    return x.transpose(1, 2).flatten(-2)


class SelfAttention(nn.Module):
    """One head: softmax(X W_Q (X W_K)^T / sqrt(d_k)) X W_V, without an output projection (document 000 section 2.3.8).

    x ``(B, T, d_model)``, mask to ``(B, T, T)``; returns ``(B, T, d_k)``, with `need_weights` also ``(B, T, T)``.
    """

    def __init__(self, d_model: int, d_k: int | None = None, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        d_k = d_model if d_k is None else d_k
        self.q_proj = nn.Linear(d_model, d_k, bias)
        self.k_proj = nn.Linear(d_model, d_k, bias)
        self.v_proj = nn.Linear(d_model, d_k, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False) -> Any:
        heads = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        out, weights = attend(*heads, mask, self.dropout, need_weights=need_weights)
        return (out, weights) if need_weights else out


def check_heads(d_model: int, n_heads: int, n_kv_heads: int, d_head: int | None = None) -> None:
    """Raise ValueError unless n_heads divides d_model (where no d_head is given) and n_kv_heads divides n_heads."""
    if n_heads < 1 or (d_head is None and d_model % n_heads):
        raise ValueError(f"n_heads must divide d_model, got d_model={d_model}, n_heads={n_heads}")
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads must divide n_heads, got n_heads={n_heads}, n_kv_heads={n_kv_heads}")


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W_O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (Vaswani et al. 2017, 3.2.2).

    n_kv_heads: with fewer key and value heads than query heads, n_heads/n_kv_heads consecutive query heads share one
    (document 002, GQA; with a single one it is multi-query attention, Shazeer 2019). rope: rotates queries and keys.
    d_head: d_model/n_heads unless given; scale: of the scores, 1/sqrt(d_head) unless given. alibi: scores fall with the
    distance, in each head at its own slope (Press et al. 2022). out_bias, key_bias: of the output and the keys, as
    the others' unless given. head_norm: makes a norm of d_head numbers, of the queries and of the keys of each head
    (Qwen3). softcap: scores are softcap tanh(scores / softcap) (Gemma 2). Raises ValueError where heads do not divide.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rope: RoPE | None = None,
        d_head: int | None = None,
        scale: float | None = None,
        alibi: bool = False,
        out_bias: bool | None = None,
        key_bias: bool | None = None,
        head_norm: Callable[[int], nn.Module] | None = None,
        softcap: float | None = None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_heads(d_model, n_heads, n_kv_heads, d_head)
        self.n_heads, self.n_kv_heads, self.scale = n_heads, n_kv_heads, scale
        d_head = d_model // n_heads if d_head is None else d_head
        self.q_proj = nn.Linear(d_model, n_heads * d_head, bias)
        self.k_proj = nn.Linear(d_model, n_kv_heads * d_head, bias if key_bias is None else key_bias)
        self.v_proj = nn.Linear(d_model, n_kv_heads * d_head, bias)
        self.out_proj = nn.Linear(n_heads * d_head, d_model, bias if out_bias is None else out_bias)
        self.dropout = nn.Dropout(dropout)
        self.rope, self.alibi, self.softcap = rope, alibi, softcap
        self.q_norm, self.k_norm = (nn.Identity() if head_norm is None else head_norm(d_head) for _ in range(2))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        cache: LayerCache | MemoryCache | None = None,
        need_weights: bool = False,
        bias: Tensor | None = None,
    ) -> Any:
        """query ``(B, Tq, d_model)``, key and value ``(B, Tk, d_model)``, mask and bias to ``(B, H, Tq, Tk)``.

        Returns ``(B, Tq, d_model)``, with `need_weights` also the weights ``(B, H, Tq, Tk)``. With a cache, keys and
        values are those that it holds and the new ones, and Tk counts all of them.
        """
        offset: Start = 0 if cache is None else cache.length
        if self.alibi and not isinstance(offset, int):
            raise RuntimeError("ALiBi needs the positions of its queries: run it eagerly")
        q = self.q_norm(split_heads(self.q_proj(query), self.n_heads))
        if self.rope is not None:
            q = self.rope(q, offset)

        def project() -> tuple[Tensor, Tensor]:
            k = self.k_norm(split_heads(self.k_proj(key), self.n_kv_heads))
            v = split_heads(self.v_proj(value), self.n_kv_heads)
            return (k if self.rope is None else self.rope(k, offset)), v

        k, v = project() if cache is None else cache.extend(project)
        if self.softcap is None:
            out, weights = attend(q, k, v, mask, self.dropout, self.scale, bias, need_weights, self.alibi)
        else:
            out, weights = capped(q, k, v, mask, self.dropout, self.scale, self.softcap)
        out = self.out_proj(merge_heads(out))
        return (out, weights) if need_weights else out

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}"


class GroupedQueryAttention(MultiHeadAttention):
    """Self-attention of the decoder-only model: shared key and value heads, no biases (document 002, GQA)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        bias: bool = False,
        dropout: float = 0.0,
        rope: RoPE | None = None,
    ) -> None:
        super().__init__(d_model, n_heads, n_kv_heads, bias, dropout, rope)

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None, need_weights: bool = False
    ) -> Any:
        """x ``(B, T, d_model)``, mask to ``(B, H, T, T)`` (cached positions included); returns ``(B, T, d_model)``."""
        return super().forward(x, x, x, mask, cache, need_weights)
