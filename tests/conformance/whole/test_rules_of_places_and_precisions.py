"""Rules that further repositories taught, on classes like theirs: places that are taken out of a sequence, options of
settings that a part is not handed, half precision that code makes by hand, and models too large for many copies.

Beside what is right stands a real mistake of the same place.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters.whole import model as of_model  # noqa: E402
from conformance.adapters.whole.told import told_by_forward  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, VOCAB = 16, 23


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


class Layer(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(WIDTH, 2, 32, activation="gelu", batch_first=True)


# --- places


class Predictor(nn.Module):
    """Reads the vectors of some places, and answers for others."""

    places = 9

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(12, WIDTH), nn.Linear(WIDTH, 12)
        self.register_buffer("codes", torch.arange(64).remainder(self.places)[:, None] + torch.randn(WIDTH))
        self.blocks = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, visible, visible_idx, masked_idx):
        codes = self.codes.expand(len(visible), -1, -1).sin()
        x = self.embed(visible) + codes.gather(1, visible_idx[..., None].expand(-1, -1, WIDTH))
        x = torch.cat([x, codes.gather(1, masked_idx[..., None].expand(-1, -1, WIDTH))], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, -masked_idx.shape[1] :])


class PredictorOfThreePlaces(Predictor):
    places = 3


@pytest.mark.parametrize(("cls", "verdict"), [(Predictor, "PASS"), (PredictorOfThreePlaces, "FAIL")])
def test_places_that_are_taken_out_are_no_words_and_each_is_taken_once(cls, verdict):
    assert said(cls, "positions-are-told-apart") == verdict


# --- options


@dataclass
class Settings:
    vocab: int = VOCAB
    width: int = WIDTH
    n_layers: int = 2
    dropout: float = 0.1
    learning_rate: float = 1e-3


class OwnTable(nn.Module):
    def __init__(self, num_embeddings, embedding_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_embeddings, embedding_dim))

    def forward(self, x):
        return self.weight[x]


class Reader(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.words = OwnTable(settings.vocab, settings.width)
        self.blocks, self.head = nn.ModuleList([Layer()]), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        return self.head(self.blocks[0](self.words(ids)))


@pytest.mark.parametrize(("cls", "verdict"), [(OwnTable, "NOT_PROVIDED"), (Reader, "FAIL")])
def test_an_option_of_settings_is_none_of_a_part_that_is_handed_other_numbers(cls, verdict):
    Reader(Settings())
    assert said(cls, "model-has-the-layers-that-its-option-says") == verdict


class Trained(nn.Module):
    def __init__(self, n_classes=3, learning_rate=1e-3):
        super().__init__()
        self.body, self.rate = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.GELU(), nn.Conv2d(8, 8, 1)), learning_rate
        self.head = nn.Linear(8, n_classes)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))


class Undropped(Trained):
    def __init__(self, n_classes=3, drop_rate=0.1):
        super().__init__(n_classes, drop_rate)


@pytest.mark.parametrize(("cls", "verdict"), [(Trained, "NOT_PROVIDED"), (Undropped, "FAIL")])
def test_a_rate_of_learning_is_no_rate_of_dropout(cls, verdict):
    assert said(cls, "model-dropout-is-what-its-option-says") == verdict


# --- precisions


def _future(n):
    return torch.where(torch.ones(n, n).tril() > 0, 0, -torch.inf).bfloat16()


class HalfMasked(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.blocks = nn.TransformerEncoder(Layer(), 2)

    def forward(self, ids):
        return self.head(self.blocks(self.words(ids), mask=_future(ids.shape[1])))


class HalfMaskedForgotten(HalfMasked):
    def __init__(self):
        super().__init__()
        self.unread = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids):
        return self.head(self.blocks(self.words(ids), mask=_future(ids.shape[1])))


@pytest.mark.parametrize(("cls", "verdict"), [(HalfMasked, "PASS"), (HalfMaskedForgotten, "FAIL")])
def test_a_model_whose_code_makes_half_precision_is_trained_in_it(cls, verdict):
    assert said(cls, "model-every-parameter-gets-a-gradient") == verdict


class HalfTable(nn.Module):
    """Weights of half precision, and a norm in float32 between them."""

    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.randn(VOCAB, WIDTH, dtype=torch.bfloat16))
        self.norm, self.body = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())

    def forward(self, ids):
        x = self.body(self.norm(self.words[ids].float())).bfloat16()
        return x @ self.words.T


class HalfTableForgetful(HalfTable):
    def __init__(self):
        super().__init__()
        self.codes = torch.randn(WIDTH).bfloat16()

    def forward(self, ids):
        return super().forward(ids) + self.codes.sum()


@pytest.mark.parametrize(("cls", "verdict"), [(HalfTable, "PASS"), (HalfTableForgetful, "FAIL")])
def test_a_model_of_several_precisions_stays_one_when_it_is_made_again(cls, verdict):
    assert said(cls, "model-state-dict-makes-an-equal-model") == verdict


def test_a_model_of_half_precision_is_asked_for_no_other_that_does_not_run():
    assert said(HalfTable, "model-precisions-agree") == "NOT_PROVIDED"


# --- sizes


def test_a_model_that_is_too_large_for_float64_keeps_its_precision(monkeypatch):
    monkeypatch.setattr(of_model, "MAX_WIDE_PARAMETERS", 10)
    assert pointed(Trained).whole.torch_dtype is torch.float32


@pytest.mark.parametrize(("is_large", "verdict"), [(True, "NOT_PROVIDED"), (False, "ERROR")])
def test_a_large_model_that_fills_the_memory_is_not_tested(monkeypatch, is_large, verdict):
    def fill(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 384000000 bytes")

    one = pointed(Trained)
    monkeypatch.setattr(type(one), "is_large", is_large)
    monkeypatch.setattr(type(one.whole), "twin", fill)
    assert run_check(CHECKS["model-precisions-agree"], one, "quick").verdict.name == verdict


# --- calls


class Vectors(nn.Module):
    """A network of vectors whose matrices stand the other way round; the numbers of a picture are vectors, too."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.first = nn.ParameterList([torch.randn(settings.width, 64)])
        self.second, self.act, self.drop = nn.ParameterList([torch.randn(64, settings.width)]), nn.GELU(), nn.Dropout()

    def forward(self, x):
        flat = self.act(x.view(-1, x.size(-1)) @ self.first[0]) @ self.second[0]
        return self.drop(flat).view(x.size())


