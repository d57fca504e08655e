"""Judging `conformance watch` on a folder of scripts: what is read, run, kept and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.watch_trials import Case, Seen, cases, counted, files_of, judged, main, read_results, table, watch

LOOP = """\
import torch
from torch import nn
from parts import VOCAB

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(VOCAB, 8), nn.Linear(8, VOCAB))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    rows = torch.randint(0, VOCAB, (4, 9))
    loss = nn.functional.cross_entropy(model(rows[:, :-1]).reshape(-1, VOCAB), rows[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def written(folder: Path, mutants: dict[str, tuple[str, str, int]]) -> Path:
    """A folder with one script. mutants: name -> (class, source, line)."""
    own = folder / "loop"
    own.mkdir(parents=True)
    (own / "train.py").write_text(LOOP)
    (own / "parts.py").write_text("VOCAB = 20\n")
    listed = []
    for name, (kind, source, line) in mutants.items():
        (own / "mutants" / name).mkdir(parents=True)
        (own / "mutants" / name / "train.py").write_text(source)
        listed.append({"name": name, "class": kind, "file": "train.py", "line": line, "what": name})
    (own / "mutants.json").write_text(json.dumps({"mutants": listed}))
    return folder


@pytest.mark.slow
def test_a_folder_is_judged_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = LOOP.replace("    optimizer.zero_grad()\n", "")
    folder = written(tmp_path / "set", {"NotCleared": ("defect", wrong, 11), "Raises": ("defect", "1 / 0\n", 1)})
    results = tmp_path / "results.jsonl"
    assert main([str(folder), "--results", str(results)]) == 1
    out = capsys.readouterr().out
    rows = read_results(results)
    assert set(rows) == {("loop", ""), ("loop", "NotCleared"), ("loop", "Raises")}
    assert rows["loop", ""].steps == 4
    assert not rows["loop", ""].fails
    assert list(rows["loop", "NotCleared"].fails) == ["run-gradients-are-cleared"]
    assert "ZeroDivisionError" in rows["loop", "Raises"].problem or "NOT TESTED" in rows["loop", "Raises"].problem
    assert "| loop | 0 | 2 | 1 | 0 | 1 |" in out
    before = results.read_text()
    assert main([str(folder), "--results", str(results)]) == 1
    assert results.read_text() == before  # nothing ran again


def test_a_changed_file_makes_a_case_run_again(tmp_path: Path) -> None:
    folder = written(tmp_path, {"Same": ("equivalent", LOOP, 1)})
    case = Case("loop", "Same", "equivalent")
    assert files_of(case, folder)["train.py"] == folder / "loop/mutants/Same/train.py"
    assert files_of(case, folder)["parts.py"] == folder / "loop/parts.py"
    assert "mutants.json" not in files_of(case, folder)


def test_a_script_that_does_not_end_is_ended(tmp_path: Path) -> None:
    folder = written(tmp_path, {"Hangs": ("defect", "import time\nwhile True:\n    time.sleep(1)\n", 2)})
    assert watch(Case("loop", "Hangs", "defect"), folder, seconds=1).problem == "it took more than 1 s"


def test_findings_are_those_that_the_original_has_not() -> None:
    original = Seen("loop", "", "", 4, fails={"a": "train.py:3"}, notes={"n": "x"})
    seen = Seen("loop", "M", "", 4, fails={"a": "train.py:3", "b": "train.py:14: x"}, notes={"n": "x", "m": "y"})
    row = judged(Case("loop", "M", "defect", "train.py", 11, "w"), seen, original)
    assert dict(row.fails) == {"b": "train.py:14: x"}
    assert dict(row.notes) == {"m": "y"}
    assert row.distance == 3
    figures = counted([row, judged(Case("loop", "", "original"), original, None)])
    assert (figures["false"], figures["FAIL"], figures["line"], figures["within 5"]) == (1, 1, 0, 1)
    assert judged(Case("loop", "M", "defect", "model.py", 14, "w"), seen, original).distance is None


def test_the_table_names_what_is_false_and_what_is_missed() -> None:
    rows = [
        judged(Case("s", "", "original"), Seen("s", "", "", fails={"a": "train.py:3"}), None),
        judged(Case("s", "M", "defect", "train.py", 4, "what"), Seen("s", "M", ""), None),
        judged(Case("s", "E", "equivalent"), Seen("s", "E", "", problem="it died"), None),
    ]
    text = "\n".join(table(rows))
    assert "false: s: a at train.py:3" in text
    assert "missed: s/M, train.py:4: what" in text
    assert "not judged: s/E: it died" in text


@pytest.mark.parametrize(
    ("listing", "says"),
    [
        ("{", "is no JSON"),
        ("3", "should hold"),
        ('{"mutants": [{"name": "x", "class": "bug"}]}', "has the class 'bug'"),
        ('{"mutants": [{"name": "x", "class": "defect"}]}', "there is no folder mutants/x"),
    ],
)
def test_a_wrong_listing_is_said_in_a_sentence(tmp_path: Path, listing: str, says: str) -> None:
    written(tmp_path, {})
    (tmp_path / "loop/mutants.json").write_text(listing)
    with pytest.raises(ValueError, match=says):
        list(cases(tmp_path))


def test_an_empty_folder_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "there is no NAME/train.py" in capsys.readouterr().err


def test_a_broken_line_of_results_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"script": "s", "mutant": "", "digest": "d"}\n{"script": "s", "mut')
    assert list(read_results(path)) == [("s", "")]
