"""Mutants of linear maps, embeddings, activations, the feed-forward network and SwiGLU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject
from conformance.adapters.reference.feed_forward import Activation, Embedding, FeedForward, Linear, SwiGLU
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import feed_forward as f

# --- linear and embedding ------------------------------------------------------------------------------------


@mutant(breaks=("linear-layer-is-a-matrix-product",))
class LinearTransposedWhenSquare(Linear):
    """x W for x W^T: a square weight hides the mistake."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        weight = p["weight"]
        return super().forward({**p, "weight": weight.T if weight.shape[0] == weight.shape[1] else weight}, **inputs)


@mutant(breaks=("linear-layer-is-a-matrix-product",))
class LinearWithoutBias(Linear):
    """The bias is stored and never added."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.linear(inputs["x"], p["weight"])}


@mutant(breaks=("embedding-refuses-ids-past-the-table",))
class EmbeddingWrapsAround(Embedding):
    """Ids are taken modulo the vocabulary."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, ids=inputs["ids"] % len(p["weight"]))


@mutant(breaks=("embedding-is-a-row-of-the-table", "embedding-trains-the-rows-in-use", "padding-row-is-not-trained"))
class EmbeddingOffByOne(Embedding):
    """Ids are taken to count from 1."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": p["weight"][inputs["ids"] - 1]}


@mutant(breaks=("embedding-trains-the-rows-in-use",))
class EmbeddingCentred(Embedding):
    """The mean of the table is subtracted, so that every row is trained at every step."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": (p["weight"] - p["weight"].mean(0))[inputs["ids"]]}


@mutant(breaks=("embedding-trains-the-rows-in-use",))
class EmbeddingRepeatedIdsOverwrite(Embedding):
    """Where an id occurs twice, its gradient is that of the last place (assigned, not added)."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradient = np.zeros_like(self.weights["weight"])
        gradient[inputs["ids"]] = cotangent
        return {}, {"weight": gradient}


@mutant(breaks=("padding-row-is-not-trained",))
class PaddingRowTrained(Embedding):
    """padding_idx zeroes the row at the start and nothing more."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        return ReferenceSubject.vjp(self, inputs, cotangent)


@mutant(breaks=("embedding-row-of-the-pad-starts-at-zero",))
class PaddingRowStartsRandom(Embedding):
    """The table is initialised as a whole, after which no row is zero."""

    def initialise(self) -> Arrays:
        return ReferenceSubject.initialise(self)


# --- activations ----------------------------------------------------------------------------------


class _Replaced(Activation):
    """An activation with one kind replaced."""

    replaced: Mapping[str, Any]

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        replacement = self.replaced.get(self.config["kind"])
        return {"out": replacement(inputs["x"])} if replacement else super().forward(p, **inputs)


@mutant(breaks=("gelu-uses-the-error-function",))
class GeluByTanh(_Replaced):
    """gelu is the tanh approximation."""

    replaced = {"gelu": f.gelu_tanh}


