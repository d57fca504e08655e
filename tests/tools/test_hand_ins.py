"""The made-up class: the same thirty files each time, and docs/grading-a-class.md shows what grading them gives."""

import re
import sys
from pathlib import Path

import pytest

from tools.hand_ins import MISTAKES, hand_ins, main

PAGE = (Path(__file__).parents[2] / "docs" / "grading-a-class.md").read_text(encoding="utf-8")
ROW = re.compile(r"^ *([a-z]+) +(\d+\.\d\d) ", re.MULTILINE)


def test_thirty_files_twelve_of_which_are_right(tmp_path, capsys):
    assert main([str(tmp_path / "class")]) == 0
    texts = [path.read_text() for path in sorted((tmp_path / "class").iterdir())]
    assert len(texts) == 30
    assert sum(text in MISTAKES for text in texts) == 12
    assert len(set(texts)) == 3 + 18
    assert main([str(tmp_path / "class")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_the_page_shows_everybody_with_right_ones_on_top():
    points = {name: float(value) for name, value in ROW.findall(PAGE)}
    assert set(points) == {name for name, _ in hand_ins()}
    assert all(points[name] == 20 for name, text in hand_ins() if text in MISTAKES)
    assert sum(value < 20 for value in points.values()) == 16


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
def test_grading_gives_what_the_page_shows(tmp_path, monkeypatch, capsys):
    from conformance.cli import main as conformance

    monkeypatch.chdir(tmp_path)
    main(["class"])
    (rubric,) = re.findall(r"^```toml\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    Path("rubric.toml").write_text(rubric)
    (command,) = re.findall(r"^conformance (grade class .+)$", PAGE, re.MULTILINE)
    capsys.readouterr()
    assert conformance(command.split()) == 1
    assert ROW.findall(capsys.readouterr().out) == ROW.findall(PAGE)
    assert Path("feedback/bela.txt").read_text().strip() in PAGE
