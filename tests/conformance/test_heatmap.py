"""Matrices as block characters: one scale for both, what is cropped, what is no number."""

import math

from conformance.heatmap import heat_maps


def test_two_matrices_stand_side_by_side_on_one_scale():
    assert heat_maps({"expected": [[1.0, 0.0], [0.5, 0.5]], "got": [[0.25, 0.75]]}) == [
        "expected    got",
        "|██  |      |░░▓▓|",
        "|▒▒▒▒|",
        "0 (blank) to 1 (full)",
    ]


def test_what_is_no_finite_number_is_marked():
    assert heat_maps({"got": [[math.nan, math.inf, 2.0, 1.0]]})[1] == "|!!!!██  |"


def test_without_a_number_there_is_nothing_to_show():
    assert heat_maps({}) == heat_maps({"got": [[math.nan]]}) == heat_maps({"got": []}) == []


def test_equal_numbers_are_all_blank():
    assert heat_maps({"got": [[3.0, 3.0]]}) == ["got", "|    |", "3 (blank) to 3 (full)"]


def test_large_matrices_are_cropped_and_say_so():
    lines = heat_maps({"got": [[float(i + j) for j in range(20)] for i in range(30)]})
    assert len(lines) == 14
    assert {len(line) for line in lines[1:-1]} == {26}
    assert lines[-1].endswith("; the first 12 rows and columns")
