"""Learned scales of pairs at their start and in their bounds, and softmaxes that are taken twice."""

import pytest

torch = pytest.importorskip("torch")

from wholes import told  # noqa: E402

from conformance.mutants.source import CAREFUL, EMBEDDER, TOWERS  # noqa: E402

LEARNED, ONCE = "learned-scales-of-pairs-begin-where-they-learn", "losses-take-their-softmax-once"
KEEPS = "self.temperature, self.pad_id = temperature, pad_id"
SCORES, WORSE = "self(anchors) @ self(positives).t() / self.temperature", "worse / self.temperature"
OF_BOTH = "return 0.5 * (F.cross_entropy(scores, own) + of_positives)"
LOG = "torch.log(torch.tensor(1 / 0.07))"


def scaled(by, start, others=None):
    """Changes after which the similarities of the embedder are scaled by what is written, with a parameter p."""
    return {
        KEEPS: f"self.p, self.pad_id = nn.Parameter({start}), pad_id",
        SCORES: f"self(anchors) @ self(positives).t() {by}",
        WORSE: "worse",
        **(others or {}),
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (scaled("* self.p.exp()", LOG), "PASS"),
        (scaled("* self.p.exp().clamp(max=100)", LOG), "PASS"),
        (scaled("* torch.clamp(self.p, 0, 4.6052).exp()", LOG), "PASS"),
        (scaled("/ self.p.exp()", f"-{LOG}"), "PASS"),
        (scaled("/ self.p", "torch.tensor(0.07)"), "PASS"),
        (scaled("* self.p.exp()", "torch.zeros(())"), "PASS"),
        (scaled("* self.p.exp() + self.p.clamp(min=1).detach()", "torch.zeros(())"), "NOT_PROVIDED"),
        (scaled("* self.p.exp()", f"{LOG}, requires_grad=False"), "NOT_PROVIDED"),
        (
            scaled("* self.p.exp()", "torch.tensor(-2.0)", {OF_BOTH: "return -F.logsigmoid(scores.diagonal()).mean()"})
            | {"of_positives = F.cross_entropy(scores.t(), own)": "of_positives = 0 * own"},
            "NOT_PROVIDED",
        ),
        (scaled("* self.p", "torch.tensor(0.1)"), "NOTE"),
        (scaled("* self.p.exp()", f"-{LOG}"), "FAIL"),
        (scaled("* (-self.p).exp()", LOG), "FAIL"),
        (scaled("* -self.p.exp()", LOG), "FAIL"),
        (scaled("/ self.p", "torch.tensor(14.3)"), "FAIL"),
        (scaled("* self.p.exp().clamp(max=4.6052)", LOG), "FAIL"),
        (scaled("* self.p.exp().clamp_max(4.6052)", LOG), "FAIL"),
        (scaled("* self.p.clamp(min=4.6052).exp()", LOG), "FAIL"),
        (scaled("* self.p.clamp(max=100).exp()", LOG), "FAIL"),
    ],
)
def test_a_learned_scale_at_its_start(made, changes, expected):
    assert told(made, EMBEDDER, LEARNED, changes) == expected


WRITTEN = "self(ids[:, :-1]).log_softmax(-1)"
BY_HAND = "scores = {}\n        log_probs = scores - scores.logsumexp(-1, keepdim=True)"
OF_PAIRS, OTHER = "F.cross_entropy(logits, own)", "-(logits.diagonal() - {}.logsumexp(1)).mean()"


@pytest.mark.parametrize(
    ("specimen", "changes", "expected"),
    [
        (CAREFUL, {}, "PASS"),
        (CAREFUL, {f"log_probs = {WRITTEN}": BY_HAND.format("self(ids[:, :-1])")}, "PASS"),
        (CAREFUL, {f"log_probs = {WRITTEN}": "log_probs = self(ids[:, :-1]).softmax(-1).log()"}, "NOT_PROVIDED"),
        (CAREFUL, {WRITTEN: "self(ids[:, :-1]).softmax(-2).log_softmax(-1)"}, "PASS"),  # over other numbers
        (CAREFUL, {WRITTEN: "self(ids[:, :-1]).softmax(-1).log_softmax(-1)"}, "FAIL"),
        (CAREFUL, {f"log_probs = {WRITTEN}": BY_HAND.format("self(ids[:, :-1]).softmax(-1)")}, "FAIL"),
        (TOWERS, {OF_PAIRS: OTHER.format("logits")}, "PASS"),
        (TOWERS, {OF_PAIRS: OTHER.format("logits.softmax(1)")}, "FAIL"),
        (EMBEDDER, {}, "NOT_PROVIDED"),
    ],
)
def test_a_softmax_is_taken_once(made, specimen, changes, expected):
    assert told(made, specimen, ONCE, changes) == expected
