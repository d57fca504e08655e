"""The difference of two graphs: what only one of them does, as lines and as a page with both pictures."""

import xml.etree.ElementTree as ET

import pytest

import minigrad as mg
from minigrad.cli import main
from minigrad.viz import layout
from minigrad.viz.difference import difference, difference_page, difference_picture, difference_text
from minigrad.viz.picture import Options

VERSIONS = """
import minigrad as mg

def scaled(x):
    return ((x @ x.transpose(0, 1)) / 2.0).softmax(-1) @ x

def unscaled(x):
    return (x @ x.transpose(0, 1)).softmax(-1) @ x
"""


def traced(function):
    return mg.trace(function)(mg.ones(3, 3))


def ops(nodes):
    return [node.op for node in nodes]


def test_what_only_one_of_them_does():
    first, second = traced(lambda x: (x.exp() * 2.0).tanh()), traced(lambda x: (x.exp() * 2.0).sin().tanh())
    assert [(tag, ops(a), ops(b)) for tag, a, b in difference(first, second) if tag != "equal"] == [
        ("insert", [], ["sin"])
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * 2.0, lambda x: x * 3.0),  # another number
        (lambda x: x.sum(0), lambda x: x.sum(1)),  # another dimension
        (lambda x: x.exp(), lambda x: x[:2].exp()),  # another shape
    ],
)
def test_small_differences_count(one, other):
    assert any(tag != "equal" for tag, _, _ in difference(traced(one), traced(other)))


def test_equal_programs_on_other_lines_are_equal():
    def one(x):
        return x.exp().sum()

    def other(x):
        y = x.exp()
        return y.sum()

    assert "the same ops" in difference_text(traced(one), traced(other))


def test_lines_say_which_side_has_them():
    text = difference_text(traced(lambda x: (x @ x / 2.0).tanh()), traced(lambda x: (x @ x).tanh()))
    (gone,) = [line for line in text.splitlines() if line.startswith("- ")]
    assert "div" in gone
    assert "test_difference.py" in gone
    assert not [line for line in text.splitlines() if line.startswith("+ ")]


def test_the_command_compares_two_functions_of_a_file(tmp_path, capsys):
    (tmp_path / "versions.py").write_text(VERSIONS)
    file, target = tmp_path / "versions.py", tmp_path / "d.txt"
    command = ["render", f"{file}:scaled", "--against", f"{file}:unscaled", "--input", "3x3"]
    assert main([*command, "-o", str(target)]) == 0
    assert [line[:2] for line in target.read_text().splitlines() if "div" in line] == ["- "]
    assert main([*command, "-o", str(tmp_path / "d.dot")]) == 2
    assert "d.dot ends in none of these" in capsys.readouterr().err
    assert main([*command, "--passes", "-o", str(target)]) == 2
    assert "neither --passes" in capsys.readouterr().err


def test_the_page_marks_both_sides():
    try:
        layout.prepare()
    except layout.LayoutError as error:
        pytest.skip(str(error))
    first, second = traced(lambda x: (x @ x / 2.0).tanh()), traced(lambda x: (x @ x).sin())
    page = difference_page(first, second, ("mine", "<theirs>"), Options())
    assert "box gone" in page
    assert "box made" in page
    assert "<theirs>" not in page


def test_the_picture_has_both_sides(tmp_path):
    try:
        layout.prepare()
    except layout.LayoutError as error:
        pytest.skip(str(error))
    first, second = traced(lambda x: (x @ x / 2.0).tanh()), traced(lambda x: (x @ x).sin())
    drawn = ET.fromstring(difference_picture(first, second, ("mine", "<theirs>"), Options()))
    sides = drawn.findall("{http://www.w3.org/2000/svg}svg")
    assert len(sides) == 2
    marked = [[g for g in side.iter() if {"gone", "made"} & {*g.get("class", "").split()}] for side in sides]
    assert [[group.get("class").split()[1] for group in side] for side in marked] == [["gone", "gone"], ["made"]]
    (left, right), ids = sides, [group.get("id") for group in drawn.iter() if group.get("id")]
    assert len(ids) == len(set(ids))
    assert float(right.get("x")) >= float(left.get("x")) + float(left.get("width"))
    assert "<theirs>" in "".join(drawn.itertext())


def test_the_command_draws_the_difference(tmp_path):
    try:
        layout.prepare()
    except layout.LayoutError as error:
        pytest.skip(str(error))
    (tmp_path / "versions.py").write_text(VERSIONS)
    file, target = tmp_path / "versions.py", tmp_path / "d.svg"
    command = ["render", f"{file}:scaled", "--against", f"{file}:unscaled", "--input", "3x3", "-o", str(target)]
    assert main(command) == 0
    drawn = target.read_text(encoding="utf-8")
    assert "versions.py:unscaled lacks" in drawn
    assert "versions.py:scaled has all of this" in drawn
