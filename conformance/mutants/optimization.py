"""Mutants of the warm-up schedule, gradient clipping, optimizers and gradient accumulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.training import ClipGradNorm, GradientAccumulation, Optimizer, WarmupSchedule
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import training as f

# --- schedule -----------------------------------------------------------------------------------------


class _WrongRate(WarmupSchedule):
    """A schedule with another formula of (step, d_model, warmup)."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        raise NotImplementedError("a subclass says what its rate is")

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": np.asarray(self.rate(inputs["step"], self.config["d_model"], self.config["warmup"]))}


@mutant(breaks=("the-rate-is-defined-at-step-zero",), known_as="W02")
class StepZeroDividesByZero(_WrongRate):
    """Step 0 is put into the formula, which has no value there."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        return d**-0.5 * min(step**-0.5, step * warmup**-1.5)


@mutant(breaks=("the-rate-is-defined-at-step-zero",))
class StepZeroRunsAtThePeak(_WrongRate):
    """The rate of step 0 is the highest of all."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        return f.warmup_rate(step or warmup, d, warmup)


@mutant(
    breaks=(
        "warmup-rate-is-d-model-and-two-powers-of-step",
        "the-rate-rises-during-warmup-and-falls-after",
    ),
    known_as="W03",
)
class WarmupExponentHalf(_WrongRate):
    """The second branch divides by warmup^0.5 instead of warmup^1.5."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        return d**-0.5 * min(step**-0.5, step * warmup**-0.5) if step else 0.0


@mutant(breaks=("the-rate-rises-during-warmup-and-falls-after", "warmup-rate-is-d-model-and-two-powers-of-step"))
class LargerBranch(_WrongRate):
    """The larger of the two branches is taken."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        return d**-0.5 * max(step**-0.5, step * warmup**-1.5) if step else 0.0


@mutant(breaks=("warmup-rate-is-d-model-and-two-powers-of-step", "after-warmup-the-rate-decays-as-the-root-of-step"))
class DecayOfThreeHalves(_WrongRate):
    """The rate falls with step^-1.5, not with step^-0.5."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        return d**-0.5 * min(step**-1.5, step * warmup**-1.5) if step else 0.0


@mutant(breaks=("warmup-rate-is-d-model-and-two-powers-of-step",))
class ModelWidthForgotten(_WrongRate):
    """The factor d_model^-0.5 is left out."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        return f.warmup_rate(step, 1, warmup)


@mutant(breaks=("the-rate-rises-during-warmup-and-falls-after", "warmup-rate-is-d-model-and-two-powers-of-step"))
class StepsCountFromZero(_WrongRate):
    """The rate of a step is that of the step before it."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        return f.warmup_rate(max(step - 1, 0), d, warmup)


@mutant(breaks=("warmup-is-linear",))
class QuadraticWarmup(_WrongRate):
    """The rate grows with the square of the step during warm-up."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        rate = f.warmup_rate(step, d, warmup)
        return rate * step / warmup if step < warmup else rate


@mutant(breaks=("after-warmup-the-rate-decays-as-the-root-of-step",))
class LinearDecay(_WrongRate):
    """After warm-up the rate falls like 1 / step."""

    def rate(self, step: float, d: int, warmup: int) -> float:
        rate = f.warmup_rate(step, d, warmup)
        return rate * (warmup / step) ** 0.5 if step > warmup else rate


# --- clipping -----------------------------------------------------------------------------------------


@mutant(breaks=("clipping-uses-one-norm-over-all-parameters",), known_as="O07")
class ClippedPerParameter(ClipGradNorm):
    """Each parameter's gradient is clipped by its own norm."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        clipped = [f.clip_by_global_norm([g], self.config["max_norm"])[0] for g in inputs["grads"]]
        return {**super().forward(p, **inputs), "out": clipped}


@mutant(breaks=("clipping-keeps-the-direction", "a-clipped-norm-never-exceeds-the-maximum"))
class ClippedByValue(ClipGradNorm):
    """Entries are clipped one by one instead of by their norm."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        limit = self.config["max_norm"]
        return {**super().forward(p, **inputs), "out": [np.clip(g, -limit, limit) for g in inputs["grads"]]}


@mutant(breaks=("gradients-within-the-norm-are-left-alone",))
class AlwaysRescaled(ClipGradNorm):
    """Every gradient is scaled to max_norm, small ones up and zeros to NaN."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        with np.errstate(invalid="ignore"):
            scale = self.config["max_norm"] / np.float64(f.global_norm(inputs["grads"]))
            return {**super().forward(p, **inputs), "out": [g * scale for g in inputs["grads"]]}


@mutant(breaks=("a-clipped-norm-never-exceeds-the-maximum", "clipping-uses-one-norm-over-all-parameters"))
class ScaledByTheRootOfTheNorm(ClipGradNorm):
    """Gradients are divided by the root of their norm."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        norm, limit = f.global_norm(inputs["grads"]), self.config["max_norm"]
        scale = (limit / norm) ** 0.5 if norm > limit else 1.0
        return {**super().forward(p, **inputs), "out": [g * scale for g in inputs["grads"]]}


