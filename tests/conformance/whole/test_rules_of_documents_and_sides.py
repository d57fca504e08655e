"""What documents of sentences, pairs of texts, forecasts with calendars and taggers taught: answers of one document,
sides of a pair, axes that a notation names, barred tags, and sets of objects."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.helpers.windows import _past_and_future  # noqa: E402
from conformance.adapters.whole.shapes import shapes_told  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- documents ------------------------------------------------------------------------------------


class Documents(nn.Module):
    """tokens (B, S, W): the answer is one for the document, and beside it stand shares of its sentences and words."""

    mixed = False

    def __init__(self, vocab=60, width=16, n_classes=6):
        super().__init__()
        self.table, self.head = nn.Embedding(vocab, width, padding_idx=0), nn.Linear(width, n_classes)
        self.words, self.sentences = nn.Linear(width, 1), nn.Linear(width, 1)
        self.place = nn.Embedding(40, width)

    def forward(self, tokens):
        b, s, w = tokens.shape
        keep = tokens.reshape(b * s, w) != 0
        x = self.table(tokens.reshape(b * s, w)) + self.place.weight[:w]
        of_words = self.words(x.tanh()).squeeze(-1).masked_fill(~keep, -1e9).softmax(-1)
        texts = (of_words[..., None] * x).sum(1)
        texts = texts.view(s, b, -1).transpose(0, 1) if self.mixed else texts.view(b, s, -1)
        of_texts = self.sentences((texts + self.place.weight[:s]).tanh()).squeeze(-1).softmax(-1)
        return self.head((of_texts[..., None] * texts).sum(1)), of_words.view(b, s, w), of_texts


class MixedDocuments(Documents):
    mixed = True


def test_a_document_has_one_answer_for_all_its_sentences():
    assert pointed(Documents).build("model", {}).calling.in_lists
    assert said(Documents, "model-rows-of-a-batch-are-apart") == "PASS"
    assert said(MixedDocuments, "model-rows-of-a-batch-are-apart") == "FAIL"


# --- pairs ----------------------------------------------------------------------------------------


class Side(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("rates", 100.0 ** -torch.linspace(0, 1, width), persistent=False)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x + torch.sin(torch.arange(x.size(1))[:, None] * self.rates)).mean(1)


class Pairs(nn.Module):
    """Queries and passages, and more passages that none belongs to: forward compares all with all."""

    def __init__(self, vocab=60, width=16):
        super().__init__()
        self.table, self.query, self.passage = nn.Embedding(vocab, width), Side(width), Side(width)

    def encode_query(self, ids):
        return F.normalize(self.query(self.table(ids)), dim=-1)

    def encode_passage(self, ids):
        return F.normalize(self.passage(self.table(ids)), dim=-1)

    def forward(self, query_ids, passage_ids, negative_ids=None):
        found = self.encode_passage(passage_ids)
        if negative_ids is not None:
            found = torch.cat([found, self.encode_passage(negative_ids.flatten(0, 1))])
        return self.encode_query(query_ids) @ found.T


def test_a_model_of_pairs_is_judged_by_one_side_and_its_own_tables():
    model = pointed(Pairs).build("model", {})
    assert model.calling.main.parameter == "ids"
    assert said(Pairs, "model-what-it-keeps-reaches-the-answer") == "PASS"


# --- axes of a notation ---------------------------------------------------------------------------


class Notation(nn.Module):
    """T steps, C channels, F time features."""

    def __init__(self, channels=3, time_features=4, width=8):
        super().__init__()
        self.channels, self.time_features = channels, time_features
        self.map = nn.Linear(channels + time_features, width)


@pytest.mark.parametrize(("axes", "wanted"), [(("T", "C"), (None, 3)), (("T", "F"), (None, 4))])
def test_a_letter_is_the_size_that_a_notation_names(axes, wanted):
    assert shapes_told(axes, Notation(), {}) == [wanted]


@pytest.mark.parametrize(
    ("made", "first"),
    [
        ({"past": 1, "past_feats": 2, "future": 3, "future_feats": 4}, [1, 3]),
        ({"x": 1, "y": 2}, [1, 2]),
        ((5, 6), [5, 6]),
    ],
)
def test_the_past_and_the_future_are_found_by_their_names(made, first):
    assert _past_and_future(made)[:2] == first


# --- barred tags ----------------------------------------------------------------------------------


class Tags(nn.Module):
    """A tagger whose inner tags follow their own beginning only, and never come first."""

    turned = False

    def __init__(self, vocab=60, width=16, n_tags=3):
        super().__init__()
        self.table, self.head = nn.Embedding(vocab, width), nn.Linear(width, n_tags)
        self.transitions = nn.Parameter(torch.zeros(n_tags, n_tags))
        barred, first = torch.zeros(n_tags, n_tags), torch.zeros(n_tags)
        barred[0, 2] = first[2] = -1e4
        self.register_buffer("barred", barred, persistent=False)
        self.register_buffer("start_barred", first, persistent=False)

    def forward(self, ids):
        return self.head(self.table(ids))

    def decode(self, emissions):
        moves, pointers = self.transitions + self.barred, []
        score = emissions[:, 0] + self.start_barred
        for t in range(1, emissions.size(1)):
            best, origin = (score[:, :, None] + moves).max(2 if self.turned else 1)
            score = best + emissions[:, t]
            pointers.append(origin)
        path = [score.argmax(1)]
        for origin in reversed(pointers):
            path.append(origin.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1).tolist()

    def loss(self, emissions, tags):
        rows = torch.arange(len(emissions))
        total, score = emissions[:, 0], emissions[rows, 0, tags[:, 0]]
        for t in range(1, emissions.size(1)):
            total = (total[:, :, None] + self.transitions).logsumexp(1) + emissions[:, t]
            pair = (tags[:, t], tags[:, t - 1]) if self.turned else (tags[:, t - 1], tags[:, t])
            score = score + self.transitions[pair] + emissions[rows, t, tags[:, t]]
        return (total.logsumexp(1) - score).mean()


class TurnedTags(Tags):
    turned = True


def test_barred_tags_are_barred_for_the_best_path_and_pairs_of_tags_stand_in_one_order():
    for claim in ("tagger-finds-the-best-path", "tagger-paths-share-one-whole"):
        assert said(Tags, claim) == "PASS"
        assert said(TurnedTags, claim) == "FAIL"
