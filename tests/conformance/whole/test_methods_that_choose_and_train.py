"""Methods of a model that choose words to mask, and that train it; what draws in evaluation only; patches by a view.

Beside each right model stands one with the mistake.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

WIDTH, VOCAB = 16, 60


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x):
        return self.layers(x)


# --- masked words


class ChoosesWords(nn.Module):
    """Its settings are attributes, its special words a tuple."""

    def __init__(self, pad_token_id=0, cls_token_id=1, mask_token_id=3):
        super().__init__()
        self.mask_token_id = mask_token_id
        self.special_token_ids = (pad_token_id, cls_token_id, mask_token_id)
        self.words, self.stack = nn.Embedding(VOCAB, WIDTH), Stack()
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, input_ids):
        return self.head(self.stack(self.words(input_ids)))

    @staticmethod
    def spared(chances, special):
        return chances.masked_fill(special, 0.0)

    def mask_tokens(self, input_ids, mlm_probability=0.15):
        inputs, labels = input_ids.clone(), input_ids.clone()
        special = torch.isin(inputs, torch.tensor(self.special_token_ids))
        chosen = self.spared(torch.full(inputs.shape, mlm_probability), special).bernoulli().bool()
        labels[~chosen] = -100
        masked = torch.full(inputs.shape, 0.8).bernoulli().bool() & chosen
        inputs[masked] = self.mask_token_id
        other = torch.full(inputs.shape, 0.5).bernoulli().bool() & chosen & ~masked
        inputs[other] = torch.randint(VOCAB, inputs.shape)[other]
        return inputs, labels


class ChoosesSpecialWords(ChoosesWords):
    @staticmethod
    def spared(chances, special):
        chances.masked_fill(special, 0.0)
        return chances


class OfADictionary(ChoosesWords):
    """Its settings are those of a dictionary under a name of one letter."""

    def __init__(self):
        super().__init__()
        self.c = {"pad_id": 0, "cls_id": 1, "mask_id": 3}
        del self.mask_token_id, self.special_token_ids

    def mask_tokens(self, input_ids, mlm_probability=0.15):
        chosen = self.spared(torch.full(input_ids.shape, mlm_probability), input_ids < 4).bernoulli().bool()
        return input_ids.masked_fill(chosen, self.c["mask_id"]), self.labels(input_ids, chosen)

    @staticmethod
    def labels(ids, chosen):
        return ids.masked_fill(~chosen, -100)


class TeachesTheOthers(OfADictionary):
    @staticmethod
    def labels(ids, chosen):
        return ids.masked_fill(chosen, -100)


class SparesPaddingOnly(OfADictionary):
    def mask_tokens(self, input_ids, mlm_probability=0.15):
        chosen = (torch.rand(input_ids.shape) < mlm_probability) & (input_ids != self.c["pad_id"])
        return input_ids.masked_fill(chosen, self.c["mask_id"]), self.labels(input_ids, chosen)


class OfTheFirstWords(ChoosesWords):
    def __init__(self, pad_token_id=0, mask_token_id=3, num_special_tokens=4):
        super().__init__()
        self.pad_token_id, self.num_special_tokens = pad_token_id, num_special_tokens
        del self.special_token_ids

    def mask_tokens(self, input_ids, mlm_probability=0.15):
        chosen = (torch.rand(input_ids.shape) < mlm_probability) & (input_ids >= self.num_special_tokens)
        return input_ids.masked_fill(chosen, self.mask_token_id), input_ids.masked_fill(~chosen, -100)


class SparesTheFirstOne(OfTheFirstWords):
    def mask_tokens(self, input_ids, mlm_probability=0.15):
        chosen = (torch.rand(input_ids.shape) < mlm_probability) & (input_ids != self.pad_token_id)
        return input_ids.masked_fill(chosen, self.mask_token_id), input_ids.masked_fill(~chosen, -100)


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [
        (ChoosesWords, Verdict.PASS),
        (OfTheFirstWords, Verdict.PASS),
        (SparesTheFirstOne, Verdict.FAIL),
        (SparesPaddingOnly, Verdict.FAIL),
        pytest.param(ChoosesSpecialWords, Verdict.FAIL, marks=pytest.mark.slow),
        pytest.param(OfADictionary, Verdict.PASS, marks=pytest.mark.slow),
        pytest.param(TeachesTheOthers, Verdict.FAIL, marks=pytest.mark.slow),
    ],
)
def test_a_method_that_masks_words_spares_the_special_words_of_its_model(cls, verdict):
    assert result(cls, "masked-words-are-what-is-taught").verdict is verdict


# --- a method that trains


class Forecasts(nn.Module):
    """A series in, a series out: its labels have the shape of its answer."""

    def __init__(self, length=16, horizon=4, channels=3):
        super().__init__()
        self.up, self.stack = nn.Linear(channels, WIDTH), Stack()
        self.down, self.horizon = nn.Linear(length * WIDTH, horizon * channels), horizon

    def forward(self, x):
        return self.down(self.stack(self.up(x)).flatten(1)).view(len(x), self.horizon, -1)

    def move(self, optimizer, clip):
        nn.utils.clip_grad_norm_(self.parameters(), clip)
        optimizer.step()

    def fit(self, loader, epochs=1, lr=1e-3, clip=1.0):
        optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        self.train()
        for _ in range(epochs):
            for past, future in loader:
                optimizer.zero_grad()
                F.mse_loss(self(past), future).backward()
                self.move(optimizer, clip)


class ClipsTooLate(Forecasts):
    fit = Forecasts.fit

    def move(self, optimizer, clip):
        optimizer.step()
        nn.utils.clip_grad_norm_(self.parameters(), clip)


class InSteps(Forecasts):
    """A step is a method; its caller clears the gradients."""

    fit = None

    def train_step(self, past, optimizer, clip=1.0):
        self(past).square().mean().backward()
        self.move(optimizer, clip)


class InStepsTooLate(ClipsTooLate):
    fit, train_step = None, InSteps.train_step


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [
        (Forecasts, Verdict.PASS),
        (ClipsTooLate, Verdict.FAIL),
        (InSteps, Verdict.PASS),
        (InStepsTooLate, Verdict.FAIL),
    ],
)
def test_a_method_that_trains_is_watched(cls, verdict):
    assert result(cls, "functions-that-train-clip-what-is-stepped").verdict is verdict


# --- drawing in evaluation


class Hidden(nn.Module):
    """Some frames are hidden."""

    def hides(self):
        return self.training

    def forward(self, x):
        if not self.hides():
            return x
        at = int(torch.randint(0, x.shape[1] - 1, ()))
        return torch.cat([x[:, :at], torch.zeros_like(x[:, at : at + 2]), x[:, at + 2 :]], 1)


class HiddenInEvaluation(Hidden):
    def hides(self):
        return not self.training


class Frames(nn.Module):
    augment = Hidden

    def __init__(self):
        super().__init__()
        self.hidden, self.up, self.stack = self.augment(), nn.Linear(5, WIDTH), Stack()
        self.drop, self.out = nn.Dropout(0.1), nn.Linear(WIDTH, 7)

    def forward(self, frames):
        return self.out(self.drop(self.stack(self.up(self.hidden(frames)))))


class FramesInEvaluation(Frames):
    augment = HiddenInEvaluation


@pytest.mark.parametrize(
    ("cls", "verdict"), [(Frames, Verdict.PASS), (FramesInEvaluation, Verdict.FAIL)], ids=["right", "wrong"]
)
def test_what_draws_in_evaluation_and_not_in_training_has_its_modes_exchanged(cls, verdict):
    assert result(cls, "model-evaluation-repeats-itself").verdict is verdict
    assert result(cls, "model-precisions-agree").verdict is not Verdict.FAIL


# --- patches


class ByView(nn.Module):
    """Rows and columns are split by one view; no attribute says how large a patch is."""

    order = (0, 2, 4, 3, 5, 1)

    def __init__(self, image_size=16, side=4, channels=3, classes=5):
        super().__init__()
        self.high = self.wide = side
        self.up, self.stack = nn.Linear(side * side * channels, WIDTH), Stack()
        self.places = nn.Parameter(torch.randn(1, (image_size // side) ** 2, WIDTH) / math.sqrt(WIDTH))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, images):
        b, c, height, width = images.shape
        rows, columns = height // self.high, width // self.wide
        x = images.reshape(b, c, rows, self.high, columns, self.wide).permute(*self.order)
        x = self.up(x.reshape(b, rows * columns, -1))
        return self.head(self.stack(x + self.places).mean(1))


class ByStrips(ByView):
    order = (0, 2, 3, 4, 5, 1)


@pytest.mark.parametrize(("cls", "verdict"), [(ByView, Verdict.PASS), (ByStrips, Verdict.FAIL)], ids=["right", "wrong"])
def test_patches_have_the_sides_that_the_view_says(cls, verdict):
    assert result(cls, "patches-are-pieces-of-the-image").verdict is verdict