@mutant(breaks=("clipping-uses-one-norm-over-all-parameters",))
class NormAfterClipping(ClipGradNorm):
    """The norm that is returned is the one after clipping."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        out = super().forward(p, **inputs)
        return {**out, "norm": np.asarray(f.global_norm(out["out"]))}


# --- optimizers ---------------------------------------------------------------------------------------


@mutant(breaks=("sgd-subtracts-the-rate-times-the-gradient", "too-large-a-rate-diverges-and-too-small-is-slow"))
class Ascent(Optimizer):
    """The update is added instead of subtracted."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        return super().forward(p, params=inputs["params"], grads=[[-g for g in step] for step in inputs["grads"]])


@mutant(breaks=("too-large-a-rate-diverges-and-too-small-is-slow", "a-ravine-makes-gradient-descent-oscillate"))
class RateAppliedTwice(Optimizer):
    """SGD multiplies by the rate twice."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        scale = self.config["lr"] if self.config["kind"] == "sgd" else 1.0
        scaled = [[g * scale for g in step] for step in inputs["grads"]]
        return super().forward(p, params=inputs["params"], grads=scaled)


@mutant(breaks=("a-ravine-makes-gradient-descent-oscillate", "sgd-subtracts-the-rate-times-the-gradient"))
class NormalisedDescent(Optimizer):
    """SGD divides each gradient by its norm, so that no rate diverges."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        if self.config["kind"] != "sgd":
            return super().forward(p, **inputs)
        unit = [[g / max(np.linalg.norm(g), 1e-12) for g in step] for step in inputs["grads"]]
        return super().forward(p, params=inputs["params"], grads=unit)


class _WrongAdam(Optimizer):
    """Adam and AdamW with another step; sgd stays right. `t` counts from 1."""

    def direction(self, m: Array, v: Array, t: int) -> Array:
        """What the rate multiplies, from the raw moments."""
        beta1, beta2 = self.config["betas"]
        return m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + self.config["eps"])

    def gradient(self, g: Array, w: Array, decay: float) -> Array:
        return g if self.config["kind"] == "adamw" else g + decay * w

    def decayed(self, w: Array, decay: float) -> Array:
        return w * (1 - self.config["lr"] * decay) if self.config["kind"] == "adamw" else w

    def decays(self, params: list[Array]) -> list[float]:
        return f.weight_decays(self.config["weight_decay"], len(params))

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        if self.config["kind"] == "sgd":
            return super().forward(p, **inputs)
        beta1, beta2 = self.config["betas"]
        current, history = list(inputs["params"]), []
        decays = self.decays(current)
        m, v = [np.zeros_like(w) for w in current], [np.zeros_like(w) for w in current]
        for t, given in enumerate(inputs["grads"], start=1):
            for i, g in enumerate(given):
                g = self.gradient(g, current[i], decays[i])
                m[i], v[i] = beta1 * m[i] + (1 - beta1) * g, beta2 * v[i] + (1 - beta2) * g * g
                current[i] = self.decayed(current[i], decays[i]) - self.config["lr"] * self.direction(m[i], v[i], t)
            history.append(list(current))
        return {"out": history}


@mutant(breaks=("adam-step-follows-the-bias-corrected-moments",), known_as="O03")
class EpsBeforeBiasCorrection(_WrongAdam):
    """eps is added to the root of the raw second moment, so that the bias correction scales it."""

    def direction(self, m: Array, v: Array, t: int) -> Array:
        beta1, beta2 = self.config["betas"]
        return m * (1 - beta2**t) ** 0.5 / (1 - beta1**t) / (np.sqrt(v) + self.config["eps"])


@mutant(breaks=("adam-step-follows-the-bias-corrected-moments",))
class EpsInsideTheRoot(_WrongAdam):
    """eps is added under the root."""

    def direction(self, m: Array, v: Array, t: int) -> Array:
        beta1, beta2 = self.config["betas"]
        return m / (1 - beta1**t) / np.sqrt(v / (1 - beta2**t) + self.config["eps"])


