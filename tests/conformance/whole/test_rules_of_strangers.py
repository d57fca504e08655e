"""Rules that right models of other styles need; beside each right model a real mistake of the same place.

What shifts all scores of a query alike has no gradient; a stream may begin at a parameter; a prompt may stand behind
its count, and a caller may join the pieces of a cache; a masked model's methods say that it is one; what a model needs
in spite of its default is an input.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.functions.implementation import FunctionImplementation  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.adapters.whole.stepping import stepping  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants import MUTANTS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

WIDTH, HEADS, VOCAB = 16, 2, 23


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- what shifts all scores of a query alike


class ByLetters(nn.Module):
    """Attention whose parameters are letters: the keys' bias is one tensor (2, heads, width of a head) with no other;
    scores are mixed over heads, with a bias, before the softmax; a learnt number is added to the scores of a head."""

    def __init__(self):
        super().__init__()
        head = WIDTH // HEADS
        self.Wq, self.Wk, self.Wv = (nn.Parameter(torch.randn(HEADS, WIDTH, head) / 4) for _ in range(3))
        self.shift = nn.Parameter(torch.zeros(HEADS, 1, head))
        self.mix = nn.Conv2d(HEADS, HEADS, 1)
        self.level = nn.Parameter(torch.zeros(HEADS, 1, 1))
        self.out = nn.Linear(WIDTH, WIDTH)

    def scores(self, x):
        q, k = (torch.einsum("btd,hde->bhte", x, w) for w in (self.Wq, self.Wk))
        return self.mix(q @ (k + self.shift).transpose(-1, -2) / math.sqrt(q.shape[-1])) + self.level

    def forward(self, x):
        e = self.scores(x).exp()
        mixed = (e / e.sum(-1, keepdim=True)) @ torch.einsum("btd,hde->bhte", x, self.Wv)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Tagger(nn.Module):
    attention = ByLetters

    def __init__(self, n_words=VOCAB, n_tags=5):
        super().__init__()
        self.words, self.places = nn.Embedding(n_words, WIDTH), nn.Embedding(32, WIDTH)
        self.mixers = nn.ModuleList(self.attention() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.score, self.tags = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, n_tags)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for mixer, norm in zip(self.mixers, self.norms, strict=True):
            x = x + mixer(norm(x))
        return self.tags((x * self.score(x).softmax(1)).sum(1))  # the bias of the scores shifts them all


class LeftOut(ByLetters):
    def scores(self, x):
        q, k = (torch.einsum("btd,hde->bhte", x, w) for w in (self.Wq, self.Wk))
        return self.mix(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])) + self.level


class TaggerWithoutAShift(Tagger):
    """`shift` is made, and nothing reads it."""

    attention = LeftOut


class OfTheQuery(ByLetters):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(32, HEADS))

    def scores(self, x):
        return super().scores(x) + self.table[torch.arange(x.shape[1])].T[:, :, None]


class TaggerWithPlacesOfQueries(Tagger):
    """A table of positions is added along the queries, where it should differ from key to key."""

    attention = OfTheQuery


class Among(nn.Module):
    """Attention of learnt queries, which begin as zeros, among each other, and then to the words: as in DETR."""

    begins = staticmethod(torch.zeros_like)

    def __init__(self, n_words=VOCAB, n_tags=5):
        super().__init__()
        self.words, self.asking = nn.Embedding(n_words, WIDTH), nn.Parameter(torch.randn(3, WIDTH))
        self.q, self.k, self.v, self.own_k = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.tags = nn.Linear(WIDTH, n_tags)

    def attend(self, q, k, v):
        return (q @ k.transpose(-1, -2) / math.sqrt(WIDTH)).softmax(-1) @ v

    def forward(self, ids):
        words, asking = self.words(ids), self.asking.expand(len(ids), -1, -1)
        x = self.begins(asking)
        x = x + self.attend(self.q(x + asking), self.own_k(x + asking), self.v(x))
        return self.tags((x + self.attend(x + asking, self.k(words), words)).mean(1))


class AmongWithASpareKey(Among):
    """Beside the scores, others are computed and thrown away."""

    def attend(self, q, k, v):
        if len(k[0]) > len(q[0]):
            super().attend(q, self.own_k(k), v)
        return super().attend(q, k, v) if len(k[0]) > len(q[0]) else v


GRADIENT = "model-every-parameter-gets-a-gradient"


def test_what_shifts_all_scores_of_a_query_alike_needs_no_gradient():
    assert result(Tagger, GRADIENT).verdict is Verdict.PASS
    assert result(Tagger, "model-learns-from-its-start").verdict is not Verdict.FAIL


@pytest.mark.parametrize(("cls", "name"), [(TaggerWithoutAShift, "shift"), (TaggerWithPlacesOfQueries, "table")])
def test_what_is_unused_or_a_table_of_places_still_fails(cls, name):
    found = result(cls, GRADIENT)
    assert found.verdict is Verdict.FAIL
    assert found.got == f"none for mixers.0.{name}, mixers.1.{name}"


def test_learnt_queries_that_begin_as_zeros_learn_nothing_among_each_other():
    assert result(Among, GRADIENT).verdict is Verdict.PASS


def test_scores_that_are_thrown_away_still_fail():
    assert "own_k.weight" in result(AmongWithASpareKey, GRADIENT).got


# --- a stream that begins at a parameter


class Summary(nn.Module):
    """A few learnt vectors ask, and read themselves and the patches; their stream begins at a parameter."""

    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.network = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, asking, patches):
        count = asking.shape[1]
        everything = self.before(torch.cat([patches, asking], 1))
        asking = self.added(asking, self.attention(everything[:, -count:], everything, everything)[0])
        return asking + self.network(self.behind(asking))

    def added(self, asking, told):
        return asking + told


class Forgets(Summary):
    def added(self, asking, told):
        return told


class Pictures(nn.Module):
    summary = Summary

    def __init__(self, channels=1, size=8, n_classes=5):
        super().__init__()
        self.patches = nn.Conv2d(channels, WIDTH, 4, stride=4)
        self.places = nn.Parameter(torch.randn((size // 4) ** 2, WIDTH) * 0.1)
        self.asking = nn.Parameter(torch.randn(2, WIDTH))
        self.blocks = nn.ModuleList(self.summary() for _ in range(2))
        self.head = nn.Linear(WIDTH, n_classes)

    def forward(self, x):
        patches = self.patches(x).flatten(2).transpose(1, 2) + self.places
        asking = self.asking.expand(len(x), -1, -1)
        for block in self.blocks:
            asking = block(asking, patches)
        return self.head(asking.mean(1))


class PicturesWithoutAResidual(Pictures):
    summary = Forgets


COMPOSITION = ("sublayers-have-a-residual", "sublayers-add-their-own-input", "sublayers-add-their-input-once")


def test_a_learnt_vector_that_asks_is_the_residual_of_what_it_is_told():
    assert [result(Pictures, claim).verdict for claim in COMPOSITION] == [Verdict.PASS] * 3


def test_a_learnt_vector_that_is_not_added_is_missed():
    found = result(PicturesWithoutAResidual, "sublayers-have-a-residual")
    assert found.verdict is Verdict.FAIL
    assert "the attention of blocks.0" in found.diagnosis


def test_a_picture_of_one_channel_has_one_answer():
    assert calling_of(Pictures()).layout == "(B, V)"
    assert pointed(Pictures).kind == "classifier"


# --- writing and caches


class Pieces(nn.Module):
    """Returns the keys and values of the new tokens alone, all layers in one tensor; who calls it joins them."""

    first_place = "kept"

    def __init__(self, n_words=VOCAB, n_layers=2):
        super().__init__()
        self.words, self.places = nn.Embedding(n_words, WIDTH), nn.Embedding(40, WIDTH)
        self.maps = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(n_layers))
        self.outs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(n_layers))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids, past=None):
        kept = 0 if past is None else past.shape[3]
        here = torch.arange(ids.shape[1]) + (kept if self.first_place == "kept" else 0)
        x, present = self.words(ids) + self.places(here), []
        for at, (maps, out) in enumerate(zip(self.maps, self.outs, strict=True)):
            q, k, v = maps(self.norm(x)).chunk(3, -1)
            present.append(torch.stack([k, v]))
            if past is not None:
                k, v = torch.cat([past[at, 0], k], 1), torch.cat([past[at, 1], v], 1)
            future = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1 + k.shape[1] - q.shape[1])
            scores = (q @ k.transpose(1, 2) / math.sqrt(WIDTH)).masked_fill(future, -math.inf)
            x = x + out(scores.softmax(-1) @ v)
        return {"logits": self.norm(x) @ self.words.weight.T, "present": torch.stack(present).movedim(2, 2)}


class FirstPlaceAgain(Pieces):
    """A token that is fed with the past gets the first position."""

    first_place = "again"


@torch.no_grad()
def sample_from(model, length, context, temperature=1.0, top_k=0):
    text, past, new = context, None, context
    for _ in range(length):
        step = model(new, past=past)
        past = step["present"] if past is None else torch.cat([past, step["present"]], dim=3)
        logits = step["logits"][:, -1] / temperature
        if top_k:
            logits = logits.masked_fill(logits < logits.topk(top_k)[0][:, -1:], -math.inf)
        new = torch.multinomial(logits.softmax(-1), 1)
        text = torch.cat([text, new], 1)
    return text


CACHED = "cached-steps-give-the-logits-of-one-pass"


def test_a_prompt_may_stand_behind_the_count():
    whole = pointed(Pieces).whole
    (writer,) = whole.writers()
    assert (writer.name, writer.prompt, writer.options["count"]) == ("sample_from", "context", "length")
    assert result(Pieces, "generate-takes-the-best-token").verdict is Verdict.PASS


def test_pieces_of_a_cache_are_joined_as_the_caller_joins_them():
    assert stepping(pointed(Pieces).whole).joins
    assert result(Pieces, CACHED).verdict is Verdict.PASS


def test_a_cached_token_at_the_first_place_still_fails():
    assert result(FirstPlaceAgain, CACHED).verdict is Verdict.FAIL


def top_k_filter(logits, k):
    return logits.masked_fill(logits < torch.topk(logits, k)[0][:, -1:], -math.inf) if k else logits


def top_k_of_fifty(logits, top_k=50):
    return logits.masked_fill(logits < torch.topk(logits, top_k)[0][:, -1:], -math.inf) if top_k else logits


ABOVE = "top-k-above-the-vocabulary-keeps-every-token"


@pytest.mark.parametrize(("function", "verdict"), [(top_k_filter, Verdict.NOTE), (top_k_of_fifty, Verdict.FAIL)])
def test_a_number_above_the_vocabulary_may_be_refused_by_what_has_none_by_default(function, verdict):
    assert (
        run_check(
            CHECKS[ABOVE], FunctionImplementation(function, Specification("", __name__, function.__name__)), "quick"
        ).verdict
        is verdict
    )


def test_the_mutant_of_the_default_is_caught():
    assert MUTANTS["TopKAboveTheVocabularyFails"].cls.attributes == {"default_top_k": 50}
    assert ABOVE in MUTANTS["TopKAboveTheVocabularyFails"].breaks


# --- the intent of a masked model


class ResidueLM(nn.Module):
    """Words on both sides of a hidden one say what it is."""

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.places = nn.Embedding(n_words, WIDTH), nn.Embedding(32, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True)
        self.stack, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, n_words)

    def forward(self, ids):
        return self.out(self.stack(self.words(ids) + self.places(torch.arange(ids.shape[1]))))

    def fill_mask(self, ids, hidden):
        return torch.where(hidden, self(ids.masked_fill(hidden, 1)).argmax(-1), ids)


class ChainLM(ResidueLM):
    """The same with a method that writes, and no mask: a mistake."""

    fill_mask = None

    def generate(self, ids, n):
        for _ in range(n):
            ids = torch.cat([ids, self(ids)[:, -1:].argmax(-1)], 1)
        return ids


def test_a_method_that_fills_masks_says_what_a_model_is():
    assert pointed(ResidueLM).kind == "masked_language_model"


def test_a_model_that_writes_and_sees_the_future_still_fails():
    assert pointed(ChainLM).kind == "language_model"
    assert result(ChainLM, "language-model-is-causal").verdict is Verdict.FAIL


# --- norms of a layer


class SpreadNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        return self.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.bias


class Heads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores if mask is None else scores.masked_fill(mask == 0, -1e9)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, d_model=16, n_heads=2, d_ff=32):
        super().__init__()
        self.norm1, self.norm2 = SpreadNorm(d_model), SpreadNorm(d_model)
        self.self_attn = Heads(d_model, n_heads)
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x, mask=None):
        x = x + self.self_attn(self.norm1(x), mask)
        return x + self.linear2(F.relu(self.linear1(self.norm2(x))))


class LayerOfAnotherNorm(EncoderLayer):
    """The second norm's result is what the network is added to."""

    def forward(self, x, mask=None):
        x = x + self.self_attn(self.norm1(x), mask)
        h = self.norm2(x)
        return h + self.linear2(F.relu(self.linear1(h)))


