"""Mutants of our own code: what is drawn, which tests run it, what becomes of it, and that it harms nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import own_mutants as own
from tools.mutation import apart
from tools.mutation.drawn import HITS, Drawn, draw, probed, write_probes
from tools.mutation.operators import applied, own_edits

MODULE = '''
"""1 + 1 is text."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    SIZE = 1 + 1

LIMIT = 3

def inside(value: int) -> bool:
    if value < 0:
        raise ValueError("no number below " + "zero")
    match value:
        case 7:
            return False
    return value < LIMIT

sign = lambda value: -value
'''
TESTS = """
import os
import signal
import pytest
from minigrad.module import inside, sign

def test_inside():
    assert inside(2)

def test_outside():
    assert not inside(3)

def test_refused():
    with pytest.raises(ValueError):
        inside(-1)

@pytest.mark.parametrize("value", [0, 1])
def test_values(value):
    assert sign(value) == -value

def test_harm(tmp_path):
    (tmp_path / "file").touch()
    assert os.getpid() < 100
    with pytest.raises(ProcessLookupError):
        os.kill(-1, signal.SIGCONT)  # there is nobody else
    open("written", "w").close()
    with pytest.raises(OSError):
        open("/written_by_a_test", "w")
"""


def edits(source: str) -> list[tuple[str, str]]:
    found = (applied(source, edit) for edit in own_edits(ast.parse(source)))
    return [(one.operator, one.after) for one in found if one is not None]


def test_refusals_and_returns_are_edited_and_what_no_program_runs_is_not() -> None:
    found = edits(MODULE)
    assert ("comparison", "if (value <= 0):") in found
    assert ("dropped statement", "pass") in found
    assert ("return value", "return None") in found
    assert ("constant", "LIMIT = 4") in found
    assert ("removed sign or not", "sign = lambda value: value") in found
    text = " ".join(after for _, after in found)
    for left_alone in ("SIZE", "zero", "case", "TYPE_CHECKING"):
        assert left_alone not in text


def test_every_edit_of_a_loop_and_of_a_condition_is_another_program() -> None:
    source = "while one() and two():\n    if three():\n        break\n    self.x = 1\n    continue\n"
    found = edits(source)
    assert ("turned condition", "while (not (one() and two())):") in found
    assert ("turned condition", "if (not three()):") in found
    assert ("loop", "continue") in found
    assert ("loop", "break") in found
    assert found.count(("dropped statement", "pass")) == 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in (("minigrad/module.py", MODULE), ("minigrad/__init__.py", ""), ("tests/test_module.py", TESTS)):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    for package in ("conformance", "transformer"):
        (tmp_path / "tree" / package).mkdir()
    return tmp_path / "tree"


def test_a_draw_is_the_same_for_a_seed_and_has_one_mutation_of_a_line(root: Path) -> None:
    few, many, others = draw(root, 3, 0)[0], draw(root, 100, 0)[0], draw(root, 100, 1)[0]
    assert [one.key for one in few] == [one.key for one in many[:3]]
    assert [one.key for one in many] != [one.key for one in others]
    assert len({one.mutation.line for one in many}) == len(many) == 6


def test_probes_say_which_test_runs_an_expression_also_in_a_child(root: Path, tmp_path: Path) -> None:
    found, trees = draw(root, 100, 0)
    write_probes(found, trees, root, root)
    (tmp_path / "hits").touch()
    program = "from minigrad.module import inside, sign; inside(2); inside(2); assert sign(3) == -3"
    environment = {**os.environ, HITS: str(tmp_path / "hits"), "PYTHONPATH": str(root)}
    environment["PYTEST_CURRENT_TEST"] = "tests/a.py::test[x y] (call)"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, cwd=tmp_path)
    rows = [line.partition(" ") for line in (tmp_path / "hits").read_text().splitlines()]
    ran = [found[int(number)].mutation.before for number, _, _ in rows]
    assert {test for _, _, test in rows} == {"tests/a.py::test[x y]"}
    assert sorted(ran) == sorted(
        {one.mutation.before for one in found} - {'raise ValueError("no number below " + "zero")', "return False"}
    )
    assert (root / "minigrad" / "module.py").read_text() == MODULE


def test_no_probe_stands_in_a_function_that_becomes_machine_code() -> None:
    source = "@kernel\ndef add(start, stop):\n    return start + stop\n"
    tree = ast.parse(source)
    text = ast.unparse(probed(tree, {id(edit[1]): 5 for edit in own_edits(tree)}))
    assert "__ran__(5)\n" in text
    assert text.endswith("return start + stop")


def a_mutant(file: str = "minigrad/store.py", after: str = "2") -> Drawn:
    source = "x = 1\n"
    edit = own_edits(ast.parse(source))[0]
    mutation = applied(source, edit)
    assert mutation is not None
    return Drawn(file, mutation, edit)


def test_tests_that_run_a_line_come_quickest_first_and_one_of_each_function() -> None:
    passed = {"t.py::a[1]": 0.3, "t.py::a[2]": 0.1, "t.py::b": 0.2, "t.py::slow": 100.0, "t.py::other": 0.0}
    rows = [own.Recorded("t.py", "", passed, (), {"0": ["", *list(passed)[:4], "t.py::fails"]})]
    chosen = own.plan(0, a_mutant(), rows, {"t.py": ""}, 60.0)
    assert chosen == ["t.py::a[2]", "t.py::b", "t.py::slow"]


def test_a_line_that_runs_on_loading_asks_the_files_first_that_name_its_module() -> None:
    rows = [own.Recorded(name, "", {f"{name}::t": 1.0}, (), {"0": [""]}) for name in ("a.py", "b.py", "c.py")]
    texts = {"a.py": "", "b.py": "from minigrad import store", "c.py": ""}
    assert own.plan(0, a_mutant(), rows, texts, 60.0) == ["b.py::t", "a.py::t", "c.py::t"]
    assert own.plan(1, a_mutant(), rows, texts, 60.0) == []


def test_outcomes() -> None:
    ran = apart.Ran
    assert own.judged(ran({"a": ("passed", 0.1), "b": ("failed", 0.1)}, 1)) == (own.KILLED, "b")
    assert own.judged(ran({"a": ("passed", 0.1)}, None, endless="b")) == (own.STUCK, "b")
    assert own.judged(ran({"a": ("passed", 0.1)}, 0))[0] == own.SURVIVED
    assert own.judged(ran({"a": ("passed", 0.1)}, 2, over=True))[0] == own.SURVIVED
    assert own.judged(ran({}, 5))[0] == own.SURVIVED
    assert own.judged(ran({}, 2))[0] == own.judged(ran({"a": ("passed", 0.1)}, None))[0] == own.BROKEN


def test_the_table_leaves_out_what_is_equivalent_and_what_no_test_runs() -> None:
    def row(outcome: str, after: str) -> own.Tried:
        return own.Tried("minigrad/a.py", 3, "x = 1", after, "constant", outcome)

    rows = [row(own.KILLED, "x = 2"), row(own.SURVIVED, "x = 3"), row(own.SURVIVED, "x = 4"), row(own.UNRUN, "x = 5")]
    text = own.table(rows, {("x = 1", "x = 4"): "the same"})
    assert "| minigrad | 4 | 1 | 0 | 0 | 1 | 1 | 1 | 1 of 2, 50.0% |" in text
    assert "| conformance | 0 |" in text
    assert "+ x = 3" in text
    assert "+ x = 5" in text
    assert "+ x = 4" not in text


def test_half_a_line_of_results_is_left_out_and_written_behind(tmp_path: Path) -> None:
    file, row = tmp_path / "rows.jsonl", own.Tried("a.py", 1, "a", "b", "constant", own.KILLED)
    own.add(file, row)
    with file.open("a") as end:
        end.write('{"file": "a.p')
    own.add(file, row)
    assert list(own.read(file, own.Tried)) == [row, row]


@pytest.mark.slow
def test_mutants_meet_the_tests_in_a_process_that_can_harm_nothing(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    files = ("tests/test_module.py",)
    found, trees = draw(root, 100, 0)
    write_probes(found, trees, root, tmp_path / "probes")
    job = apart.Job(
        root,
        out,
        files,
        layers=(tmp_path / "probes", root),
        environment={HITS: str(out / "hits.txt")},
        first_failure=False,
    )
    try:
        recorded = own.record(files[0], "", job)
    except OSError as error:
        pytest.skip(str(error))
    name = "tests/test_module.py::test_"
    tests = ("inside", "outside", "refused", "values[0]", "harm", "values[1]")  # one case of each test comes first
    assert list(recorded.passed) == [name + test for test in tests], recorded
    assert not (root / "written").exists()
    (number,) = (at for at, one in enumerate(found) if one.mutation.before == "return value < LIMIT")
    assert set(recorded.hits[str(number)]) == {name + "inside", name + "outside"}
    wrong = apart.Job(
        root,
        out,
        files,
        (name + "outside", name + "inside"),
        edit=("minigrad/module.py", MODULE.replace("< L", "<= L")),
    )
    assert own.judged(apart.run(wrong, {})) == (own.KILLED, name + "outside")
    assert (root / "minigrad" / "module.py").read_text() == MODULE
    hangs = apart.Job(
        root,
        out,
        files,
        (name + "inside",),
        edit=("minigrad/module.py", MODULE.replace("return value", "while 1: pass\n    return value")),
    )
    assert own.judged(apart.run(hangs, {name + "inside": 0.0}, patience=0.3)) == (own.STUCK, name + "inside")
