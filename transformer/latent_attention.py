"""Multi-head latent attention (MLA): keys and values of all heads out of one short vector a token, which is cached.

DeepSeek-AI 2024, DeepSeek-V2, section 2.1. A cache holds kv_rank + d_rotary numbers a token and layer, where multi-head
attention holds 2 n_heads d_head.
"""

from __future__ import annotations

from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from transformer.attention import attend, merge_heads, split_heads
from transformer.cache import LayerCache
from transformer.positions import RoPE


class LatentAttention(nn.Module):
    """Self-attention of heads with d_plain numbers without and `rope.d_head` with positions, and values of d_value.

    kv_rank: length of the vector of which keys and values are made; the rotated part of the keys is one for all heads.
    q_rank: that of the queries, made at once unless given. bias: of the projections to these vectors and of the output.
    scale: of the scores, 1/sqrt(d_plain + d_rotary) unless given.

    x ``(B, T, d_model)`` to the same; mask to ``(B, H, T, Tk)``. With a cache, the queries are brought to the short
    vectors instead of these to the heads: the same numbers, and no key is ever made.
    """

    def __init__(
        self, d_model: int, n_heads: int, rope: RoPE, kv_rank: int, d_plain: int, d_value: int,
        q_rank: int | None = None, bias: bool = False, dropout: float = 0.0, scale: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.n_heads, self.kv_rank, self.d_plain, self.d_value, self.rope = n_heads, kv_rank, d_plain, d_value, rope
        d_head = d_plain + rope.d_head
        self.scale = d_head**-0.5 if scale is None else scale
        self.q_proj: nn.Module
        if q_rank is None:
            self.q_proj = nn.Linear(d_model, n_heads * d_head, bias=False)
        else:
            self.q_proj = nn.Sequential(
                nn.Linear(d_model, q_rank, bias), nn.RMSNorm(q_rank, 1e-6), nn.Linear(q_rank, n_heads * d_head, False)
            )
        self.kv_down = nn.Linear(d_model, kv_rank + rope.d_head, bias)
        self.kv_norm = nn.RMSNorm(kv_rank, 1e-6)
        self.kv_up = nn.Linear(kv_rank, n_heads * (d_plain + d_value), bias=False)
        self.out_proj = nn.Linear(n_heads * d_value, d_model, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None,
        need_weights: bool = False, bias: Tensor | None = None,
    ) -> Any:  # fmt: skip
        """key and value are x. Returns ``(B, T, d_model)``, with `need_weights` also the weights ``(B, H, T, Tk)``."""
        offset = 0 if cache is None else cache.length
        q = split_heads(self.q_proj(x), self.n_heads)
        plain, turned = q[..., : self.d_plain], self.rope(q[..., self.d_plain :], offset)

        def project() -> tuple[Tensor, Tensor]:
            """The short vectors and the rotated parts of the keys, as of one head."""
            both = self.kv_down(x)
            short = self.kv_norm(both[..., : self.kv_rank]).unsqueeze(1)
            return short, self.rope(both[..., self.kv_rank :].unsqueeze(1), offset)

        if cache is None:
            out, weights = self._expanded(plain, turned, *project(), mask, bias, need_weights)
        else:
            out, weights = self._absorbed(plain, turned, *cache.extend(project), mask, bias, need_weights)
        out = self.out_proj(merge_heads(out))
        return (out, weights) if need_weights else out

    def _expanded(self, plain: Tensor, turned: Tensor, short: Tensor, place: Tensor, *rest: Any) -> Any:
        """Keys and values of every head, then attention."""
        both = split_heads(self.kv_up(short.squeeze(1)), self.n_heads)
        place = place.expand(-1, self.n_heads, -1, -1)
        key, value = mg.cat([both[..., : self.d_plain], place], -1), both[..., self.d_plain :]
        return self._attend(mg.cat([plain, turned], -1), key, value, *rest)

    def _absorbed(self, plain: Tensor, turned: Tensor, short: Tensor, place: Tensor, *rest: Any) -> Any:
        """q (W c) = (q W) c: every head attends to the short vectors themselves, which are keys and values of all."""
        up = self.kv_up.weight.reshape(self.n_heads, self.d_plain + self.d_value, self.kv_rank)
        query = mg.cat([mg.matmul(plain, up[:, : self.d_plain]), turned], -1)
        out, weights = self._attend(query, mg.cat([short, place], -1), short, *rest)
        return mg.matmul(out, up[:, self.d_plain :].transpose(-1, -2)), weights

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None, need: bool
    ) -> Any:
        return attend(query, key, value, mask, self.dropout, self.scale, bias, need)

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, kv_rank={self.kv_rank}"
