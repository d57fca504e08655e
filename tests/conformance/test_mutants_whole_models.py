"""The mutants of whole models: each is one edit of a specimen, and its claims catch it."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("torch")

import conformance.checks  # noqa: F401
from conformance.check import CHECKS
from conformance.kills import KILLED, NOT_PROVIDED, SURVIVED, outcome
from conformance.mutants import MUTANTS
from conformance.mutants.source import GPT, SPECIMENS, SourceMutant, changed
from conformance.mutated import implementation_of, specimen_as_it_is

ZOO = sorted(name for name, m in MUTANTS.items() if isinstance(m, SourceMutant))
WHOLE = {
    "module",
    "language_model",
    "masked_language_model",
    "sequence_to_sequence",
    "encoder_model",
    "classifier",
    "model",
}
QUICK = ("TextClassifier", "ViT", "AdaptedLM")
CLAIMS = [claim for claim, check in CHECKS.items() if WHOLE.issuperset(check.roles)]


@pytest.mark.parametrize(
    "specimen",
    [s if s.name in QUICK else pytest.param(s, marks=pytest.mark.deep) for s in SPECIMENS],  # as below
    ids=lambda s: s.name,
)
def test_a_specimen_breaks_nothing(specimen):
    implementation = specimen_as_it_is(specimen)
    assert implementation.kind == specimen.kind
    outcomes = {claim: outcome(claim, implementation) for claim in CLAIMS if {*specimen.roles} & {*CHECKS[claim].roles}}
    assert {claim: o for claim, o in outcomes.items() if o not in (SURVIVED, NOT_PROVIDED)} == {}


@pytest.mark.deep  # `conformance mutants` is a stage of CI
@pytest.mark.parametrize("name", ZOO)
def test_a_mutant_dies_by_the_claims_that_it_breaks(name):
    mutant = MUTANTS[name]
    implementation = implementation_of(mutant)
    assert {claim: outcome(claim, implementation) for claim in mutant.breaks} == dict.fromkeys(mutant.breaks, KILLED)


def test_every_claim_about_whole_models_has_a_mutant():
    assert sorted(set(CLAIMS) - {claim for name in ZOO for claim in MUTANTS[name].breaks}) == []


def test_the_lines_of_a_mutant_are_its_own():
    mutant = MUTANTS["NoCausalMask"]
    source = inspect.getsource(type(implementation_of(mutant).whole.module.blocks[0].attention))
    assert mutant.new in source
    assert mutant.old not in source


def test_an_edit_that_does_not_stand_in_the_source_is_refused():
    lost = SourceMutant("Lost", GPT, "no such line", "", (), "Its line is gone.")
    with pytest.raises(ValueError, match="stands 0 times"):
        lost.source()
    with pytest.raises(ValueError, match="two mutants are called"):
        changed("NoCausalMask", GPT, "", "", breaks=(), defect="")
