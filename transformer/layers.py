"""Encoder and decoder layers: sublayers with residual connections and LayerNorm (documents 000 section 2.8 and 002)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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


class Layer(nn.Module):
    """Self-attention, cross-attention where given, feed-forward, each inside a residual connection with a norm.

    norm: makes one of the norms. The sublayers are any modules of these shapes; the named layers below choose them.
    """

    def __init__(
        self,
        self_attn: nn.Module,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        dropout: float = 0.0,
        norm_first: bool = False,
        cross_attn: MultiHeadAttention | None = None,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.self_attn = self_attn
        self.cross_attn = cross_attn
        self.feed_forward = feed_forward
        self.norm1, self.norm2 = norm(), norm()
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        if cross_attn is not None:
            self.norm3, self.dropout3 = norm(), nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        memory_cache: MemoryCache | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """x ``(B, T, d_model)`` to the same; mask and bias of the self-attention to ``(B, H, T, T)``.

        memory ``(B, Ts, d_model)`` is what the cross-attention looks at, memory_mask to ``(B, H, T, Ts)``.
        """
        first = self.norm_first
        x = residual(x, lambda y: self.self_attn(y, y, y, mask, cache, bias=bias), self.norm1, self.dropout1, first)
        if self.cross_attn is None:
            return residual(x, self.feed_forward, self.norm2, self.dropout2, first)
        cross = partial(self.cross_attn, key=memory, value=memory, mask=memory_mask, cache=memory_cache)
        x = residual(x, cross, self.norm2, self.dropout2, first)
        return residual(x, self.feed_forward, self.norm3, self.dropout3, first)

    def extra_repr(self) -> str:
        return f"norm_first={self.norm_first}"


class SandwichLayer(Layer):
    """A norm before and one after each sublayer: x + norm3(attention(norm1(x))), then so with the network (Gemma 2)."""

    def __init__(
        self,
        self_attn: nn.Module,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        dropout: float = 0.0,
        norm_first: bool = True,
    ) -> None:
        super().__init__(self_attn, feed_forward, norm, dropout, norm_first)
        self.norm3, self.norm4 = norm(), norm()

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:  # type: ignore[override]
        y = self.norm1(x)
        x = x + self.dropout1(self.norm3(self.self_attn(y, y, y, mask, cache)))
        return x + self.dropout2(self.norm4(self.feed_forward(self.norm2(x))))


class ParallelLayer(Layer):
    """Attention and network side by side: x + attention(norm1(x)) + network(norm2(x)) (GPT-J, GPT-NeoX)."""

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:  # type: ignore[override]
        y = self.norm1(x)
        seen = self.dropout1(self.self_attn(y, y, y, mask, cache))
        return x + seen + self.dropout2(self.feed_forward(self.norm2(x)))


class OneNormLayer(Layer):
    """Attention and network side by side behind one norm: x + attention(norm1(x)) + network(norm1(x)) (Phi)."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        del self.norm2

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:  # type: ignore[override]
        y = self.norm1(x)
        return x + self.dropout1(self.self_attn(y, y, y, mask, cache)) + self.dropout2(self.feed_forward(y))


class PaperLayer(Layer):
    """The layer of the paper: attention and a feed-forward network with biases, LayerNorm after each residual sum.

    norm_first puts the norms before the sublayers instead; cross: with cross-attention.
    """

    cross = False

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        norm_first: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__(
            MultiHeadAttention(d_model, n_heads, dropout=dropout),
            FeedForward(d_model, d_ff, activation, dropout=dropout),
            lambda: nn.LayerNorm(d_model),
            dropout,
            norm_first,
            MultiHeadAttention(d_model, n_heads, dropout=dropout) if self.cross else None,
        )


class EncoderLayer(PaperLayer):
    """Self-attention, then feed-forward, each inside a residual connection with LayerNorm.

    x ``(B, T, d_model)``, mask to ``(B, H, T, T)``; returns ``(B, T, d_model)``.
    """


class DecoderLayer(PaperLayer):
    """Self-attention, cross-attention to the encoder's output, feed-forward; residual and LayerNorm around each.

    x ``(B, Tt, d_model)``, memory ``(B, Ts, d_model)``, mask to ``(B, H, Tt, Tt)`` (causal), memory_mask to
    ``(B, H, Tt, Ts)``; returns ``(B, Tt, d_model)``. caches: of the self-attention and of the cross-attention.
    """

    cross = True

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        caches: tuple[LayerCache, MemoryCache] | None = None,
    ) -> Tensor:
        own, cross = caches or (None, None)
        return super().forward(x, mask, own, memory, memory_mask, cross)
