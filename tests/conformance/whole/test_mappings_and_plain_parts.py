"""Batches that are mappings, options that are spread, parts that take each word alone; what stands around a model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.batches import packed_in  # noqa: E402
from conformance.adapters.whole.kinds import kind_of  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.adapters.whole.sizes import SMALL, meaning  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- batches that are mappings --------------------------------------------------------------------


class Pretraining(nn.Module):
    """Gives the sum of two losses, of next sentences first and of words, as one number in a row."""

    def __init__(self, vocab_size=30, d_model=16):
        super().__init__()
        self.table, self.kinds, self.places = (nn.Embedding(n, d_model) for n in (vocab_size, 3, 64))
        layer = nn.TransformerEncoderLayer(d_model, 2, 32, 0.0, batch_first=True)
        self.mix = nn.TransformerEncoder(layer, 1)
        self.words, self.follows = nn.Linear(d_model, vocab_size), nn.Linear(d_model, 2)

    def forward(self, batch, with_words=True):
        given = batch
        x = self.table(given["tokens"]) + self.kinds(given["segment_label"])
        x = self.mix(x + self.places(torch.arange(x.shape[1])))
        if not with_words:
            return x
        total = torch.zeros(1)
        total = total + F.cross_entropy(self.follows(x[:, 0]), given["is_next"])
        return {"total": total + F.cross_entropy(self.words(x).transpose(1, 2), given["word_label"])}


class Tuned(nn.Module):
    """Hands its batch on with a switch, reads a label of its own, and gives a loss only."""

    def __init__(self, vocab_size=30, classes=5):
        super().__init__()
        self.bert, self.head = Pretraining(vocab_size), nn.Linear(16, classes)

    def forward(self, batch):
        return F.cross_entropy(self.head(self.bert(batch, with_words=False)[:, 0]), batch["label"])


def test_a_batch_has_the_keys_that_are_read_under_any_name_of_it():
    assert packed_in(Pretraining()) == (
        "batch",
        {"tokens": True, "segment_label": True, "is_next": True, "word_label": True},
        False,
    )
    assert packed_in(Tuned())[1].keys() == {"label", "tokens", "segment_label", "is_next", "word_label"}


def test_of_several_losses_the_scores_of_words_are_the_answer():
    whole = whole_model(pointed(Pretraining).whole.made)
    assert whole.calling.main.parameter == "tokens"
    assert whole(**whole.example(3, 5))["out"].shape == (3, 5, 30)


def test_a_classifier_that_gives_a_loss_only_is_judged_by_its_scores():
    whole = pointed(Tuned).whole
    assert whole.kind == "classifier"
    assert whole(**whole.example(3, 5))["out"].shape == (3, 5)


# --- options that are spread ----------------------------------------------------------------------


def test_a_mapping_has_the_keys_of_what_it_is_spread_into(made):
    text = """
    class Picture(nn.Module):
        def __init__(self, in_size, width, depth=3):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(in_size if not n else width, width) for n in range(depth))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).relu()
            return x

    class Coder(nn.Module):
        def __init__(self, settings, n_codes, codebook_weight):
            super().__init__()
            self.inner = Picture(**settings)
            self.codes = nn.Embedding(n_codes, settings["width"])
            self.codebook_weight = codebook_weight

        def forward(self, x):
            return self.inner(x) @ self.codes.weight.T * self.codebook_weight
    """
    found = made("Coder", text).options
    assert set(found["settings"]) == {"in_size", "width", "depth"}
    assert found["codebook_weight"] == SMALL["share"]


def test_the_weight_of_a_loss_is_no_width():
    assert {meaning(name) for name in ("commit_weight", "kl_weight", "entropy_lambda")} == {"share"}


def test_numbers_of_a_file_have_exponents(made):
    pytest.importorskip("yaml")
    text = """
    class Net(nn.Module):
        def __init__(self, opt):
            super().__init__()
            self.eps, self.map = opt.eps, nn.Linear(opt.width, opt.width)

        def forward(self, x):
            return self.map(x) / (x.std(-1, keepdim=True) + self.eps)
    """
    module = made("Net", text, {"config.yaml": "width: 16\neps: 10e-6\nother: 1e6x\n"}).fresh()
    assert module.eps == pytest.approx(1e-5)


# --- parts that take each word alone --------------------------------------------------------------


class MLP(nn.Module):
    """From one width to another."""

    function = nn.GELU()

    def __init__(self, d_model=16, hidden=24, d_out=5):
        super().__init__()
        self.first, self.second = nn.Linear(d_model, hidden), nn.Linear(hidden, d_out)

    def forward(self, x):
        return self.second(self.function(self.first(x)))


class LinearMLP(MLP):
    function = nn.Identity()


class LowRankMLP(LinearMLP):
    """Its maps are one of low rank, on purpose."""

    def __init__(self):
        super().__init__(16, 4, 16)


@pytest.mark.parametrize(
    ("cls", "verdict"), [(MLP, "PASS"), (LinearMLP, "FAIL"), (LowRankMLP, "NOT_PROVIDED")], ids=lambda x: str(x)
)
def test_a_network_from_one_width_to_another_has_a_function_too(cls, verdict):
    assert said(cls, "feed-forward-function-stands-between-its-maps") == verdict


class MemoryDecoder(nn.Module):
    """Called a decoder, made of several parts, and takes each word alone."""

    def __init__(self, d_model=16):
        super().__init__()
        self.maps = nn.Sequential(nn.Linear(d_model, 40), nn.GELU(), nn.Linear(40, d_model), nn.LayerNorm(d_model))
        self.head = nn.Linear(d_model, 30)

    def forward(self, states):
        return self.head(self.maps(states))


def test_what_neither_attends_nor_has_blocks_is_a_part():
    found = pointed(MemoryDecoder)
    assert found.whole is None
    assert found.running is not None
    assert not found.untested


class Router(nn.Module):
    """Its options are those of a feed-forward network, and it weighs experts."""

    def __init__(self, d_model=16, d_ff=24, n_experts=3):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, n_experts)

    def forward(self, x):
        return self.linear2(self.linear1(x).relu()).softmax(-1)


def test_what_gives_other_vectors_than_it_takes_is_no_feed_forward_network():
    found = pointed(Router)
    assert "feed_forward" not in found.roles
    assert not found.untested


# --- what stands around a model -------------------------------------------------------------------

PLAIN = """
class Block(nn.Module):
    {docs}
    def __init__(self, d):
        super().__init__()
        self.mix, self.map = nn.MultiheadAttention(d, 2, batch_first=True), nn.Linear(d, d)

    def forward(self, x):
        return x + self.map(self.mix(x, x, x)[0])

