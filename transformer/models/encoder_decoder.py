"""The encoder-decoder of the paper, as document 002 builds it (Vaswani et al. 2017; document 000 section 2.9)."""

from __future__ import annotations

import math
from typing import Any

from minigrad import Tensor, nn
from transformer.cache import KVCache
from transformer.ids import check_ids
from transformer.layers import DecoderLayer, EncoderLayer
from transformer.masks import padding_mask, visible_mask
from transformer.models.base import Seq2Seq
from transformer.places import Start
from transformer.positions import SinusoidalPositions


class Encoder(nn.Module):
    """n_layers encoder layers, then a LayerNorm if `final_norm`. x ``(B, T, d_model)``, mask to ``(B, H, T, T)``."""

    def __init__(
        self, d_model: int, n_heads: int, d_ff: int, n_layers: int, dropout: float = 0.1, norm_first: bool = False,
        final_norm: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model) if final_norm else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(nn.Module):
    """n_layers decoder layers over the same memory, then a LayerNorm if `final_norm`. Inputs as DecoderLayer's."""

    def __init__(
        self, d_model: int, n_heads: int, d_ff: int, n_layers: int, dropout: float = 0.1, norm_first: bool = False,
        final_norm: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model) if final_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        for i, layer in enumerate(self.layers):
            caches: Any = None if cache is None else (cache.layers[i], cache.memory[i])
            x = layer(x, memory, mask, memory_mask, caches)
        return self.norm(x)


class EncoderDecoder(Seq2Seq):
    """From token ids to logits: embeddings times sqrt(d_model) plus sinusoid, both stacks, an output projection.

    Post-norm layers with a LayerNorm after each stack; every matrix starts Xavier-uniform, the padding rows of both
    embeddings at zero, where they stay. Padding is hidden from every attention, the future from the target's.
    """

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        d_model: int = 512,
        n_heads: int = 8,
        n_layers: int = 6,
        d_ff: int = 2048,
        max_len: int = 512,
        dropout: float = 0.1,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        self.d_model, self.n_layers, self.max_len, self.pad_id = d_model, n_layers, max_len, pad_id
        self.src_embedding = nn.Embedding(src_vocab, d_model, padding_idx=pad_id)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model, padding_idx=pad_id)
        self.positions = SinusoidalPositions(d_model, max_len, dropout)
        self.encoder = Encoder(d_model, n_heads, d_ff, n_layers, dropout)
        self.decoder = Decoder(d_model, n_heads, d_ff, n_layers, dropout)
        self.output_proj = nn.Linear(d_model, tgt_vocab)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        self.src_embedding.zero_padding()
        self.tgt_embedding.zero_padding()

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """src ``(B, Ts)`` int to the memory ``(B, Ts, d_model)`` and its mask ``(B, 1, 1, Ts)``."""
        check_ids(src, "src")
        mask = padding_mask(src, self.pad_id)
        x = self.positions(self.src_embedding(src) * math.sqrt(self.d_model))
        return self.encoder(x, mask), mask

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor, cache: KVCache | None = None) -> Tensor:
        """tgt ``(B, Tt)`` int to logits ``(B, Tt, tgt_vocab)``; with a cache, tgt are the tokens after the cached."""
        check_ids(tgt, "tgt")
        start: Start = 0 if cache is None else cache.length
        real = tgt != self.pad_id
        if cache is not None:
            real = cache.see(real)
        causal = visible_mask(tgt.shape[1], start, device=tgt.device)
        mask = real.unsqueeze(1).unsqueeze(1) & causal
        x = self.positions(self.tgt_embedding(tgt) * math.sqrt(self.d_model), start)
        return self.output_proj(self.decoder(x, memory, mask, memory_mask, cache))