def test_a_mistake_of_its_norms_is_told_once():
    assert result(EncoderLayer, "norm-is-its-formula").verdict is Verdict.FAIL
    assert result(EncoderLayer, "pre-norm-encoder-layer-formula").verdict is Verdict.PASS


def test_a_mistake_beside_that_of_the_norms_is_told_too():
    assert result(LayerOfAnotherNorm, "norm-is-its-formula").verdict is Verdict.FAIL
    assert result(LayerOfAnotherNorm, "sublayers-add-their-own-input").verdict is Verdict.FAIL


# --- inputs


class Rows(nn.Module):
    """Numbers of a table, and kinds beside them, which may be left out of a model without kinds."""

    def __init__(self, numbers=4, kinds=(3, 5)):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(numbers, WIDTH)), nn.Parameter(torch.randn(6, WIDTH))
        self.tables = nn.ModuleList(nn.Embedding(n, WIDTH) for n in kinds)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, numbers, kinds=None):
        x = self.scale * numbers[..., None]
        if kinds is not None:
            x = torch.cat([x, torch.stack([t(kinds[:, i]) for i, t in enumerate(self.tables)], 1)], 1)
        x = x + self.shift
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Demand(nn.Module):
    """A past and what is known of days to come; the past is computed with, and no cache."""

    def __init__(self, series=3, calendar=4):
        super().__init__()
        self.values, self.days = nn.Linear(series, WIDTH), nn.Linear(calendar, WIDTH)
        self.stack = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True), 2, enable_nested_tensor=False
        )
        self.out = nn.Linear(WIDTH, series)

    def forward(self, past, days):
        mean = past.mean(1, keepdim=True)
        return self.out(self.stack(self.values(past - mean) + self.days(days))) + mean


class HandsOn(nn.Module):
    """A past that is handed on is a cache, though it has no default."""

    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(VOCAB, WIDTH), Pieces()

    def forward(self, ids, past):
        return self.layer(ids, past)["logits"]


def test_what_a_model_needs_in_spite_of_its_default_is_found():
    calling = calling_of(Rows())
    numbers, kinds = (calling.beside[name] for name in ("numbers", "kinds"))
    assert (numbers.sizes[1:], numbers.dtype, kinds.dtype) == ((4,), "float", "int")
    assert kinds.sizes[1] >= 2
    assert (calling.main.parameter, calling.layout) == ("numbers", "(B, V)")


def test_the_past_of_a_series_is_no_cache():
    calling = calling_of(Demand())
    assert (calling.main.parameter, calling.main.shape, calling.cache) == ("past", (None, 3), "")


def test_a_past_that_is_handed_on_is_one():
    assert calling_of(HandsOn()).cache == "past"
