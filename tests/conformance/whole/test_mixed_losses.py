"""Losses that mix samples teach the labels of both, as much as they are in the input."""

import pytest

pytest.importorskip("torch")
from wholes import told

from conformance.mutants.source import VIT

CLAIM = "losses-of-mixed-samples-teach-both-labels"
OTHER, SUM = "F.cross_entropy(scores, labels[order])", "return share * own + (1 - share) * other"
OWN = "own, other = F.cross_entropy(scores, labels), F.cross_entropy(scores, labels[order])"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "PASS"),
        ({OWN: OWN.replace("scores, ", "scores, label_smoothing=0.1, target=")}, "PASS"),
        ({OTHER: "F.cross_entropy(scores, labels)"}, "FAIL"),
        ({SUM: "return (1 - share) * own + share * other"}, "FAIL"),
        ({SUM: "return share * own + (1 - share) * other + scores.square().mean()"}, "NOT_PROVIDED"),
        ({"share * images + (1 - share) * images[order]": "images"}, "NOT_PROVIDED"),
    ],
)
def test_mixed_samples_have_mixed_labels(made, changes, expected):
    assert told(made, VIT, CLAIM, changes) == expected
