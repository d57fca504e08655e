"""Calls that are made again with other padding: answers for a whole row, no room for more, and frames of lengths."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.watch import frames, probing  # noqa: E402
from conformance.watch.repeating import Call  # noqa: E402


class Sorter(nn.Module):
    """A mask for attention made of the tokens, places for 9 tokens, and a mean over the words, or over all places."""

    def __init__(self, real_only):
        super().__init__()
        torch.manual_seed(0)
        self.real_only = real_only
        self.embed, self.places = nn.Embedding(20, 8, padding_idx=0), nn.Parameter(torch.randn(9, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        pad = tokens == 0
        x = self.layer(self.embed(tokens) + self.places[: tokens.shape[1]], src_key_padding_mask=pad)
        real = (~pad)[..., None].float()
        return self.head((x * real).sum(1) / real.sum(1) if self.real_only else x.mean(1))


class Listener(Sorter):
    """The same of frames (N, T, 5), which it is told the lengths of."""

    def __init__(self, real_only):
        super().__init__(real_only)
        self.embed = nn.Linear(5, 8)

    def forward(self, heard, lengths):
        pad = torch.arange(heard.shape[1]) >= lengths[:, None]
        x = self.layer(self.embed(heard), src_key_padding_mask=pad)
        real = (~pad)[..., None].float()
        return self.head((x * real).sum(1) / real.sum(1) if self.real_only else x.mean(1))


def moved(judge, model, *given, learned=None):
    """How far answers moved, by each probe."""
    found = []
    run = SimpleNamespace(modules={0: ("model", "train.py:1")}, add=found.append)
    with torch.no_grad():
        judge(run, Call(0, model.eval(), given, {}, learned=learned))
    return [one.error for one in found]


@pytest.mark.parametrize("length", [7, 9])  # 9: there is no room for more padding
def test_padding_moves_no_answer_for_a_row(length):
    tokens = torch.randint(1, 20, (6, length))
    tokens[3:, 4:] = 0
    (right,), (wrong,) = (moved(probing._own_padding, Sorter(real_only), tokens) for real_only in (True, False))
    assert right < probing.ROUNDING < wrong


@pytest.mark.parametrize("filled", [0, 3])  # 3: all rows are a little shorter than the batch
def test_frames_behind_a_row_move_no_answer_for_it(filled):
    lengths = torch.tensor([40, 40, 12, 15])
    heard = torch.randn(4, 40 + filled, 5) * (torch.arange(40 + filled) < lengths[:, None])[..., None]
    errors = [moved(frames.padded_frames, Listener(real_only), heard, lengths) for real_only in (True, False)]
    assert errors[0][0] < probing.ROUNDING < errors[1][0]


class Writer(nn.Module):
    """Words in front of which padding stands: a place that sees nothing but padding sees all of its row."""

    def __init__(self, causal):
        super().__init__()
        torch.manual_seed(0)
        self.causal = causal
        self.embed, self.query, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20)

    def forward(self, ids, real):
        x = self.embed(ids)
        past = torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
        seen = real[:, None, :].bool() & (past if self.causal else torch.ones_like(past))
        scores = (self.query(x) @ x.transpose(1, 2)).masked_fill(~seen, -1e9)
        return self.head(scores.softmax(-1) @ x)


@pytest.mark.parametrize("causal", [True, False])
def test_what_stands_in_front_of_a_text_may_see_what_comes(causal):
    ids = torch.tensor([[0, 0, 0, 4, 5, 6], [7, 8, 9, 4, 3, 2], [0, 7, 5, 8, 2, 9]])
    (error,) = moved(probing._future, Writer(causal), ids, (ids != 0).long(), learned=ids)
    assert (error < probing.ROUNDING) is causal
