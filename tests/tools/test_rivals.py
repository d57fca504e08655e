"""The suite beside its rivals: what counts as caught and as false, the cases of a folder, the page, and resuming."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest

from tools.rivals import __main__ as command
from tools.rivals import cases, methods, page, results
from tools.rivals.cases import Case, CaseError, cases_in
from tools.rivals.methods import PANGOLINN, PLAIN, SUITE, TORCH, Said
from tools.rivals.results import Result, judge_all, judged

MODEL = """
import torch
from torch import nn


class Words(nn.Module):
    '''A language model.'''

    def __init__(self, vocab_size=11, d_model=8, block_size=16):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.places = nn.Embedding(block_size, d_model)
        self.mix = nn.Linear(d_model, d_model)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, idx):
        x = self.table(idx) + self.places(torch.arange(idx.shape[1]))
        before = torch.ones(len(idx[0]), len(idx[0])).tril()
        x = x + self.mix((before / before.sum(1, keepdim=True)) @ x.tanh())
        return self.head(x)
"""
LEAKS = MODEL.replace(".tril()", "")
RENAMED = MODEL.replace("before", "earlier")


def folder_with(place, mutants):
    """A folder with one model and its mutants, as (class, text)."""
    model = place / "words"
    (model / "mutants").mkdir(parents=True)
    (model / "model.py").write_text(MODEL)
    rows = {name: {"class": sort, "line": 19, "what": f"it is {name}"} for name, (sort, _) in mutants.items()}
    for name, (_, text) in mutants.items():
        (model / "mutants" / f"{name}.py").write_text(text)
    (model / "mutants.json").write_text(json.dumps({"entry": "Words", "kind": "language_model", "mutants": rows}))
    return place


@pytest.fixture
def folder(tmp_path):
    return folder_with(tmp_path, {"leaks": ("defect", LEAKS), "renamed": ("equivalent", RENAMED)})


def result(method=SUITE, mutant="", sort="defect", **said):
    said = {"seconds": 4.0, **said}
    sort = sort if mutant else cases.ORIGINAL
    return Result("m", mutant, method, "0", sort, 3, f"what {mutant} is", Said(**said))


# --- cases ----------------------------------------------------------------------------------------


def test_a_folder_gives_each_original_before_its_mutants(folder):
    assert [(case.mutant, case.sort, case.line) for case in cases_in(folder)] == [
        ("", "original", 0),
        ("leaks", "defect", 19),
        ("renamed", "equivalent", 19),
    ]


def test_the_rivals_may_be_told_how_the_model_is_made(folder):
    table = folder / "words" / "mutants.json"
    assert {case.make for case in cases_in(folder)} == {"Words"}
    table.write_text(json.dumps({**json.loads(table.read_text()), "make": "Words(d_model=4)"}))
    assert {(case.entry, case.make) for case in cases_in(folder)} == {("Words", "Words(d_model=4)")}


def test_a_case_runs_where_nothing_of_the_others_is_seen(folder):
    (folder / "words" / "config.json").write_text("{}")
    with cases_in(folder)[1].alone() as file:
        assert file.read_text() == LEAKS
        assert sorted(path.name for path in file.parent.iterdir()) == ["config.json", "model.py"]
    assert not file.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: {**t, "mutants": {"gone": t["mutants"]["leaks"]}}, "names the mutant gone, and there is no"),
        (lambda t: {**t, "mutants": {"leaks": {"class": "bug"}}}, "'bug'; it is one of defect, convention, equivalent"),
        (lambda t: {**t, "mutants": {"leaks": {"class": "defect"}}}, "leaks needs a"),
        (lambda t: {**t, "mutants": ["leaks"]}, "is no JSON object"),
        (lambda t: {"entry": "Words"}, "is no JSON object"),
        (lambda t: [], "is no JSON object"),
    ],
)
def test_a_table_that_is_wrong_is_told_in_a_sentence(folder, change, sentence):
    table = folder / "words" / "mutants.json"
    table.write_text(json.dumps(change(json.loads(table.read_text()))))
    with pytest.raises(CaseError, match=sentence):
        cases_in(folder)


def test_a_folder_without_models_and_a_model_without_a_file_are_told(folder, tmp_path_factory):
    with pytest.raises(CaseError, match="holds no model"):
        cases_in(tmp_path_factory.mktemp("empty"))
    with pytest.raises(CaseError, match="holds no model other"):
        cases_in(folder, "other")
    (folder / "words" / "model.py").unlink()
    with pytest.raises(CaseError, match="has a mutants"):
        cases_in(folder)


# --- what a method says ---------------------------------------------------------------------------


def claim(slug, verdict, **more):
    empty = dict.fromkeys(("diagnosis", "what", "message", "got", "place"), "")
    return {**empty, "slug": slug, "verdict": verdict, **more}


def test_a_report_of_the_suite_is_read():
    said = methods.of_report(
        {
            "untested": ["the cache"],
            "claims": [
                claim("a", "FAIL", diagnosis="It leaks.", place="model.py:12: x = y"),
                claim("b", "FAIL", what="sums", got="0.5"),
                claim("c", "NOTE", what="window", got="4"),
                claim("d", "ERROR", message="KeyError"),
                claim("e", "BLOCKED"),
                claim("g", "VACUOUS", what="masks", message="nothing was hidden"),
                claim("f", "PASS"),
            ],
        }
    )
    assert said.failed == {"a": "It leaks."}
    assert said.unexplained == {"b": "sums: 0.5", "g": "masks: nothing was hidden"}
    assert said.noted == {"c": "window: 4"}
    assert said.errors == {"d": "KeyError"}
    assert (said.raised, said.untested, said.at) == ("", ["the cache"], [12])


def test_failed_tests_are_finds_and_errors_are_not():
    said = methods.of_junit(
        textwrap.dedent(
            """
            <testsuites><testsuite>
            <testcase name="test_a[x]"><failure message="0.1 is far"/></testcase>
            <testcase name="test_b"><error message="no fixture"/></testcase>
            <testcase name="test_c"><skipped message="no"/></testcase>
            <testcase name="test_d"/>
            </testsuite></testsuites>
            """
        ).strip()
    )
    assert said.failed == {"test_a": "0.1 is far"}
    assert said.errors == {"test_b": "no fixture"}


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ('<testcase name="test_builds[m]"><failure message="no inputs"/></testcase>', "no inputs"),
        ('<testcase name=""><error message="collection failure">x\nKeyError: 1\n</error></testcase>', "KeyError: 1"),
    ],
)
def test_a_model_that_a_rival_cannot_build_is_not_caught(test, why):
    later = '<testcase name="test_trains"><failure message="no model"/></testcase>'
    assert methods.of_junit(f"<t>{later}{test}</t>") == Said(raised=why)


def test_an_interpreter_without_a_rival_is_told(tmp_path):
    assert methods.missing(PLAIN, "nowhere") == ""
    assert "cannot be run: No such file" in methods.missing(TORCH, str(tmp_path / "nowhere"))
    assert "install pangolinn==0.0.1 there" in methods.missing(PANGOLINN, script(tmp_path / "none", "exit 1"))
    assert "has 0.9, and 1.1.1 is" in methods.missing(TORCH, script(tmp_path / "old", "echo 0.9"))
    assert methods.missing(TORCH, script(tmp_path / "python", "echo 1.1.1")) == ""


def test_where_a_copy_lay_is_no_part_of_what_was_said(folder, monkeypatch):
    monkeypatch.setattr(methods, "_suite", lambda case, file, *_: Said(noted={"n": f"see {file}:3"}, raised=f"{file}"))
    said = methods.said_of(SUITE, cases_in(folder)[0], "", 1)
    assert (said.noted, said.raised) == ({"n": "see model.py:3"}, "model.py")


# --- what it means --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "mutant", "outcome"),
    [
        ({}, {"failed": {"a": "wrong"}}, "killed"),
        ({"failed": {"a": "wrong"}}, {"failed": {"a": "wrong, too"}}, "missed"),
        ({"failed": {"a": "wrong"}}, {"failed": {"b": "wrong"}, "raised": "KeyError"}, "killed"),
        ({}, {"raised": "it ran longer than 9 s", "noted": {"n": "4"}}, "raised or hung"),
        ({}, {"errors": {"a": "KeyError"}}, "raised or hung"),
        ({}, {"unexplained": {"a": "0.5"}, "errors": {"b": "KeyError"}}, "no diagnosis"),
        ({"unexplained": {"a": "0.5"}}, {"unexplained": {"a": "0.5"}}, "missed"),
        ({"unexplained": {"a": "0.5"}}, {"failed": {"a": "it leaks"}}, "missed"),
        ({"errors": {"a": "KeyError"}}, {"errors": {"a": "KeyError"}}, "missed"),
        ({"raised": "refused"}, {"raised": "refused"}, "untested"),
        ({}, {"untested": ["the cache"], "noted": {"n": "4"}}, "untested"),
        ({"noted": {"n": "4"}}, {"noted": {"n": "5"}}, "note only"),
        ({"noted": {"n": "4"}}, {"noted": {"n": "4"}}, "missed"),
        ({"noted": {"n": "4"}}, {}, "missed"),
    ],
)
def test_an_outcome_is_what_the_original_does_not_have(original, mutant, outcome):
    assert judged(result(mutant="x", **mutant), result(**original)).outcome == outcome


def test_only_mutants_whose_original_has_a_result_are_judged():
    found = [result(SUITE), result(SUITE, "x", failed={"a": ""}), result(PLAIN, "x", failed={"a": ""})]
    assert [(one.result.method, one.outcome) for one in judge_all(found)] == [(SUITE, "killed")]


# --- the page -------------------------------------------------------------------------------------


def test_the_page_says_how_near_the_named_lines_are():
    finds = {"a": [3], "b": [90, 8], "c": [9], "d": []}
    found = [result(), *(result(mutant=name, failed={"claim": ""}, at=at) for name, at in finds.items())]
    said = "It names the line of the edit for 1 of 4 (25 %), one at most 5 lines off for 2."
    assert said in page.section(found, "the command")


def test_the_page_counts_what_is_caught_and_what_is_false():
    found = [
        result(SUITE, failed={"claim": "a | b"}),
        result(PLAIN),
        result(SUITE, "x", failed={"claim": "", "other": ""}),
        result(PLAIN, "x"),
        result(SUITE, "y"),
        result(PLAIN, "y", failed={"rows": "mixed"}),
        result(SUITE, "z"),
        result(PLAIN, "z"),
        result(SUITE, "same", "equivalent"),
        result(PLAIN, "same", "equivalent", failed={"rows": "mixed"}),
    ]
    text = page.section(found, "the command")
    assert "1 models, 3 defects, 0 conventions, 1 equivalents" in text
    assert "| conformance | 1 of 3 (33 %) | 0 | 0 | 0 | 0 | 2 | 4 |" in text
    assert "| conformance | 1 of 1 | 1 of 1 (100 %) | 1 | 0 of 1 (0 %) | 0 of 0 |" in text
    assert "| plain properties | 1 of 1 | 0 of 1 (0 %) | 0 | 1 of 1 (100 %) | 0 of 0 |" in text
    assert "Of the defects that all rivals miss, the suite finds 1 of 2 (50 %)." in text
    assert "| m y | what y is | missed | plain properties |" in text
    assert "| m | claim | a / b |" in text


# --- running --------------------------------------------------------------------------------------


def script(path, line):
    """A program that a shell runs."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_a_run_writes_the_page_and_runs_nothing_twice(tmp_path, capsys):
    """With an interpreter that has no rivals: they are left out in a sentence each."""
    folder = folder_with(tmp_path, {})
    table = folder / "page.md"
    table.write_text("Before.\n<!-- results: begin -->\n<!-- results: end -->\nAfter.\n")
    bare = script(folder / "python", "exit 1")
    options = [str(folder), "--methods", TORCH, PANGOLINN, PLAIN, "--page", str(table), "--python", bare]
    assert command.main(options) == 0
    said = capsys.readouterr()
    assert "pytest-torch is left out: " in said.err
    assert "pangolinn is left out: " in said.err
    assert "| plain properties | 1 of 1 | 0 of 1 (0 %) | 0 | 0 of 0 | 0 of 0 |" in table.read_text()
    assert table.read_text().startswith("Before.")
    assert table.read_text().endswith("After.\n")

    found = results.read(folder / "rivals.jsonl")
    assert command.waiting(cases_in(folder), [PLAIN], found) == []
    (folder / "words" / "model.py").write_text(LEAKS)
    assert [(case.model, method) for case, method in command.waiting(cases_in(folder), [PLAIN], found)] == [
        ("words", PLAIN)
    ]


