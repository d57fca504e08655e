"""Every family under the claims about whole models: ours on minigrad, and beside the library where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from conformance.verdict import HELD, Result, Verdict  # noqa: E402
from tools.families.__main__ import main  # noqa: E402
from tools.families.answers import Answer, Answers, ask, claims_of, results  # noqa: E402
from tools.families.rows import ROWS  # noqa: E402
from tools.families.sides import ours  # noqa: E402
from tools.families.table import table  # noqa: E402
from transformer.checkpoints import FAMILIES  # noqa: E402

NAMES = {row.architecture: row for row in ROWS}
IN_CI = ("BertForSequenceClassification", "LlamaForCausalLM", "BertForMaskedLM")
OTHERS = [pytest.param(name, marks=pytest.mark.deep) for name in NAMES if name not in IN_CI]
BESIDE = "BertForSequenceClassification"
DEEP = [pytest.param(name, marks=pytest.mark.deep) for name in NAMES if name != BESIDE]
KINDS = {"language_model", "masked_language_model", "classifier", "encoder_model", "sequence_to_sequence"}


def test_every_family_and_every_kind_has_a_row():
    assert {row.model_type for row in ROWS} == set(FAMILIES)
    assert {row.kind for row in ROWS} == KINDS
    assert len(NAMES) == len(ROWS)


def test_what_a_model_is_asked_depends_on_its_kind_only():
    assert "language-model-is-causal" in claims_of("language_model")
    assert "language-model-is-causal" not in claims_of("classifier")
    assert "model-every-parameter-gets-a-gradient" in claims_of("classifier")
    assert {"generate-takes-the-best-token", "losses-teach-the-next-word"} <= {*claims_of("sequence_to_sequence")}
    assert "attention-scale-is-one-over-sqrt-d-head" in claims_of("encoder_model")


@pytest.mark.deep
@pytest.mark.parametrize("name", [*IN_CI, *OTHERS])
def test_our_model_keeps_every_claim_that_can_be_asked(name):
    found = results(ours(NAMES[name]))
    verdicts = {slug: result.verdict for slug, result in found.items()}
    assert {*verdicts.values()} <= {Verdict.PASS, Verdict.NOTE, Verdict.NOT_PROVIDED}, verdicts
    assert sum(verdict in HELD for verdict in verdicts.values()) >= 55, verdicts
    assert all(result.message for result in found.values() if result.verdict is Verdict.NOT_PROVIDED)


@pytest.mark.deep
@pytest.mark.parametrize("name", [BESIDE, *DEEP])
def test_the_library_answers_every_claim_alike(name):
    library = pytest.importorskip("transformers")
    library.logging.set_verbosity_error()
    found = ask(NAMES[name], library)
    assert not found.disagreeing, "\n".join(map(str, found.disagreeing))
    assert found.is_one_model, found.difference


# --- the answers and the page ---------------------------------------------------------------------


def answer(one, other, why="because", claim="some-claim"):
    return Answer(claim, Result(claim, one, message=why), Result(claim, other, message=why))


@pytest.mark.parametrize(
    ("one", "other", "agrees"),
    [
        (Verdict.PASS, Verdict.PASS, True),
        (Verdict.NOTE, Verdict.NOTE, True),
        (Verdict.NOT_PROVIDED, Verdict.PASS, True),
        (Verdict.NOT_PROVIDED, Verdict.NOT_PROVIDED, True),
        (Verdict.PASS, Verdict.NOTE, False),
        (Verdict.FAIL, Verdict.FAIL, False),
        (Verdict.NOT_PROVIDED, Verdict.FAIL, False),
        (Verdict.ERROR, Verdict.PASS, False),
        (Verdict.VACUOUS, Verdict.VACUOUS, False),
    ],
)
def test_answers_agree_where_no_side_breaks_the_claim_and_both_say_the_same(one, other, agrees):
    assert answer(one, other).agrees is agrees
    assert answer(other, one).agrees is agrees


def test_the_page_counts_each_answer_and_says_why_one_was_not_asked():
    each = [
        answer(Verdict.PASS, Verdict.PASS),
        answer(Verdict.PASS, Verdict.FAIL),
        answer(Verdict.NOT_PROVIDED, Verdict.PASS, "nobody looks inside"),
        answer(Verdict.NOT_PROVIDED, Verdict.NOT_PROVIDED, "no words"),
        answer(Verdict.NOTE, Verdict.NOTE),
    ]
    text = table([Answers(ROWS[0], each, 3e-7)])
    assert "| `GPT2LMHeadModel` | language model | 5 | 1 | 1 | 1 | 1 | 1 | 3e-07 |" in text
    assert "1 models, 5 questions: both sides answer 3, and 1 answers differ; one side answers 1, and 1 are" in text
    assert "| `some-claim` | minigrad | nobody looks inside | 1 |" in text
    assert "| no words | 1 | `some-claim` |" in text


def test_a_name_that_is_no_row_is_refused_in_one_sentence(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["gpt9"])
    assert ended.value.code == 2
    assert "there is no row gpt9; choose among gpt2, llama" in capsys.readouterr().err


def test_without_the_library_one_sentence_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SystemExit):
        main(["gpt2"])
    assert "transformers is not installed" in capsys.readouterr().err


def test_a_page_without_marks_is_refused_before_anything_is_asked(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("# A page\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["gpt2", "--page", str(page)])
    assert "has no section of results" in capsys.readouterr().err


def test_the_page_in_docs_has_a_line_for_each_row():
    text = (Path(__file__).parents[2] / "docs" / "families-claims.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"| `{name}` |" not in text] == []
