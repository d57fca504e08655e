"""Mutants of multi-layer perceptrons and recurrent networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.networks import MLP, RNN
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import networks as f

# --- perceptrons --------------------------------------------------------------------------------------


@mutant(
    breaks=(
        "a-node-is-a-weighted-sum-plus-bias",
        "a-layer-with-bias-is-affine-not-linear",
        "layers-compose-activated-weighted-sums",
        "stacked-affine-layers-collapse-into-one-affine-map",
        "a-relu-network-computes-xor",
    )
)
class BiasIgnored(MLP):
    """Layers have biases and do not add them."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({n: a * (not n.endswith("bias")) for n, a in p.items()}, **inputs)


@mutant(breaks=("a-node-is-a-weighted-sum-plus-bias", "a-layer-with-bias-is-affine-not-linear"))
class BiasPerFeature(MLP):
    """The bias is added once for every input feature."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        n = inputs["x"].shape[-1]
        return super().forward({name: a * n if name.endswith("bias") else a for name, a in p.items()}, **inputs)


@mutant(breaks=("a-layer-refuses-inputs-of-another-width",))
class InputsCutOrPadded(MLP):
    """Features beyond the layer's width are cut, missing ones are zero."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, n = inputs["x"], self.config["sizes"][0]
        fitted = np.zeros((len(x), n), x.dtype)
        fitted[:, : x.shape[1]] = x[:, :n]
        return super().forward(p, x=fitted)


@mutant(breaks=("a-layer-refuses-inputs-of-another-width",))
class SingleFeatureBroadcast(MLP):
    """An input of one feature is broadcast to every feature."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, n = inputs["x"], self.config["sizes"][0]
        return super().forward(p, x=np.repeat(x, n, axis=1) if x.shape[1] == 1 else x)


@mutant(breaks=("each-hidden-node-has-its-own-weights",))
class WeightsSharedAcrossNodes(MLP):
    """Every node uses the mean of all nodes' weights."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        shared = {n: np.broadcast_to(a.mean(axis=0), a.shape) if a.ndim > 1 else a for n, a in p.items()}
        return super().forward(shared, **inputs)


@mutant(breaks=("layers-compose-activated-weighted-sums",))
class ActivationBeforeTheSum(MLP):
    """The activation acts on the network's input as well."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, x=f.activate(inputs["x"], self.config["activation"]))


@mutant(breaks=("layers-compose-activated-weighted-sums",))
class LastLayerActivated(MLP):
    """The last layer has an activation too."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.activate(super().forward(p, **inputs)["out"], self.config["activation"])}


@mutant(
    breaks=(
        "an-activation-keeps-layers-from-collapsing",
        "a-relu-network-computes-xor",
        "layers-compose-activated-weighted-sums",
    )
)
class HiddenLayersLinear(MLP):
    """The activation between layers is left out."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        count = len(self.config["sizes"]) - 1
        layers = [(p[f"layers.{i}.weight"], p.get(f"layers.{i}.bias")) for i in range(count)]
        return {"out": f.mlp(inputs["x"], layers, "identity")}


@mutant(
    breaks=("stacked-linear-layers-collapse-into-one", "stacked-affine-layers-collapse-into-one-affine-map"),
)
class IdentityIsRelu(MLP):
    """A network that should be linear keeps a relu."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        count = len(self.config["sizes"]) - 1
        layers = [(p[f"layers.{i}.weight"], p.get(f"layers.{i}.bias")) for i in range(count)]
        kind = self.config["activation"]
        return {"out": f.mlp(inputs["x"], layers, "relu" if kind == "identity" else kind)}


@mutant(breaks=("fresh-weights-are-random-and-only-guess",))
class ConstantInitialisation(MLP):
    """Every weight starts at 0.3, so that all nodes stay equal for ever."""

    def initialise(self) -> Arrays:
        return {name: np.full_like(value, 0.3) for name, value in super().initialise().items()}


@mutant(breaks=("fresh-weights-are-random-and-only-guess",))
class HugeInitialisation(MLP):
    """Weights start twenty times too large, so that the untrained network is sure of itself."""

    def initialise(self) -> Arrays:
        return {name: value * 20.0 for name, value in super().initialise().items()}


