"""More rules that right models of other styles need; beside each right model a real mistake of the same place.

A picture's two sides may have one letter; of a list with one answer for each layer the last counts; a writer may put a
sign of the start in front of a prompt; what says when each step was may be left out, and words that are never written
have no scores; methods that give a text a vector leave padding out.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.choices import Choices  # noqa: E402
from conformance.adapters.whole.kinds import kind_of  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, VOCAB = 16, 23


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- pictures whose sides have one letter


class Pixels(nn.Module):
    """Its table of positions is as long as a picture of the right size has patches: one patch alone would do, too."""

    def __init__(self, size=16, patch=4, channels=1):
        super().__init__()
        self.enter = nn.Conv2d(channels, WIDTH, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2, WIDTH))
        self.leave = nn.Linear(WIDTH, 5)

    def forward(self, x):
        """x (B, C, S, S)"""
        return self.leave((self.enter(x).flatten(2).transpose(1, 2) + self.places).tanh().mean(1))


def test_two_sides_of_one_letter_have_the_size_of_the_picture():
    assert calling_of(Pixels(), options={"size": 16, "patch": 4, "channels": 1}).main.shape == (1, 16, 16)


# --- one answer for each layer


class OfEachLayer(nn.Module):
    def __init__(self, n_words=VOCAB, n_tags=5):
        super().__init__()
        self.words, self.tags = nn.Embedding(n_words, WIDTH), nn.Linear(WIDTH, n_tags)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2))

    def answer(self, x):
        return {"logits": self.tags(x), "sizes": x.square().mean(-1)}

    def forward(self, ids):
        x, found = self.words(ids), []
        for layer in self.layers:
            x = layer(x)
            found.append(self.answer(x))
        return found


class OfTheFirstLayer(OfEachLayer):
    """The second layer's answer is made from the first one's."""

    def forward(self, ids):
        x = self.layers[0](self.words(ids))
        self.layers[1](x)
        return [self.answer(x), self.answer(x)]


def test_of_a_list_of_answers_the_last_is_the_answer():
    claim = "model-every-parameter-gets-a-gradient"
    assert result(OfEachLayer, claim).verdict == "PASS"
    assert result(OfTheFirstLayer, claim).verdict == "FAIL"


# --- prompts behind a sign of the start


def test_what_a_writer_puts_in_front_of_a_prompt_is_read():
    table, prompt = torch.randn(VOCAB, WIDTH), torch.tensor([[5, 6, 7], [8, 9, 5]])
    with Choices({table.data_ptr()}, VOCAB, 2, -1, None) as watch:
        nn.functional.embedding(torch.cat([torch.ones(2, 1, dtype=torch.int64), prompt], 1), table)
    assert watch.led_by(prompt.numpy(), True).tolist() == [[1, 5, 6, 7], [1, 8, 9, 5]]
    assert watch.led_by(prompt.numpy()[:, ::-1], True).shape == (2, 3)


# --- when each step was


class Basket(nn.Module):
    """A learnt bias by how long ago an item was bought; without times all were bought at once."""

    ahead = 1

    def __init__(self, n_items=VOCAB, buckets=8):
        super().__init__()
        self.items, self.time_bias = nn.Embedding(n_items, WIDTH), nn.Parameter(torch.zeros(buckets, 1))
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.leave = nn.Linear(WIDTH, 5)

    def forward(self, history, days=None):
        days = torch.zeros_like(history) if days is None else days
        x = self.items(history)
        gap = self.ahead * (days[:, :, None] - days[:, None, :])
        scores = self.q(x) @ self.k(x).transpose(1, 2) / WIDTH**0.5 + self.time_bias[gap.clamp(0, 7)][..., 0]
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.leave(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ x)


class BasketAhead(Basket):
    """For what was bought before, the time between is negative: all of it is of one bucket."""

    ahead = -1


@pytest.mark.parametrize(("cls", "verdict"), [(Basket, "PASS"), (BasketAhead, "FAIL")])
def test_times_that_may_be_left_out_are_given(cls, verdict):
    assert result(cls, "model-every-parameter-gets-a-gradient").verdict == verdict


class ByHours(nn.Module):
    """Its hours are rows of a table: not any number will do."""

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.of_hours, self.leave = nn.Embedding(n_words, WIDTH), nn.Embedding(24, WIDTH), nn.Linear(16, 5)

    def forward(self, ids, hours=None):
        return self.leave(self.words(ids) + (0 if hours is None else self.of_hours(hours)))


def test_times_that_are_rows_of_a_table_are_left_out():
    assert "hours" not in calling_of(ByHours()).fixed


# --- words that are never written


class Bytes(nn.Module):
    """A start and padding stand in its table behind the bytes, and are never written."""

    def __init__(self):
        super().__init__()
        self.words, self.leave = nn.Embedding(34, WIDTH), nn.Linear(WIDTH, 32)

    def forward(self, ids):
        return self.leave(self.words(ids).cumsum(1))

    def loss(self, ids):
        return nn.functional.cross_entropy(self(ids[:, :-1]).transpose(1, 2), ids[:, 1:])


class Readings(Bytes):
    """No loss and no name says that its numbers are scores of words."""

    loss = None


def test_a_model_that_never_writes_a_start_is_a_language_model():
    assert kind_of(Bytes(), calling_of(Bytes()))[0] == "language_model"
    assert kind_of(Readings(), calling_of(Readings()))[0] == "encoder_model"


# --- what is told behind a forward


class Tide(nn.Module):
    """Its only input is called past, and a method that it is handed to says what it is."""

    def __init__(self, lookback=24, channels=3, horizon=4):
        super().__init__()
        self.lookback, self.channels, self.leave = lookback, channels, nn.Linear(lookback, horizon)

    def _turned(self, x):
        _, t, c = x.shape
        if (t, c) != (self.lookback, self.channels):
            raise ValueError("expected (batch, lookback, channels)")
        return x.mT

    def forward(self, past):
        return self.leave(self._turned(past)).mT


def test_a_method_that_the_input_is_handed_to_tells_its_shape():
    calling = calling_of(Tide())
    assert (calling.main.parameter, calling.main.shape, calling.cache) == ("past", (24, 3), "")


# --- methods that give a text a vector


class Sentences(nn.Module):
    """An encoder with a vector for each sentence."""

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.q, self.leave = nn.Embedding(n_words, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)

    def encode(self, ids, attention_mask):
        x = self.words(ids)
        scores = (self.q(x) @ x.mT).masked_fill(attention_mask[:, None] == 0, -torch.inf)
        return x + scores.softmax(-1) @ x

    def forward(self, ids, attention_mask):
        return self.leave(self.encode(ids, attention_mask))

    def vectors(self, ids, attention_mask, scale=1.0):
        real = attention_mask[..., None]
        return scale * (self.encode(ids, attention_mask) * real).sum(1) / real.sum(1)


class SentencesWithPadding(Sentences):
    def vectors(self, ids, attention_mask, scale=1.0):
        return scale * self.encode(ids, attention_mask).mean(1)


@pytest.mark.parametrize(("cls", "verdict"), [(Sentences, "PASS"), (SentencesWithPadding, "FAIL")])
def test_padding_changes_no_vector_that_a_method_gives(cls, verdict):
    found = result(cls, "encoder-padding-changes-nothing")
    assert found.verdict == verdict
    assert verdict == "PASS" or "vectors counts padding" in found.diagnosis
    assert verdict == "PASS" or found.place.endswith(".mean(1)")


# --- two losses of a router


class Routed(nn.Module):
    """Its forward hands out a loss for balance, and the square of the logarithm of a sum, called z."""

    kept = staticmethod(lambda chances: chances)

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.router = nn.Embedding(n_words, WIDTH), nn.Linear(WIDTH, 3)
        self.experts, self.leave = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3)), nn.Linear(WIDTH, 5)

    def forward(self, ids):
        x = self.words(ids)
        scores = self.router(x)
        chances = scores.softmax(-1)
        chosen = nn.functional.one_hot(chances.argmax(-1), 3).double().mean((0, 1))
        x = sum(chances[..., at, None] * expert(x) for at, expert in enumerate(self.experts))
        balance = 3 * (chosen * self.kept(chances).mean((0, 1))).sum()
        return {"logits": self.leave(x), "balance": balance, "z": scores.logsumexp(-1).square().mean()}


class RoutedByDetached(Routed):
    kept = staticmethod(torch.Tensor.detach)


@pytest.mark.parametrize(("cls", "verdict"), [(Routed, "PASS"), (RoutedByDetached, "FAIL")])
def test_a_loss_for_balance_beside_one_called_z_has_a_gradient(cls, verdict):
    assert result(cls, "losses-for-balance-teach-the-router").verdict == verdict
