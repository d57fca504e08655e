"""What a model measures of itself: probabilities of classes, and errors at observed points."""

import pytest

torch = pytest.importorskip("torch")

from wholes import told  # noqa: E402

from conformance.mutants.source import CLASSIFIER, FORECASTER  # noqa: E402

SHARES, OBSERVED = "probabilities-are-shares-of-classes", "errors-of-observed-points-are-their-mean"
SOFTMAX, ERROR = "self(ids).softmax(-1)", "((self(x) - future).square() * observed).sum() / observed.sum()"
SAYS = '"""The mean squared error over observed points (B, H, C)."""'


@pytest.mark.parametrize(
    ("made_by", "expected"),
    [(SOFTMAX, "PASS"), ("self(ids).softmax(0)", "FAIL"), ("self(ids).sigmoid()", "NOT_PROVIDED")],
)
def test_probabilities_of_classes(made, made_by, expected):
    assert told(made, CLASSIFIER, SHARES, {SOFTMAX: made_by}) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "PASS"),
        ({ERROR: "(self(x) - future)[observed].abs().mean()"}, "PASS"),
        ({ERROR: "((self(x) - future).square() * observed).mean()"}, "FAIL"),
        ({ERROR: "((self(x) - future).square() * observed).mean()", SAYS: '"""A squared error."""'}, "NOTE"),
        ({ERROR: "((self(x) - future).square() * observed).sum()"}, "NOT_PROVIDED"),
        ({ERROR: "((self(x) - future).square() * ~observed).sum() / (~observed).sum()"}, "NOT_PROVIDED"),
    ],
)
def test_errors_at_observed_points(made, changes, expected):
    assert told(made, FORECASTER, OBSERVED, changes) == expected