@mutant(breaks=("every-weight-gets-its-gradient",))
class BiasGradientAveraged(MLP):
    """Bias gradients are averaged over the batch, not summed."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        given, weights = super().vjp(inputs, cotangent)
        return given, {n: g / len(cotangent) if n.endswith("bias") else g for n, g in weights.items()}


@mutant(breaks=("every-weight-gets-its-gradient",))
class FirstLayerDetached(MLP):
    """The first layer is cut off from the graph and gets no gradient."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        given, weights = super().vjp(inputs, cotangent)
        return given, {n: g * (not n.startswith("layers.0")) for n, g in weights.items()}


@mutant(breaks=("gradient-descent-lowers-the-loss-of-a-network", "every-weight-gets-its-gradient"))
class GradientOfTheOppositeSign(MLP):
    """Weight gradients have the wrong sign."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        given, weights = super().vjp(inputs, cotangent)
        return given, {name: -g for name, g in weights.items()}


@mutant(breaks=("backward-computes-gradients-and-changes-nothing",))
class BackwardUpdates(MLP):
    """The backward pass already takes a step."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        given, weights = super().vjp(inputs, cotangent)
        self.weights = {name: value - 0.1 * weights[name] for name, value in self.weights.items()}
        return given, weights


# --- recurrent networks -------------------------------------------------------------------------------


@mutant(breaks=("rnn-state-is-tanh-of-input-state-and-bias", "an-rnn-run-is-an-iteration-of-one-cell"))
class RecurrentBiasDropped(RNN):
    """The state's update leaves out the bias."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "bias": 0.0 * p["bias"]}, **inputs)


@mutant(breaks=("rnn-state-is-tanh-of-input-state-and-bias", "an-rnn-run-is-an-iteration-of-one-cell"))
class RecurrentWeightTransposed(RNN):
    """The state is multiplied by W_h instead of its transpose."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "weight_hh": p["weight_hh"].T}, **inputs)


@mutant(
    breaks=(
        "an-rnn-state-depends-on-all-earlier-inputs-and-no-later-one",
        "the-last-rnn-state-keeps-traces-of-every-token",
        "an-rnn-run-is-an-iteration-of-one-cell",
        "early-tokens-fade-in-a-contracting-rnn",
        "an-rnn-gradient-can-explode",
        "a-recurrence-near-the-identity-keeps-its-information",
    )
)
class StateForgotten(RNN):
    """The state is set to zero before every token."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "weight_hh": 0.0 * p["weight_hh"]}, **inputs)


@mutant(
    breaks=("an-rnn-state-depends-on-all-earlier-inputs-and-no-later-one", "rnn-state-is-tanh-of-input-state-and-bias")
)
class SequenceReversed(RNN):
    """The loop runs over the tokens from the last to the first."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": super().forward(p, x=inputs["x"][:, ::-1])["out"][:, ::-1]}


@mutant(breaks=("an-rnn-yields-one-state-per-token",))
class OnlyTheLastState(RNN):
    """Only the final state is returned."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": super().forward(p, **inputs)["out"][:, -1:]}


@mutant(breaks=("an-rnn-is-sensitive-to-order",))
class BagOfWords(RNN):
    """Every state sees the mean of all tokens so far, whatever their order."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        mean = np.cumsum(x, axis=1) / np.arange(1, x.shape[1] + 1)[:, None]
        return {"out": np.tanh(mean @ p["weight_ih"].T + p["bias"])}


@mutant(breaks=("rnn-weights-are-shared-over-time", "the-last-rnn-state-keeps-traces-of-every-token"))
class GradientOfTheLastStepOnly(RNN):
    """Back propagation stops after one step into the past."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        given, weights = super().vjp(inputs, cotangent)
        given["x"][:, :-1] = 0.0
        return given, {name: gradient / cotangent.shape[1] for name, gradient in weights.items()}


@mutant(breaks=("an-rnn-is-parallel-over-the-batch",))
class StateSharedAcrossTheBatch(RNN):
    """Every sequence goes on from the mean state of the batch."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        hidden, states = np.zeros((len(inputs["x"]), len(p["bias"]))), []
        for x in np.moveaxis(inputs["x"], 1, 0):
            hidden = f.rnn(x[:, None], **p, state=np.broadcast_to(hidden.mean(axis=0), hidden.shape))[:, 0]
            states.append(hidden)
        return {"out": np.stack(states, axis=1)}


@mutant(breaks=("early-tokens-fade-in-a-contracting-rnn", "rnn-state-is-tanh-of-input-state-and-bias"))
class StateAddedToItself(RNN):
    """The new state is added to the old one, as in a residual network."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "weight_hh": p["weight_hh"] + np.eye(len(p["bias"]))}, **inputs)
