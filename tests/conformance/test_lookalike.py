"""Which known mistake an implementation makes, said by the mutant that answers as it does."""

from __future__ import annotations

import numpy as np
import pytest
from miniatures import Correct, Raises, Unscaled
from torch import nn
from torch.nn import functional as F

import conformance.checks  # noqa: F401
from conformance.adapters import Specification
from conformance.adapters.examples.numpy_class import Attention
from conformance.adapters.whole.implementation import PointedImplementation
from conformance.check import CHECKS
from conformance.draw import Draw, Pinned, Recorded, Replayed
from conformance.lookalike import Shadow
from conformance.mutants import MUTANTS
from conformance.observed import Observed
from conformance.protocol import NotProvided
from conformance.runner import run_check
from conformance.verdict import Verdict

SCALED = "attention-is-scaled-by-sqrt-d-k"
SAID = f"It looks like this mistake: {MUTANTS['Unscaled'].defect}"


class CausalOnly(Unscaled):
    """The scores are not divided by sqrt(d_k), and there is no attention that sees the future."""

    def build(self, role, config):
        if not config["causal"]:
            raise NotProvided("it is causal")
        return super().build(role, config)


class ScaledByTwo(Correct):
    """The queries are doubled, which no mutant does."""

    class subject(Attention):
        def __call__(self, query, **rest):
            return super().__call__(query * 2.7, **rest)


@pytest.mark.parametrize("claim", [SCALED, "longer-keys-get-more-weight"])
def test_a_mistake_is_named_for_every_claim_that_fails_by_it(claim):
    result = run_check(CHECKS[claim], Unscaled())
    assert (result.verdict, result.diagnosis) == (Verdict.FAIL, SAID)


def test_a_mutant_refuses_what_the_implementation_refuses():
    shadow = Observed(Shadow(MUTANTS["Unscaled"].implementation(), Observed(CausalOnly())))
    with pytest.raises(NotProvided, match="it is causal"):
        shadow.build("attention", {"causal": False})
    assert shadow.build("attention", {"causal": True}).attributes == {"masked_row": "zero"}


def test_a_mistake_that_is_not_known_has_no_name():
    result = run_check(CHECKS[SCALED], ScaledByTwo())
    assert (result.verdict, result.diagnosis) == (Verdict.FAIL, "")


def test_what_is_kept_and_what_raises_has_no_diagnosis():
    assert run_check(CHECKS[SCALED], Correct()).diagnosis == ""
    assert run_check(CHECKS[SCALED], Raises()).diagnosis == ""


def test_a_shadow_starts_from_the_parameters_of_the_implementation():
    reference = MUTANTS["Unscaled"].implementation()
    role = "layer_norm"
    original = Observed(reference).build(role, {"d_model": 4})
    original.load({name: np.full(value.shape, 3.0) for name, value in original.params().items()})

    class Holds:
        name = "holds"

        def build(self, role, config):
            return original.subject

    subject = Observed(Shadow(reference, Observed(Holds()))).build(role, {"d_model": 4})
    x = np.arange(4.0).reshape(1, 4)
    np.testing.assert_allclose(subject(x=x)["out"], original(x=x)["out"])


def test_choices_are_replayed():
    recorded = Recorded(Pinned())
    first = Draw(recorded)
    seen = (first.int("n", 1, 9, 4), first.choice("c", "abc", "b"), first.float("f", 0.0, 1.0, 0.5))
    again = Draw(Replayed(recorded.choices))
    assert (again.int("n", 1, 9, 4), again.choice("c", "abc", "b"), again.float("f", 0.0, 1.0, 0.5)) == seen
    with pytest.raises(IndexError):
        again.int("more", 1, 9, 4)


class GatedOtherwise(nn.Module):
    """A gated network; its class names no function, which is handed in."""

    def __init__(self, dim, hidden, act=F.silu):
        super().__init__()
        self.act = act
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class SwiGLUByGelu(GatedOtherwise):
    def __init__(self, dim, hidden):
        super().__init__(dim, hidden, F.gelu)


class AddedToTheGate(GatedOtherwise):
    def forward(self, x):
        return self.down(F.silu(self.gate(x)) + self.up(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "role", "verdict", "words"),
    [
        (SwiGLUByGelu, "", Verdict.NOTE, "another usual way: The gate passes through GELU"),
        (SwiGLUByGelu, "swiglu", Verdict.FAIL, "another usual way: The gate passes through GELU"),
        (AddedToTheGate, "", Verdict.FAIL, "this mistake: The gate is added"),
    ],
)
def test_another_usual_way_is_no_mistake_where_nobody_asked_for_one(cls, role, verdict, words):
    pointed = PointedImplementation(cls, Specification("", __name__, cls.__name__, role=role))
    result = run_check(CHECKS["swiglu-formula"], pointed)
    assert result.verdict is verdict
    assert words in result.diagnosis
