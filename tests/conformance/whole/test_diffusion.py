"""Diffusion models: what is told of wrong noise, guidance, labels and averages, and what is left alone."""

import pytest
from slow import one_in

torch = pytest.importorskip("torch")

from wholes import Whole, told  # noqa: E402

from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import DENOISER  # noqa: E402
from conformance.runner import run_check  # noqa: E402

DROPPED, VARIANCE = "labels-are-dropped-only-in-training", "added-noise-keeps-the-variance"
GUIDANCE, SLOW = "guidance-leads-to-the-class", "slow-copies-of-weights-follow-slowly"
ADD = "return a.sqrt() * x + (1 - a).sqrt() * noise"
TAKES = "def add_noise(self, x, t, noise):"
DRAWN = {TAKES: "def add_noise(self, x, t):\n        noise = torch.randn_like(x)"}
GUIDED = "return without + scale * (self(x, t, labels) - without)"
WITH = "wanted = self(x, t, labels)\n        return "
NORMAL, HANDED = "noise-of-training-is-that-of-sampling", "samplers-hand-over-the-noise-of-each-step"
DRAW = "torch.randn_like(x)"
AS_DATA = {
    "t, labels), noise)": "t, labels), x)",
    "noise = self(x, torch.full_like(labels, now), labels)": "one = self(x, torch.full_like(labels, now), labels)\n"
    "            noise = (x - kept**0.5 * one) / (1 - kept) ** 0.5",
}
DRAWING = {  # DDPM with the larger of its two usual variances
    "x = (x - (1 - kept) ** 0.5 * noise) / kept**0.5": "left = kept / next_kept\n"
    "            x = (x - (1 - left) / (1 - kept) ** 0.5 * noise) / left**0.5",
    "x = next_kept**0.5 * x + (1 - next_kept) ** 0.5 * noise": "x = x + (1 - left) ** 0.5 * torch.randn_like(x)",
}
LEVEL = "else self.alpha_bar[later]"
TOGETHER = (
    "both = self(torch.cat([x, x]), torch.cat([t, t]), torch.cat([labels, 0 * labels + self.n_classes]))\n        "
)
NO_CLASS = "dropped-labels-are-no-class"
NONE = "self.none, self.drop = nn.Embedding(n_classes + 1, width), n_classes"
UNGUIDED = {"def guided(self, x, t, labels, scale):": "def guided(self, x, t, labels, scale, how):"}
FILLED = "labels.masked_fill(torch.rand(labels.shape) < self.drop, self.none)"
PUT_IN = "labels = labels.clone()\n            labels[torch.rand(labels.shape) < self.drop] = self.none"
MOVE = "slow.mul_(decay).add_(fast, alpha=1 - decay)"


@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    one_in(
        3,
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
            (GUIDANCE, {GUIDED: f"{TOGETHER}a, b = both.chunk(2)\n        return b + scale * (a - b)"}, "PASS"),
            (GUIDANCE, {GUIDED: f"{TOGETHER}b, a = both.chunk(2)\n        return b + scale * (a - b)"}, "FAIL"),
            (NORMAL, {}, "PASS"),
            (NORMAL, {DRAW: "2 * torch.rand_like(x) - 1"}, "FAIL"),
            (NORMAL, {"def loss(self, x, labels):": "def loss(self, x, labels, how):"}, "NOT_PROVIDED"),
            (HANDED, {}, "PASS"),
            (HANDED, AS_DATA, "PASS"),
            (HANDED, DRAWING, "NOT_PROVIDED"),
            (HANDED, {**DRAWING, "- 1, 0, n_steps)": "- 1, 0, 50)"}, "PASS"),
            (HANDED, {**AS_DATA, LEVEL: "else self.alpha_bar[now - 1]"}, "FAIL"),
            (HANDED, {LEVEL: "else self.alpha_bar[now - 1]"}, "FAIL"),
            (HANDED, {LEVEL: "else self.alpha_bar[now] / 2"}, "FAIL"),
            (HANDED, {"- 1, 0, n_steps)": "// 9, 0, n_steps)"}, "NOT_PROVIDED"),  # it begins in the middle
            (NO_CLASS, {}, "PASS"),
            (NO_CLASS, {"torch.where(torch.rand(labels.shape) < self.drop, self.none, labels)": FILLED}, "PASS"),
            (
                NO_CLASS,
                {"labels = torch.where(torch.rand(labels.shape) < self.drop, self.none, labels)": PUT_IN},
                "PASS",
            ),
            (NO_CLASS, {"torch.full_like(labels, self.n_classes)": "torch.zeros_like(labels)"}, "FAIL"),
            (NO_CLASS, {NONE: "self.none, self.drop = nn.Embedding(n_classes + 1, width), 0"}, "FAIL"),
            (
                NO_CLASS,
                {NONE: "self.none, self.drop = nn.Embedding(n_classes + 1, width), n_classes - 1"} | UNGUIDED,
                "FAIL",
            ),
            (
                NO_CLASS,
                {NONE: "self.none, self.drop = nn.Embedding(n_classes + 1, width), 0"} | UNGUIDED,
                "PASS",
            ),  # labels from 1
            (NO_CLASS, {"nn.Embedding(n_classes + 1, width)": "nn.Embedding(n_classes, width)"}, "FAIL"),
            (
                NO_CLASS,
                {NONE: "self.none, self.drop = nn.Embedding(n_classes, width), 0"} | UNGUIDED,
                "NOTE",
            ),  # 0 may be none
            (NO_CLASS, {"if self.training:": "if False:"}, "NOT_PROVIDED"),
            (SLOW, {}, "PASS"),
            (SLOW, {MOVE: "slow.lerp_(fast, 1 - decay)"}, "PASS"),
            (SLOW, {MOVE: "slow.lerp_(fast, decay)"}, "FAIL"),
            (SLOW, {MOVE: "fast.mul_(decay).add_(slow, alpha=1 - decay)"}, "FAIL"),
        ],
    ),
)
def test_what_is_told_of_a_diffusion_model(made, claim, changes, expected):
    assert told(made, DENOISER, claim, changes) == expected


def test_a_loss_of_other_noise_is_named(made):
    text = DENOISER.source.replace(DRAW, "2 * torch.rand_like(x) - 1")
    found = run_check(CHECKS[NORMAL], Whole(whole_model(made(DENOISER.name, text))), "quick")
    assert found.diagnosis.startswith("loss adds uniform noise")
    assert "torch.rand_like(x)" in found.place
