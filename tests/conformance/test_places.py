"""Lines of the user's code: of an error, of a component, with what they say."""

import json
import sys
from pathlib import Path

import pytest

from conformance.places import code_of, file_and_line, innermost_line, line_of, with_source


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A module in the current folder."""
    (tmp_path / "mine.py").write_text("class Layer:\n    def __call__(self, x):\n        return x / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    yield mine
    del sys.modules["mine"]


def test_a_component_stands_where_its_call_does(model):
    assert code_of(model.Layer()) == "mine.py:2 in Layer.__call__"


def test_a_component_may_say_itself_where_it_stands(model):
    layer = model.Layer()
    layer.place = "layers.py:7 in forward"
    assert code_of(layer) == "layers.py:7 in forward"


@pytest.mark.parametrize("other", [json.JSONEncoder.encode, len, None, line_of])
def test_libraries_and_this_package_are_not_the_users_code(other):
    assert line_of(other) == ""


def test_what_cannot_be_called_stands_nowhere():
    assert code_of(object()) == ""


def test_an_error_comes_from_the_innermost_line(model):
    with pytest.raises(ZeroDivisionError) as caught:
        model.Layer()(1)
    assert innermost_line(caught.value) == "mine.py:3 in __call__: return x / 0"


def test_a_bare_line_gets_its_source(model):
    assert with_source("mine.py:3") == "mine.py:3: return x / 0"
    assert with_source(f"{Path('mine.py').resolve()}:3") == "mine.py:3: return x / 0"
    for other in ("mine.py:99", "mine.py:3 in f", "no place", "", "other.py:1"):
        assert with_source(other) == other


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("mine.py:3", ("mine.py", 3)),
        ("a/b c.py:12 in f: x[1:2]", ("a/b c.py", 12)),
        ("C:\\mine.py:12: y = 3", ("C:\\mine.py", 12)),
        ("nothing", None),
        ("", None),
    ],
)
def test_a_place_begins_with_a_file_and_a_line(place, found):
    assert file_and_line(place) == found
