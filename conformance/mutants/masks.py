"""Mutants of the masks: in attention, and the causal and padding masks themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.attention import Attention, CausalMask, PaddingMask
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays

# --- what a mask does -----------------------------------------------------------------------------


@mutant(breaks=("masked-attention-is-attention-over-visible-keys", "hidden-keys-have-weight-zero"), known_as="A07")
class MaskAfterSoftmax(Attention):
    """The mask multiplies the weights after the softmax, without renormalising."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        weights = super().weigh(scores, None)
        return weights if mask is None else weights * mask


@mutant(breaks=("hidden-keys-have-weight-zero",), known_as="A10")
class MaskFillIsMinusTen(Attention):
    """Hidden scores are set to -10."""

    fill = -10.0

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return super().weigh(scores if mask is None else np.where(mask, scores, self.fill), None)


@mutant(breaks=("hidden-keys-have-weight-zero",))
class MaskFillIsMinusTenThousand(MaskFillIsMinusTen):
    """Hidden scores are set to -10000, which low visible scores undercut."""

    fill = -1e4


@mutant(breaks=("hidden-keys-have-weight-zero", "mask-true-means-visible"))
class MaskAddedAsNumber(Attention):
    """The 0/1 mask is added to the scores."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return super().weigh(scores if mask is None else scores + mask, None)


@mutant(breaks=("hidden-keys-have-weight-zero", "masking-keeps-the-ratio-of-visible-weights"))
class MaskMultipliesScores(Attention):
    """The 0/1 mask multiplies the scores: hidden ones become 0."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return super().weigh(scores if mask is None else scores * mask, None)


@mutant(breaks=("mask-true-means-visible", "masked-attention-is-attention-over-visible-keys"), known_as="A11")
class MaskInverted(Attention):
    """True hides."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return super().weigh(scores, None if mask is None else ~np.broadcast_to(mask, scores.shape))


@mutant(breaks=("masked-attention-is-attention-over-visible-keys",))
class MaskZeroesKeys(Attention):
    """Hidden keys and values are set to zero, but still take part in the softmax."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        mask = inputs.pop("mask", None)
        if mask is not None:
            pairs = np.broadcast_to(mask, (*inputs["query"].shape[:-1], inputs["key"].shape[-2]))
            shown = np.swapaxes(np.any(pairs, -2, keepdims=True), -1, -2)
            inputs = {**inputs, "key": inputs["key"] * shown, "value": inputs["value"] * shown}
        return super().forward(p, **inputs)


@mutant(breaks=("mask-broadcasts-over-heads-and-queries",))
class MaskOfTheFirstSequence(Attention):
    """The mask of the first sequence serves the whole batch."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return super().weigh(scores, None if mask is None else np.broadcast_to(mask, scores.shape)[:1])


@mutant(breaks=("mask-broadcasts-over-heads-and-queries",))
class MaskOfTheFirstHeadOnly(Attention):
    """The mask reaches the first head; the others see everything."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        if mask is not None:
            mask = np.broadcast_to(mask, scores.shape).copy()
            mask[:, 1:] = True
        return super().weigh(scores, mask)


@mutant(breaks=("mask-broadcasts-over-heads-and-queries",))
class MaskReadPerHead(Attention):
    """A mask of one per sequence is read as one per head where the numbers allow it."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        if mask is not None and mask.ndim == 4 and mask.shape[0] == scores.shape[1] and mask.shape[1] == 1:
            mask = np.swapaxes(mask, 0, 1)
        return super().weigh(scores, mask)


@mutant(breaks=("mask-broadcasts-over-heads-and-queries",))
class MaskOnQueries(Attention):
    """A mask over keys is applied to the query axis when the two lengths agree."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        if mask is not None and mask.shape[-2] == 1 and scores.shape[-1] == scores.shape[-2]:
            mask = np.swapaxes(mask, -1, -2)
        return super().weigh(scores, mask)


