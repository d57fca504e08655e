"""Mutants of scripts whose formulas lack a root, a half or a sign: diffusion, variational codes, rewards."""

from __future__ import annotations

from conformance.mutants.script import GENERATION, PAIRS, REWARDS, ROWS, script

script(
    "NoiseWithoutItsRoot",
    GENERATION,
    ("(1 - share).sqrt() * noise", "(1 - share) * noise"),
    breaks=("run-noise-keeps-the-variance",),
    defect="The noise has its share of the variance in place of the root.",
)
script(
    "GuidanceTurnedRound",
    GENERATION,
    ("eps_uncond + GUIDANCE * (eps_cond - eps_uncond)", "eps_cond + GUIDANCE * (eps_uncond - eps_cond)"),
    breaks=("run-guidance-leads-to-the-condition",),
    defect="Guidance leads away from the condition.",
)
script(
    "VarianceForDeviation",
    GENERATION,
    ("torch.exp(0.5 * logvar) * noise", "torch.exp(logvar) * noise"),
    breaks=("run-draws-have-the-deviation",),
    defect="Codes are drawn with the variance in place of the deviation.",
)
script(
    "ClassesMostlyDropped",
    GENERATION,
    ("torch.rand(len(labels)) < P_UNCOND", "torch.rand(len(labels)) > P_UNCOND"),
    breaks=("run-chances-are-what-they-are-named",),
    defect="Nine in ten classes are dropped.",
)
script(
    "DivergenceWithoutMinus",
    GENERATION,
    ("kl = -0.5 * torch.sum(", "kl = 0.5 * torch.sum("),
    breaks=("run-loss-falls-with-what-is-to-grow",),
    defect="The divergence is learned to grow.",
)
script(
    "LargerOfTheClipped",
    REWARDS,
    ("gain = torch.min(", "gain = torch.max("),
    breaks=("run-clipped-objective-is-the-smaller",),
    defect="Of the objective and its clipped one the larger is taken.",
)
script(
    "RewardsAreUnlearned",
    REWARDS,
    ("return -gain.mean()", "return gain.mean()"),
    breaks=("run-loss-falls-with-what-is-to-grow",),
    defect="The objective is made small.",
)
script(
    "SigmoidTwice",
    ROWS,
    (
        "            loss = F.cross_entropy(model(x), labels)\n            optimizer",
        "            chances = model(x).sigmoid()\n"
        "            loss = F.binary_cross_entropy_with_logits(chances, F.one_hot(labels, CLASSES).float())\n"
        "            optimizer",
    ),
    breaks=("run-cross-entropy-gets-logits",),
    defect="The binary cross-entropy, which takes the sigmoid itself, gets chances.",
)
script(
    "LogarithmForScale",
    PAIRS,
    ("self.scale = nn.Parameter(torch.tensor(2.0))", "self.scale = nn.Parameter(torch.tensor(7.4).log())"),
    ("return self.scale.exp() * one @ two.T", "return self.scale * one @ two.T"),
    breaks=("run-logarithms-of-scales-are-undone",),
    defect="The logarithm of the scale is taken for the scale.",
)
