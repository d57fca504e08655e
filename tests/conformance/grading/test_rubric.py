"""Points and their reasons."""

from __future__ import annotations

import pytest

from conformance.grading.rubric import default, read
from conformance.grading.submissions import GradingError
from conformance.verdict import Result, Verdict

SCALE, ROWS = "attention-scale-is-one-over-sqrt-d-head", "attention-weights-sum-to-one"
RUBRIC = f"""
points = 20
[[part]]
name = "Scale"
claims = "{SCALE}"
weight = 3
[[part]]
name = "Rows"
claims = "multi-head-scales-by-the-width-of-one-head"
"""


def row(claim, verdict, part=""):
    return {**Result(claim, Verdict(verdict)).to_json(), "part": part}


def rubric(tmp_path, text):
    (tmp_path / "rubric.toml").write_text(text)
    return read(tmp_path / "rubric.toml")


def test_parts_count_by_their_weights(tmp_path):
    score = rubric(tmp_path, RUBRIC).score(
        [row(SCALE, "PASS"), row("multi-head-scales-by-the-width-of-one-head", "FAIL")]
    )
    assert score.value == 0.75
    assert "Scale: 15.00 of 15.00 (1 of 1 claims kept)" in score.reasons
    assert score.text("bob").startswith("bob: 15.00 of 20 points")


def test_what_was_not_tested_gives_nothing(tmp_path):
    score = rubric(tmp_path, RUBRIC).score([row(SCALE, "NOT PROVIDED")])
    assert score.value == 0.0
    assert "nothing of it was tested" in score.reasons[0]


def test_a_complete_part_counts_what_is_missing(tmp_path):
    text = f'[[part]]\nname = "both"\nclaims = "{SCALE},multi-head-scales-by-the-width-of-one-head"\n'
    rows = [row(SCALE, "PASS"), row("multi-head-scales-by-the-width-of-one-head", "NOT PROVIDED")]
    assert rubric(tmp_path, text).score(rows).value == 1.0
    assert rubric(tmp_path, text + "complete = true\n").score(rows).value == 0.5


def test_what_is_required_caps_the_points(tmp_path):
    text = f'required = "{SCALE}"\nmost_without = 0.25\n'
    rows = [row(SCALE, "FAIL"), *(row(f"x{number}", "PASS") for number in range(9))]
    score = rubric(tmp_path, text + RUBRIC.replace("points = 20", "")).score(rows)
    assert score.value <= 0.25
    kept = rubric(tmp_path, text).score([row(SCALE, "PASS")])
    assert kept.value == 1.0


def test_code_that_reads_the_suite_gets_nothing_or_a_remark(tmp_path):
    rows = [row(SCALE, "PASS")]
    assert default().score(rows, suspicions=["it reads the suite (a.py:1)"]).value == 0.0
    noted = rubric(tmp_path, 'suspicion = "note"\n').score(rows, suspicions=["it reads the suite (a.py:1)"])
    assert noted.value == 1.0
    assert "the code: it reads the suite (a.py:1)" in noted.reasons


def test_of_several_parts_of_a_file_the_broken_one_counts():
    for verdicts in (("PASS", "FAIL"), ("FAIL", "PASS")):
        assert default().score([row(SCALE, v, str(n)) for n, v in enumerate(verdicts)]).value == 0.0
    assert default().score([row(SCALE, "NOT PROVIDED", "a"), row(SCALE, "PASS", "b")]).value == 1.0


def test_what_could_not_be_tested_has_no_points_and_a_reason():
    score = default().score([], "there is no class")
    assert (score.value, score.reasons) == (0.0, ("it could not be tested: there is no class",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pionts = 3", "no setting 'pionts'"),
        ('points = "3"', "points is '3', and must be float"),
        ("points = 0", "must be above 0"),
        ("points = true", "points is True"),
        ('required = "no-such-claim"', "there is no claim"),
        ('suspicion = "jail"', 'write "zero" or "note"'),
        ("most_without = 2", "a share, from 0 to 1"),
        ('[[part]]\nname = "x"', "needs a name and claims"),
        ('[[part]]\nname = "x"\nclaims = "masks"\nweight = -1', "must be above 0"),
        ('forbidden = ["sdpa"]', "write a whole name"),
        ("part = [", "cannot be read as a rubric"),
    ],
)
def test_a_wrong_rubric_is_told_in_a_sentence(tmp_path, text, says):
    with pytest.raises(GradingError, match=says) as caught:
        rubric(tmp_path, text)
    assert "rubric.toml" in str(caught.value)
