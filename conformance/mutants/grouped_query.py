"""Mutants of grouped-query attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.multi_head import GroupedQueryAttention
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays


@mutant(
    breaks=(
        "grouped-query-attention-formula",
        "grouped-query-attention-is-multi-head-with-repeated-keys",
        "a-key-head-serves-its-group-only",
    ),
    known_as="H07",
)
class KeyHeadsTiled(GroupedQueryAttention):
    """Key/value heads are tiled (0, 1, 0, 1) instead of repeated (0, 0, 1, 1)."""

    def expand(self, x: Array) -> Array:
        return np.tile(x, (1, self.n_heads // x.shape[1], 1, 1))


@mutant(breaks=("grouped-query-attention-formula", "a-key-head-serves-its-group-only"))
class FirstKeyHeadServesAll(GroupedQueryAttention):
    """The first key/value head serves every query head."""

    def expand(self, x: Array) -> Array:
        return np.repeat(x[:, :1], self.n_heads, axis=1)


@mutant(breaks=("grouped-query-attention-is-multi-head-with-repeated-keys",))
class KeyHeadsAveraged(GroupedQueryAttention):
    """All key/value heads are averaged into one when there are fewer than query heads."""

    def expand(self, x: Array) -> Array:
        shared = x.mean(1, keepdims=True) if x.shape[1] < self.n_heads else x
        return super().expand(shared)


@mutant(breaks=("grouped-query-attention-formula",))
class RepeatedAlongTheSequence(GroupedQueryAttention):
    """Keys are repeated along the sequence and then cut into heads."""

    def expand(self, x: Array) -> Array:
        group = self.n_heads // x.shape[1]
        return np.repeat(x, group, axis=2).reshape(x.shape[0], self.n_heads, x.shape[2], x.shape[3])


@mutant(breaks=("grouped-query-attention-formula",))
class GroupedBiasesIgnored(GroupedQueryAttention):
    """The biases of the projections are never added."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({name: w for name, w in p.items() if name.endswith("weight")}, **inputs)


@mutant(breaks=("one-key-head-is-multi-query-attention",))
class OneKeyHeadSplitIntoHeads(GroupedQueryAttention):
    """A single key/value head is scrambled while it is shared: each query head gets it turned by its number."""

    def expand(self, x: Array) -> Array:
        shared = super().expand(x)
        if x.shape[1] > 1:
            return shared
        return np.stack([np.roll(shared[:, i], i, axis=-1) for i in range(self.n_heads)], 1)


@mutant(breaks=("key-heads-must-divide-the-heads",))
class UnevenGroups(GroupedQueryAttention):
    """Groups of unequal size are accepted: the last key/value head takes the rest."""

    def validate(self) -> None:
        pass

    def expand(self, x: Array) -> Array:
        group = self.n_heads // x.shape[1]
        owner = np.minimum(np.arange(self.n_heads) // max(group, 1), x.shape[1] - 1)
        return x[:, owner]


@mutant(breaks=("grouped-query-attention-has-fewer-parameters",))
class KeyProjectionsKeepFullWidth(GroupedQueryAttention):
    """W_K and W_V keep the full width; the surplus rows are never used."""

    def initialise(self) -> Arrays:
        weights, d = super().initialise(), self.config["d_model"]
        return {**weights, **{name: np.zeros((d, d), self.dtype) for name in ("k_proj.weight", "v_proj.weight")}}


@mutant(breaks=("grouped-query-attention-obeys-its-mask",))
class MaskReachesTheFirstGroup(GroupedQueryAttention):
    """The mask reaches the query heads of the first group only."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        if mask is not None:
            first = np.arange(self.n_heads) < self.n_heads // self.n_kv_heads
            mask = mask | ~first[:, None, None]
        return super().attend(query, key, value, mask)


@mutant(breaks=("grouped-query-attention-formula",))
class ScaledByTheGroup(GroupedQueryAttention):
    """The scale counts the width of a whole group."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return super().attend(query / np.sqrt(self.n_heads / self.n_kv_heads), key, value, mask)
