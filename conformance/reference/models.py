"""The documents' two models: the full encoder-decoder and the decoder-only model with its KV cache
(document 002 complete implementation, GPT and KV-cache sections; 000 section 2.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.reference import feed_forward as ff
from conformance.reference.attention import attention, causal_mask
from conformance.reference.layers import Layers, Params, layers_of, part
from conformance.reference.norms import rms_norm
from conformance.reference.positions import rope, sinusoid

Array = np.ndarray
Past = tuple[Array, Array] | None
"""The keys and values ``(B, n_kv_heads, T, d_head)`` that one layer remembers."""


def split_heads(x: Array, n_heads: int) -> Array:
    """``(B, T, n_heads * d_head)`` to ``(B, n_heads, T, d_head)``."""
    b, t, width = x.shape
    return x.reshape(b, t, n_heads, width // n_heads).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """``(B, H, T, d_head)`` to ``(B, T, H * d_head)``."""
    b, h, t, d_head = x.shape
    return x.swapaxes(1, 2).reshape(b, t, h * d_head)


@dataclass(frozen=True)
class EncoderDecoder(Layers):
    """From token ids to logits. Padding is hidden from every attention, the future from the target's."""

    pad_id: int = 0

    def embed(self, table: Array, ids: Array) -> Array:
        """Embedding times sqrt(d_model), plus the sinusoid."""
        d = table.shape[1]
        return table[ids] * d**0.5 + sinusoid(np.arange(ids.shape[1]), d).astype(table.dtype)

    def source_mask(self, src: Array) -> Array:
        """``(B, 1, 1, Ts)``: which source tokens are real."""
        return (src != self.pad_id)[:, None, None, :]

    def target_mask(self, tgt: Array) -> Array:
        """``(B, 1, Tt, Tt)``: real tokens that are not in the future."""
        return (tgt != self.pad_id)[:, None, None, :] & causal_mask(tgt.shape[1])

    def encode(self, p: Params, src: Array) -> Array:
        return self.encoder(part(p, "encoder"), self.embed(p["src_embedding.weight"], src), self.source_mask(src))

    def decode(self, p: Params, tgt: Array, memory: Array, memory_mask: Array) -> Array:
        x = self.embed(p["tgt_embedding.weight"], tgt)
        return self.decoder(part(p, "decoder"), x, memory, self.target_mask(tgt), memory_mask)

    def head(self, p: Params, x: Array) -> Array:
        return ff.linear(x, p["output_proj.weight"], p["output_proj.bias"])

    def logits(self, p: Params, src: Array, tgt: Array) -> Array:
        """``(B, Tt, tgt_vocab)``."""
        return self.head(p, self.decode(p, tgt, self.encode(p, src), self.source_mask(src)))


@dataclass(frozen=True)
class DecoderLM:
    """Pre-RMSNorm layers of causal grouped-query attention with RoPE and SwiGLU; a whole pass is one chunk."""

    n_heads: int
    n_kv_heads: int
    pairing: str | None = "interleaved"
    eps: float = 1e-6

    def embed(self, p: Params, ids: Array) -> Array:
        return p["token_embedding.weight"][ids]

    def norm(self, p: Params, x: Array) -> Array:
        return rms_norm(x, p["weight"], self.eps)

    def rotate(self, query: Array, key: Array, start: int) -> tuple[Array, Array]:
        """RoPE on queries and keys whose first row stands at position `start`."""
        if self.pairing is None:
            return query, key
        return rope(query, start, pairing=self.pairing), rope(key, start, pairing=self.pairing)

    def remember(self, past: Array | None, new: Array) -> Array:
        """The cache with the new rows at its end."""
        return new if past is None else np.concatenate([past, new], axis=2)

    def visible(self, n_query: int, n_key: int) -> Array:
        """``(n_query, n_key)``: the queries are the last rows of a causal mask over all keys."""
        return causal_mask(n_key)[n_key - n_query :]

    def share(self, heads: Array) -> Array:
        """Each key/value head for its group of consecutive query heads."""
        return np.repeat(heads, self.n_heads // self.n_kv_heads, axis=1)

    def attention(self, p: Params, x: Array, past: Past) -> tuple[Array, Past]:
        start = 0 if past is None else past[0].shape[2]
        query = split_heads(ff.linear(x, p["q_proj.weight"]), self.n_heads)
        key = split_heads(ff.linear(x, p["k_proj.weight"]), self.n_kv_heads)
        value = split_heads(ff.linear(x, p["v_proj.weight"]), self.n_kv_heads)
        query, key = self.rotate(query, key, start)
        keys = self.remember(None if past is None else past[0], key)
        values = self.remember(None if past is None else past[1], value)
        mask = self.visible(query.shape[2], keys.shape[2])
        out, _ = attention(query, self.share(keys), self.share(values), mask)
        return ff.linear(merge_heads(out), p["out_proj.weight"]), (keys, values)

    def feed_forward(self, p: Params, x: Array) -> Array:
        return ff.swiglu(p, x)

    def layer(self, p: Params, x: Array, past: Past) -> tuple[Array, Past]:
        attended, past = self.attention(part(p, "attn"), self.norm(part(p, "attn_norm"), x), past)
        x = x + attended
        return x + self.feed_forward(part(p, "ffn"), self.norm(part(p, "ffn_norm"), x)), past

    def head(self, p: Params, x: Array) -> Array:
        """The embedding's own matrix unless there is a separate one."""
        return ff.linear(x, p.get("lm_head.weight", p["token_embedding.weight"]))

    def step(self, p: Params, ids: Array, cache: Sequence[Past] | None = None) -> tuple[Array, list[Past]]:
        """Logits of the new tokens ``(B, T, vocab)`` and the cache with them."""
        x, grown = self.embed(p, ids), []
        for i, layer in enumerate(layers_of(p)):
            x, past = self.layer(layer, x, None if cache is None else cache[i])
            grown.append(past)
        return self.head(p, self.norm(part(p, "norm"), x)), grown

    def logits(self, p: Params, ids: Array) -> Array:
        """``(B, T, vocab)``."""
        return self.step(p, ids)[0]

    def cached_logits(self, p: Params, ids: Array, chunks: Sequence[int]) -> tuple[Array, int]:
        """The logits of one call per chunk, concatenated, and the bytes that the last cache holds."""
        cache: list[Past] | None = None
        parts, start = [], 0
        for size in chunks:
            logits, cache = self.step(p, ids[:, start : start + size], cache)
            parts.append(logits)
            start += size
        held = sum(array.nbytes for past in cache or () if past is not None for array in past)
        return np.concatenate(parts, axis=1), held
