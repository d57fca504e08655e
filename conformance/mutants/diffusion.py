"""Mutants of a diffusion model: other noise than its variance says, guidance away from the class, dropped labels."""

from __future__ import annotations

from conformance.mutants.source import DENOISER, changed

DROPPED = "labels-are-dropped-only-in-training"
VARIANCE = "added-noise-keeps-the-variance"
GUIDANCE = "guidance-leads-to-the-class"
NORMAL = "noise-of-training-is-that-of-sampling"
HANDED = "samplers-hand-over-the-noise-of-each-step"

changed(
    "LabelsDroppedInEvaluation",
    DENOISER,
    "if self.training:",
    "if self.drop > 0:",
    breaks=(DROPPED,),
    defect="Labels are dropped at random in evaluation, too.",
)
changed(
    "NoiseWithoutTheRoot",
    DENOISER,
    "(1 - a).sqrt() * noise",
    "(1 - a) * noise",
    breaks=(VARIANCE,),
    defect="The noise is multiplied by its share of the variance, without the square root.",
)
changed(
    "DataWithoutTheRoot",
    DENOISER,
    "return a.sqrt() * x",
    "return a * x",
    breaks=(VARIANCE,),
    defect="The data are multiplied by their share of the variance, without the square root.",
)
changed(
    "GuidedAwayFromTheClass",
    DENOISER,
    "return without + scale * (self(x, t, labels) - without)",
    "wanted = self(x, t, labels)\n        return wanted + scale * (without - wanted)",
    breaks=(GUIDANCE,),
    defect="Guidance leads from the class to the answer without one.",
)
changed(
    "AverageOfTheWholeModelRunsAhead",
    DENOISER,
    "slow.mul_(decay).add_(fast, alpha=1 - decay)",
    "slow.mul_(1 - decay).add_(fast, alpha=decay)",
    breaks=("slow-copies-of-weights-follow-slowly",),
    defect="The average that is handed in keeps little of itself.",
)
changed(
    "TaughtUniformNoise",
    DENOISER,
    "torch.randn_like(x)",
    "torch.rand_like(x)",
    breaks=(NORMAL,),
    defect="The noise of training is uniform, and sampling begins with normal noise.",
)
changed(
    "SamplesTheNextLevel",
    DENOISER,
    "else self.alpha_bar[later]",
    "else self.alpha_bar[now - 1]",
    breaks=(HANDED,),
    defect="The sampler goes to the next level, and not to the one of the step that it takes next.",
)
changed(
    "SamplesWithoutTheRoot",
    DENOISER,
    "(1 - next_kept) ** 0.5 * noise",
    "(1 - next_kept) * noise",
    breaks=(HANDED,),
    defect="The sampler adds noise by its share of the variance, without the square root.",
)
changed(
    "DroppedLabelsAreTheFirstClass",
    DENOISER,
    "< self.drop, self.none, labels)",
    "< self.drop, 0, labels)",
    breaks=("dropped-labels-are-no-class",),
    defect="Labels that are dropped become the first class, and guidance asks for the row behind the last one.",
)
