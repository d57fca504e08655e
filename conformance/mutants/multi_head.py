"""Mutants of multi-head attention and cross-attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.multi_head import MultiHeadAttention
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import attention as f
from conformance.reference.multi_head import project

# --- heads ----------------------------------------------------------------------------------------


@mutant(
    breaks=("multi-head-formula", "splitting-heads-does-not-mix-words", "multi-head-causality-holds-in-every-head"),
    known_as="H01",
)
class SplitWithoutTranspose(MultiHeadAttention):
    """Heads are split by a reshape to (B, H, T, d_head), which cuts across words."""

    def split(self, x: Array, n_heads: int) -> Array:
        return x.reshape(x.shape[0], n_heads, x.shape[1], -1)


@mutant(breaks=("multi-head-formula", "splitting-heads-does-not-mix-words"))
class MergeWithoutTranspose(MultiHeadAttention):
    """Heads are merged by a reshape of (B, H, T, d_head), without swapping the axes back."""

    def merge(self, x: Array) -> Array:
        return x.reshape(x.shape[0], x.shape[2], -1)


@mutant(breaks=("each-head-owns-a-slice-of-the-projections", "multi-head-formula"))
class HeadsInterleaved(MultiHeadAttention):
    """Head i owns every h-th column instead of a slice."""

    def split(self, x: Array, n_heads: int) -> Array:
        return np.moveaxis(x.reshape(*x.shape[:2], -1, n_heads), -1, 1)

    def merge(self, x: Array) -> Array:
        return np.moveaxis(x, 1, -1).reshape(x.shape[0], x.shape[2], -1)


@mutant(breaks=("each-head-owns-a-slice-of-the-projections",))
class MergedFeatureFirst(MultiHeadAttention):
    """The concatenation interleaves the heads."""

    def merge(self, x: Array) -> Array:
        return np.moveaxis(x, 1, -1).reshape(x.shape[0], x.shape[2], -1)


@mutant(breaks=("each-head-owns-a-slice-of-the-projections",))
class HeadsMergedInReverse(MultiHeadAttention):
    """The heads are concatenated from the last to the first."""

    def merge(self, x: Array) -> Array:
        return super().merge(x[:, ::-1])


@mutant(breaks=("multi-head-formula", "two-heads-look-at-two-places"))
class OnePatternForAllHeads(MultiHeadAttention):
    """All heads use the weights of the first."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return super().attend(
            np.broadcast_to(query[:, :1], query.shape), np.broadcast_to(key[:, :1], key.shape), value, mask
        )


@mutant(breaks=("heads-do-not-influence-each-other",))
class SoftmaxOverHeads(MultiHeadAttention):
    """Softmax runs over heads and keys together."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        scores = f.scaled_scores(query, key)
        hidden = scores if mask is None else np.where(mask, scores, -np.inf)
        rows = np.swapaxes(hidden, 1, 2)
        weights = f.masked_softmax(rows.reshape(*rows.shape[:2], -1)).reshape(rows.shape).swapaxes(1, 2)
        return self.drop(weights) @ value, weights


@mutant(breaks=("multi-head-formula", "one-head-is-plain-attention"))
class SoftmaxOverTheQueries(MultiHeadAttention):
    """Softmax runs over the queries instead of the keys."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        scores = f.scaled_scores(query, key)
        hidden = scores if mask is None else np.where(mask, scores, -np.inf)
        weights = f.masked_softmax(hidden.swapaxes(-1, -2)).swapaxes(-1, -2)
        return self.drop(weights) @ value, weights


@mutant(breaks=("multi-head-formula", "two-heads-look-at-two-places"))
class WeightsAndValuesSummedApart(MultiHeadAttention):
    """The product of weights and values sums each over letters of its own: every query gets the sum of all values."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        _, weights = super().attend(query, key, value, mask)
        return weights.sum(-1, keepdims=True) * value.sum(-2, keepdims=True), weights


@mutant(breaks=("heads-do-not-influence-each-other", "a-head-can-be-taken-away"))
class NormalisedBeforeTheOutput(MultiHeadAttention):
    """The concatenation is normalised before W_O."""

    def merge(self, x: Array) -> Array:
        merged = super().merge(x)
        return merged / np.sqrt((merged**2).mean(-1, keepdims=True) + 1e-6)


@mutant(breaks=("multi-head-formula", "the-output-projection-mixes-the-heads"), known_as="H05")
class NoOutputProjection(MultiHeadAttention):
    """The concatenation is returned without W_O."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        d = self.config["d_model"]
        return super().forward({**p, "out_proj.weight": np.eye(d), "out_proj.bias": np.zeros(d)}, **inputs)


