"""`close`: what it accepts, and that no bound accepts everything; `shown`: a value as one line; what evidence says."""

import numpy as np
import pytest

from conformance.evidence import Evidence, close, note, same, shown


@pytest.mark.parametrize("bound", [np.inf, np.nan])
def test_a_bound_that_is_not_finite_accepts_nothing(bound):
    assert not close("x", np.ones(3), np.ones(3), bound).ok
    assert not close("x", np.ones(3), np.full(3, np.inf), bound).ok


def test_within_and_beyond_the_bound():
    assert close("x", np.ones(3), np.ones(3) + 1e-7, 1e-6).ok
    assert not close("x", np.ones(3), np.ones(3) + 1e-5, 1e-6).ok


@pytest.mark.parametrize("value", [{"query": np.ones((4, 5))}, [np.zeros((3, 3))], np.ones((2, 2)), 0.1])
def test_every_value_is_shown_on_one_line(value):
    assert "\n" not in shown(value)


def test_evidence_says_more_and_keeps_what_it_said():
    said = same("x", 1, 2).saying(diagnosis="It is one too small.", place="model.py:3").saying(mend="add 1")
    assert (said.diagnosis, said.place, said.mend) == ("It is one too small.", "model.py:3", "add 1")
    assert (said.ok, said.what, said.got) == (False, "x", 1)
    assert said.saying(diagnosis="It is smaller.").diagnosis == "It is smaller."


def test_pictures_are_small_and_rounded():
    said = same("x", 1, 2).saying(pictures={"got": np.full((40, 50), 1 / 3), "seen": np.eye(2, dtype=bool)})
    assert np.shape(said.pictures["got"]) == (32, 32)
    assert said.pictures["got"][0][0] == 0.3333
    assert said.pictures["seen"] == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((2, 2, 2)), [["a"]], 1.0])
def test_what_is_no_matrix_is_no_picture(wrong):
    with pytest.raises(ValueError, match="a picture is a 2-d array of numbers, not"):
        same("x", 1, 2).saying(pictures={"got": wrong})


def test_two_small_arrays_that_differ_are_pictured_where_they_differ_most():
    expected = np.zeros((2, 3, 4, 5))
    got = expected.copy()
    got[1, 2, 3, 4], got[0, 0, 0, 0] = 9.0, 1.0
    pictures = close("x", got, expected, 1e-6).pictured()
    assert list(pictures) == ["expected", "got"]
    assert (np.shape(pictures["got"]), pictures["got"][3][4]) == ((4, 5), 9.0)
    assert close("x", got, expected, 1e-6).saying(pictures={"mine": np.eye(2)}).pictured().keys() == {"mine"}


@pytest.mark.parametrize("shape", [(), (7,), (2, 33), (33, 2)])
def test_what_is_no_small_matrix_is_not_pictured(shape):
    assert close("x", np.ones(shape), np.zeros(shape), 1e-6).pictured() == {}
    assert Evidence(False, "x", "an error", "accepted").pictured() == {}


def test_a_note_is_no_failure():
    assert (note("window", 4).ok, note("window", 4).is_note, note("window", 4).got) == (True, True, 4)


@pytest.mark.parametrize(
    ("got", "expected", "told"),
    [
        (-2.6111243, -2.611124, ("-2.611124", "-2.6111243")),
        (np.array([1.0, 2.00000001]), np.array([1.0, 2.0]), ("[1., 2.]", "[1. , 2.00000001]")),
        (2.5, 2.5, ("2.5", "2.5")),
    ],
)
def test_the_two_sides_have_digits_enough_to_tell_them_apart(got, expected, told):
    assert Evidence(True, "x", expected, got).sides() == told


def test_the_worst_of_many_elements_has_digits_enough_too():
    expected = np.ones((4, 4))
    got = expected.copy()
    got[1, 2] += 1e-8
    assert close("x", got, expected, 1e-6).sides() == ("1 at [1, 2] of shape (4, 4)", "1.00000001")
