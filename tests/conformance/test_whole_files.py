"""`--impl model.py`: everything in a file is a subject of its own, in items, summary, reports and exit code."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from reports import BLOCKED, FAILED, POSITIONS, SCALED, a_report

from conformance import plugin
from conformance import session as session_module
from conformance.adapters import SpecificationError, parse, subjects
from conformance.annotations import to_sarif
from conformance.cli import main
from conformance.outcome import exit_code_of_all
from conformance.page import to_html
from conformance.report import read_reports, to_json, write_reports
from conformance.summary import several_lines
from conformance.verdict import Result, Verdict

pytest_plugins = ["pytester"]

FILE = """
import numpy as np
from conformance.adapters.examples.numpy_class import Attention
from conformance.protocol import NotProvided

class Right:
    subject = Attention
    def build(self, role, config):
        if role != "attention":
            raise NotProvided(f"no {role}")
        return self.subject(config["causal"])

class Helper:
    pass

class NeedsAFile(Right):
    def __init__(self):
        open("weights.bin")

class Wrong(Right):
    class subject(Attention):
        def __call__(self, query, **rest):
            return super().__call__(query * np.sqrt(query.shape[-1]), **rest)

class _Private(Right):
    pass
"""
REFUSED = Result(
    SCALED, Verdict.NOT_PROVIDED, message="--impl m.py:C: C() raised", untested=["--impl m.py:C: C() raised"]
)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a file of a name that no module has yet; its path. What it imports is forgotten afterwards."""
    before, path = set(sys.modules), list(sys.path)

    def write(text, name="whole_file.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("whole_file"):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def reports():
    """Of a subject that keeps its claims, one that breaks one, and one that could not be loaded."""
    return [
        a_report("m.py:A", {SCALED: Verdict.PASS}),
        a_report("m.py:C", {SCALED: REFUSED}),
        a_report("m.py:B", {SCALED: FAILED, BLOCKED: Verdict.ERROR}),
    ]


# --- what is in a file ----------------------------------------------------------------------------


def test_a_file_without_a_name_is_a_whole_file(module):
    path = module(FILE)
    assert parse(path).is_whole_file
    assert not parse(f"{path}:Right").is_whole_file
    assert not parse("torch").is_whole_file


def test_the_subjects_of_a_file_in_its_order(module):
    path = module(FILE)
    assert subjects(path) == {f"whole_file.py:{name}": f"{path}:{name}" for name in ("Right", "NeedsAFile", "Wrong")}


def test_modules_functions_that_make_them_and_instances_are_subjects(module):
    pytest.importorskip("torch")
    path = module(
        "import torch\nfrom torch import nn\nfrom torch.nn import Linear\n"
        "class Net(nn.Module):\n    def __init__(self, n=4):\n        super().__init__()\n"
        "        self.fc = Linear(n, n)\n"
        "def make(n): return Net(n)\n"
        "def train(net): raise SystemExit\n"
        "net = Net()\n"
    )
    assert list(subjects(path)) == ["whole_file.py:Net", "whole_file.py:make", "whole_file.py:net"]


def test_a_package_is_its_folder(module, tmp_path):
    module(FILE, "whole_file_package/__init__.py")
    folder = str(tmp_path / "whole_file_package")
    assert subjects(folder)["whole_file_package:Right"] == f"{folder}/__init__.py:Right"


def test_a_file_that_holds_nothing_is_refused_in_one_sentence(module):
    with pytest.raises(SpecificationError, match=r"it holds nothing that can be tested: no nn\.Module"):
        subjects(module("x = 1\n"))


# --- a run ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_subject_has_items_verdicts_and_a_part_of_the_reports(pytester):
    pytester.makepyfile(model=FILE)
    options = ("--claims", f"{SCALED},{POSITIONS}", "--claims-report", "report.json", "-v")
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--pyargs", "conformance", "--impl", "model.py", *options
    )
    result.assert_outcomes(passed=1, failed=1, skipped=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            f"conformance::model.py:Right::{SCALED} PASSED*",
            f"conformance::model.py:NeedsAFile::{SCALED} SKIPPED*",
            f"conformance::model.py:Wrong::{SCALED} FAILED*",
            "*= claims: model.py =*",
            "model.py:Wrong  0 of 1 claims kept: *1 FAIL*",
            "model.py:NeedsAFile  NOT TESTED: --impl model.py:NeedsAFile: NeedsAFile() raised FileNotFoundError*",
            "model.py:Right  1 of 1 claims kept: *",
            "--- model.py:Wrong",
            "FAIL It looks like this mistake*",
            f"    replay    pytest --pyargs conformance --impl model.py:Wrong --claims {SCALED}",
        ]
    )
    written = json.loads((pytester.path / "report.json").read_text())
    assert [one["implementation"] for one in written["subjects"]] == [
        "model.py:Right", "model.py:NeedsAFile", "model.py:Wrong",
    ]  # fmt: skip


def test_a_file_of_which_nothing_can_be_loaded_ends_the_run(pytester):
    pytester.makepyfile(model="class A:\n    def __init__(self):\n        raise ValueError('no')\n    build = None\n")
    options = ("--pyargs", "conformance", "--impl", "model.py", "--claims", SCALED)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--impl model.py:A: A() raised ValueError: no at *"])