def test_a_network_of_vectors_is_no_model_of_pictures():
    Vectors(Settings())
    assert pointed(Vectors).whole is None


class Stepping(nn.Module):
    """Without labels it reads one word behind those before it; with labels a whole text, of one length."""

    hides = True

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.qkv, self.past = nn.Linear(WIDTH, 3 * WIDTH), torch.zeros(4, 64, 2 * WIDTH)
        self.register_buffer("places", torch.randn(24, WIDTH))

    def forward(self, ids, targets=None, start_pos=0):
        x, length = self.words(ids), ids.shape[1]
        if targets is None:
            query, now = self.qkv(x).split([WIDTH, 2 * WIDTH], -1)
            self.past = self.past.to(x)
            self.past[: len(ids), start_pos : start_pos + length] = now
            key, value = self.past[: len(ids), : start_pos + length].chunk(2, -1)
            return self.head(x + nn.functional.scaled_dot_product_attention(query, key, value)), None
        query, key, value = self.qkv(x + self.places).chunk(3, -1)
        x = x + nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.hides)
        logits = self.head(x)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class SteppingThatLooksAhead(Stepping):
    hides = False


@pytest.mark.parametrize(("cls", "verdict"), [(Stepping, "PASS"), (SteppingThatLooksAhead, "FAIL")])
def test_a_model_that_writes_word_by_word_without_labels_reads_whole_texts_with_them(cls, verdict):
    assert said(cls, "language-model-is-causal") == verdict


class Padded(nn.Module):
    """Sentences may be left-padded with 0."""

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.places = nn.Embedding(n_words, WIDTH, padding_idx=0), nn.Embedding(64, WIDTH)
        self.attn, self.head = nn.MultiheadAttention(WIDTH, 2, batch_first=True), nn.Linear(WIDTH, n_words)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        future = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attn(x, x, x, attn_mask=future, key_padding_mask=ids == 0)[0].nan_to_num()
        return self.head(x)


class PaddedItems(nn.Module):
    """Histories are left-padded with 0."""

    def __init__(self, num_items=VOCAB):
        super().__init__()
        self.item_emb, self.places = nn.Embedding(num_items, WIDTH, padding_idx=0), nn.Embedding(64, WIDTH)
        self.attn, self.head = nn.MultiheadAttention(WIDTH, 2, batch_first=True), nn.Linear(WIDTH, num_items)

    def forward(self, ids):
        x = self.item_emb(ids) + self.places(torch.arange(ids.shape[1]))
        future = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attn(x, x, x, attn_mask=future, key_padding_mask=ids == 0)[0].nan_to_num()
        return self.head(x)


@pytest.mark.parametrize(("cls", "verdict"), [(PaddedItems, "NOT_PROVIDED"), (Padded, "FAIL")])
def test_items_stand_in_windows_that_are_filled_from_the_left(cls, verdict):
    assert said(cls, "model-left-padding-changes-nothing-where-said") == verdict


@dataclass
class ListenerSettings:
    mode: str = "all"


class Listener(nn.Module):
    """Log-probabilities of letters for each stretch of sound, the stretches first."""

    def __init__(self, cfg: ListenerSettings):
        super().__init__()
        self.front, self.mode = nn.Conv1d(12, WIDTH, 3, 2, 1), cfg.mode
        self.body, self.ctc = nn.TransformerEncoder(Layer(), 2), nn.Linear(WIDTH, VOCAB)

    def forward(self, feats, feat_lens):
        if self.mode == "chunks":
            raise ValueError("chunks need their size")
        x = self.body(self.front(feats.transpose(1, 2)).transpose(1, 2))
        return self.ctc(x).log_softmax(-1).transpose(0, 1), (feat_lens + 1) // 2


def test_what_refuses_its_options_is_made_otherwise_and_its_stretches_may_stand_first():
    chunked = Listener(ListenerSettings(mode="chunks"))
    assert chunked.mode == "chunks"
    assert pointed(Listener).whole.calling.layout == "(S, B, V)"


class Folding(nn.Module):
    channels, patches = 3, 5

    def forward(self, x):
        batch = x.shape[0]
        x = x.view(batch * self.channels, self.patches, -1)
        return x.view(batch, self.channels, self.patches, -1)


def test_axes_that_become_one_with_the_batch_are_told():
    assert told_by_forward(Folding(), ["x"])["x"].axes == ("batch", 3, 5, "")
