"""What strangers' code showed: answers without gradients, sentences without a batch, experts with rooms, and parts that
are asked by methods; beside each right style a real mistake of the same place."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

GRADIENTS, PIECES = "model-every-parameter-gets-a-gradient", "model-every-piece-of-a-result-is-read"
ROWS = "model-rows-of-a-batch-are-apart"
MADE, SUMS = "modules-that-are-made-run", "experts-weights-sum-to-one-where-the-code-says"


def pointed(cls):
    return PointedImplementation(cls, Specification("", __name__, cls.__name__))


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- what the way back needs


class Overwriting(nn.Module):
    """Scores of words: a tanh, whose own result is divided in place."""

    def __init__(self, d_model=16, hidden=12):
        super().__init__()
        self.first, self.second = nn.Linear(d_model, hidden), nn.Linear(hidden, d_model)

    def forward(self, x):
        gates = torch.tanh(self.first(x))
        gates /= gates.detach().norm(dim=-1, keepdim=True) + 1.0
        return x + self.second(gates)


class Dividing(Overwriting):
    """The same with a new tensor."""

    def forward(self, x):
        gates = torch.tanh(self.first(x))
        gates = gates / (gates.detach().norm(dim=-1, keepdim=True) + 1.0)
        return x + self.second(gates)


class AddingInPlace(Overwriting):
    """Writing in place over what nobody needs is right."""

    def forward(self, x):
        moved = self.second(torch.tanh(self.first(x)))
        moved += x
        return moved


def test_an_answer_without_a_way_back_fails_at_the_line_that_writes_over():
    found = result(Overwriting, GRADIENTS)
    assert found.verdict is Verdict.FAIL
    assert "gates /= gates.detach()" in found.place
    assert "in place" in found.diagnosis
    assert result(Overwriting, PIECES).verdict is Verdict.NOT_PROVIDED


@pytest.mark.parametrize("cls", [Dividing, AddingInPlace])
def test_a_new_tensor_and_a_harmless_write_have_gradients(cls):
    assert result(cls, GRADIENTS).verdict is Verdict.PASS


# --- one sentence, and no batch


class OfOneSentence(nn.Module):
    """Attention of the words of one sentence, (T, d_model): heads are joined along its second axis."""

    def __init__(self, d_model=16, heads=2):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(d_model, 3 * (d_model // heads)) for _ in range(heads))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, words):
        results = []
        for head in self.heads:
            q, k, v = head(words).chunk(3, dim=-1)
            weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
            results.append(weights @ v)
        return self.out(torch.cat(results, dim=1))


class OverTheBatch(nn.Module):
    """Vectors, whose gates are a softmax over the batch by mistake."""

    def __init__(self, d_model=16, classes=5):
        super().__init__()
        self.gate, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, classes)

    def forward(self, x):
        rows, width = x.shape
        return self.out(x * torch.softmax(self.gate(x).view(rows, width), dim=0))


def test_the_words_of_one_sentence_are_no_batch():
    found = pointed(OfOneSentence)
    assert found.kind is None
    assert result(OfOneSentence, ROWS).verdict is Verdict.NOTE
    assert result(OfOneSentence, "model-answers-one-sentence-as-in-a-batch").verdict is Verdict.NOT_PROVIDED


def test_a_softmax_over_the_batch_is_told():
    assert result(OverTheBatch, ROWS).verdict is Verdict.FAIL


# --- experts whose rooms are small


class Roomy(nn.Module):
    """Two experts of four for each token; the weights of the chosen experts sum to 1. A full expert takes no more."""

    def __init__(self, d_model=16, experts=4, room=0.5):
        super().__init__()
        self.gate = nn.Linear(d_model, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d_model, 24), nn.GELU(), nn.Linear(24, d_model)) for _ in range(experts)
        )
        self.room = room

    def weigh(self, scores):
        best, chosen = scores.topk(2, dim=-1)
        return best.softmax(-1), chosen

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.weigh(self.gate(flat))
        room = max(1, int(self.room * len(flat)))
        total = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            tokens, place = torch.nonzero(chosen == number, as_tuple=True)
            tokens, place = tokens[:room], place[:room]
            if len(tokens):
                total = total.index_add(0, tokens, expert(flat[tokens]) * weights[tokens, place, None])
        return total.reshape(x.shape)


class Crowded(Roomy):
    """The same with hardly any room: the weights of the chosen experts sum to 1."""

    def __init__(self, d_model=16, experts=4):
        super().__init__(d_model, experts, room=0.25)


class Unnormalised(Roomy):
    """The weights of the chosen experts sum to 1, it says; they are those of all experts."""

    def weigh(self, scores):
        best, chosen = scores.softmax(-1).topk(2, dim=-1)
        return best, chosen


@pytest.mark.parametrize("cls", [Roomy, Crowded])
def test_a_token_that_finds_no_room_loses_its_share(cls):
    assert result(cls, SUMS).verdict in (Verdict.PASS, Verdict.NOT_PROVIDED)


def test_shares_that_do_not_sum_to_one_are_told_of_tokens_with_all_their_experts():
    assert result(Unnormalised, SUMS).verdict is Verdict.FAIL


# --- parts without a forward


class Memory(nn.Module):
    """What earlier pieces left behind, with a gate. It has no forward."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(width))

    def mixed(self, out, past):
        return out if past is None else out * self.gate.sigmoid() + past * (1 - self.gate.sigmoid())