@mutant(
    breaks=(
        "adam-step-follows-the-bias-corrected-moments",
        "sgd-follows-the-size-of-a-gradient-and-adam-does-not",
        "adamw-decays-weights-apart-from-the-gradient",
    )
)
class NoBiasCorrection(_WrongAdam):
    """The moments, which start at zero, are used as they are."""

    def direction(self, m: Array, v: Array, t: int) -> Array:
        return m / (np.sqrt(v) + self.config["eps"])


@mutant(breaks=("adam-step-follows-the-bias-corrected-moments",))
class StepNeverAdvances(_WrongAdam):
    """The bias correction stays that of the first step."""

    def direction(self, m: Array, v: Array, t: int) -> Array:
        return super().direction(m, v, 1)


@mutant(breaks=("adam-step-follows-the-bias-corrected-moments",))
class BetasFixed(Optimizer):
    """beta2 is 0.999 whatever was asked for."""

    def forward(self, p: Arrays, **inputs: Any) -> Any:
        self.config["betas"] = (self.config["betas"][0], 0.999)
        return super().forward(p, **inputs)


@mutant(breaks=("adamw-decays-weights-apart-from-the-gradient",))
class DecayInsideTheGradient(_WrongAdam):
    """AdamW adds weight decay to the gradient, as Adam does."""

    def gradient(self, g: Array, w: Array, decay: float) -> Array:
        return g + decay * w

    def decayed(self, w: Array, decay: float) -> Array:
        return w


@mutant(breaks=("adamw-decays-weights-apart-from-the-gradient",))
class DecayWithoutTheRate(_WrongAdam):
    """AdamW shrinks by the weight decay itself, not times the rate."""

    def decayed(self, w: Array, decay: float) -> Array:
        return w * (1 - decay) if self.config["kind"] == "adamw" else w


@mutant(breaks=("adamw-decays-weights-apart-from-the-gradient",))
class VectorsNotDecayed(_WrongAdam):
    """AdamW leaves out vectors that it was told to decay."""

    def decayed(self, w: Array, decay: float) -> Array:
        return w if w.ndim == 1 else super().decayed(w, decay)


@mutant(breaks=("weight-decay-is-set-by-parameter-group",), known_as="O04")
class VectorsDecayedAsMatrices(_WrongAdam):
    """AdamW decays biases and norm weights by the matrices' rate, though their group's is zero."""

    def decays(self, params: list[Array]) -> list[float]:
        return [max(super().decays(params))] * len(params)


@mutant(breaks=("weight-decay-is-set-by-parameter-group",))
class LastGroupForAll(_WrongAdam):
    """The settings of the last parameter group hold for all."""

    def decays(self, params: list[Array]) -> list[float]:
        return [super().decays(params)[-1]] * len(params)


# --- accumulation -------------------------------------------------------------------------------------


class _WrongShares(GradientAccumulation):
    """Accumulation whose micro-batches count otherwise than with their share of the tokens."""

    def share(self, kept: int, total: int) -> float:
        raise NotImplementedError("a subclass says what the mean gradient of a micro-batch is multiplied by")

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        pieces, pad = self.config["pieces"], self.config["pad_id"]
        batch = (f.pieces_of(inputs[name], pieces) for name in ("x", "labels"))
        gradient = np.zeros_like(p["weight"])
        for x, labels in zip(*batch, strict=True):
            share = self.share(int((labels != pad).sum()), int((inputs["labels"] != pad).sum()))
            gradient += share * f.mean_gradient(p["weight"], x, labels, pad)
        return {"out": gradient}


@mutant(breaks=("micro-batches-add-up-to-the-gradient-of-the-batch",), known_as="O09")
class MeanOfMeans(_WrongShares):
    """Each micro-batch counts the same, however many tokens it has."""

    def share(self, kept: int, total: int) -> float:
        return 1.0 / self.config["pieces"]


@mutant(breaks=("micro-batches-add-up-to-the-gradient-of-the-batch",), known_as="O10")
class AccumulatedNotDivided(_WrongShares):
    """The mean gradients of the micro-batches are added up and not divided."""

    def share(self, kept: int, total: int) -> float:
        return 1.0


@mutant(breaks=("micro-batches-add-up-to-the-gradient-of-the-batch",))
class SumOverTokens(_WrongShares):
    """The sum over all tokens is differentiated instead of the mean."""

    def share(self, kept: int, total: int) -> float:
        return float(kept)


@mutant(breaks=("micro-batches-add-up-to-the-gradient-of-the-batch",))
class LastMicroBatchOnly(GradientAccumulation):
    """The gradient is cleared before each micro-batch instead of before the first."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, labels = (f.pieces_of(inputs[name], self.config["pieces"])[-1] for name in ("x", "labels"))
        return {"out": f.mean_gradient(p["weight"], x, labels, self.config["pad_id"])}
