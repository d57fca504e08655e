"""Layers that a model makes anew in every call, and slopes that a softmax hides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

TAGGER = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(20, 8, padding_idx=0), nn.Embedding(16, 8)
        self.q, self.k, self.v, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)
        self.out = OUT

    def forward(self, ids):
        x = self.table(ids) + self.places(torch.arange(ids.size(1)))
        scores = (self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5).masked_fill(ids.eq(0)[:, None], -1e9)
        return self.head(MIX(scores.softmax(-1) @ self.v(x)) + x)
"""
ANEW = TAGGER.replace("MIX", "nn.Linear(8, 8)").replace("OUT", "None")
ONCE = TAGGER.replace("MIX", "self.out").replace("OUT", "nn.Linear(8, 8)")
LATE = """
class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = None

    def forward(self, x):
        if self.inner is None:
            self.inner = nn.Linear(8, 8)
        return self.inner(x)
""" + TAGGER.replace("MIX", "self.out").replace("OUT", "Mix()")


@pytest.fixture
def checked(made: Callable[..., Any]) -> Callable[..., Any]:
    """checked(slug, "class Tagger...") is the evidence, and the running model."""
    import conformance.checks  # noqa: F401
    from conformance.adapters.whole.model import whole_model
    from conformance.check import CHECKS
    from conformance.runner import evidence_of

    def check(slug: str, text: str, change: Callable[[Any], None] = lambda subject: None) -> Any:
        subject = whole_model(made("Tagger", text), "masked_language_model")
        change(subject)
        impl = SimpleNamespace(build=lambda role, config: subject, variants=lambda: ())
        return evidence_of(CHECKS[slug], impl, 0)[0], subject

    return check


def test_a_layer_that_forward_makes_is_a_mistake_at_its_line(checked):
    evidence, subject = checked("model-evaluation-repeats-itself", ANEW)
    assert not evidence.ok
    assert "Each call makes Linear anew" in evidence.diagnosis
    [layer] = subject.renewed
    file, _, line = layer.place.rpartition(":")
    with open(file, encoding="utf-8") as written:
        assert "nn.Linear(8, 8)(scores" in written.readlines()[int(line) - 1]


@pytest.mark.parametrize("slug", ["encoder-padding-changes-nothing", "model-rows-of-a-batch-are-apart"])
def test_what_else_such_a_model_does_is_judged(checked, slug):
    assert checked(slug, ANEW)[0].ok


@pytest.mark.parametrize("text", [ONCE, LATE])
def test_a_layer_that_is_kept_is_none(checked, text):
    evidence, subject = checked("model-evaluation-repeats-itself", text)
    assert evidence.ok
    assert subject.renewed == ()


def test_weights_that_saturate_a_softmax_have_a_gradient_all_the_same(checked):
    def saturate(subject: Any) -> None:
        with torch.no_grad():
            subject.module.q.weight *= 1e6

    evidence, subject = checked("model-every-parameter-gets-a-gradient", ONCE, saturate)
    assert evidence.ok
    assert np.abs(subject.gradients(subject.example())["k.weight"]).max() == 0.0


def test_weights_that_nothing_reads_have_none(checked):
    evidence, _ = checked("model-every-parameter-gets-a-gradient", ONCE.replace("self.k(x)", "self.q(x)"))
    assert "k.weight" in evidence.diagnosis
