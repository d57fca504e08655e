"""Mutants of dropout, cross-entropy, label smoothing and the mean squared error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.training import MSE, CrossEntropy, Dropout
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import training as f

# --- dropout ------------------------------------------------------------------------------------------


@mutant(breaks=("survivors-are-rescaled-once", "dropout-is-an-adaptive-ridge-penalty"))
class DropoutLayerWithoutRescale(Dropout):
    """Survivors are not multiplied by 1 / (1 - p)."""

    def factors(self, shape: tuple[int, ...]) -> Array:
        return (super().factors(shape) != 0).astype(np.float64)


@mutant(breaks=("dropout-is-the-identity-in-evaluation",))
class DropoutLayerInEvaluation(Dropout):
    """Dropout drops in evaluation too."""

    def train(self, mode: bool = True) -> None:
        self.training = True


@mutant(breaks=("dropout-is-the-identity-in-evaluation",))
class EvaluationScaledToo(Dropout):
    """The outputs of evaluation are multiplied by 1 - p although training already rescales."""

    def factors(self, shape: tuple[int, ...]) -> Array:
        return super().factors(shape) * (1.0 if self.training else 1.0 - self.config["p"])


@mutant(breaks=("dropout-is-the-identity-in-evaluation",))
class EvaluationForEver(Dropout):
    """Switching to evaluation sets p to 0 for good."""

    def train(self, mode: bool = True) -> None:
        super().train(mode)
        if not mode:
            self.config = {**self.config, "p": 0.0}


@mutant(breaks=("dropout-zeroes-a-fraction-p", "dropout-rate-is-the-share-switched-off"))
class RateIsKeepProbability(Dropout):
    """p is taken for the probability to keep."""

    def __init__(self, config: Mapping[str, Any], dtype: Any = np.float64) -> None:
        super().__init__(config, dtype)
        self.config["p"] = 1.0 - self.config["p"]


@mutant(breaks=("dropout-draws-a-new-mask-at-each-step",))
class OneMaskForAllSteps(Dropout):
    """The mask is drawn once, with the layer."""

    def factors(self, shape: tuple[int, ...]) -> Array:
        self.rng = np.random.default_rng(0)
        return super().factors(shape)


@mutant(breaks=("dropout-draws-a-new-mask-at-each-step",))
class OneMaskForTheBatch(Dropout):
    """All samples and positions share one mask."""

    def factors(self, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(super().factors(shape[-1:]), shape)


@mutant(breaks=("dropout-trains-two-to-the-n-networks", "dropout-is-an-adaptive-ridge-penalty"))
class WholeRowsDropped(Dropout):
    """All units of a sample are dropped together."""

    def factors(self, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(super().factors((*shape[:-1], 1)), shape)


@mutant(breaks=("dropout-trains-two-to-the-n-networks",))
class DroppedUnitsGetGradient(Dropout):
    """The backward pass does not apply the mask."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        return {"x": cotangent}, {}


@mutant(breaks=("dropout-saves-no-computation",))
class DroppedUnitsRemoved(Dropout):
    """Dropped units are removed instead of zeroed."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        out = super().forward(p, **inputs)["out"]
        return {"out": out[..., : max(out.shape[-1] // 2, 1)] if self.training else out}


@mutant(breaks=("dropout-rate-is-the-share-switched-off",))
class CertainDropDividesByZero(Dropout):
    """At p = 1 the zero survivors are divided by zero."""

    def factors(self, shape: tuple[int, ...]) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.float64(self.config["p"])
            return (self.rng.random(shape) >= rate) / (1.0 - rate) if self.training else np.ones(shape)


# --- cross-entropy ------------------------------------------------------------------------------------


@mutant(breaks=("cross-entropy-is-minus-log-probability",))
class LogarithmOfSoftmax(CrossEntropy):
    """The loss is the logarithm of a softmax that has underflowed, guarded by 1e-12."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        probabilities = np.exp(f.log_softmax(inputs["logits"]))
        return super().forward(p, **{**inputs, "logits": np.log(probabilities + 1e-12)})


