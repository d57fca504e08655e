"""The picture of a run's losses: it begins at step 0, and where a loss jumps its smoothed course is drawn, too."""

import json
import math
import re

import pytest

from transformer.training.plot import curves, smoothed
from transformer.training.report import FEWEST, LOG, PLOT, plot


def test_the_axis_begins_at_0():
    picture = curves({"loss": [(20, 3.0), (40, 2.0)]}, "a run")
    assert re.search(r'<text [^>]*text-anchor="middle">0</text>', picture)
    begin = float(re.search(r'polyline points="([\d.]+),', picture).group(1))
    assert begin > 64 + (640 - 64 - 16) / 3  # step 20 of 40 is in the middle


def test_smoothed_points_lie_in_the_middle_of_what_they_are_of():
    jumps = [(step, 1.0 + step % 2) for step in range(100)]
    assert all(abs(y - 2**0.5) < 0.15 for _, y in smoothed(jumps)[10:-10])
    fall = [(step, 10.0 ** (-step / 20)) for step in range(100)]  # which a mean of the past alone would lie above
    assert all(abs(y / fall[step][1] - 1) < 0.02 for step, y in smoothed(fall)[20:-20])
    signed = [(step, float(step - 50)) for step in range(101)]
    assert abs(smoothed(signed)[50][1]) < 1e-9
    assert [x for x, _ in smoothed([(0, 2.0), (1, float("nan")), (2, 2.0)])] == [0, 2]
    assert smoothed([]) == []


@pytest.mark.parametrize("points", [FEWEST - 1, FEWEST])
def test_a_long_run_has_a_smoothed_curve(points, tmp_path):
    records = [{"step": step, "loss": 2.0 + step % 2} for step in range(1, points + 1)]
    (tmp_path / LOG).write_text("\n".join(map(json.dumps, records)))
    plot(tmp_path, "a run")
    picture = (tmp_path / PLOT).read_text()
    assert ("training, smoothed" in picture) == (points == FEWEST)
    assert ("stroke-opacity" in picture) == (points == FEWEST)


@pytest.mark.parametrize("low", [0.05, 0.1, 0.5])
def test_heights_are_logarithms_where_they_span_more_than_two_decades(low):
    picture = curves({"loss": [(0, 20.0), (1, 2.0), (2, low)]}, "a run")
    heights = [float(point.split(",")[1]) for point in re.search(r'points="([^"]+)"', picture).group(1).split()]
    first, second = heights[1] - heights[0], heights[2] - heights[1]
    if 20 / low > 100:
        assert second / first == pytest.approx(math.log10(2.0 / low), rel=0.02)
    else:
        assert second / first == pytest.approx((2.0 - low) / 18, abs=0.02)
