"""Mutants of LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.norms import LayerNorm, RMSNorm
from conformance.mutants.base import mutant
from conformance.protocol import Arrays
from conformance.reference import norms as f


@mutant(breaks=("layer-norm-is-per-token", "layer-norm-output-has-mean-zero-and-unit-variance"), known_as="N03")
class NormOverSequenceAndFeatures(LayerNorm):
    """The statistics are taken over the whole sequence, (T, d)."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        centred = x - x.mean((-2, -1), keepdims=True)
        variance = (centred**2).mean((-2, -1), keepdims=True)
        return {"out": centred / np.sqrt(variance + self.config["eps"]) * p["weight"] + p["bias"]}


@mutant(
    breaks=("layer-norm-is-per-token", "layer-norm-does-not-depend-on-the-batch", "layer-norm-formula"),
    known_as="N04",
)
class NormOverTheBatch(LayerNorm):
    """The statistics are taken over the batch, feature by feature (batch normalisation)."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        centred = x - x.mean((0, 1), keepdims=True)
        variance = (centred**2).mean((0, 1), keepdims=True)
        return {"out": centred / np.sqrt(variance + self.config["eps"]) * p["weight"] + p["bias"]}


@mutant(
    breaks=(
        "layer-norm-formula",
        "layer-norm-of-a-constant-is-its-bias",
        "layer-norm-gain-and-shift-are-elementwise",
        "layer-norm-gradients-of-gain-and-shift",
    ),
    known_as="N05",
)
class NormWithoutBias(LayerNorm):
    """beta is stored and never added."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": super().forward(p, **inputs)["out"] - p["bias"]}


@mutant(
    breaks=(
        "layer-norm-formula",
        "layer-norm-variance-divides-by-d",
        "layer-norm-output-has-mean-zero-and-unit-variance",
    )
)
class NormUnbiasedVariance(LayerNorm):
    """The variance divides by d - 1."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).sum(-1, keepdims=True) / max(x.shape[-1] - 1, 1)
        return {"out": centred / np.sqrt(variance + self.config["eps"]) * p["weight"] + p["bias"]}


@mutant(breaks=("layer-norm-eps-stands-inside-the-root",))
class NormEpsOutsideTheRoot(LayerNorm):
    """eps is added to the standard deviation."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        deviation = x.std(-1, keepdims=True)
        return {"out": (x - x.mean(-1, keepdims=True)) / (deviation + self.config["eps"]) * p["weight"] + p["bias"]}


@mutant(breaks=("layer-norm-formula", "layer-norm-is-per-token"))
class NormMeanOverTokens(LayerNorm):
    """The mean is taken over the tokens, feature by feature, and the variance over the features."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        deviation = np.sqrt(x.var(-1, keepdims=True) + self.config["eps"])
        return {"out": (x - x.mean(-2, keepdims=True)) / deviation * p["weight"] + p["bias"]}


@mutant(breaks=("layer-norm-formula", "layer-norm-is-per-token"))
class NormVarianceOverTokens(LayerNorm):
    """The variance is taken over the tokens, feature by feature, and the mean over the features."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        deviation = np.sqrt(x.var(-2, keepdims=True) + self.config["eps"])
        return {"out": (x - x.mean(-1, keepdims=True)) / deviation * p["weight"] + p["bias"]}


@mutant(breaks=("layer-norm-of-a-constant-is-its-bias", "layer-norm-eps-stands-inside-the-root"))
class NormWithoutEps(LayerNorm):
    """eps is ignored: a constant token becomes NaN."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        with np.errstate(invalid="ignore", divide="ignore"):
            return {"out": f.layer_norm(inputs["x"], p["weight"], p["bias"], 0.0)}


@mutant(breaks=("layer-norm-formula", "layer-norm-ignores-shift-and-scale"))
class NormDividesByVariance(LayerNorm):
    """The square root is forgotten (** 2 for ** 0.5)."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        centred = x - x.mean(-1, keepdims=True)
        return {"out": centred / (x.var(-1, keepdims=True) + self.config["eps"]) * p["weight"] + p["bias"]}