@mutant(breaks=("cross-entropy-is-minus-log-probability", "uniform-predictions-cost-ln-v"))
class BitsInsteadOfNats(CrossEntropy):
    """The logarithm has base 2."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": super().forward(p, **inputs)["out"] / np.log(2.0)}


@mutant(breaks=("cross-entropy-falls-as-the-target-gains", "cross-entropy-is-minus-log-probability"))
class LossOfTheOppositeSign(CrossEntropy):
    """The loss is the log-probability, without the minus."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": -super().forward(p, **inputs)["out"]}


@mutant(breaks=("cross-entropy-is-minus-log-probability", "cross-entropy-equals-the-one-hot-sum"))
class SoftmaxBeforeTheLoss(CrossEntropy):
    """The logits go through a softmax before the loss applies its own."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, **{**inputs, "logits": np.exp(f.log_softmax(inputs["logits"]))})


@mutant(breaks=("position-100-is-the-101st-word", "cross-entropy-equals-the-one-hot-sum"))
class TargetsCountFromOne(CrossEntropy):
    """Label t is taken for the t-th word, at index t - 1."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, **{**inputs, "targets": inputs["targets"] - 1})


@mutant(breaks=("cross-entropy-leaves-padding-out-of-the-mean", "a-batch-of-padding-alone-has-no-loss"), known_as="S03")
class PaddingCountedInTheMean(CrossEntropy):
    """Ignored labels are scored like any other."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(f.cross_entropy(**inputs, **{**self.config, "ignore_index": None}))}


@mutant(breaks=("cross-entropy-leaves-padding-out-of-the-mean",))
class DividedByAllPositions(CrossEntropy):
    """The sum over kept labels is divided by the number of all positions."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        if self.config["reduction"] != "mean":
            return super().forward(p, **inputs)
        losses = f.cross_entropy(**inputs, **{**self.config, "reduction": "none"})
        return {"out": np.asarray(losses.mean())}


@mutant(breaks=("sequence-probability-is-a-product-of-conditionals",))
class SumIsMean(CrossEntropy):
    """The reduction 'sum' takes the mean."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        reduction = "none" if self.config["reduction"] == "none" else "mean"
        return {"out": np.asarray(f.cross_entropy(**inputs, **{**self.config, "reduction": reduction}))}


@mutant(breaks=("a-position-is-scored-by-its-own-logits", "cross-entropy-equals-the-one-hot-sum"))
class NormalisedOverPositions(CrossEntropy):
    """The softmax of the loss runs over the positions instead of the vocabulary."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, **{**inputs, "logits": f.log_softmax(inputs["logits"], 0)})


@mutant(breaks=("cross-entropy-takes-predictions-then-labels",))
class ExchangedArgumentsAccepted(CrossEntropy):
    """Predictions and labels are told apart by their shape, whichever comes first."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        logits, targets = sorted(inputs.values(), key=lambda value: -value.ndim)
        return super().forward(p, logits=logits, targets=targets)


# --- label smoothing ----------------------------------------------------------------------------------


@mutant(
    breaks=("label-smoothing-mixes-with-the-uniform-distribution", "smoothing-has-a-finite-optimum"),
)
class SmoothingIgnored(CrossEntropy):
    """Label smoothing is accepted and not applied."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(f.cross_entropy(**inputs, **{**self.config, "label_smoothing": 0.0}))}


@mutant(breaks=("label-smoothing-spreads-eps-over-the-other-words",), known_as="S02")
class SmoothingOverAllForOthers(CrossEntropy):
    """Where eps belongs to the other words it is spread over all, the target among them."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(f.cross_entropy(**inputs, **{**self.config, "smoothing_over": "all"}))}


@mutant(breaks=("label-smoothing-mixes-with-the-uniform-distribution",))
class SmoothingOverOthersForAll(CrossEntropy):
    """Where eps belongs to all words it is spread over the others alone."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(f.cross_entropy(**inputs, **{**self.config, "smoothing_over": "others"}))}