class WithMemory(nn.Module):
    def __init__(self, d_model=16):
        super().__init__()
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.memory = Memory(d_model)

    def attended(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v)

    def forward(self, x, past=None):
        return self.out(self.memory.mixed(self.attended(x), past))


class Forgetful(WithMemory):
    """It makes the memory, and asks it nothing."""

    def forward(self, x, past=None):
        return self.out(self.attended(x))


def test_a_part_that_is_asked_by_its_methods_is_used():
    assert result(WithMemory, MADE).verdict is not Verdict.FAIL
    assert result(Forgetful, MADE).verdict is Verdict.FAIL


# --- masks that fit by chance, memories beside the input, tables in two precisions


class PerPosition(nn.Module):
    """One number for each position, 0 where the mask (B, T) says that there is padding."""

    def __init__(self, d_model=16, hidden=12):
        super().__init__()
        self.first, self.second = nn.Linear(d_model, hidden), nn.Linear(hidden, 1)

    def forward(self, x, mask):
        out = self.second(torch.relu(self.first(x))).squeeze(-1)
        return out if mask is None else out.masked_fill(mask, 0.0)


@pytest.mark.parametrize("claim", [GRADIENTS, ROWS, "model-keeps-no-state-between-calls"])
def test_a_mask_that_fits_a_number_of_samples_by_chance_is_not_chosen(claim):
    assert result(PerPosition, claim).verdict is Verdict.PASS


class Attending(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x, memory, mask=None):
        scores = self.q(x) @ self.k(memory).transpose(1, 2) / math.sqrt(x.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, :] == 1, float("-inf"))
        return scores.softmax(-1) @ self.v(memory)


class Stack(nn.Module):
    """Blocks that attend to themselves and to a memory, each with a mask of its own."""

    def __init__(self, d_model=16, layers=2):
        super().__init__()
        self.own = nn.ModuleList(Attending(d_model) for _ in range(layers))
        self.cross = nn.ModuleList(Attending(d_model) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, encoder_output, tgt_mask=None, src_mask=None):
        for own, cross in zip(self.own, self.cross, strict=True):
            x = x + own(x, x, tgt_mask)
            x = x + cross(x, encoder_output, src_mask)
        return self.norm(x)


class LeakyStack(Stack):
    """The second block forgets the mask."""

    def forward(self, x, encoder_output, tgt_mask=None, src_mask=None):
        for number, (own, cross) in enumerate(zip(self.own, self.cross, strict=True)):
            x = x + own(x, x, tgt_mask if number == 0 else None)
            x = x + cross(x, encoder_output, src_mask)
        return self.norm(x)


