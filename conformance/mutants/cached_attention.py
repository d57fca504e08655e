"""Mutants of attention with a key/value cache."""

from __future__ import annotations

import numpy as np

from conformance.adapters.reference.multi_head import CachedAttention
from conformance.mutants.base import mutant
from conformance.protocol import Array


@mutant(breaks=("a-prefill-needs-a-causal-mask", "an-appended-chunk-needs-a-causal-mask"))
class UnmaskedChunk(CachedAttention):
    """A call with several tokens has no causal mask (document 002's listing)."""

    def visible(self, n_query: int, n_key: int) -> Array | None:
        return None


@mutant(breaks=("an-appended-chunk-needs-a-causal-mask", "cached-steps-equal-causal-attention"))
class MaskAlignedAtTheTop(CachedAttention):
    """The causal mask is aligned with the first key instead of the last (``is_causal`` with a cache)."""

    def visible(self, n_query: int, n_key: int) -> Array | None:
        return np.tri(n_query, n_key, dtype=bool)


@mutant(breaks=("an-appended-chunk-needs-a-causal-mask",))
class NewKeysBeforeTheCache(CachedAttention):
    """New rows are put before the cached ones, so that the mask hides the wrong keys."""

    def remember(self, past: Array | None, new: Array) -> Array:
        return new if past is None else np.concatenate([new, past], axis=2)


@mutant(breaks=("cached-steps-equal-causal-attention",))
class CacheOverwritten(CachedAttention):
    """The cache holds the last call's rows only."""

    def remember(self, past: Array | None, new: Array) -> Array:
        return new
