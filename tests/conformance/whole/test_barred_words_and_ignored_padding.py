"""Scores that bar words are compared where they are finite; a loss alone may say which word is padding."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.checks.beams import _ranked_by  # noqa: E402
from conformance.checks.generation import alike, apart  # noqa: E402
from conformance.runner import run_check  # noqa: E402

LOGITS = np.array([[1.0, 2.0, 0.5, -1.0]])
BARRED = np.where([[False, True, False, False]], -np.inf, LOGITS)
MOVED = np.array([[0, 0, 0.5, 0]])


def test_scores_that_bar_words_on_both_sides_are_compared():
    assert alike(BARRED, BARRED) < 1e-9
    assert alike(BARRED, BARRED + MOVED) > 0.1
    assert apart(BARRED, BARRED) == 0
    assert apart(BARRED, BARRED + MOVED) > 0.1
    assert apart(BARRED, LOGITS) == float("inf")


def test_a_beam_is_ranked_by_its_logits_but_for_barred_words():
    assert _ranked_by(LOGITS[0], BARRED[0] - 3)
    assert not _ranked_by(LOGITS[0], BARRED[0] + MOVED[0])


PAD = 0


class Writer(nn.Module):
    """Causal, so that padding behind a text needs no mask: its loss alone says which word is padding."""

    means_all = False

    def __init__(self, vocab_size=30, d_model=16):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.mix, self.head = nn.GRU(d_model, d_model, batch_first=True), nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        """The loss of the next token, and logits."""
        words, labels = tokens[:, :-1], tokens[:, 1:]
        logits = self.head(self.mix(self.table(words))[0])
        how = "none" if self.means_all else "mean"
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction=how)
        return (loss.mean() if self.means_all else loss), logits

    def generate(self, tokens, n):
        for _ in range(n):
            tokens = torch.cat([tokens, self.head(self.mix(self.table(tokens))[0])[:, -1:].argmax(-1)], 1)
        return tokens


class MeansAll(Writer):
    means_all = True


@pytest.mark.parametrize(("cls", "verdict"), [(Writer, "PASS"), (MeansAll, "FAIL")])
def test_a_loss_alone_may_say_which_word_is_padding(cls, verdict):
    assert run_check(CHECKS["losses-leave-padding-out-of-the-mean"], pointed(cls), "quick").verdict.name == verdict
