"""`close`: what it accepts, and that no bound accepts everything; `shown`: a value as one line."""

import numpy as np
import pytest

from conformance.evidence import close, shown


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
