"""Mutants of softmax and scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.attention import Attention, Softmax
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


@mutant(
    breaks=(
        "attention-scores-are-dot-products",
        "longer-keys-get-more-weight",
        "a-decoder-state-attends-to-encoder-states",
    )
)
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
        others = np.eye(*scores.shape[-2:]) == 0
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


@mutant(breaks=("attention-is-scaled-by-sqrt-d-k", "attention-formula"))
class ScaledByValueWidth(Attention):
    """The scale is the root of the value's width."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        ratio = np.sqrt(inputs["query"].shape[-1] / inputs["value"].shape[-1])
        return super().forward(p, **{**inputs, "query": inputs["query"] * ratio})


@mutant(breaks=("attention-rows-sum-to-one",))
class SoftmaxOverHeadAxis(Attention):
    """Softmax runs over the heads."""

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return f.softmax(scores if mask is None else np.where(mask, scores, -1e9), 1)


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


# --- gradients ------------------------------------------------------------------------------------


@mutant(breaks=("attention-gradients",))
class GradientUnscaled(Attention):
    """The backward pass forgets the division by sqrt(d_k)."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradients, rest = super().vjp(inputs, cotangent)
        root = np.sqrt(inputs["query"].shape[-1])
        return {name: g if name == "value" else g * root for name, g in gradients.items()}, rest


@mutant(breaks=("attention-gradients",))
class ValueGradientNotTransposed(Attention):
    """The gradient of the values is A c instead of A^T c."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradients, rest = super().vjp(inputs, cotangent)
        weights = self(**inputs)["weights"]
        square = weights.shape[-1] == weights.shape[-2]
        return {**gradients, "value": weights @ cotangent} if square else gradients, rest


@mutant(breaks=("attention-gradients",))
class SoftmaxGradientWithoutSum(Attention):
    """The backward pass of the softmax leaves out the mean under the weights."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradients, rest = super().vjp(inputs, cotangent)
        of_scores = self(**inputs)["weights"] * (cotangent @ np.swapaxes(inputs["value"], -1, -2))
        root = np.sqrt(inputs["query"].shape[-1])
        of_query = of_scores @ inputs["key"] / root
        of_key = np.swapaxes(of_scores, -1, -2) @ inputs["query"] / root
        return {**gradients, "query": of_query, "key": of_key}, rest


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


@mutant(breaks=("attention-dropout-acts-on-the-weights",))
class WholeKeysDropped(Attention):
    """Dropout removes a key for all queries at once."""

    def drop(self, weights: Array) -> Array:
        rate = self.config["dropout"]
        if not self.training or rate == 0.0:
            return weights
        return weights * (self.rng.random((*weights.shape[:2], 1, weights.shape[-1])) >= rate) / (1.0 - rate)


@mutant(breaks=("returned-weights-are-before-or-after-dropout",))
class ReturnsOtherDropout(Attention):
    """The returned weights are thinned by another draw than the one that met the values."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        return {**result, "weights": self.drop(result["weights"])}


# --- long sequences -------------------------------------------------------------------------------


class _Blockwise(Attention):
    """Attention by online softmax over blocks of keys, with its rescaling to override.

    When a block raises a row's maximum from m to M, sum and output so far shrink by exp(m - M).
    """

    block = 64

    def shrunk_sum(self, total: Array, factor: Array) -> Array:
        return total * factor

    def shrunk_out(self, out: Array, factor: Array) -> Array:
        return out * factor

    def blocks(self, n_key: int) -> range:
        return range(0, n_key, self.block)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        query, key, value, mask = inputs["query"], inputs["key"], inputs["value"], inputs.get("mask")
        scores = self.scores(query, key)
        n_query, n_key = scores.shape[-2:]
        visible = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
        if self.config["causal"]:
            visible = visible & self.causal(n_query, n_key)
        scores = np.where(visible, scores, -1e30)
        highest, total = np.full((*scores.shape[:-1], 1), -1e30), np.zeros((*scores.shape[:-1], 1))
        out = np.zeros((*scores.shape[:-1], value.shape[-1]))
        for start in self.blocks(n_key):
            columns = slice(start, start + self.block)
            above = np.maximum(highest, scores[..., columns].max(axis=-1, keepdims=True))
            weights = np.where(visible[..., columns], np.exp(scores[..., columns] - above), 0.0)
            factor = np.exp(highest - above)
            total = self.shrunk_sum(total, factor) + weights.sum(axis=-1, keepdims=True)
            out = self.shrunk_out(out, factor) + weights @ value[..., columns, :]
            highest = above
        return {"out": out / np.where(total == 0, 1.0, total)}


@mutant(breaks=("blockwise-attention-is-exact",), known_as="X02")
class NormaliserNotRescaled(_Blockwise):
    """Online softmax: the sum so far is not rescaled when a block raises the maximum."""

    def shrunk_sum(self, total: Array, factor: Array) -> Array:
        return total


@mutant(breaks=("blockwise-attention-is-exact",))
class OutputNotRescaled(_Blockwise):
    """Online softmax: the output so far is not rescaled when a block raises the maximum."""

    def shrunk_out(self, out: Array, factor: Array) -> Array:
        return out


@mutant(breaks=("blockwise-attention-is-exact",))
class LastKeysDropped(_Blockwise):
    """Keys behind the last whole block are left out of long rows."""

    def blocks(self, n_key: int) -> range:
        return range(0, n_key - self.block + 1 if n_key > self.block else n_key, self.block)