def test_plain_properties_catch_a_leak_and_say_nothing_of_a_correct_model(folder):
    pytest.importorskip("torch")
    from tools.rivals import given, plain

    wrong = {}
    for case in cases_in(folder):
        model = given.given(f"{case.file}:{case.entry}", case.kind)
        wrong[case.mutant] = [name for name, text in plain.tried(model).items() if text]
    assert wrong == {"": [], "leaks": ["no_word_changes_an_earlier_answer"], "renamed": []}


def test_mutants_of_an_original_that_a_method_cannot_judge_are_not_run(folder, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(command, "said_of", lambda method, case, *_: ran.append(case.mutant) or Said(raised="no sizes"))
    assert command.main([str(folder), "--methods", SUITE, "--processes", "3"]) == 0
    assert ran == [""]
    assert "| conformance | 0 of 1 (0 %) | 0 | 0 | 0 | 1 | 0 |  |" in capsys.readouterr().out


def test_an_interrupt_keeps_what_is_done(folder, monkeypatch):
    def said_of(method, case, *_):
        if case.mutant:
            raise KeyboardInterrupt
        return Said(failed={"a": "wrong"})

    monkeypatch.setattr(command, "said_of", said_of)
    with pytest.raises(KeyboardInterrupt):
        command.main([str(folder), "--methods", SUITE])
    assert [(one.mutant, one.said.failed) for one in results.read(folder / "rivals.jsonl")] == [("", {"a": "wrong"})]


@pytest.fixture
def slow(monkeypatch, tmp_path):
    """Methods that take a while, and a case."""
    (tmp_path / "sleep.py").write_text("import time; time.sleep(60)")
    hangs = script(tmp_path / "python", f"exec {sys.executable} {tmp_path / 'sleep.py'}")
    monkeypatch.setattr(methods.sys, "executable", hangs)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.py").write_text("")
    return Case("m", "", tmp_path / "m", tmp_path / "m" / "model.py", "Model", "Model", "language_model")


@pytest.mark.parametrize("method", methods.METHODS)
def test_what_hangs_is_ended(slow, method):
    said = methods.said_of(method, slow, methods.sys.executable, 0.3)
    assert said.raised == "it ran longer than 0 s"
    assert said.seconds < 10


def test_results_that_are_no_results_are_told(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"model": 1}\n')
    with pytest.raises(ValueError, match="holds no results of this program"):
        results.read(tmp_path / "r.jsonl")
    assert results.read(tmp_path / "none.jsonl") == []


def test_results_are_written_whole(tmp_path):
    target = tmp_path / "r.jsonl"
    found = [result(SUITE), result(SUITE, "x", failed={"a": "wrong"}, at=[3])]
    results.write(target, found)
    assert results.read(target) == found
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


@pytest.mark.parametrize("wrong", [["nowhere"], [".", "--only", "none"], [".", "--page", "none.md"]])
def test_what_cannot_be_run_is_refused(wrong, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as exit_:
        command.main(wrong)
    assert exit_.value.code == 2