def test_one_subject_is_open_at_a_time(monkeypatch):
    """The session alone: subjects that only note when they are opened and closed."""
    happened = []

    class Noted:
        refused = ""

        def __init__(self, name):
            self.name, self.claims = name, []

        def open(self):
            happened.append(f"open {self.name}")

        def close(self):
            happened.append(f"close {self.name}")

        def run_ahead(self):
            pass

        def run(self, claim):
            return claim

    claims = object.__new__(session_module.ClaimsSession)
    claims.is_worker, claims._open = False, None
    claims.config = SimpleNamespace(option=SimpleNamespace(claims_adapter_out=None))
    one, other = claims.subjects = [Noted("one"), Noted("other")]
    items = [SimpleNamespace(subject=subject, claim=SimpleNamespace(slug=SCALED)) for subject in (one, other)]
    claims.start(items)
    for subject in (one, one, other):
        claims.run(subject, SCALED)
    claims.close()
    assert happened == ["open one", "close one", "open other", "close other"]


def test_claims_of_a_subject_stay_together_when_another_plugin_shuffles():
    one, other = object(), object()
    items = [SimpleNamespace(name=name, subject=subject) for name, subject in (("a", other), ("b", one), ("c", other))]
    items.append(SimpleNamespace(name="theirs"))
    stash = pytest.Stash()
    stash[plugin._SESSION] = SimpleNamespace(asked=SimpleNamespace(is_whole_file=True), subjects=[one, other])
    plugin.pytest_collection_modifyitems(SimpleNamespace(stash=stash), items)
    assert [item.name for item in items] == ["theirs", "b", "a", "c"]


# --- what is made of it ---------------------------------------------------------------------------


def test_the_summary_has_a_line_for_each_subject_failures_first(reports):
    lines = several_lines(reports, 60)
    assert [line.partition("  ")[0] for line in lines[:3]] == ["m.py:B", "m.py:C", "m.py:A"]
    assert lines[1] == "m.py:C  NOT TESTED: --impl m.py:C: C() raised"
    assert lines[3:5] == ["--- m.py:B", f"FAIL {FAILED.diagnosis}  (explains 1 more)"]
    assert "--- m.py:A" not in lines
    assert "--- m.py:C" not in lines
    assert len(several_lines([replace(one, implementation=f"m.py:{i}") for i in range(9) for one in reports], 40)) < 150


@pytest.mark.parametrize(
    ("codes", "strict", "code"),
    [([0, 0], True, 0), ([0, 6], True, 6), ([0, 5], True, 6), ([5, 5], True, 5), ([0, 5], False, 0), ([5], False, 5)],
)
def test_the_exit_code_is_the_worst(codes, strict, code):
    assert exit_code_of_all(codes, strict) == code


def test_json_page_and_sarif_hold_every_subject(reports, tmp_path):
    path = tmp_path / "report.json"
    write_reports(reports, path)
    values = read_reports(path)
    assert [one["implementation"] for one in values] == ["m.py:A", "m.py:C", "m.py:B"]
    page = to_html(values)
    assert "Claims kept by m.py:A, m.py:C, m.py:B" in page
    assert f'id="{SCALED}" data-verdicts="PASS|NOT PROVIDED|FAIL"' in page
    runs = to_sarif(values)["runs"]
    assert len({run["automationDetails"]["id"] for run in runs}) == len(runs) == 3


def test_the_schema_knows_several_subjects(reports, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    from test_reports import SCHEMA

    validator = jsonschema.Draft202012Validator(SCHEMA)
    values = list(map(to_json, reports))
    validator.validate({"schema": 2, "subjects": values})
    assert list(validator.iter_errors({"schema": 2, "subjects": [{**values[0], "surprise": 1}, values[1]]}))
    assert list(validator.iter_errors({"schema": 2, "subjects": []}))


def test_compare_pairs_the_subjects_by_name(reports, tmp_path, capsys):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    write_reports([reports[0], replace(reports[0], implementation="m.py:B")], before)
    write_reports(reports, after)
    assert main(["compare", str(before), str(after)]) == 1
    out = capsys.readouterr().out
    assert "m.py:A (" in out
    assert f"BROKEN   {SCALED}: PASS -> FAIL" in out
    write_reports([replace(one, implementation="n.py:X") for one in reports], after)
    assert main(["compare", str(before), str(after)]) == 2
    assert "no class, function or instance of the same name in common" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_stated_is_checked_first_and_reaches_the_model(pytester):
    pytest.importorskip("torch")
    options = ("-p", "no:cacheprovider", "--pyargs", "conformance", "--claims", SCALED)
    for wrong, sentence in (
        (("--claims-input", "2x"), "2x is no shape"),
        (("--claims-device", "tpu"), "give cpu, cuda"),
    ):
        refused = pytester.runpytest_inprocess(*options, "--impl", "torch", *wrong)
        assert refused.ret == pytest.ExitCode.USAGE_ERROR
        assert sentence in "\n".join(refused.errlines)
    pytester.makepyfile(
        model="import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.fc = nn.Linear(4, 4)\n"
        "    def forward(self, x): return self.fc(x) + x.shape.nothing\n"
    )
    result = pytester.runpytest_inprocess(*options, "--impl", "model.py:Net", "--claims-input", "2x6x4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "cannot be called with the inputs that --claims-input states" in "\n".join(result.errlines)
