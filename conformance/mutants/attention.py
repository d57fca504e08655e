"""Mutants of softmax, scaled dot-product attention and the masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.attention import Attention, CausalMask, PaddingMask, Softmax
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import attention as f

# --- softmax --------------------------------------------------------------------------------------


@mutant(breaks=("softmax-formula",))
class SoftmaxIgnoresDim(Softmax):
    """Softmax always runs over the last axis."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.softmax(inputs["x"], -1)}


@mutant(breaks=("softmax-formula", "softmax-worked-values", "scores-times-eight-make-softmax-extreme"))
class SoftmaxInBaseTwo(Softmax):
    """The exponential is 2^x."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.softmax(inputs["x"] * np.log(2), self.config["dim"])}


@mutant(breaks=("softmax-sums-to-one",))
class SoftmaxOverEverything(Softmax):
    """The sum runs over the whole array."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return {"out": f.softmax(x.reshape(-1)).reshape(x.shape)}


@mutant(breaks=("softmax-sums-to-one",))
class SoftmaxGuarded(Softmax):
    """A small number is added to the denominator against division by zero."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        exponentials = np.exp(x - x.max(self.config["dim"], keepdims=True))
        return {"out": exponentials / (exponentials.sum(self.config["dim"], keepdims=True) + 1e-3)}


@mutant(breaks=("softmax-is-stable",))
class SoftmaxOverflows(Softmax):
    """The maximum is not subtracted before the exponential."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        with np.errstate(all="ignore"):
            exponentials = np.exp(inputs["x"])
            return {"out": exponentials / exponentials.sum(self.config["dim"], keepdims=True)}


@mutant(breaks=("softmax-keeps-the-order",))
class Softmin(Softmax):
    """The sign of the scores is lost: the lowest score gets the highest weight."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, x=-inputs["x"])


@mutant(breaks=("extreme-softmax-has-no-gradient",))
class SoftmaxGradientIsDiagonal(Softmax):
    """The gradient is p (1 - p) c, as if softmax acted on each element alone."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        p = self(**inputs)["out"]
        return {"x": p * (1 - p) * cotangent}, {}


# --- scores ---------------------------------------------------------------------------------------


@mutant(
    breaks=(
        "attention-is-scaled-by-sqrt-d-k",
        "attention-formula",
        "attention-worked-example-001",
        "scaled-scores-have-unit-variance",
        "scaling-keeps-softmax-spread",
    ),
    known_as="A01",
)
class Unscaled(Attention):
    """The scores are not divided by sqrt(d_k)."""

    def scores(self, query: Array, key: Array) -> Array:
        return super().scores(query, key) * np.sqrt(query.shape[-1])


@mutant(breaks=("attention-is-scaled-by-sqrt-d-k", "scaled-scores-have-unit-variance"), known_as="A02")
class ScaledByDk(Attention):
    """The scores are divided by d_k instead of its root."""

    def scores(self, query: Array, key: Array) -> Array:
        return super().scores(query, key) / np.sqrt(query.shape[-1])


@mutant(breaks=("worked-example-needs-the-scale-of-its-own-width", "attention-is-scaled-by-sqrt-d-k"))
class ScaledByEight(Attention):
    """The scale is 8, the one of d_k = 64, whatever the width."""

    def scores(self, query: Array, key: Array) -> Array:
        return super().scores(query, key) * np.sqrt(query.shape[-1]) / 8


@mutant(breaks=("attention-is-scaled-by-sqrt-d-k",))
class ScaledByNumberOfKeys(Attention):
    """The scale is the root of the key's second last axis, the length."""

    def scores(self, query: Array, key: Array) -> Array:
        return super().scores(query, key) * np.sqrt(query.shape[-1] / key.shape[-2])


@mutant(breaks=("attention-scores-are-dot-products", "longer-keys-get-more-weight"))
class CosineScores(Attention):
    """Queries and keys are normalised to length one before their product."""

    def scores(self, query: Array, key: Array) -> Array:
        def unit(x: Array) -> Array:
            return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)

        return super().scores(unit(query), unit(key))


@mutant(breaks=("attention-scores-are-dot-products",))
class DistanceScores(Attention):
    """The score is the negative squared distance of query and key."""

    def scores(self, query: Array, key: Array) -> Array:
        return super().scores(query, key) - (key**2).sum(-1)[..., None, :] / (2 * np.sqrt(query.shape[-1]))


@mutant(breaks=("attention-gives-random-access",))
class ScoresClipped(Attention):
    """Scores are clipped to [-5, 5] for stability."""

    def scores(self, query: Array, key: Array) -> Array:
        return np.clip(super().scores(query, key), -5.0, 5.0)


