"""The first thing that is said of a mistake in a whole model names the line of the mistake."""

import pytest

pytest.importorskip("torch")

import conformance.checks  # noqa: F401
from conformance.catalogue import load
from conformance.check import CHECKS
from conformance.mutants.source import BERT, GPT, MIXTURE, RELATIVE, TRANSLATOR, SourceMutant
from conformance.protocol import WHOLE_MODELS
from conformance.roots import fold
from conformance.runner import run_check
from conformance.verdict import Verdict

MISTAKES = [
    (GPT, ".tril(keys - length)", ".tril(keys - length + 1)"),
    (BERT, "self.position_embeddings(places)", "self.position_embeddings(places[:1])"),
    (BERT, "self.norm2(x + self.dropout(", "self.norm1(x + self.dropout("),
    (MIXTURE, "best.softmax(-1)", "best.softmax(0)"),
    (RELATIVE, "self.relative_bias(buckets)", "self.relative_bias(buckets[:1].expand(length, -1))"),
    (TRANSLATOR, "self.pe[: x.shape[1]]", "self.pe[x.shape[1] - 1]"),
    (TRANSLATOR, "torch.cos(places * rates)", "torch.sin(places * rates)"),
]


@pytest.mark.parametrize(("specimen", "old", "new"), MISTAKES, ids=lambda value: getattr(value, "name", value))
def test_the_line_of_a_mistake_is_named(specimen, old, new):
    mutant = SourceMutant("Wrong", specimen, old, new, (), "")
    line = specimen.source[: specimen.source.index(old)].count("\n") + 1
    subject = mutant.implementation()
    checks = {
        c: check for c, check in CHECKS.items() if {*check.roles} <= {*WHOLE_MODELS} & {*subject.roles} | {"module"}
    }
    results = fold({claim: run_check(check, subject, "quick") for claim, check in checks.items()}, load())
    failed = {claim: result for claim, result in results.items() if result.verdict is Verdict.FAIL}
    assert failed
    assert {int(result.place.split(":")[1]) for result in failed.values()} == {line}