@mutant(breaks=("mask-broadcasts-over-heads-and-queries",))
class MaskRepeatedInHeadOrder(Attention):
    """Scores are flattened to (batch, head) rows, the mask is tiled in (head, batch) order."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        if mask is None or mask.ndim < 4 or mask.shape[0] == 1:
            return super().weigh(scores, mask)
        rows = np.broadcast_to(mask[:, 0], (scores.shape[0], *scores.shape[2:]))
        tiled = np.tile(rows, (scores.shape[1], 1, 1)).reshape(scores.shape)
        return super().weigh(scores, tiled)


@mutant(breaks=("one-mask-serves-padding-and-causality",))
class OneMaskForAllQueries(Attention):
    """A key hidden from any query is hidden from all of them."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        if mask is not None and mask.shape[-2] > 1:
            mask = mask & mask[..., -1:, :]
            mask = np.broadcast_to(mask.any(-2, keepdims=True), mask.shape)
        return super().weigh(scores, mask)


@mutant(breaks=("a-mask-adds-to-the-causal-option",))
class CausalOverwritesTheMask(Attention):
    """With the causal option the given mask is forgotten."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        if self.config["causal"]:
            inputs.pop("mask", None)
        return super().forward(p, **inputs)


@mutant(breaks=("a-mask-adds-to-the-causal-option",))
class MaskOverwritesCausality(Attention):
    """A given mask replaces the causal one."""

    def causal(self, n_query: int, n_key: int) -> Array:
        return np.ones((n_query, n_key), bool) if self.masked else super().causal(n_query, n_key)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        self.masked = inputs.get("mask") is not None
        return super().forward(p, **inputs)


@mutant(breaks=("hidden-keys-get-no-gradient",))
class HiddenKeysGetGradient(Attention):
    """The backward pass forgets the mask."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        return super().vjp({name: array for name, array in inputs.items() if name != "mask"}, cotangent)


@mutant(breaks=("a-row-without-keys-does-not-poison-gradients",))
class BlindRowPoisonsGradients(Attention):
    """The gradient of -inf minus -inf is NaN, and 0 times NaN spreads it over the sequence."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradients, rest = super().vjp(inputs, cotangent)
        if "mask" in inputs and not inputs["mask"].any(-1).all():
            gradients = {name: np.full_like(g, np.nan) for name, g in gradients.items()}
        return gradients, rest


@mutant(breaks=("a-row-without-keys-is-a-convention",))
class BlindRowSeesEverything(Attention):
    """A row without keys is treated as unmasked."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return super().weigh(scores, None if mask is None else mask | ~mask.any(-1, keepdims=True))


@mutant(breaks=("a-row-without-keys-is-a-convention",))
class BlindRowSpoilsItsSequence(Attention):
    """One row without keys makes its whole sequence NaN."""

    attributes = {"masked_row": "nan"}

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        weights = super().weigh(scores, mask)
        return np.where((weights.sum(-1) == 0).any((-2, -1), keepdims=True)[..., None], np.nan, weights)


