"""The comparison with other viewers: what it counts in our own pictures, and what it says of missing viewers."""

import re

import pytest

pytest.importorskip("torch")
from tools.viewers import __main__ as program
from tools.viewers.models import MODELS
from tools.viewers.others import VIEWERS, Drawing, Viewer

OURS = VIEWERS[0]


@pytest.mark.parametrize("name", ["LLaMA", pytest.param("BERT classifier", marks=pytest.mark.slow)])
def test_our_picture_names_shapes_parameters_and_lines_and_draws_repeated_blocks_once(name):
    row = program.look(OURS, name)
    assert all((row.shapes, row.lines, row.backward, row.parameters == 1, row.drawing.frames))
    assert not row.grows
    assert row.drawing.opened < 20 < 200 < row.drawing.whole


def test_a_picture_that_holds_nothing_is_said_to_hold_nothing():
    empty = Viewer("empty", "minigrad-conformance", lambda model, inputs: Drawing(len(list(model.modules())), 0, 0, ""))
    row = program.look(empty, "GPT")
    assert not any((row.shapes, row.lines, row.backward, row.parameters))
    assert row.grows
    cells = program.table([row], {"empty": ["ViT"]})
    assert "empty" not in cells, "only known viewers have lines"


def test_a_viewer_that_is_missing_and_one_that_refuses_are_each_a_sentence(monkeypatch, capsys):
    def absent(model, inputs):
        raise ModuleNotFoundError("No module named 'netron'")

    def refuses(model, inputs):
        raise RuntimeError("data-dependent")

    viewers = (Viewer("absent", "netron", absent), Viewer("refuses", "minigrad-conformance", refuses))
    monkeypatch.setattr(program, "VIEWERS", viewers)
    monkeypatch.setenv("COLUMNS", "200")
    assert program.main([]) == 0
    said = capsys.readouterr()
    assert "absent is left out: No module named 'netron'" in said.err
    assert len(re.findall(r"refuses does not draw .*: RuntimeError: data-dependent", said.err)) == len(MODELS)
    assert said.out.count("\n") == 2, "a head and nothing below it"


def test_an_unknown_viewer_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        program.main(["--only", "paint"])
    assert "--only paint: there are minigrad render, Netron" in capsys.readouterr().err