@mutant(breaks=("gelu-by-tanh-is-an-approximation",))
class GeluTanhWithoutTheCube(_Replaced):
    """The tanh approximation leaves out the cubic term."""

    replaced = {"gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh((2.0 / np.pi) ** 0.5 * x))}


@mutant(breaks=("gelu-uses-the-error-function",))
class GeluBySigmoid(_Replaced):
    """gelu is x sigmoid(1.702 x)."""

    replaced = {"gelu": lambda x: x * f.sigmoid(1.702 * x)}


@mutant(breaks=("silu-is-x-times-sigmoid", "silu-is-smooth-at-zero"))
class SiluIsRelu(_Replaced):
    """silu is relu."""

    replaced = {"silu": f.relu}


@mutant(breaks=("silu-is-x-times-sigmoid", "silu-is-smooth-at-zero"))
class SiluIsSigmoid(_Replaced):
    """silu forgets the factor x."""

    replaced = {"silu": f.sigmoid}


@mutant(breaks=("relu-is-the-positive-part", "silu-is-smooth-at-zero"))
class ReluLeaks(_Replaced):
    """relu lets a hundredth of negative values through."""

    replaced = {"relu": lambda x: np.where(x > 0, x, 0.01 * x)}


# --- feed-forward ---------------------------------------------------------------------------------


@mutant(
    breaks=("feed-forward-formula", "feed-forward-is-a-key-value-memory", "feed-forward-computes-xor"), known_as="F02"
)
class ActivationAfterSecondLayer(FeedForward):
    """The activation follows the second layer."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        hidden = f.linear(inputs["x"], p["linear1.weight"], p["linear1.bias"])
        activation = f.ACTIVATIONS[self.config["activation"]]
        return {"out": activation(f.linear(hidden, p["linear2.weight"], p["linear2.bias"]))}


@mutant(breaks=("feed-forward-formula", "feed-forward-is-non-linear", "feed-forward-computes-xor"))
class NoActivation(FeedForward):
    """The two layers follow each other without an activation."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        hidden = f.linear(inputs["x"], p["linear1.weight"], p["linear1.bias"])
        return {"out": f.linear(hidden, p["linear2.weight"], p["linear2.bias"])}


@mutant(breaks=("feed-forward-formula", "feed-forward-is-a-key-value-memory"))
class SecondBiasForgotten(FeedForward):
    """The bias of the second layer is stored and never added."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": super().forward(p, **inputs)["out"] - p["linear2.bias"]}


@mutant(breaks=("feed-forward-with-gelu",))
class FeedForwardGeluByTanh(FeedForward):
    """`gelu` means the tanh approximation."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        name = "gelu_tanh" if self.config["activation"] == "gelu" else self.config["activation"]
        return {"out": f.feed_forward(p, inputs["x"], name)}


@mutant(breaks=("feed-forward-with-gelu",))
class FeedForwardAlwaysRelu(FeedForward):
    """The activation that was asked for is ignored."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.feed_forward(p, inputs["x"])}


@mutant(breaks=("feed-forward-treats-positions-independently", "feed-forward-formula"))
class FeedForwardMixesPositions(FeedForward):
    """The hidden layer of a position takes a tenth of the mean over all positions."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return super().forward(p, x=0.9 * x + 0.1 * x.mean(1, keepdims=True))


@mutant(breaks=("feed-forward-has-two-affine-layers",))
class FeedForwardWithoutFirstBias(FeedForward):
    """The first layer has no bias."""

    def initialise(self) -> Arrays:
        weights = super().initialise()
        del weights["linear1.bias"]
        return weights


@mutant(breaks=("feed-forward-drops-hidden-activations",))
class FeedForwardDropsTheOutput(FeedForward):
    """Dropout falls on the output, bias and all."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        out = f.feed_forward(p, inputs["x"], self.config["activation"])
        rate = self.config["dropout"]
        if not self.training or rate == 0.0:
            return {"out": out}
        return {"out": out * (self.rng.random(out.shape) >= rate) / (1 - rate)}


@mutant(breaks=("feed-forward-drops-hidden-activations",))
class FeedForwardSurvivorsNotScaled(FeedForward):
    """Dropped units are zeroed and the others left as they are."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        rate = self.config["dropout"] if self.training else 0.0
        return {"out": f.feed_forward(p, inputs["x"], drop=lambda h: h * (self.rng.random(h.shape) >= rate))}


@mutant(breaks=("feed-forward-drops-hidden-activations",))
class FeedForwardDropsInEvaluation(FeedForward):
    """Dropout is active in evaluation."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        rate = self.config["dropout"]
        drop = lambda h: h * (self.rng.random(h.shape) >= rate) / (1 - rate)  # noqa: E731
        return {"out": f.feed_forward(p, inputs["x"], drop=drop)}


# --- SwiGLU ---------------------------------------------------------------------------------------


class _Gated(SwiGLU):
    """A gated network with another product of gate and up."""

    def product(self, gate: Array, up: Array) -> Array:
        raise NotImplementedError

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        hidden = self.product(f.linear(x, p["gate_proj.weight"]), f.linear(x, p["up_proj.weight"]))
        return {"out": f.linear(hidden, p["down_proj.weight"])}


@mutant(breaks=("swiglu-formula",), known_as="F04", usual="GEGLU, Shazeer 2020, GLU Variants Improve Transformer")
class GatedByGelu(_Gated):
    """The gate passes through GELU (GeGLU)."""

    def product(self, gate: Array, up: Array) -> Array:
        return f.gelu(gate) * up


@mutant(breaks=("swiglu-formula",))
class GateAndUpExchanged(_Gated):
    """SiLU acts on the up projection."""

    def product(self, gate: Array, up: Array) -> Array:
        return gate * f.silu(up)


@mutant(breaks=("swiglu-formula",))
class GateWithoutActivation(_Gated):
    """The product is gate * up, as the diagram says, without SiLU."""

    def product(self, gate: Array, up: Array) -> Array:
        return gate * up


@mutant(breaks=("swiglu-formula",), usual="GLU, Dauphin et al. 2017, Gated Convolutional Networks")
class GateBySigmoid(_Gated):
    """The gate is a sigmoid (GLU)."""

    def product(self, gate: Array, up: Array) -> Array:
        return f.sigmoid(gate) * up


@mutant(breaks=("swiglu-formula",))
class GateIsAdded(_Gated):
    """The gate is added to the up projection where it multiplies it."""

    def product(self, gate: Array, up: Array) -> Array:
        return f.silu(gate) + up


@mutant(breaks=("swiglu-has-three-matrices-without-bias",))
class SwigluWithBias(SwiGLU):
    """The down projection has a bias."""

    def initialise(self) -> Arrays:
        return {**super().initialise(), "down_proj.bias": np.zeros(self.config["d_model"])}
