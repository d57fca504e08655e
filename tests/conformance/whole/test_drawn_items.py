"""Losses that draw false items by themselves, and what draws them: what is told of wrong ones, what is left alone."""

import pytest

torch = pytest.importorskip("torch")

from wholes import told  # noqa: E402

from conformance.mutants.source import RECOMMENDER  # noqa: E402

TRUE, PADDING, DRAWN = (
    "losses-of-samples-prefer-the-true-item",
    "losses-of-samples-leave-padding-out",
    "drawn-false-items-are-false",
)
BOTH = "F.logsigmoid(true) + F.logsigmoid(-false)"
COUNTS, MEAN = "counts = (read != 0) & (positives != 0)", "* counts).sum() / counts.sum()"
SAYS, FROM = '"""An item for each place that is not its own positive."""', "torch.randint(1, n_items"


@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    [
        (TRUE, {}, "PASS"),
        (TRUE, {BOTH: "F.logsigmoid(true - false)"}, "PASS"),
        (TRUE, {BOTH: "-F.relu(9 - true + false)"}, "PASS"),
        (TRUE, {BOTH: "F.logsigmoid(true) + F.logsigmoid(false)"}, "FAIL"),
        (TRUE, {BOTH: "F.logsigmoid(false - true)"}, "FAIL"),
        (TRUE, {BOTH: "F.logsigmoid(-true) + F.logsigmoid(-false)"}, "FAIL"),
        (PADDING, {}, "PASS"),
        (PADDING, {COUNTS: "counts = positives != 0"}, "PASS"),
        (PADDING, {MEAN: "* counts).sum()"}, "PASS"),
        (PADDING, {COUNTS: "counts = torch.ones_like(read)"}, "FAIL"),
        (PADDING, {MEAN: "* counts).mean()"}, "FAIL"),
        (DRAWN, {}, "PASS"),
        (DRAWN, {FROM: "torch.randint(0, n_items"}, "FAIL"),
        (DRAWN, {FROM: "torch.randint(0, n_items", SAYS: '"""An item for each place."""'}, "NOTE"),
        (DRAWN, {"def drawn_negatives(self, positives)": "def drawn_negatives(self, positives, how)"}, "NOT_PROVIDED"),
    ],
)
def test_losses_that_draw_their_false_items(made, claim, changes, expected):
    assert told(made, RECOMMENDER, claim, changes) == expected


PADDING, CANDIDATES = "recommendations-hold-no-padding", "candidates-are-scored-behind-the-newest-item"
LONG, BEST = "long-histories-are-cut-to-their-newest-items", "recommendations-are-the-best-that-are-new"
OF_STATES = {  # forward gives states, and methods compare them with the vectors of items
    "return self.states(history) @ self.items.weight.T": "return self.states(history)",
    "scores = self(history)[:, -1]": "scores = self(history)[:, -1] @ self.items.weight.T",
}
NO_PADDING, NEWEST = "scores[:, 0] = -torch.inf", "newest = self.states(history)[:, -1]"
BY_COUNT = "newest = self.states(history)[torch.arange(len(history)), (history != 0).sum(1) - 1]"
CUT, MEAN = "history = history[:, -len(self.places) :]", "return (each * real).sum() / real.sum()"


@pytest.mark.parametrize("states", [{}, OF_STATES], ids=["scores", "states"])
@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    [
        (BEST, {}, "PASS"),
        (PADDING, {}, "PASS"),
        (PADDING, {NO_PADDING: "scores[:, 0] = 0"}, "FAIL"),
        (CANDIDATES, {}, "PASS"),
        (CANDIDATES, {NEWEST: BY_COUNT}, "FAIL"),
        (CANDIDATES, {NEWEST: f"{NEWEST} * 2"}, "NOT_PROVIDED"),
        (LONG, {}, "PASS"),
        (LONG, {CUT: "history = history[:, : len(self.places)]"}, "FAIL"),
        (LONG, {CUT: "pass"}, "NOT_PROVIDED"),
        ("losses-of-samples-leave-padding-out", {MEAN: "return each.mean()"}, "FAIL"),
    ],
)
def test_models_of_items(made, states, claim, changes, expected):
    assert told(made, RECOMMENDER, claim, {**states, **changes}) == expected