@mutant(breaks=("a-row-without-keys-is-a-convention",))
class BlindRowIsNotAsDeclared(Attention):
    """Declared to give 0, a row without keys gives NaN."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        weights = super().weigh(scores, mask)
        return np.where(weights.sum(-1, keepdims=True) == 0, np.nan, weights)


@mutant(breaks=("mask-true-means-visible",))
class MaskRemembered(Attention):
    """Without a mask the one of the last call is used again."""

    last: Array | None = None

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        self.last = inputs.get("mask", self.last)
        return super().forward(p, **{**inputs, "mask": self.last})


# --- causality ------------------------------------------------------------------------------------


@mutant(breaks=("causal-option-hides-the-future",), known_as="A14")
class CausalHidesSelf(Attention):
    """The causal diagonal is shifted down: a position does not see itself."""

    def causal(self, n_query: int, n_key: int) -> Array:
        return super().causal(n_query, n_key) & ~np.eye(n_query, n_key, n_key - n_query, dtype=bool)


@mutant(breaks=("causal-option-hides-the-future",))
class CausalSeesNext(Attention):
    """The causal diagonal is shifted up: a position sees the next one."""

    def causal(self, n_query: int, n_key: int) -> Array:
        return np.tri(n_query, n_key, 1 + n_key - n_query, dtype=bool)


@mutant(breaks=("causal-option-hides-the-future",))
class CausalOnlyInTraining(Attention):
    """Evaluation switches the causal mask off."""

    def causal(self, n_query: int, n_key: int) -> Array:
        return super().causal(n_query, n_key) if self.training else np.ones((n_query, n_key), bool)


@mutant(breaks=("causal-option-hides-the-future",))
class CausalLostWithDropout(Attention):
    """The path that handles dropout forgets the causal mask."""

    def causal(self, n_query: int, n_key: int) -> Array:
        return np.ones((n_query, n_key), bool) if self.config["dropout"] else super().causal(n_query, n_key)


@mutant(breaks=("causal-option-hides-the-future",))
class CausalMaskOfTheFirstLength(Attention):
    """The causal mask is made at the first call and never again: longer sequences broadcast it."""

    first: Array | None = None

    def causal(self, n_query: int, n_key: int) -> Array:
        if self.first is None:
            self.first = super().causal(n_query, n_key)
        fits = self.first.shape in ((n_query, n_key), (1, 1))
        return self.first if fits else super().causal(n_query, n_key)


@mutant(breaks=("causal-attention-hides-the-future", "causal-rows-equal-prefixes"))
class SquareMaskTransposed(Attention):
    """A mask of as many queries as keys is applied transposed."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        if mask is not None and mask.shape[-1] == mask.shape[-2]:
            mask = np.swapaxes(mask, -1, -2)
        return super().weigh(scores, mask)


@mutant(breaks=("causal-rows-equal-prefixes", "causal-worked-example-keeps-full-rows"))
class HiddenKeysStayInTheSum(Attention):
    """Hidden keys keep their share of the denominator."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        weights = super().weigh(scores, None)
        if mask is None:
            return weights
        kept = weights * mask
        total = kept.sum(-1, keepdims=True)
        return kept / np.where(total == 0, 1.0, (1.0 + total) / 2)


@mutant(breaks=("masking-keeps-the-ratio-of-visible-weights",))
class HiddenWeightGoesToTheLastKey(Attention):
    """What hidden keys lose is given to the last visible key, as in the printed example."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        weights = super().weigh(scores, None)
        if mask is None:
            return weights
        mask = np.broadcast_to(mask, scores.shape)
        kept = weights * mask
        last = mask.shape[-1] - 1 - np.argmax(mask[..., ::-1], axis=-1)
        lost = np.where(mask.any(-1), 1.0 - kept.sum(-1), 0.0)
        np.put_along_axis(kept, last[..., None], np.take_along_axis(kept, last[..., None], -1) + lost[..., None], -1)
        return kept


@mutant(breaks=("causal-mask-is-lower-triangular",))
class CausalMaskIsStrict(CausalMask):
    """The diagonal is hidden, so the first row is empty."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.tri(inputs["n"], k=-1, dtype=bool)}


@mutant(breaks=("causal-mask-is-lower-triangular", "one-mask-serves-padding-and-causality"))
class CausalMaskIsUpper(CausalMask):
    """The mask opens the upper triangle."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.tri(inputs["n"], dtype=bool).T}


@mutant(breaks=("causal-mask-is-lower-triangular",))
class CausalMaskIsInverted(CausalMask):
    """True stands for hidden."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": ~np.tri(inputs["n"], dtype=bool)}


@mutant(breaks=("padding-mask-marks-tokens",), known_as="M03")
class PaddingMaskInverted(PaddingMask):
    """True stands for padding."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": ~super().forward(p, **inputs)["out"]}


@mutant(breaks=("padding-mask-marks-tokens",))
class PaddingMaskAssumesZero(PaddingMask):
    """The pad id is 0 whatever was asked."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": inputs["ids"] != 0}


@mutant(breaks=("padding-mask-marks-tokens",))
class PaddingMaskSeesOnlyTheTail(PaddingMask):
    """Padding between tokens is taken for a token."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        real = super().forward(p, **inputs)["out"]
        return {"out": np.cumsum(real[..., ::-1], -1)[..., ::-1] > 0}