@mutant(breaks=("query-and-key-must-agree-in-width",))
class WidthsTruncated(Attention):
    """Queries and keys of different width are cut to the shorter one, values to the number of keys."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        width = min(inputs["query"].shape[-1], inputs["key"].shape[-1])
        length = min(inputs["key"].shape[-2], inputs["value"].shape[-2])
        short = {
            "query": inputs["query"][..., :width],
            "key": inputs["key"][..., :length, :width],
            "value": inputs["value"][..., :length, :],
        }
        return super().forward(p, **{**inputs, **short})


@mutant(breaks=("value-width-is-its-own",))
class OutputHasTheWidthOfKeys(Attention):
    """The output buffer has the query's width: values are cut or padded to d_k."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        out = np.zeros(inputs["query"].shape)
        width = min(out.shape[-1], result["out"].shape[-1])
        out[..., :width] = result["out"][..., :width]
        return {**result, "out": out}


@mutant(breaks=("the-order-of-keys-does-not-matter", "attention-gives-random-access"))
class Windowed(Attention):
    """Only keys at most three positions away are seen."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        n_query, n_key = scores.shape[-2:]
        near = abs(np.arange(n_query)[:, None] - np.arange(n_key)) <= 3
        return super().weigh(scores, near if mask is None else near & mask)


@mutant(breaks=("attention-gives-random-access", "rows-are-queries"))
class SelfNotAttended(Attention):
    """The diagonal is hidden: a position attends to the others only."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        others = ~np.eye(*scores.shape[-2:], dtype=bool)
        return super().weigh(scores, others if mask is None else others & mask)


@mutant(breaks=("the-order-of-keys-does-not-matter",))
class DistancePenalised(Attention):
    """A linear penalty on distance is left on."""

    def scores(self, query: Array, key: Array) -> Array:
        distance = abs(np.arange(query.shape[-2])[:, None] - np.arange(key.shape[-2]))
        return super().scores(query, key) - 0.1 * distance


# --- weights --------------------------------------------------------------------------------------


@mutant(breaks=("attention-rows-sum-to-one", "rows-are-queries"))
class SoftmaxOverQueries(Attention):
    """Softmax runs over the queries, so columns sum to one."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        hidden = scores if mask is None else np.where(mask, scores, -1e9)
        return f.softmax(hidden, -2)


@mutant(breaks=("attention-rows-sum-to-one", "attention-stays-inside-the-values"))
class SoftmaxOverTheMatrix(Attention):
    """Softmax runs over all pairs at once: the whole matrix sums to one."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        flat = scores if mask is None else np.where(mask, scores, -np.inf)
        return f.masked_softmax(flat.reshape(*scores.shape[:-2], -1)).reshape(scores.shape)


@mutant(breaks=("attention-rows-sum-to-one", "attention-formula"))
class ScaledAfterSoftmax(Attention):
    """The division by sqrt(d_k) comes after the softmax."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        root = np.sqrt(inputs["query"].shape[-1])
        result = super().forward(p, **{**inputs, "query": inputs["query"] * root})
        return {name: array / root for name, array in result.items()}


@mutant(breaks=("attention-stays-inside-the-values", "attention-rows-sum-to-one"))
class SoftmaxPlusOne(Attention):
    """The denominator has one more than the sum of the exponentials."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        with_nothing = np.concatenate([scores, np.zeros((*scores.shape[:-1], 1))], -1)
        if mask is not None:
            mask = np.broadcast_to(mask, scores.shape)
            mask = np.concatenate([mask, np.ones((*scores.shape[:-1], 1), bool)], -1)
        return super().weigh(with_nothing, mask)[..., :-1]


@mutant(breaks=("attention-is-stable-under-large-scores",))
class WeightsUnshifted(Attention):
    """The maximum is not subtracted before the exponential."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        with np.errstate(all="ignore"):
            exponentials = np.exp(scores) if mask is None else np.where(mask, np.exp(scores), 0.0)
            return exponentials / exponentials.sum(-1, keepdims=True)


@mutant(breaks=("attention-formula", "equal-scores-give-the-mean"))
class OnlyTheBestTwo(Attention):
    """Only the two heaviest weights of each row are kept and renormalised."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        weights = super().weigh(scores, mask)
        if weights.shape[-1] <= 2:
            return weights
        np.put_along_axis(weights, np.argsort(weights, axis=-1)[..., :-2], 0.0, axis=-1)
        total = weights.sum(-1, keepdims=True)
        return weights / np.where(total == 0, 1.0, total)


@mutant(breaks=("keys-decide-the-weights",))
class UniformWeights(Attention):
    """The scores are dropped: every key gets the same weight."""

    def scores(self, query: Array, key: Array) -> Array:
        return 0.0 * super().scores(query, key)


@mutant(breaks=("attention-weights-multiply-the-values",))
class ReturnsScores(Attention):
    """The scores are returned where the weights are expected."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {**super().forward(p, **inputs), "weights": self.scores(inputs["query"], inputs["key"])}


@mutant(breaks=("attention-weights-multiply-the-values",))
class ReturnsHeadAverage(Attention):
    """The returned weights are averaged over the heads."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        return {**result, "weights": result["weights"].mean(1, keepdims=True)}