class _WrongTargets(CrossEntropy):
    """Cross-entropy with target distributions of a subclass's making."""

    def wanted(self, targets: Array, classes: int, eps: float) -> Array:
        raise NotImplementedError("a subclass says what it wants of the logits")

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        logits, targets, c = inputs["logits"], inputs["targets"], self.config
        kept = targets != c["ignore_index"] if c["ignore_index"] is not None else np.ones(len(targets), bool)
        wanted = self.wanted(np.where(kept, targets, 0), logits.shape[-1], c["label_smoothing"])
        losses = np.where(kept, -(wanted * f.log_softmax(logits)).sum(axis=-1), 0.0)
        if c["reduction"] == "none":
            return {"out": losses}
        return {"out": np.asarray(losses.sum() / (kept.sum() if c["reduction"] == "mean" else 1))}


@mutant(breaks=("label-smoothing-mixes-with-the-uniform-distribution", "uniform-predictions-cost-ln-v"), known_as="S07")
class SmoothedTargetsSumToMoreThanOne(_WrongTargets):
    """The uniform part is added without taking 1 - eps of the label."""

    def wanted(self, targets: Array, classes: int, eps: float) -> Array:
        return np.eye(classes)[targets] + eps / classes


@mutant(breaks=("label-smoothing-mixes-with-the-uniform-distribution", "uniform-predictions-cost-ln-v"))
class UniformPartSummed(_WrongTargets):
    """The uniform part is the sum over the words, not their mean: each word is taught eps, not eps / V."""

    def wanted(self, targets: Array, classes: int, eps: float) -> Array:
        return (1.0 - eps) * np.eye(classes)[targets] + eps


@mutant(breaks=("label-smoothing-mixes-with-the-uniform-distribution", "uniform-predictions-cost-ln-v"))
class FillerOfOneThousandth(_WrongTargets):
    """Every other word gets the printed 0.001, whatever the size of the vocabulary."""

    def wanted(self, targets: Array, classes: int, eps: float) -> Array:
        one_hot = np.eye(classes)[targets]
        return np.where(one_hot > 0, 1.0 - eps, 0.001 if eps else 0.0)


@mutant(breaks=("label-smoothing-takes-one-label",))
class OneSmoothedTargetForTheBatch(_WrongTargets):
    """A batch of targets makes one vector with 1 - eps at each of their indices."""

    def wanted(self, targets: Array, classes: int, eps: float) -> Array:
        marked = np.isin(np.arange(classes), targets)
        return np.broadcast_to(np.where(marked, 1.0 - eps, eps / (classes - 1)), (len(targets), classes))


@mutant(breaks=("certainty-costs-nothing-without-smoothing", "cross-entropy-is-minus-log-probability"))
class AlwaysSmoothed(_WrongTargets):
    """Targets are smoothed by 0.1 even where no smoothing is asked for."""

    def wanted(self, targets: Array, classes: int, eps: float) -> Array:
        return f.smoothed_targets(targets, classes, eps or 0.1)


@mutant(breaks=("gradient-of-the-smoothed-loss",))
class GradientWithoutSmoothing(CrossEntropy):
    """The gradient is that of the unsmoothed loss."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        wanted = f.cross_entropy_gradient(inputs["logits"], inputs["targets"], ignore_index=self.config["ignore_index"])
        return {"logits": wanted * cotangent}, {}


@mutant(breaks=("gradient-of-the-smoothed-loss",))
class IgnoredRowsGetGradient(CrossEntropy):
    """The logits of ignored labels get a gradient."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        eps = self.config["label_smoothing"]
        return {"logits": f.cross_entropy_gradient(inputs["logits"], inputs["targets"], label_smoothing=eps)}, {}


# --- mean squared error -------------------------------------------------------------------------------


@mutant(breaks=("mse-is-the-mean-of-squares",))
class HalvedSumOfSquares(MSE):
    """The loss is half the sum of squares, under the name of their mean."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(((inputs["x"] - inputs["target"]) ** 2).sum() / 2)}


@mutant(breaks=("loss-measures-how-wrong-a-result-is", "mse-is-the-mean-of-squares"))
class SignedError(MSE):
    """The errors are not squared, so that those of both signs cancel."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray((inputs["x"] - inputs["target"]).mean())}
