"""Rules that public repositories taught, on classes like theirs: norms with a formula of their own, functions that make
models, configs that stand nowhere, masks that hide all, rounded weights, targets that forward cuts, gates by name.

Beside what is right stands a real mistake of the same place, where there is one.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters.whole.making import makes_module  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

WIDTH, HEADS, VOCAB = 16, 2, 23


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- layers whose norms have a formula of their own


class UnbiasedNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.gain, self.shift, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        return self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.shift


class FusedAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        maps = zip((self.query, self.key, self.value), (query, key, value), strict=True)
        q, k, v = (turn(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for turn, x in maps)
        return self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class PostNormLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = FusedAttention(d_model, n_heads)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1, self.norm2 = UnbiasedNorm(d_model), UnbiasedNorm(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, x, x, mask))
        return self.norm2(x + self.ffn(x))


class LayerWithoutResidual(PostNormLayer):
    def forward(self, x, mask=None):
        x = self.norm1(self.attention(x, x, x, mask))
        return self.norm2(x + self.ffn(x))


@pytest.mark.parametrize("cls", [PostNormLayer, pytest.param(LayerWithoutResidual, marks=pytest.mark.slow)])
def test_a_layer_is_not_told_for_its_residual_where_its_norms_alone_are_others(cls):
    found = pointed(cls).parts.resolutions["encoder_layer"]
    is_right = cls is PostNormLayer
    assert (found.own_norms, found.fixed.get("norm_first")) == (("UnbiasedNorm", False) if is_right else ("", None))


def test_keys_and_values_of_unequal_length_are_torchs_own_matter_in_its_own_attention():
    assert result(FusedAttention, "keys-and-values-must-share-their-length").verdict is Verdict.NOTE


# --- what makes a model, and what a config has


def create_decoder_model(vocab=VOCAB, d_model=WIDTH):
    """Its name is that of a function that decodes."""
    return nn.Sequential(nn.Embedding(vocab, d_model), PostNormLayer(d_model, 2, 32), nn.Linear(d_model, vocab))


def test_a_function_that_makes_a_model_is_no_helper():
    assert makes_module(create_decoder_model)
    assert not makes_module(pointed)


class ReadsConfig(nn.Module):
    """Its config stands nowhere. Of `dim` its file says -1, which is the number of an axis."""

    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.dim)

    def forward(self, ids):
        return torch.softmax(self.words(ids), dim=-1)


def test_the_number_of_an_axis_is_no_width():
    assert pointed(ReadsConfig).running.twin().module.words.embedding_dim > 0


class KeepsItsTokenizer(nn.Module):
    """What the constructor only keeps may be nothing."""

    def __init__(self, config: dict, tokenizer: Tokenizer):  # noqa: F821
        super().__init__()
        self.tokenizer = tokenizer
        self.words = nn.Embedding(config["vocab_size"], config["width"])

    def forward(self, ids):
        return self.words(ids)


def test_what_is_only_kept_may_be_none():
    assert pointed(KeepsItsTokenizer).running.twin().module.tokenizer is None


# --- masks that hide every key, or give an answer more axes


class OneHead(nn.Module):
    """Its causal triangle has one size, and True of its mask (B, 1, T) hides."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, 8) for _ in range(3))
        self.register_buffer("triangle", torch.ones(32, 32).tril())

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / math.sqrt(8)
        scores = scores.masked_fill(self.triangle == 0, -math.inf).masked_fill(mask == True, -math.inf)  # noqa: E712
        return torch.softmax(scores, dim=-1) @ self.value(x)


def test_a_mask_under_which_numbers_come_out_is_found_and_the_answer_keeps_its_axes():
    calling = calling_of(OneHead())
    assert (calling.layout, calling.main.length, [mask.how for mask in calling.masks]) == (
        "(B, T, V)",
        32,
        ["bool, True = hidden, (B, 1, Tk)"],
    )


# --- weights that are rounded


class Rounded(nn.Module):
    """A map whose weights are rounded, with the gradient of what they were."""

    def __init__(self, dim=WIDTH, hidden_dim=32):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)

    def rounded(self, weight):
        return weight + (weight.round() - weight).detach()

    def forward(self, x):
        return self.down(F.relu(F.linear(x, self.rounded(self.up.weight), self.up.bias)))


class Detached(Rounded):
    def rounded(self, weight):
        return weight + (3 * weight).detach()


@pytest.mark.parametrize(("cls", "verdict"), [(Rounded, Verdict.NOTE), (Detached, Verdict.FAIL)])
def test_rounded_weights_are_not_held_against_differences(cls, verdict):
    assert result(cls, "model-gradients-agree-with-differences").verdict is verdict


# --- a target whose last word forward leaves out


class TeacherForced(nn.Module):
    """forward(source, target) cuts the target itself, and has as many words as one attempt has positions."""

    def __init__(self, words=VOCAB):
        super().__init__()
        self.source, self.target = nn.Embedding(words, WIDTH), nn.Embedding(words + 1, WIDTH)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, HEADS, 32, batch_first=True)
        self.head = nn.Linear(WIDTH, words + 1)

    def hidden(self, length):
        return torch.ones(length, length, dtype=torch.bool).triu(1)

    def forward(self, src, tgt):
        tgt = tgt[:, :-1]
        memory = self.encoder(self.source(src))
        return self.head(self.decoder(self.target(tgt), memory, tgt_mask=self.hidden(tgt.shape[1])))


class SeesTheFuture(TeacherForced):
    def hidden(self, length):
        return torch.zeros(length, length, dtype=torch.bool)


@pytest.mark.parametrize(("cls", "verdict"), [(TeacherForced, Verdict.PASS), (SeesTheFuture, Verdict.FAIL)])
def test_a_forward_that_leaves_the_last_word_out_is_given_one_more(cls, verdict):
    calling = calling_of(cls())
    assert (calling.drops_last, calling.layout, calling.outputs) == (True, "(B, T, V)", VOCAB + 1)
    assert result(cls, "sequence-model-target-is-causal").verdict is verdict


# --- a gate by its name, beside a number


class NamedGate(nn.Module):
    def __init__(self, d_model=WIDTH, d_ff=32):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff, bias=False)
        self.linear_gate = nn.Linear(d_model, d_ff, bias=False)
        self.linear2 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.linear2(F.silu(self.linear_gate(x)) * self.linear1(x))


def test_what_is_called_a_gate_is_one_whatever_number_stands_beside_it():
    assert result(NamedGate, "swiglu-formula").verdict is Verdict.PASS


def plot_mask():
    raise AssertionError("a function that takes nothing makes no mask of an input")


def test_a_function_that_takes_nothing_makes_no_mask():
    assert not [mask for mask in calling_of(OneHead()).masks if mask.own]
