"""Mutants of masked language modelling."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.training import MaskedTokens
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays

SHARES = "masked-language-models-corrupt-by-80-10-10"
SELECTED = "masked-language-models-predict-selected-tokens-only"
RATE = "masked-language-models-select-a-share-of-the-tokens"


class _Corruption(MaskedTokens):
    """The corruption with its parts to override."""

    def selected(self, ids: Array, rng: np.random.Generator) -> Array:
        return (rng.random(ids.shape) < self.config["rate"]) & ~np.isin(ids, self.config["special_ids"])

    def redrawn(self, selected: Array, fate: Array, rng: np.random.Generator) -> Array:
        """Which tokens become random ones."""
        return selected & (fate >= self.config["mask_share"]) & (fate < self.share())

    def share(self) -> float:
        return float(self.config["mask_share"] + self.config["random_share"])

    def words(self, ids: Array, rng: np.random.Generator) -> Array:
        return rng.integers(0, self.config["vocab"], ids.shape)

    def labels(self, ids: Array, given: Array, selected: Array) -> Array:
        return np.where(selected, ids, self.config["ignore_index"])

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        ids, rng = inputs["ids"], np.random.default_rng(inputs["seed"])
        selected, fate = self.selected(ids, rng), rng.random(ids.shape)
        given = np.where(self.redrawn(selected, fate, rng), self.words(ids, rng), ids)
        given = np.where(selected & (fate < self.config["mask_share"]), self.config["mask_id"], given)
        return {"out": given, "labels": self.labels(ids, given, selected)}


@mutant(breaks=(SHARES,), known_as="B01")
class MaskWrittenOverRandomWords(_Corruption):
    """[MASK] is drawn anew after the random words and written over most of them: 80, 2 and 18 percent."""

    def redrawn(self, selected: Array, fate: Array, rng: np.random.Generator) -> Array:
        return selected & (rng.random(fate.shape) < self.config["random_share"])


@mutant(breaks=(SHARES,))
class AlwaysMasked(_Corruption):
    """Every selected token becomes [MASK]."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        self.config["mask_share"] = 1.0
        return super().forward(p, **inputs)


@mutant(breaks=(SHARES,))
class NothingStays(_Corruption):
    """All selected tokens that do not become [MASK] are replaced."""

    def share(self) -> float:
        return 1.0


@mutant(breaks=(SHARES,))
class OneRandomWord(_Corruption):
    """One random word is drawn for the whole batch, among the first few of the vocabulary."""

    def words(self, ids: Array, rng: np.random.Generator) -> Array:
        return np.full_like(ids, rng.integers(2, 10))


@mutant(breaks=(RATE,))
class PaddingIsSelected(_Corruption):
    """Special tokens are selected as any other."""

    def selected(self, ids: Array, rng: np.random.Generator) -> Array:
        return rng.random(ids.shape) < self.config["rate"]


@mutant(breaks=(RATE,))
class RateFixed(_Corruption):
    """The rate is a quarter, whatever was asked for."""

    def selected(self, ids: Array, rng: np.random.Generator) -> Array:
        return (rng.random(ids.shape) < 0.25) & ~np.isin(ids, self.config["special_ids"])


@mutant(breaks=(RATE,))
class SeedIgnored(_Corruption):
    """Every epoch masks the same places."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, **{**inputs, "seed": 0})


@mutant(breaks=(SELECTED,))
class EveryTokenIsALabel(_Corruption):
    """The loss counts all tokens: copying dominates it."""

    def labels(self, ids: Array, given: Array, selected: Array) -> Array:
        return ids


@mutant(breaks=(SELECTED,))
class LabelsAreTheCorruption(_Corruption):
    """The labels are what the model is given."""

    def labels(self, ids: Array, given: Array, selected: Array) -> Array:
        return np.where(selected, given, self.config["ignore_index"])


@mutant(breaks=(SELECTED,))
class OnlyMasksAreLabels(_Corruption):
    """Labels are kept where [MASK] stands alone: random tokens are not to be predicted."""

    def labels(self, ids: Array, given: Array, selected: Array) -> Array:
        return np.where(given == self.config["mask_id"], ids, self.config["ignore_index"])