@mutant(breaks=("the-output-projection-mixes-the-heads", "bias-is-an-option-of-the-projections"))
class NoOutputBias(MultiHeadAttention):
    """The bias of W_O is forgotten."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "out_proj.bias": 0 * p["out_proj.bias"]}, **inputs)


@mutant(breaks=("multi-head-formula",), known_as="H06")
class KeysUseTheQueryProjection(MultiHeadAttention):
    """K is projected with W_Q."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "k_proj.weight": p["q_proj.weight"], "k_proj.bias": p["q_proj.bias"]}, **inputs)


@mutant(breaks=("multi-head-formula", "multi-head-scales-by-the-width-of-one-head"), known_as="A04")
class ScaledByModelWidth(MultiHeadAttention):
    """Each head divides by sqrt(d_model) instead of sqrt(d_head)."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return super().attend(query / np.sqrt(self.n_heads), key, value, mask)


@mutant(breaks=("multi-head-scales-by-the-width-of-one-head", "fresh-attention-is-nearly-uniform"))
class HeadsUnscaled(MultiHeadAttention):
    """The heads do not scale their scores."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return super().attend(query * np.sqrt(query.shape[-1]), key, value, mask)


@mutant(breaks=("one-head-is-plain-attention",))
class OneHeadSkipsTheOutputProjection(NoOutputProjection):
    """With one head W_O is thought unnecessary."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        skip = super().forward if self.n_heads == 1 else super(NoOutputProjection, self).forward
        return skip(p, **inputs)


@mutant(breaks=("every-head-reads-the-whole-embedding", "multi-head-formula"))
class EmbeddingSliced(MultiHeadAttention):
    """Each head projects only its own slice of the embedding."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        d = self.config["d_model"]
        head = np.arange(d) // (d // self.n_heads)
        block = head[:, None] == head
        sliced = {f"{n}_proj.weight": p[f"{n}_proj.weight"] * block for n in "qkv"}
        return super().forward({**p, **sliced}, **inputs)


@mutant(breaks=("multi-head-keeps-the-shape",))
class SqueezesASingleSample(MultiHeadAttention):
    """A batch of one loses its axis."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        return {name: array[0] if len(array) == 1 else array for name, array in result.items()}


@mutant(breaks=("heads-must-divide-the-width",))
class HeadsNeedNotDivide(MultiHeadAttention):
    """The head width is d_model // h unchecked: some lengths are reshaped into mixed words."""

    def validate(self) -> None:
        pass

    def split(self, x: Array, n_heads: int) -> Array:
        width = self.config["d_model"] // n_heads
        return x.reshape(x.shape[0], -1, n_heads, width).swapaxes(1, 2)

    def merge(self, x: Array) -> Array:
        return x.swapaxes(1, 2).reshape(x.shape[0], -1, self.config["d_model"])


