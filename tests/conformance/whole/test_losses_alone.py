"""Models that give a loss only: their answer is what the loss compares. What else such models taught."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.functions import losses, tensors  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402
from conformance.runner import run_check  # noqa: E402


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


class Writer(nn.Module):
    """A decoder that hears: sound and words in, the loss of both heads out."""

    shift, hides = 1, True

    def __init__(self, vocab_size=30, d_model=16):
        super().__init__()
        self.ear = nn.Linear(40, d_model)
        self.table, self.places = nn.Embedding(vocab_size, d_model), nn.Embedding(64, d_model)
        layer = nn.TransformerDecoderLayer(d_model, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, 1)
        self.head, self.second = nn.Linear(d_model, vocab_size), nn.Linear(d_model, vocab_size)

    def forward(self, mel, mel_lengths, tokens):
        memory = self.ear(mel)
        quiet = torch.arange(mel.shape[1])[None] >= mel_lengths[:, None]
        words = tokens[:, :-1]
        x = self.table(words) + self.places(torch.arange(words.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1]).to(x.dtype) if self.hides else None
        x = self.decoder(x, memory, tgt_mask=mask, memory_key_padding_mask=quiet)
        logits = self.head(x)
        labels = tokens[:, 1:] if self.shift else tokens[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss + self.second(memory).logsumexp(-1).mean(), "of_words": loss.detach()}


class Copies(Writer):
    shift = 0


class Sees(Writer):
    hides = False


def test_the_answer_of_a_model_that_gives_a_loss_only_is_what_that_compares():
    whole = pointed(Writer).whole
    assert whole.kind == "language_model"
    assert whole.calling.main.parameter == "tokens"
    assert "the scores that its loss compares" in "\n".join(map(str, whole.facts))
    assert whole(**whole.example(3, 5))["out"].shape == (3, 5, 30)


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (Writer, "language-model-is-causal", "PASS"),
        (Sees, "language-model-is-causal", "FAIL"),
        (Writer, "language-model-prefix-has-the-same-logits", "PASS"),  # the sound is as long as it was
        (Writer, "model-every-parameter-gets-a-gradient", "PASS"),  # the loss alone reaches the second head
        (Writer, "losses-teach-the-next-word", "PASS"),
        (Copies, "losses-teach-the-next-word", "FAIL"),
    ],
)
def test_models_that_give_a_loss_only_are_judged(cls, claim, verdict):
    assert said(cls, claim) == verdict


class Ahead(nn.Module):
    """Forecasts as many pieces of a series (B, T, 3) as it is asked for."""

    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.GRU(3, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, series, n_future):
        state = self.mix(series)[0][:, -1:]
        return self.head(F.pad(state, (0, 0, 0, n_future * 4 - 1), mode="replicate"))


def test_how_far_to_look_ahead_is_a_number():
    running = pointed(Ahead).running
    assert running(**running.example(3))["out"].shape[0] == 3


# --- parameters that another way reaches ----------------------------------------------------------


class Pretrained(nn.Module):
    """Has parts for the training before, under a flag."""

    def __init__(self, vocab_size=30, pretraining=False):
        super().__init__()
        self.table, self.head = nn.Embedding(vocab_size, 16), nn.Linear(16, 5)
        self.rebuild, self.pretraining = nn.Linear(16, vocab_size), pretraining

    def forward(self, input_ids):
        x = self.table(input_ids)
        if self.pretraining:
            return self.rebuild(x)
        return self.head(x.mean(1))


class Forgotten(Pretrained):
    def forward(self, input_ids):
        return self.head(self.table(input_ids).mean(1))


@pytest.mark.parametrize(("cls", "verdict"), [(Pretrained, "PASS"), (Forgotten, "FAIL")])
def test_a_flag_that_is_turned_may_reach_a_parameter(cls, verdict):
    assert said(cls, "model-every-parameter-gets-a-gradient") == verdict


class TwoAnswers(nn.Module):
    """Drops before its second answer alone."""

    def __init__(self, vocab_size=30, dropout=0.5):
        super().__init__()
        self.table, self.head = nn.Embedding(vocab_size, 16), nn.Linear(16, vocab_size)
        self.vector = nn.Sequential(nn.Linear(16, 16), nn.Dropout(dropout))

    def forward(self, input_ids):
        x = self.table(input_ids)
        return {"logits": self.head(x), "vector": self.vector(x.mean(1))}


def test_every_piece_of_a_result_may_show_that_something_is_dropped():
    assert said(TwoAnswers, "model-drops-only-in-training") == "PASS"


@pytest.mark.parametrize(("speaks", "why"), [(False, "its own constructor"), (True, "it is made anew")])
def test_what_never_speaks_of_dropping_is_not_asked_for_its_rate(speaks, why):
    """The settings of its caller may have a rate that is none of its own."""

    def fresh(*_, **__):
        raise NotProvided("it is made anew")

    subject = SimpleNamespace(
        is_whole=True, takes_option=lambda option: False, speaks_of_dropping=lambda: speaks, fresh=fresh
    )
    with pytest.raises(NotProvided, match=why):
        CHECKS["model-dropout-is-what-its-option-says"].function(SimpleNamespace(build=lambda *_: subject), None)


# --- attention that shares out anew ---------------------------------------------------------------


class Slots(nn.Module):
    """Slots (B, S, 16) compete for inputs (B, T, 16): each input is shared among them, and each slot takes a mean."""

    anew = True

    def __init__(self, dim=16):
        super().__init__()
        self.to_q, self.to_k, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, inputs, context):
        q, k, v = self.to_q(inputs), self.to_k(context), self.to_v(context)
        weights = (torch.einsum("bid,bjd->bij", q, k) * q.shape[-1] ** -0.5).softmax(1)
        if self.anew:
            weights = weights / weights.sum(-1, keepdim=True)
        return torch.einsum("bjd,bij->bid", v, weights)


class SharesOfSlots(Slots):
    anew = False


@pytest.mark.parametrize(("cls", "verdict"), [(Slots, "PASS"), (SharesOfSlots, "FAIL")])
def test_weights_that_are_shared_out_anew_sum_to_one(cls, verdict):
    assert said(cls, "attention-softmax-runs-over-the-keys") == verdict


class ByItsNorm(nn.Module):
    """Divides its weights by their norm, and puts it back: an iteration that wants small numbers."""

    def __init__(self, dim=16):
        super().__init__()
        self.to_q, self.to_k, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        weights = (self.to_q(x) @ self.to_k(x).transpose(1, 2) / 4).softmax(-1)
        norm = weights.norm()
        return (weights / norm) @ self.to_v(x) * norm


def test_a_number_of_the_weights_themselves_is_no_factor():
    assert said(ByItsNorm, "attention-scale-is-one-over-sqrt-d-head") == "PASS"


# --- functions ------------------------------------------------------------------------------------

KIND = "regression"


def gumbel_softmax(logits, dim=-1):
    return (logits - torch.rand_like(logits).log().neg().log()).softmax(dim)


def compute_loss(logits, targets):
    if KIND == "regression":
        return F.mse_loss(logits, F.one_hot(targets, logits.shape[-1]).to(logits.dtype))
    return F.cross_entropy(logits, targets)


def loss_of_texts(logits, labels):
    logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + 1e-2 * logits.logsumexp(-1).pow(2).mean()


@pytest.mark.parametrize(
    ("function", "resolve", "why"),
    [
        (gumbel_softmax, tensors.softmax, "draws random numbers"),
        (compute_loss, losses.resolve, "takes no logarithm"),
        (loss_of_texts, losses.resolve, "adds a term"),
    ],
)
def test_functions_that_are_something_else_are_not_taken_for_what_they_are_called(function, resolve, why):
    with pytest.raises(Unresolved, match=why):
        resolve(function)


def shifted_where_both_are_real(logits, labels, attention_mask):
    real = attention_mask.bool()
    targets = labels[:, 1:].masked_fill(~(real[:, 1:] & real[:, :-1]), -100)
    scores = logits[:, :-1].reshape(-1, logits.shape[-1])
    return F.cross_entropy(scores, targets.reshape(-1), reduction="sum") / (targets != -100).sum().clamp(min=1)


def test_a_loss_that_hides_a_pair_of_words_is_the_formula():
    (served,) = losses.resolve(shifted_where_both_are_real)
    assert served.fits


def test_what_torch_leaves_out_and_no_file_names_is_no_padding(functions):
    (classified,) = functions("""
    def classified(logits, labels):
        return F.nll_loss(F.log_softmax(logits, -1), labels, reduction="none").mean()
    """)
    (served,) = losses.resolve(classified)
    assert served.fits
    assert [fact.value for fact in served.facts if fact.subject == "padding"] == ["none"]
