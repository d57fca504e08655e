"""Encoder and decoder layers and their stacks (document 000 sections 2.8 and 2.9; 002 complete implementation;
Vaswani et al. 2017, 3.1).

Each step is a method of one class, so that a variant can replace one step and keep the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from conformance.reference import feed_forward as ff
from conformance.reference.multi_head import multi_head_attention
from conformance.reference.norms import layer_norm

Array = np.ndarray
Params = Mapping[str, Array]


def part(p: Params, prefix: str) -> dict[str, Array]:
    """The parameters below `prefix`, by their names there."""
    start = len(prefix) + 1
    return {name[start:]: value for name, value in p.items() if name.startswith(prefix + ".")}


def layers_of(p: Params) -> Iterator[dict[str, Array]]:
    """The parameters of ``layers.0``, ``layers.1``, ... in order."""
    count = len({name.split(".")[1] for name in p if name.startswith("layers.")})
    for i in range(count):
        yield part(p, f"layers.{i}")


@dataclass(frozen=True)
class Layers:
    """Layers and stacks with LayerNorm after (the documents') or before (`norm_first`) each sublayer.

    `drop` is applied to each sublayer's output before it is added to the residual. `activation` is the
    feed-forward network's, `eps` the norms'.
    """

    n_heads: int
    norm_first: bool = False
    drop: Callable[[Array], Array] = ff.unchanged
    activation: str = "relu"
    eps: float = 1e-5

    def norm(self, p: Params, x: Array) -> Array:
        return layer_norm(x, p["weight"], p["bias"], self.eps)

    def attention(self, p: Params, query: Array, memory: Array, mask: Array | None) -> Array:
        """Multi-head attention: queries from `query`, keys and values from `memory`."""
        return multi_head_attention(p, query, memory, memory, self.n_heads, mask=mask)[0]

    def feed_forward(self, p: Params, x: Array) -> Array:
        return ff.feed_forward(p, x, self.activation)

    def residual(self, p_norm: Params, x: Array, sublayer: Callable[[Array], Array]) -> Array:
        """LayerNorm(x + sublayer(x)), or x + sublayer(LayerNorm(x)) if `norm_first`."""
        if self.norm_first:
            return x + self.drop(sublayer(self.norm(p_norm, x)))
        return self.norm(p_norm, x + self.drop(sublayer(x)))

    def encoder_layer(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        """Self-attention, then feed-forward."""
        x = self.residual(part(p, "norm1"), x, lambda y: self.attention(part(p, "self_attn"), y, y, mask))
        return self.residual(part(p, "norm2"), x, lambda y: self.feed_forward(part(p, "feed_forward"), y))

    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        """Self-attention, cross-attention to `memory`, then feed-forward."""
        x = self.residual(part(p, "norm1"), x, lambda y: self.attention(part(p, "self_attn"), y, y, mask))
        x = self.residual(part(p, "norm2"), x, lambda y: self.attention(part(p, "cross_attn"), y, memory, memory_mask))
        return self.residual(part(p, "norm3"), x, lambda y: self.feed_forward(part(p, "feed_forward"), y))

    def encoder(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        """Every layer in order, then the final norm if there is one."""
        for layer in layers_of(p):
            x = self.encoder_layer(layer, x, mask)
        return self.final_norm(p, x)

    def decoder(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        """Every layer in order, each with the same `memory`, then the final norm if there is one."""
        for layer in layers_of(p):
            x = self.decoder_layer(layer, x, memory, mask, memory_mask)
        return self.final_norm(p, x)

    def final_norm(self, p: Params, x: Array) -> Array:
        return self.norm(part(p, "norm"), x) if "norm.weight" in p else x
