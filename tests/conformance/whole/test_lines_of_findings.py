"""The first thing that is said of a mistake in a whole model names the line of the mistake."""

import pytest

pytest.importorskip("torch")

import conformance.checks  # noqa: F401
from conformance.adapters.whole.statements import argument_line
from conformance.catalogue import load
from conformance.check import CHECKS
from conformance.mutants.source import BERT, GPT, MIXTURE, RELATIVE, TRANSLATOR, SourceMutant
from conformance.mutated import implementation_of
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


@pytest.mark.slow
@pytest.mark.parametrize(("specimen", "old", "new"), MISTAKES, ids=lambda value: getattr(value, "name", value))
def test_the_line_of_a_mistake_is_named(specimen, old, new):
    mutant = SourceMutant("Wrong", specimen, old, new, (), "")
    line = specimen.source[: specimen.source.index(old)].count("\n") + 1
    subject = implementation_of(mutant)
    checks = {
        c: check for c, check in CHECKS.items() if {*check.roles} <= {*WHOLE_MODELS} & {*subject.roles} | {"module"}
    }
    results = fold({claim: run_check(check, subject, "quick") for claim, check in checks.items()}, load())
    failed = {claim: result for claim, result in results.items() if result.verdict is Verdict.FAIL}
    assert failed
    assert {int(result.place.split(":")[1]) for result in failed.values()} == {line}


METHODS = """
class Embedder(nn.Module):
    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature, self.body = temperature, nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x)

    def info_nce(self, a, b):
        scores = nn.functional.normalize(a, dim=-1) @ nn.functional.normalize(b, dim=-1).T / self.temperature
        return nn.functional.cross_entropy(scores, torch.{labels})

    def loss_of(self, a, b):
        return self.info_nce(self(a), self(b))

    def similarity_loss(self, a, b, similarity):
        return nn.functional.mse_loss(nn.functional.cosine_similarity(a, b, dim=-1), similarity)
"""


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [("arange(len(a))", []), ("zeros(len(a), dtype=torch.long)", ["contrastive-losses-prefer-the-own-partner"])],
)
def test_methods_that_use_no_part_of_the_model_are_judged_as_functions_are(made, labels, wrong):
    from conformance.adapters.helpers.beside import methods_of
    from conformance.adapters.helpers.examining import examine

    module = made("Embedder", METHODS.replace("{labels}", labels)).fresh()
    methods = methods_of(module)
    assert [method.__name__ for method in methods] == ["info_nce", "similarity_loss"]
    found = examine(methods)
    assert list(found.tested) == ["contrastive-losses-prefer-the-own-partner"]
    assert [one.claim for one in found.wrong] == wrong


def test_an_argument_stands_on_a_line_of_its_own_call(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("loss = cross_entropy(\n    logits,\n    labels,\n    ignore_index=0,\n)\n")
    assert argument_line(f"{file}:1", "target", 1) == f"{file}:3"
    assert argument_line(f"{file}:1", "ignore_index") == f"{file}:4"
    assert argument_line(f"{file}:3", "ignore_index") == f"{file}:4"
    assert argument_line(f"{file}:3", "target", 1) == f"{file}:3"
    assert argument_line(f"{file}:1", "weight", 2) == f"{file}:1"