def test_a_memory_as_long_as_the_input_is_no_padding():
    assert result(Stack, "encoder-padding-changes-nothing").verdict is not Verdict.FAIL
    assert result(LeakyStack, "encoder-padding-changes-nothing").verdict is not Verdict.PASS


class Cached(nn.Module):
    """Positions of a table of float32 that the first call fills, and that no state dict keeps."""

    def __init__(self, d_model=16, longest=64):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)
        self.frequencies = nn.Parameter(10.0 ** (-torch.arange(d_model) / d_model), requires_grad=False)
        self.register_buffer("filled", torch.zeros(longest, d_model, dtype=torch.float32), persistent=False)
        self.count = 0

    def table(self, length):
        if self.count < length:
            places = torch.arange(length)[:, None]
            self.filled[:length] = torch.sin(places * self.frequencies.float()).to(self.filled.dtype)
            self.count = length
        return self.filled[:length]

    def forward(self, x):
        return self.out(x) + self.table(x.shape[1]).to(x.dtype)


class Drawn(Cached):
    """The table is drawn at random at the first call, and lost."""

    def table(self, length):
        if self.count < length:
            self.filled[:length] = torch.randn(length, self.filled.shape[1])
            self.count = length
        return self.filled[:length]


def test_a_table_that_is_made_again_in_another_precision_is_nothing_forgotten():
    assert result(Cached, "model-state-dict-makes-an-equal-model").verdict is not Verdict.FAIL
    assert result(Cached, "model-what-it-keeps-reaches-the-answer").verdict is not Verdict.FAIL
    assert result(Drawn, "model-state-dict-makes-an-equal-model").verdict is Verdict.FAIL


class CopiedTable(nn.Module):
    """What its forward reads is the table, and what its state keeps is the same table by another name."""

    def __init__(self, d_model=16, longest=64):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)
        self.codes = torch.sin(torch.arange(longest)[:, None] * 10.0 ** (-torch.arange(d_model) / d_model))
        self.register_buffer("positional_encoding", self.codes)

    def forward(self, x):
        return self.out(x) + self.codes[: x.shape[1]]


class ForgottenTable(CopiedTable):
    def forward(self, x):
        return self.out(x)


def test_a_table_that_is_read_by_another_name_reaches_the_answer():
    assert result(CopiedTable, "model-what-it-keeps-reaches-the-answer").verdict is not Verdict.FAIL
    assert result(ForgottenTable, "model-what-it-keeps-reaches-the-answer").verdict is Verdict.FAIL


class ToldEncoderLayer(nn.Module):
    """A layer that its caller tells where its norms stand."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.0):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, dropout, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x):
        return self.dropout(self.attention(x, x, x, need_weights=False)[0])

    def widen(self, x):
        return self.dropout(self.linear2(self.linear1(x).relu()))

    def forward(self, x, pre_norm=False):
        if pre_norm:
            x = x + self.attend(self.norm1(x))
            return x + self.widen(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.widen(x))


class ToldStack(nn.Module):
    def __init__(self, vocab_size=23, d_model=16, n_heads=2, d_ff=32, dropout=0.0, norm_first=True):
        super().__init__()
        self.norm_first = norm_first
        self.words = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList([ToldEncoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(2)])
        self.head = nn.Linear(d_model, 5)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, pre_norm=self.norm_first)
        return self.head(x)


@pytest.mark.parametrize("claim", ["pre-norm-encoder-layer-formula", "post-norm-encoder-layer-formula"])
def test_a_layer_that_its_model_tells_where_its_norms_stand_is_not_asked_alone(claim):
    found = result(ToldStack, claim)
    assert found.verdict is Verdict.NOT_PROVIDED
    assert "say where its norms stand, by pre_norm" in found.message
