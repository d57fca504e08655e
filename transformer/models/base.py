"""What models of one kind share: a decoder's pass from ids to logits with its cache, and an encoder-decoder's calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import minigrad as mg
from minigrad import Tensor, nn
from transformer.cache import KVCache
from transformer.ids import check_ids
from transformer.masks import visible_mask
from transformer.places import Start, end, rows


class CausalLM(nn.Module):
    """Next-token logits: embedding, layers, norm, head. A model assigns these parts and says how it embeds.

    windows: of each layer, if they are not all None: its tokens attend to the last so many only, themselves included.
    """

    max_len: int
    windows: Sequence[int | None] = ()
    token_embedding: nn.Embedding
    layers: nn.ModuleList
    norm: nn.Module
    lm_head: nn.Linear

    def embed(self, ids: Tensor, start: Start, positions: Tensor | None) -> Tensor:
        """ids ``(B, T)`` of the positions `start`, ... (or `positions` ``(B, T)``) to ``(B, T, d_model)``."""
        return self.token_embedding(ids)

    def forward(self, ids: Tensor, cache: KVCache | None = None, real: Tensor | None = None) -> Tensor:
        """ids ``(B, T)`` int to logits ``(B, T, vocab)``. With a cache, ids are the tokens after the cached ones.

        real bool ``(B, T)``: which tokens are no padding; the first real token of a row then stands at position 0, so
        that rows may be padded on the left. Raises ValueError for ids that are not (B, T) and for more than max_len
        tokens.
        """
        return self.logits(self.hidden(ids, cache, real))

    def hidden(self, ids: Tensor, cache: KVCache | None = None, real: Tensor | None = None) -> Tensor:
        """The hidden states ``(B, T, d_model)`` of which `logits` makes logits; arguments as forward's."""
        check_ids(ids)
        n = ids.shape[1]
        start: Start = 0 if cache is None else cache.length
        if end(start, n) > self.max_len:
            raise ValueError(f"{end(start, n)} tokens do not fit max_len {self.max_len}: shorten the input")
        windows = self.windows or [None] * len(self.layers)
        masks = {window: self._mask(n, start, window, ids.device) for window in set(windows)}
        if cache is not None and (real is not None or cache.real is not None):
            real = cache.see(mg.ones(*ids.shape, dtype=mg.bool, device=ids.device) if real is None else real)
        positions = None
        if real is not None:
            keys = real.unsqueeze(1).unsqueeze(1)
            masks = {window: keys if mask is None else keys & mask for window, mask in masks.items()}
            positions = rows((real.long().cumsum(1) - 1).clamp(min=0), start, n, 1)
        x = self.embed(ids, start, positions)
        for i, layer in enumerate(self.layers):
            x = layer(x, masks[windows[i]], None if cache is None else cache.layers[i])
        return self.norm(x)

    def logits(self, x: Tensor) -> Tensor:
        """Hidden states ``(B, T, d_model)`` to logits ``(B, T, vocab)``."""
        return self.lm_head(x)

    @staticmethod
    def _mask(n: int, start: Start, window: int | None, device: str) -> Tensor | None:
        sees_all = n == 1 and window is None and isinstance(start, int)
        return None if sees_all else visible_mask(n, start, window, device)

    def new_cache(self, max_len: int | None = None) -> KVCache:
        """An empty cache with room for max_len tokens (the model's limit unless given)."""
        return KVCache(len(self.layers), self.max_len if max_len is None else max_len)


class Seq2Seq(nn.Module):
    """An encoder-decoder: a model defines `encode` and `decode`, n_layers (of its decoder) and max_len.

    reads_ids: whether sources are token ids, and no numbers of a set shape.
    """

    reads_ids: ClassVar[bool] = True
    n_layers: int
    max_len: int

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """src ``(B, Ts)`` int to the memory ``(B, Ts, d_model)`` and its mask ``(B, 1, 1, Ts)``."""
        raise NotImplementedError

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor, cache: KVCache | None = None) -> Tensor:
        """tgt ``(B, Tt)`` int to logits ``(B, Tt, tgt_vocab)``; with a cache, tgt are the tokens after the cached."""
        raise NotImplementedError

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """src ``(B, Ts)``, tgt ``(B, Tt)`` int, padded with pad_id; returns logits ``(B, Tt, tgt_vocab)``."""
        return self.decode(tgt, *self.encode(src))

    def new_cache(self, max_len: int | None = None) -> KVCache:
        """An empty cache with room for max_len target tokens (the model's limit unless given)."""
        return KVCache(self.n_layers, self.max_len if max_len is None else max_len)