@mutant(
    breaks=(
        "layer-norm-formula",
        "layer-norm-ignores-shift-and-scale",
        "layer-norm-of-a-constant-is-its-bias",
        "layer-norm-is-rms-norm-of-the-centred-vector",
    )
)
class NormWithoutCentring(LayerNorm):
    """The mean is not subtracted."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.rms_norm(inputs["x"], p["weight"], self.config["eps"]) + p["bias"]}


@mutant(breaks=("layer-norm-survives-a-large-offset",))
class NormVarianceOfSquares(LayerNorm):
    """The variance is E[x^2] - E[x]^2."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        mean = x.mean(-1, keepdims=True)
        variance = np.maximum((x**2).mean(-1, keepdims=True) - mean**2, 0.0)
        return {"out": (x - mean) / np.sqrt(variance + self.config["eps"]) * p["weight"] + p["bias"]}


@mutant(breaks=("layer-norm-gain-and-shift-are-elementwise", "layer-norm-gradients-of-gain-and-shift"))
class NormGainAveraged(LayerNorm):
    """One gain for all features: the mean of gamma."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        weight = np.full_like(p["weight"], p["weight"].mean())
        return super().forward({**p, "weight": weight}, **inputs)


@mutant(breaks=("layer-norm-has-a-gain-and-a-shift-per-feature",))
class NormGainStartsAtZero(LayerNorm):
    """gamma starts at zero (for code that multiplies by 1 + gamma, which this does not)."""

    def initialise(self) -> Arrays:
        return {**super().initialise(), "weight": np.zeros(self.config["d_model"])}


@mutant(breaks=("layer-norm-is-the-same-in-training",))
class NormWithRunningMean(LayerNorm):
    """Training keeps a running mean, which inference subtracts."""

    running = 0.0

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        if self.training:
            self.running = 0.9 * self.running + 0.1 * float(x.mean())
            return super().forward(p, **inputs)
        return {"out": super().forward(p, **inputs)["out"] - self.running}


# --- RMSNorm --------------------------------------------------------------------------------------


@mutant(breaks=("rms-norm-formula", "rms-norm-keeps-the-mean"), known_as="N08")
class RMSNormCentred(RMSNorm):
    """The mean is subtracted first: LayerNorm without a bias."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return super().forward(p, x=x - x.mean(-1, keepdims=True))


@mutant(breaks=("rms-norm-formula", "rms-norm-keeps-the-mean", "rms-norm-ignores-scale"), known_as="N09")
class RMSNormOfTheSum(RMSNorm):
    """The root of the sum of squares, not of their mean."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return {"out": x / np.sqrt((x**2).sum(-1, keepdims=True) + self.config["eps"]) * p["weight"]}


@mutant(breaks=("rms-norm-formula", "rms-norm-ignores-scale"))
class RMSNormWithoutRoot(RMSNorm):
    """x is divided by the mean square, not by its root."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return {"out": x / ((x**2).mean(-1, keepdims=True) + self.config["eps"]) * p["weight"]}


@mutant(breaks=("rms-norm-formula",))
class RMSNormEpsOutsideTheRoot(RMSNorm):
    """eps is added to the root."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return {"out": x / (np.sqrt((x**2).mean(-1, keepdims=True)) + self.config["eps"]) * p["weight"]}


@mutant(breaks=("rms-norm-formula", "layer-norm-is-rms-norm-of-the-centred-vector"))
class RMSNormOnePlusWeight(RMSNorm):
    """The gain is 1 + weight, whatever was loaded."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({"weight": 1.0 + p["weight"]}, **inputs)


@mutant(breaks=("rms-norm-has-one-gain-per-feature",))
class RMSNormWithBias(RMSNorm):
    """There is a shift, too."""

    def initialise(self) -> Arrays:
        return {**super().initialise(), "bias": np.zeros(self.config["d_model"])}
