"""Encoder and decoder layers: sublayers with residual connections and LayerNorm (documents 000 section 2.8 and 002)."""

from __future__ import annotations

from collections.abc import Callable

from minigrad import Tensor, nn
from transformer.attention import MultiHeadAttention
from transformer.cache import LayerCache, MemoryCache
from transformer.feedforward import FeedForward


def residual(
    x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module, dropout: nn.Module, norm_first: bool = False
) -> Tensor:
    """norm(x + dropout(sublayer(x))), the paper's; or x + dropout(sublayer(norm(x))) where `norm_first`."""
    if norm_first:
        return x + dropout(sublayer(norm(x)))
    return norm(x + dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside a residual connection with LayerNorm.

    x ``(B, T, d_model)``, mask to ``(B, H, T, T)``; returns ``(B, T, d_model)``.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        norm_first: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.self_attn = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff, activation, dropout=dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = residual(x, lambda y: self.self_attn(y, y, y, mask), self.norm1, self.dropout1, self.norm_first)
        return residual(x, self.feed_forward, self.norm2, self.dropout2, self.norm_first)

    def extra_repr(self) -> str:
        return f"norm_first={self.norm_first}"


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention to the encoder's output, feed-forward; residual and LayerNorm around each.

    x ``(B, Tt, d_model)``, memory ``(B, Ts, d_model)``, mask to ``(B, H, Tt, Tt)`` (causal), memory_mask to
    ``(B, H, Tt, Ts)``; returns ``(B, Tt, d_model)``. caches: of the self-attention and of the cross-attention.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        norm_first: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.self_attn = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.cross_attn = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff, activation, dropout=dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)
        self.dropout3 = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        caches: tuple[LayerCache, MemoryCache] | None = None,
    ) -> Tensor:
        own, cross = caches or (None, None)
        first = self.norm_first
        x = residual(x, lambda y: self.self_attn(y, y, y, mask, own), self.norm1, self.dropout1, first)
        x = residual(
            x, lambda y: self.cross_attn(y, memory, memory, memory_mask, cross), self.norm2, self.dropout2, first
        )
        return residual(x, self.feed_forward, self.norm3, self.dropout3, first)

    def extra_repr(self) -> str:
        return f"norm_first={self.norm_first}"
