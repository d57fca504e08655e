"""Diffusion models: what is told of wrong noise, guidance, labels and averages, and what is left alone."""

import pytest

torch = pytest.importorskip("torch")

from wholes import told  # noqa: E402

from conformance.mutants.source import DENOISER  # noqa: E402

DROPPED, VARIANCE = "labels-are-dropped-only-in-training", "added-noise-keeps-the-variance"
GUIDANCE, SLOW = "guidance-leads-to-the-class", "slow-copies-of-weights-follow-slowly"
ADD = "return a.sqrt() * x + (1 - a).sqrt() * noise"
TAKES = "def add_noise(self, x, t, noise):"
DRAWN = {TAKES: "def add_noise(self, x, t):\n        noise = torch.randn_like(x)"}
GUIDED = "return without + scale * (self(x, t, labels) - without)"
WITH = "wanted = self(x, t, labels)\n        return "
MOVE = "slow.mul_(decay).add_(fast, alpha=1 - decay)"


@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    [
        (DROPPED, {}, "PASS"),
        (DROPPED, {"if self.training:": "if self.drop > 0:"}, "FAIL"),
        (DROPPED, {"if self.training:": "if False:"}, "NOT_PROVIDED"),
        (VARIANCE, {}, "PASS"),
        (VARIANCE, DRAWN, "PASS"),
        (VARIANCE, {ADD: "return a.sqrt() * x + (1 - a) * noise"}, "FAIL"),
        (VARIANCE, {**DRAWN, ADD: "return a * x + (1 - a).sqrt() * noise, noise"}, "FAIL"),
        (VARIANCE, {ADD: "return a * x + (1 - a) * noise"}, "NOT_PROVIDED"),  # a straight line from data to noise
        (VARIANCE, {ADD: "return x + 5 * a * noise"}, "NOT_PROVIDED"),  # noise that grows without end
        (VARIANCE, {TAKES: "def add_noise(self, x, t, noise, how):"}, "NOT_PROVIDED"),
        (GUIDANCE, {}, "PASS"),
        (GUIDANCE, {GUIDED: f"{WITH}(1 + scale) * wanted - scale * without"}, "PASS"),
        (GUIDANCE, {GUIDED: f"{WITH}wanted + scale * (wanted - without)"}, "PASS"),
        (GUIDANCE, {GUIDED: f"{WITH}wanted + scale * (without - wanted)"}, "FAIL"),
        (GUIDANCE, {GUIDED: f"{WITH}(1 + scale) * without - scale * wanted"}, "FAIL"),
        (GUIDANCE, {GUIDED: f"{WITH}wanted * scale"}, "NOT_PROVIDED"),
        (SLOW, {}, "PASS"),
        (SLOW, {MOVE: "slow.lerp_(fast, 1 - decay)"}, "PASS"),
        (SLOW, {MOVE: "slow.lerp_(fast, decay)"}, "FAIL"),
        (SLOW, {MOVE: "fast.mul_(decay).add_(slow, alpha=1 - decay)"}, "FAIL"),
    ],
)
def test_what_is_told_of_a_diffusion_model(made, claim, changes, expected):
    assert told(made, DENOISER, claim, changes) == expected
