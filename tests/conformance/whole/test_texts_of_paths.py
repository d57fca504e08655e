"""What is judged of models of speech that hand out more than their scores: the scores of letters are those that their
loss is given."""

from __future__ import annotations

from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

SPEECH = """
    import typing
    import torch.nn.functional as F

    class Heard(typing.NamedTuple):
        hidden: torch.Tensor
        scores: torch.Tensor
        rows: torch.Tensor

    class Speech(nn.Module):
        def __init__(self, bins=20, letters=12):
            super().__init__()
            self.blank = letters - 1
            self.first, self.second = nn.Conv1d(bins, 8, 3, 2, 1), nn.Conv1d(8, 8, 3, 2, 1)
            layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
            self.stack = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.letters = nn.Linear(8, letters)

        def forward(self, frames, lengths):
            x = self.second(self.first(frames.transpose(1, 2)).relu()).transpose(1, 2)
            rows = (lengths + 3) // 4
            hidden = torch.arange(x.size(1)) >= rows[:, None]
            x = self.stack(x, src_key_padding_mask=hidden)
            return Heard(x, self.letters(x).log_softmax(-1), rows)

        def loss(self, frames, lengths, targets, target_lengths):
            heard = self(frames, lengths)
            return F.ctc_loss(heard.scores.transpose(0, 1), targets, heard.rows, target_lengths, BLANK)

        @torch.no_grad()
        def greedy_text(self, frames, lengths):
            heard = self(frames, lengths)
            paths = [one[:n].argmax(-1) for one, n in zip(heard.scores, heard.rows)]
            return [TEXT for path in paths]
"""
MERGED = "(one := torch.unique_consecutive(path))[one != self.blank].tolist()"
MERGES, DROPS = "ctc-text-merges-repeats-then-drops-blanks", "ctc-text-drops-the-blank-of-the-loss"


@pytest.mark.parametrize(
    ("blank", "text", "claim", "said"),
    [
        ("self.blank", MERGED, MERGES, "PASS"),
        ("self.blank", MERGED, DROPS, "PASS"),
        ("self.blank", "torch.unique_consecutive(path[path != self.blank]).tolist()", MERGES, "FAIL"),
        ("0", MERGED, MERGES, "PASS"),  # the text is right; the loss is not
        ("0", MERGED, DROPS, "FAIL"),
        (
            "self.blank",
            "(20 + torch.unique_consecutive(path)).tolist()",
            MERGES,
            "NOT_PROVIDED",
        ),  # letters of another alphabet
        ("0", "torch.unique_consecutive(path).tolist()", DROPS, "NOT_PROVIDED"),  # what is dropped, a caller drops
    ],
)
def test_the_text_of_a_path_is_asked_of_the_scores_that_the_loss_is_given(made, blank, text, claim, said):
    source = SPEECH.replace("BLANK", blank).replace("TEXT", text)
    implementation = Whole(whole_model(made("Speech", dedent(source))))
    assert run_check(CHECKS[claim], implementation, "quick").verdict.name == said
