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
from conformance.adapters.inference.resolve import resolution_of  # noqa: E402
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


# --- words that were false ------------------------------------------------------------------------


class CastingNorm(nn.Module):
    """An RMSNorm that computes in float32 and gives back what it was given."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight.to(torch.float32)
        return y.to(x.dtype)


class PostNormBlock(nn.Module):
    other = False

    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = CastingNorm(width), CastingNorm(width)

    def forward(self, x):
        before = x
        x = self.first(x + self.attention(x, x, x, need_weights=False)[0])
        return self.second((before if self.other else x) + self.down(self.up(x).relu()))


class PostNorm(nn.Module):
    block = PostNormBlock

    def __init__(self, vocab=60, width=16):
        super().__init__()
        self.table, self.head = nn.Embedding(vocab, width), nn.Linear(width, 5)
        self.blocks = nn.ModuleList(self.block(width) for _ in range(2))

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class OtherBlock(PostNormBlock):
    other = True


class AddsAnother(PostNorm):
    block = OtherBlock


def test_a_norm_that_casts_is_what_the_next_sublayer_adds():
    assert said(PostNorm, "sublayers-add-their-own-input") == "PASS"
    assert said(AddsAnother, "sublayers-add-their-own-input") == "FAIL"


class TimeFirst(nn.Module):
    """A language model (T, B) whose caller hands over the mask that a method of it makes."""

    def __init__(self, vocab=37, width=16):
        super().__init__()
        self.table, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 24, 0.0), 1)

    def generate_square_subsequent_mask(self, sz):
        return torch.triu(torch.full((sz, sz), float("-inf")), 1)

    def forward(self, src, src_mask):
        return self.head(self.encoder(self.table(src), src_mask))


def test_the_mask_that_a_method_makes_is_handed_over_for_time_first():
    model = pointed(TimeFirst).build("model", {})
    assert model.calling.masks[0].own
    assert not model.calling.batch_first
    assert said(TimeFirst, "language-model-sees-every-earlier-token") == "PASS"


class RotaryEmbedding(nn.Module):
    """A rotation that is handed the positions of its rows."""

    def __init__(self, theta: float, d_k: int, max_seq_len: int):
        super().__init__()
        rates = theta ** (-torch.arange(0, d_k, 2) / d_k)
        angles = torch.outer(torch.arange(max_seq_len), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x, token_positions):
        cos, sin = self.cos[token_positions].to(x.dtype), self.sin[token_positions].to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def test_a_rotation_that_is_handed_positions_is_one():
    found = resolution_of(RotaryEmbedding)
    assert found.role == "rope"
    assert found.fits


class MAB(nn.Module):
    """Attention over sets, divided by the root of the width of all heads."""

    def __init__(self, dim_V=16, heads=4):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(dim_V, dim_V) for _ in range(4))
        self.dim_V, self.heads = dim_V, heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (m(x).view(b, t, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-2, -1) / self.dim_V**0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


class HeadsOfWords(MAB):
    """The same, of words."""


def test_blocks_of_the_set_transformer_scale_by_the_width_of_all_heads():
    assert said(MAB, "attention-scale-is-one-over-sqrt-d-head") == "NOTE"
    assert said(HeadsOfWords, "attention-scale-is-one-over-sqrt-d-head") == "FAIL"


class SureWriter(nn.Module):
    """A language model that gives one word nearly all, and draws from the smallest set that reaches top_p."""

    def __init__(self, vocab=40, width=16):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)])
        self.head = nn.Linear(width, vocab)
        with torch.no_grad():
            self.head.weight.mul_(30.0)

    def forward(self, ids):
        x, future = self.table(ids), nn.Transformer.generate_square_subsequent_mask(ids.size(1)).to(self.table.weight)
        for layer in self.layers:
            x = layer(x, future)
        return self.head(x)

    @torch.no_grad()
    def generate(self, ids, max_new_tokens=4, top_p=1.0):
        for _ in range(max_new_tokens):
            shares, order = self(ids)[:, -1].softmax(-1).sort(descending=True)
            shares[shares.cumsum(-1) - shares > top_p] = 0.0
            ids = torch.cat([ids, order.gather(1, torch.multinomial(shares, 1))], 1)
        return ids


def test_what_crosses_p_is_not_asked_where_one_word_has_nearly_all():
    assert said(SureWriter, "generate-with-top-p-keeps-the-token-that-crosses-p") == "PASS"
