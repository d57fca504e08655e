"""Mutants of decoding with a KV cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.models import CachedDecoderLM
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference.layers import Params
from conformance.reference.models import DecoderLM, Past

EVERY_WAY = (
    "cached-steps-equal-the-full-pass",
    "prefill-is-causal",
    "chunks-extend-the-cache-causally",
    "steps-after-a-prefill-equal-the-full-pass",
)


class _OnlyQueriesShifted(DecoderLM):
    def rotate(self, query: Array, key: Array, start: int) -> tuple[Array, Array]:
        return super().rotate(query, query, start)[0], super().rotate(key, key, 0)[1]


@mutant(breaks=EVERY_WAY, known_as="R04")
class OnlyQueriesGetTheOffset(CachedDecoderLM):
    """New keys are rotated from position 0, new queries from their own."""

    formulas = _OnlyQueriesShifted


class _NoOffset(DecoderLM):
    def rotate(self, query: Array, key: Array, start: int) -> tuple[Array, Array]:
        return super().rotate(query, key, 0)


@mutant(breaks=EVERY_WAY)
class CacheForgetsPositions(CachedDecoderLM):
    """Every call rotates from position 0."""

    formulas = _NoOffset


class _OffsetOneLess(DecoderLM):
    def rotate(self, query: Array, key: Array, start: int) -> tuple[Array, Array]:
        return super().rotate(query, key, max(start - 1, 0))


@mutant(breaks=EVERY_WAY)
class OffsetOffByOne(CachedDecoderLM):
    """The offset is the position of the last cached token, not of the next."""

    formulas = _OffsetOneLess


class _TopLeft(DecoderLM):
    def visible(self, n_query: int, n_key: int) -> Array:
        return np.tri(n_query, n_key, dtype=bool)


@mutant(breaks=EVERY_WAY, known_as="K02")
class CausalMaskTopLeft(CachedDecoderLM):
    """The causal mask is aligned at the first key: a new token sees the oldest key only."""

    formulas = _TopLeft


class _NewFirst(DecoderLM):
    def remember(self, past: Array | None, new: Array) -> Array:
        return new if past is None else np.concatenate([new, past], axis=2)


@mutant(breaks=("chunks-extend-the-cache-causally",), known_as="K04")
class NewKeysFirst(CachedDecoderLM):
    """New keys are placed before the cached ones."""

    formulas = _NewFirst


class _KeptExpanded(DecoderLM):
    def remember(self, past: Array | None, new: Array) -> Array:
        return super().remember(past, super().share(new))

    def share(self, heads: Array) -> Array:
        return heads


@mutant(breaks=("cache-holds-the-shared-heads-only",), known_as="K06")
class CacheKeptExpanded(CachedDecoderLM):
    """The cache holds every key/value head once for each query head that it serves."""

    formulas = _KeptExpanded


class _PromptUnmasked(DecoderLM):
    def visible(self, n_query: int, n_key: int) -> Array:
        return np.ones((n_query, n_key), bool)


@mutant(
    breaks=(
        "prefill-is-causal",
        "chunks-extend-the-cache-causally",
        "steps-after-a-prefill-equal-the-full-pass",
    )
)
class CachedCallsUnmasked(CachedDecoderLM):
    """No causal mask: right for single steps, and every longer call sees its own future."""

    formulas = _PromptUnmasked


class _ChunkUnmasked(DecoderLM):
    def visible(self, n_query: int, n_key: int) -> Array:
        return super().visible(n_query, n_key) | (n_query < n_key)


@mutant(breaks=("chunks-extend-the-cache-causally",))
class ChunkUnmasked(CachedDecoderLM):
    """The mask is built for the prefill only: a later chunk sees its own future."""

    formulas = _ChunkUnmasked


class _Forgets(DecoderLM):
    def remember(self, past: Array | None, new: Array) -> Array:
        return new if past is None or past.shape[2] >= 3 else np.concatenate([past, new], axis=2)


@mutant(breaks=("cached-steps-equal-the-full-pass", "cache-holds-the-shared-heads-only"))
class CacheStartsAfresh(CachedDecoderLM):
    """A cache of three tokens counts as full, and the next call starts a new one."""

    formulas = _Forgets


class _CacheOfTheFirstLayer(DecoderLM):
    def step(self, p: Params, ids: Array, cache: Any = None) -> tuple[Array, list[Past]]:
        return super().step(p, ids, None if cache is None else [cache[0]] * len(cache))


@mutant(breaks=EVERY_WAY)
class LayersShareOneCache(CachedDecoderLM):
    """Every layer reads the cache of the first."""

    formulas = _CacheOfTheFirstLayer


@mutant(breaks=EVERY_WAY)
class CacheSurvivesThePrompt(CachedDecoderLM):
    """The cache of one prompt is still there when the next one begins."""

    left: Any = None

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        ids, steps = inputs["ids"], self.steps(inputs["ids"])
        logits, start = [], 0
        for size in inputs["chunks"]:
            out, self.left = steps.step(p, ids[:, start : start + size], self.left)
            logits.append(out)
            start += size
        return {"out": np.concatenate(logits, axis=1)}
