"""Models whose forward compares pairs of samples: what is told of wrong ones, and what is left alone."""

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import TOWERS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

BOTH, ALONE = "contrasts-ask-in-both-directions", "scores-of-pairs-are-the-same-in-a-larger-batch"
SCORES = "return self.logit_scale.exp() * self.encode_image(images) @ self.encode_text(ids).t()"
LOSS = "def contrastive_loss(logits):"
STYLES = {
    "two tables": {
        SCORES: "a, b = self.encode_image(images), self.encode_text(ids)\n        return a @ b.t(), b @ a.t()",
        LOSS: "def contrastive_loss(logits_a, logits_b):",
        "F.cross_entropy(logits, own)": "F.cross_entropy(logits_a, own)",
        "F.cross_entropy(logits.t(), own)": "F.cross_entropy(logits_b, own)",
        "len(logits), device=logits.device": "len(logits_a)",
    },
    "another loss that cannot be run": {LOSS: f"def a_loss(logits):\n    raise ValueError(logits)\n\n\n{LOSS}"},
    "shares of a row": {SCORES: f"{SCORES[:7]}({SCORES[7:]}).softmax(-1)"},
    "a score for each word": {
        SCORES: "x = self.words(ids) @ self.text_head.weight.t()\n"
        "        return torch.einsum('nd,mtd->ntm', self.encode_image(images), x)",
    },
    "one direction twice": {"F.cross_entropy(logits.t(), own)": "F.cross_entropy(logits, own)"},
    "over the batch": {"z.norm(dim=1, keepdim=True)": "z.norm(dim=0, keepdim=True)"},
}


@pytest.mark.parametrize(
    ("style", "both", "alone"),
    [
        ("two tables", "PASS", "PASS"),
        ("another loss that cannot be run", "PASS", "PASS"),
        ("shares of a row", "NOT_PROVIDED", "NOT_PROVIDED"),
        ("a score for each word", "NOT_PROVIDED", "NOT_PROVIDED"),
        ("one direction twice", "FAIL", "PASS"),
        ("over the batch", "PASS", "FAIL"),
    ],
)
def test_pairs_are_compared_as_pairs(made, style, both, alone):
    text = TOWERS.source
    for old, new in STYLES[style].items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    subject = Whole(whole_model(made(TOWERS.name, text)))
    assert [run_check(CHECKS[claim], subject, "quick").verdict.name for claim in (BOTH, ALONE)] == [both, alone]