@mutant(breaks=("heads-must-divide-the-width",))
class RemainderDropped(MultiHeadAttention):
    """Columns that do not fill a head are dropped and come back as zeros."""

    def validate(self) -> None:
        pass

    def split(self, x: Array, n_heads: int) -> Array:
        return super().split(x[..., : x.shape[-1] // n_heads * n_heads], n_heads)

    def merge(self, x: Array) -> Array:
        merged = super().merge(x)
        missing = self.config["d_model"] - merged.shape[-1]
        return np.pad(merged, ((0, 0), (0, 0), (0, missing)))


@mutant(breaks=("the-number-of-heads-adds-no-parameters",))
class EachHeadHasFullWidth(MultiHeadAttention):
    """Every head has projections of the full width."""

    def initialise(self) -> Arrays:
        weights, heads = super().initialise(), self.config["n_heads"]
        return {name: np.tile(w, heads) if name.endswith("weight") else w for name, w in weights.items()}


@mutant(breaks=("bias-is-an-option-of-the-projections",))
class BiasesIgnored(MultiHeadAttention):
    """The biases of the projections are parameters that nothing uses."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({name: w for name, w in p.items() if not name.endswith("bias")}, **inputs)


@mutant(breaks=("bias-is-an-option-of-the-projections",))
class ValueBiasAddedTwice(MultiHeadAttention):
    """The bias of V is added in the projection and again after it."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "v_proj.bias": 2 * p["v_proj.bias"]}, **inputs)


@mutant(breaks=("fresh-projections-are-random-and-independent",))
class FreshProjectionsAreEqual(MultiHeadAttention):
    """W_Q, W_K and W_V start from the same values."""

    def initialise(self) -> Arrays:
        weights = super().initialise()
        return {**weights, **{f"{n}_proj.weight": weights["q_proj.weight"] for n in "kv"}}


@mutant(breaks=("fresh-projections-are-random-and-independent",))
class FreshProjectionsAreConstant(MultiHeadAttention):
    """The projections start from constants."""

    def initialise(self) -> Arrays:
        return {name: np.full_like(w, 0.1) for name, w in super().initialise().items()}


@mutant(breaks=("fresh-attention-is-nearly-uniform",))
class FreshProjectionsAreTooWide(MultiHeadAttention):
    """Projections start with standard deviation one."""

    def initialise(self) -> Arrays:
        return {name: w * np.sqrt(self.config["d_model"]) for name, w in super().initialise().items()}


@mutant(breaks=("weights-are-returned-by-head",))
class AverageReturnedAsHeads(MultiHeadAttention):
    """The average over the heads is returned in the place of each head's weights."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        mean = result["weights"].mean(1, keepdims=True)
        return {**result, "weights": np.broadcast_to(mean, result["weights"].shape)}


@mutant(breaks=("weights-are-returned-by-head",))
class ReturnedWeightsTransposed(MultiHeadAttention):
    """The returned weights have keys as rows."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        result = super().forward(p, **inputs)
        return {**result, "weights": np.swapaxes(result["weights"], -1, -2)}


@mutant(breaks=("samples-of-a-batch-are-independent",))
class CentredOverTheBatch(MultiHeadAttention):
    """Inputs are centred over the batch."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        query, key, value = (x - x.mean(0, keepdims=True) if len(x) > 1 else x for x in (query, key, value))
        return super().headed(p, query, key, value, mask)


@mutant(breaks=("samples-of-a-batch-are-independent", "multi-head-formula"))
class SequenceFirst(MultiHeadAttention):
    """The first axis is taken for the sequence, the second for the batch."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        if query.shape != key.shape:
            return super().headed(p, query, key, value, mask)
        turned = super().headed(p, query.swapaxes(0, 1), key.swapaxes(0, 1), value.swapaxes(0, 1), None)
        return {**turned, "out": turned["out"].swapaxes(0, 1)}


@mutant(breaks=("splitting-heads-does-not-mix-words",))
class PositionsAddedInside(MultiHeadAttention):
    """The layer adds a small position signal of its own to the queries and keys."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return super().attend(
            query + 0.1 * np.arange(query.shape[2])[:, None], key + 0.1 * np.arange(key.shape[2])[:, None], value, mask
        )


@mutant(breaks=("multi-head-gradients-reach-every-projection",))
class OutputProjectionFrozen(MultiHeadAttention):
    """W_O gets no gradient."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradients, parameters = super().vjp(inputs, cotangent)
        return gradients, {name: 0 * g if name.startswith("out") else g for name, g in parameters.items()}


@mutant(breaks=("multi-head-gradients-reach-every-projection",))
class SoftmaxBackwardWithoutSum(MultiHeadAttention):
    """The softmax's backward pass leaves out its sum: W_Q and W_K get half of their gradient."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradients, parameters = super().vjp(inputs, cotangent)
        return gradients, {name: g / 2 if name[0] in "qk" else g for name, g in parameters.items()}


# --- cross-attention ------------------------------------------------------------------------------


@mutant(breaks=("cross-attention-follows-the-query-length", "cross-attention-queries-come-from-the-target"))
class QueryAndSourceExchanged(MultiHeadAttention):
    """Queries are taken from the source, keys and values from the target."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        return super().headed(p, key, query, query, None if mask is None else np.swapaxes(mask, -1, -2))


@mutant(breaks=("cross-attention-follows-the-query-length", "keys-and-values-are-projections-of-the-source"))
class SourceIgnored(MultiHeadAttention):
    """Keys and values are taken from the query input: cross-attention is self-attention."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        fits = mask is None or mask.shape[-1] == query.shape[1]
        return super().headed(p, query, query, query, mask if fits else None)


@mutant(breaks=("keys-and-values-are-projections-of-the-source",))
class MemoryUnprojected(MultiHeadAttention):
    """In cross-attention the memory itself serves as keys and values."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        if key is not query and key.shape[1] != query.shape[1]:
            identity = np.eye(self.config["d_model"])
            p = {**p, "k_proj.weight": identity, "v_proj.weight": identity}
        return super().headed(p, query, key, value, mask)


@mutant(breaks=("query-key-and-value-may-be-three-tensors",))
class ValueInputIgnored(MultiHeadAttention):
    """The values are projected from the key input."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        return super().headed(p, query, key, key, mask)


@mutant(breaks=("cross-attention-sees-the-whole-source",))
class CrossAttentionIsCausal(MultiHeadAttention):
    """A causal mask is applied to cross-attention."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        if query.shape[2] != key.shape[2]:
            causal = np.tri(query.shape[2], key.shape[2], dtype=bool)
            mask = causal if mask is None else causal & mask
        return super().attend(query, key, value, mask)


@mutant(breaks=("cross-attention-splits-into-heads", "cross-attention-follows-the-query-length"))
class CrossAttentionIsSingleHead(MultiHeadAttention):
    """In cross-attention the heads are not split, and the scale stays that of one head."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        if key.shape[1] == query.shape[1]:
            return super().headed(p, query, key, value, mask)
        q, k, v = project(p, "q_proj", query), project(p, "k_proj", key), project(p, "v_proj", value)
        out, weights = f.attention(q * np.sqrt(self.n_heads), k, v, None if mask is None else mask[:, 0])
        return {"out": project(p, "out_proj", out), "weights": weights[:, None]}


@mutant(breaks=("cross-attention-follows-the-query-length",))
class KeysCutToTheQueries(MultiHeadAttention):
    """The length is read from the query for all three inputs: longer sources are cut."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        n = query.shape[1]
        return super().headed(p, query, key[:, :n], value[:, :n], None if mask is None else mask[..., :n])


@mutant(breaks=("keys-and-values-must-share-their-length",))
class LongerKeysCut(MultiHeadAttention):
    """Keys without a value are cut off silently."""

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        n = min(key.shape[1], value.shape[1])
        return super().headed(p, query, key[:, :n], value[:, :n], mask)


# --- masks and dropout ----------------------------------------------------------------------------


class Remasked(MultiHeadAttention):
    """Not a mutant itself: a layer that misreads its mask (`misread`, called with a full mask)."""

    def misread(self, mask: Array) -> Array:
        raise NotImplementedError

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        if mask is not None:
            mask = self.misread(np.broadcast_to(mask, (*query.shape[:3], key.shape[2])))
        return super().attend(query, key, value, mask)


@mutant(breaks=("padding-does-not-change-real-words",))
class SampleMaskReadByHead(Remasked):
    """With as many samples as heads, a mask for each sample is read as one for each head."""

    def misread(self, mask: Array) -> Array:
        return mask.swapaxes(0, 1) if mask.shape[0] == mask.shape[1] else mask


@mutant(breaks=("padding-does-not-change-real-words",))
class MaskReachesTheFirstHead(Remasked):
    """Only the first head is masked."""

    def misread(self, mask: Array) -> Array:
        return mask | (np.arange(mask.shape[1]) > 0)[:, None, None]


@mutant(breaks=("padding-does-not-change-real-words", "multi-head-obeys-both-masks"))
class PaddingOnTheQueryAxis(Remasked):
    """A padding mask hides queries instead of keys."""

    def misread(self, mask: Array) -> Array:
        return mask.swapaxes(-1, -2) if mask.shape[-1] == mask.shape[-2] else mask


@mutant(breaks=("padding-does-not-change-real-words",))
class MaskTiledOverHeads(Remasked):
    """Samples and heads are flattened to one axis, and the mask is tiled in (head, sample) order."""

    def misread(self, mask: Array) -> Array:
        return np.tile(mask[:, 0], (mask.shape[1], 1, 1)).reshape(mask.shape)


@mutant(breaks=("multi-head-obeys-both-masks",))
class MaskForgottenInTraining(Remasked):
    """The path taken in training has no mask."""

    def misread(self, mask: Array) -> Array:
        return np.ones_like(mask) if self.training else mask


@mutant(breaks=("multi-head-causality-holds-in-every-head", "padding-does-not-change-real-words"))
class MaskForgottenInEvaluation(Remasked):
    """The fast path of evaluation has no mask."""

    def misread(self, mask: Array) -> Array:
        return mask if self.training else np.ones_like(mask)


@mutant(breaks=("multi-head-reaches-any-distance",))
class HeadsSeeAWindow(MultiHeadAttention):
    """Words more than eight places away are not seen."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        near = abs(np.arange(query.shape[2])[:, None] - np.arange(key.shape[2])) <= 8
        return super().attend(query, key, value, near if mask is None else near & mask)


@mutant(breaks=("bias-is-an-option-of-the-projections",))
class BiasesThatCannotBeLeftOut(MultiHeadAttention):
    """A layer asked for without biases adds one anyway."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({"out_proj.bias": np.ones(self.config["d_model"]), **p}, **inputs)


@mutant(breaks=("source-padding-is-masked-in-cross-attention",))
class CrossAttentionUnmasked(Remasked):
    """Cross-attention takes no mask."""

    def misread(self, mask: Array) -> Array:
        return mask if mask.shape[-1] == mask.shape[-2] else np.ones_like(mask)


@mutant(breaks=("multi-head-causality-holds-in-every-head", "multi-head-obeys-both-masks"))
class MaskOfTheLastQuery(Remasked):
    """The mask is reduced to one row of keys, that of the last query."""

    def misread(self, mask: Array) -> Array:
        return np.broadcast_to(mask[..., -1:, :], mask.shape)


@mutant(breaks=("multi-head-obeys-both-masks",))
class CausalMaskReplacesPadding(Remasked):
    """A mask that hides any future word is taken for the causal mask, and its padding is lost."""

    def misread(self, mask: Array) -> Array:
        causal = np.tri(*mask.shape[-2:]) > 0
        return np.broadcast_to(causal, mask.shape) if not (mask & ~causal).any() else mask


@mutant(breaks=("multi-head-obeys-both-masks",))
class EitherMaskShows(Remasked):
    """Causal and padding masks are joined by OR: every key that is early or real is seen."""

    def misread(self, mask: Array) -> Array:
        return mask | mask.any((0, 1), keepdims=True)


@mutant(breaks=("multi-head-dropout-thins-the-weights",))
class HeadsDropInEvaluation(MultiHeadAttention):
    """Dropout on the weights is active in evaluation."""

    def drop(self, weights: Array) -> Array:
        self.training = True
        return super().drop(weights)


@mutant(breaks=("multi-head-dropout-thins-the-weights",))
class HeadsDropWithoutRescaling(MultiHeadAttention):
    """Kept weights are not divided by 1 - p."""

    def drop(self, weights: Array) -> Array:
        return super().drop(weights) * ((1 - self.config["dropout"]) if self.training else 1.0)


@mutant(breaks=("multi-head-dropout-thins-the-weights",))
class DropoutForgotten(MultiHeadAttention):
    """The rate is accepted and never used."""

    def drop(self, weights: Array) -> Array:
        return weights


@mutant(breaks=("multi-head-dropout-thins-the-weights",))
class DropoutAfterTheSum(MultiHeadAttention):
    """Dropout acts on the weighted sum instead of the weights."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        out, weights = f.attention(query, key, value, mask)
        return self.drop(out), weights
