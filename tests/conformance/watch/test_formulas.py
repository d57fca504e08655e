"""Formulas without their root, their half or their sign are told; what is near them and right is not."""

import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

NOISE, GUIDANCE, DRAWS = (
    "run-noise-keeps-the-variance",
    "run-guidance-leads-to-the-condition",
    "run-draws-have-the-deviation",
)
CHANCES, SMALLER, FALLS = (
    "run-chances-are-what-they-are-named", "run-clipped-objective-is-the-smaller", "run-loss-falls-with-what-is-to-grow"
)  # fmt: skip
LOGARITHM = "run-logarithms-of-scales-are-undone"
LOOP = """
import torch
from torch import nn
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
nn.functional.mse_loss(model(torch.ones(3, 2)), torch.ones(3, 1)).backward()
optimizer.step()
"""
"""The functions below it are read and never called."""


def judged(claim, text):
    """The verdict of a claim on a script with this text, and the line that is named."""
    source = LOOP + text
    found = results_of(run_of(source, "train.py").run)[claim]
    at = re.search(r":(\d+):", found.place)
    return found.verdict, source.splitlines()[int(at.group(1)) - 1].strip() if at else ""


KL = "def loss_of(x, m, logvar):\n    kl = SIGN0.5 * torch.sum(1 + logvar - m**2 - logvar.exp())\n    return x + kl\n"
USED = "def step(x, mu, logvar):\n    loss = loss_of(x, mu, logvar)\n    loss.backward()\n"
DRAW = "def code(mu, logvar):\n    std = STD\n    return mu + torch.randn_like(std) * std\n"
PAIRED = (
    "class Pairs(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.logit_scale = nn.Parameter(torch.tensor(14.0).log())\n"
    "    def forward(self, a, b):\n        return USED * a @ b.T\n"
)
POLICY = "def learn(r, a, e):\n    one = r * a\n    two = torch.clamp(r, 1 - e, 1 + e) * a\n"


@pytest.mark.parametrize(
    ("claim", "text", "line"),
    [
        (NOISE, "def q(x, a, noise):\n    return torch.sqrt(a) * x + (1 - a) * noise\n", ""),
        (NOISE, "def q(x, a, t):\n    b = 1.0 - a\n    return x * a[t] ** 0.5 + torch.randn_like(x) * b[t]\n",
         "b = 1.0 - a"),
        (GUIDANCE, "def g(c, cond, uncond, w):\n    return cond + w * (uncond - cond)\n", ""),
        (GUIDANCE, "def g(e_c, e_u, w):\n    return (1 + w) * e_u - w * e_c\n", ""),
        (DRAWS, KL + DRAW.replace("STD", "logvar.exp()"), "std = logvar.exp()"),
        (CHANCES, "def d(y, p_drop, NULL):\n    y[torch.rand(4) > p_drop] = NULL\n", ""),
        (CHANCES, "def d(x, p_keep, mask_id):\n    w = torch.rand(4) < p_keep\n    return x.masked_fill(w, mask_id)\n",
         "w = torch.rand(4) < p_keep"),
        (SMALLER, POLICY + "    return -torch.max(one, two).mean()\n", "return -torch.max(one, two).mean()"),
        (SMALLER, POLICY + "    loss = torch.min(-one, -two).mean()\n    loss.backward()\n", ""),
        (FALLS, POLICY + "    gain = torch.min(one, two)\n    loss = gain.mean()\n    loss.backward()\n",
         "loss = gain.mean()"),
        (LOGARITHM, PAIRED.replace("USED", "self.logit_scale"), "return self.logit_scale * a @ b.T"),
        (LOGARITHM, PAIRED.replace("USED", "self.logit_scale") + "print(Pairs().logit_scale.exp().item())\n", ""),
        (FALLS, KL.replace("SIGN", "") + USED, "kl = 0.5 * torch.sum(1 + logvar - m**2 - logvar.exp())"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(claim, text, line):
    verdict, named = judged(claim, text.replace("SIGN", "-"))
    assert verdict is Verdict.FAIL
    assert not line or named == line


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (NOISE, "def q(x, a, noise):\n    return a.sqrt() * x + (1 - a).sqrt() * noise\n"),
        (NOISE, "def flow(x, t, noise):\n    return (1 - t) * x + t * noise\n"),
        (NOISE, "def mean(x0, x, a, b):\n    return a.sqrt() * x0 + (1 - a) * x\n"),
        (NOISE, "def walk(x, a, noise):\n    return a * x + (1 - a ** 2).sqrt() * noise\n"),
        (GUIDANCE, "def g(cond, uncond, w):\n    return uncond + w * (cond - uncond)\n"),
        (GUIDANCE, "def g(cond, uncond, w):\n    return (1 + w) * cond - w * uncond\n"),
        (GUIDANCE, "def g(cond, uncond, w):\n    return cond + w * (cond - uncond)\n"),
        (GUIDANCE, "def mix(a, b, w):\n    return a + w * (b - a)\n"),
        (DRAWS, KL + DRAW.replace("STD", "torch.exp(logvar / 2)")),
        (DRAWS, KL + DRAW.replace("STD", "logvar.exp().sqrt()")),
        (DRAWS, DRAW.replace("STD", "logvar.exp()")),
        (CHANCES, "def d(y, p_drop, NULL):\n    y[torch.rand(4) < p_drop] = NULL\n"),
        (CHANCES, "def d(labels, mask_prob):\n    labels[torch.rand(4) > mask_prob] = -100\n"),
        (CHANCES, "def d(x, other, p_noise):\n    other[torch.rand(4) > p_noise] = x\n"),
        (SMALLER, POLICY + "    return torch.max(-one, -two).mean()\n"),
        (SMALLER, "def value(v, old, r, e):\n    near = old + (v - old).clamp(-e, e)\n"
         "    return torch.max((v - r) ** 2, (near - r) ** 2).mean()\n"),
        (FALLS, POLICY + "    gain = torch.min(one, two)\n    loss = (1.0 - gain).mean()\n    loss.backward()\n"),
        (FALLS, POLICY + "    gain = torch.min(one, two)\n    return gain.mean()\n"),
        (FALLS, POLICY + "    gain = torch.min(one, two)\n    gain = -gain\n    gain.mean().backward()\n"),
        (FALLS, KL + USED),
        (LOGARITHM, PAIRED.replace("USED", "self.logit_scale.exp()")),
        (LOGARITHM, PAIRED.replace("USED", "torch.clamp(self.logit_scale, max=4.6).exp()")),
        (LOGARITHM, PAIRED.replace("USED * a", "a") + "def loss(scores, scale):\n    return scores * scale.exp()\n"),
        (LOGARITHM, PAIRED.replace(".log()", "").replace("USED", "self.logit_scale")),
    ],
)  # fmt: skip
def test_what_is_right_or_may_be_meant_is_not_told(claim, text):
    assert judged(claim, text.replace("SIGN", "-"))[0] is not Verdict.FAIL