class Transformer(nn.Module):
    def __init__(self, vocab_size=30, d=16):
        super().__init__()
        self.table, self.block, self.head = nn.Embedding(vocab_size, d), Block(d), nn.Linear(d, vocab_size)

    def forward(self, tokens):
        return self.head(self.block(self.table(tokens)))
"""
PAIRS = "def collate(batch):\n    return [item[:-1] for item in batch], [item[1:] for item in batch]\n"
WINDOW = "def get(i):\n    return data[i:i + block_size], data[i + 1:i + block_size + 1]\n"
WRITES = (
    "def write(logits):\n    probs = torch.softmax(logits[:, -1] / 0.8, -1)\n    return torch.multinomial(probs, 1)\n"
)
BARS = "def cut(probs, mask):\n    probs[mask] = 0.0\n    return probs\n"
HIDES = "def collate(batch):\n    return tokens.masked_fill(hidden, mask_token)\n"


@pytest.mark.parametrize(
    ("docs", "files", "kind"),
    [
        ("", {}, ""),
        ("", {"data.py": PAIRS}, "language_model"),
        ("", {"data.py": WINDOW}, "language_model"),
        ("", {"inference.py": WRITES}, "language_model"),
        ("", {"inference.py": WRITES + BARS}, "language_model"),  # numbers by a mask are no [MASK]
        ("", {"data.py": HIDES}, "masked_language_model"),
        ("", {"data.py": HIDES + PAIRS}, ""),
        ('"""A block after the LLaMA architecture."""', {}, "language_model"),
        ('"""A block, with its norm before the decoder."""', {}, ""),
    ],
)
def test_files_around_a_model_say_what_it_is(made, docs, files, kind):
    whole = whole_model(made("Transformer", PLAIN.format(docs=docs), files))
    assert kind_of(whole.module, whole.calling)[0] == kind