# --- values ---------------------------------------------------------------------------------------


@mutant(breaks=("attention-formula", "values-may-differ-from-keys"), known_as="A16")
class WeightsTimesKeys(Attention):
    """The weights multiply the keys, not the values."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, **{**inputs, "value": inputs["key"]})


@mutant(breaks=("values-do-not-decide-the-weights", "keys-decide-the-weights"))
class KeysAndValuesExchanged(Attention):
    """Keys and values are passed in the wrong order."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        if inputs["key"].shape != inputs["value"].shape:
            return super().forward(p, **inputs)
        return super().forward(p, **{**inputs, "key": inputs["value"], "value": inputs["key"]})


@mutant(breaks=("values-do-not-decide-the-weights",))
class WeightsFavourLargeValues(Attention):
    """The length of a value enters its weight."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        lengths = np.linalg.norm(inputs["value"], axis=-1, keepdims=True)
        return super().forward(p, **{**inputs, "key": inputs["key"] * lengths / lengths.mean(-2, keepdims=True)})


@mutant(breaks=("values-do-not-decide-the-weights", "attention-stays-inside-the-values"))
class ValuesSquashed(Attention):
    """A tanh is left on the values."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, **{**inputs, "value": np.tanh(inputs["value"])})


@mutant(breaks=("queries-are-computed-independently",))
class CarriesState(Attention):
    """Each output carries a tenth of the one before it."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        out = result["out"].copy()
        for i in range(1, out.shape[-2]):
            out[..., i, :] = 0.9 * out[..., i, :] + 0.1 * out[..., i - 1, :]
        return {**result, "out": out}


@mutant(breaks=("batch-items-and-heads-are-independent",))
class KeysOfTheFirstSequence(Attention):
    """The keys of the first sequence serve the whole batch."""

    def scores(self, query: Array, key: Array) -> Array:
        return super().scores(query, np.broadcast_to(key[:1], key.shape))


@mutant(breaks=("batch-items-and-heads-are-independent",))
class ValuesOfTheFirstHead(Attention):
    """The values of the first head serve all heads."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        value = inputs["value"]
        return super().forward(p, **{**inputs, "value": np.broadcast_to(value[:, :1], value.shape)})


# --- dropout --------------------------------------------------------------------------------------


@mutant(breaks=("attention-dropout-is-off-in-evaluation",), known_as="A17")
class DropoutInEvaluation(Attention):
    """Dropout is active in evaluation."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        self.training = True
        return super().forward(p, **inputs)


@mutant(breaks=("attention-dropout-is-off-in-evaluation",))
class DropoutNeverSwitchedOff(Attention):
    """Once in training, evaluation does not switch dropout off."""

    def train(self, mode: bool = True) -> None:
        self.training = self.training or mode


@mutant(breaks=("attention-dropout-acts-on-the-weights",))
class DropoutLostInEvaluation(Attention):
    """Evaluation sets the rate to 0 for good."""

    def train(self, mode: bool = True) -> None:
        super().train(mode)
        if not mode:
            self.config["dropout"] = 0.0


@mutant(breaks=("attention-dropout-acts-on-the-weights",), known_as="A18")
class DropoutNotRescaled(Attention):
    """Kept weights are not divided by 1 - p."""

    def drop(self, weights: Array) -> Array:
        scale = (1 - self.config["dropout"]) if self.training else 1.0
        return super().drop(weights) * scale


@mutant(breaks=("attention-dropout-acts-on-the-weights",))
class DropoutOnScores(Attention):
    """Dropout hides scores before the softmax, so that rows still sum to one."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        if self.training:
            kept = self.rng.random(scores.shape) >= self.config["dropout"]
            mask = kept if mask is None else kept & mask
        return super().weigh(scores, mask)

    def drop(self, weights: Array) -> Array:
        return weights


@mutant(breaks=("attention-dropout-acts-on-the-weights",))
class DropoutByKey(Attention):
    """Dropout keeps the share p and drops 1 - p."""

    def drop(self, weights: Array) -> Array:
        rate = self.config["dropout"]
        if not self.training or rate == 0.0:
            return weights
        return weights * (self.rng.random(weights.shape) < rate) / rate


@mutant(breaks=("returned-weights-are-before-or-after-dropout",))
class ReturnsOtherDropout(Attention):
    """The returned weights are thinned by another draw than the one that met the values."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        return {**result, "weights": self.drop(result["weights"])}


# --- masks ----------------------------------------------------------------------------------------


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
            shown = np.broadcast_to(mask, (*inputs["query"].shape[:-1], inputs["key"].shape[-2])).any(-2)[..., None]
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
