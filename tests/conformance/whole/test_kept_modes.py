"""A function beside a model that remembers its mode and puts it back changes it in between."""

import linecache
import sys
from types import ModuleType
from zlib import crc32

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters.whole.kept_modes import functions_that_remember  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import FOLDER, Specimen  # noqa: E402
from conformance.mutated import pointed_at  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

CLAIM = "model-methods-change-the-mode-that-they-put-back"
TEXT = """


def still(model):
    return model.eval()


def rate(answers):
    return answers.mean()


@torch.no_grad()
def figure(model, batches, judge=None):
    was = model.training
    {first}
    total = 0.0
    for batch in batches:
        total += rate(model(batch))
    {last}
    return total
"""
BACK = "model.train(was)"


def source(first, last=BACK, decorator="@torch.no_grad()"):
    text = TEXT.format(first=first, last=last).replace("@torch.no_grad()", decorator)
    return (FOLDER / "classifier.py").read_text(encoding="utf-8") + text


def remembered(*given):
    """Of each function that remembers a mode, and puts it back: its name, and whether something may change it."""
    text = source(*given)
    file = f"modes_{crc32(text.encode())}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = sys.modules[file] = ModuleType(file)
    try:
        exec(compile(text, file, "exec"), vars(module))
        return [(one.name, one.changes) for one in functions_that_remember(module.TextClassifier)]
    finally:
        del sys.modules[file]


def test_a_mode_that_is_not_changed_is_told_at_the_line_that_remembers_it():
    text = source("pass")
    subject = pointed_at(Specimen("classifier.py", "TextClassifier", "classifier"), text, "modes_kept.py")
    found = run_check(CHECKS[CLAIM], subject, "quick")
    assert found.verdict is Verdict.FAIL
    assert "figure remembers the mode" in found.diagnosis
    assert text.splitlines()[int(found.place.split(":")[1]) - 1].strip() == "was = model.training"


@pytest.mark.parametrize("last", [BACK, "model.train(mode=was)", "if was:\n        model.train()"])
def test_a_mode_may_be_put_back_in_several_forms(last):
    assert remembered("pass", last) == [("figure", False)]


@pytest.mark.parametrize(
    "first",
    [
        "model.eval()",
        "model.train(False)",
        "still(model)",
        "judge(model)",
        "torch.nn.Module.train(model, False); judge.start(model)",
        "[part.eval() for part in model.modules()]",
        "model.apply(still)",
        "model.prepare()",
        "judge.on_evaluation()",
    ],
)
def test_what_may_change_a_mode_is_believed(first):
    assert remembered(first) == [("figure", True)]


@pytest.mark.parametrize(("first", "last"), [("pass", "pass"), ("pass", "model.train()")])
def test_where_no_mode_is_put_back_nothing_is_said(first, last):
    assert remembered(first, last) == []


def test_a_decorator_that_is_not_known_may_change_it():
    assert remembered("pass", BACK, "@(lambda f: f)") == [("figure", True)]
