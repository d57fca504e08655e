"""Models of speech whose labels are texts of an alphabet, and forecasts of several quantiles."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import Whole, pointed, told  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import QUANTILES, SPEECH  # noqa: E402
from conformance.runner import run_check  # noqa: E402


def verdict(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


class Hears(nn.Module):
    """Letter i of the alphabet is the number i + 1."""

    def __init__(self, n_mels=6, alphabet="abcdefghij"):
        super().__init__()
        self.alphabet, self.blank = alphabet, 0
        self.classify = nn.Conv1d(n_mels, len(alphabet) + 1, 4, stride=4)

    def forward(self, mel, lengths):
        return self.classify(mel.mT).mT.log_softmax(-1), lengths // 4

    def ctc_loss(self, mel, lengths, texts):
        scores, counts = self(mel, lengths)
        labels = [[self.alphabet.index(letter) + 1 for letter in text] for text in texts]
        flat, sizes = torch.cat([torch.tensor(one) for one in labels]), torch.tensor([len(one) for one in labels])
        return F.ctc_loss(scores.transpose(0, 1), flat, counts, sizes, blank=self.blank_of_the_loss())

    def blank_of_the_loss(self):
        return self.blank

    def merged(self, path):
        return torch.unique_consecutive(path).tolist()

    def transcribe(self, mel, lengths):
        scores, counts = self(mel, lengths)
        paths = [path[:n] for path, n in zip(scores.argmax(-1), counts, strict=True)]
        return ["".join(self.alphabet[i - 1] for i in self.merged(path) if i != self.blank) for path in paths]


class HearsWithTheLastLetterAsBlank(Hears):
    def blank_of_the_loss(self):
        return len(self.alphabet)


class HearsWithoutDoubleLetters(Hears):
    def merged(self, path):
        return torch.unique_consecutive(path[path != self.blank]).tolist()


class HearsRowsOfLetters(Hears):
    """Rows of labels end with blanks, and the loss counts the letters before them itself."""

    def kept(self, scores, counts):
        return counts

    def ctc_loss(self, mel, lengths, targets):
        scores, counts = self(mel, lengths)
        sizes = targets.ne(self.blank).sum(1)
        return F.ctc_loss(scores.transpose(0, 1), targets, self.kept(scores, counts), sizes, blank=self.blank)


class HearsRowsWithAllFrames(HearsRowsOfLetters):
    def kept(self, scores, counts):
        return torch.full_like(counts, scores.shape[1])


COUNTS = "ctc-loss-counts-the-real-frames"


@pytest.mark.parametrize(
    ("cls", "expected"), [(Hears, "PASS"), (HearsRowsOfLetters, "PASS"), (HearsRowsWithAllFrames, "FAIL")]
)
def test_a_loss_may_count_its_letters_itself(cls, expected):
    assert verdict(cls, COUNTS) == expected


LOSS = "return F.ctc_loss(scores.transpose(0, 1), targets, kept, target_lengths, blank=0)"
BESIDE = """
def ctc_objective(model, frames, lengths, targets, target_lengths):
    scores, kept = model(frames, lengths)
    return F.ctc_loss(scores.transpose(0, 1), targets, KEPT, target_lengths, blank=0)
"""


@pytest.mark.parametrize(("kept", "expected"), [("kept", "PASS"), ("torch.full_like(kept, scores.shape[1])", "FAIL")])
def test_a_loss_may_be_a_function_beside_the_model(made, kept, expected):
    assert SPEECH.source.count(LOSS) == 1
    text = SPEECH.source.replace(LOSS, "return scores.mean()") + BESIDE.replace("KEPT", kept)
    assert run_check(CHECKS[COUNTS], Whole(whole_model(made(SPEECH.name, text))), "quick").verdict.name == expected


DROPS, MERGES = "ctc-text-drops-the-blank-of-the-loss", "ctc-text-merges-repeats-then-drops-blanks"


@pytest.mark.parametrize(
    ("cls", "claim", "expected"),
    [
        (Hears, DROPS, "PASS"),
        (Hears, MERGES, "PASS"),
        (HearsWithTheLastLetterAsBlank, DROPS, "FAIL"),
        (HearsWithoutDoubleLetters, MERGES, "FAIL"),
    ],
)
def test_texts_of_an_alphabet_are_read_by_it(cls, claim, expected):
    assert verdict(cls, claim) == expected


class Quantiles(nn.Module):
    """Forecasts three quantiles of each channel, with reversible instance normalisation (RevIN)."""

    def __init__(self, lookback=16, channels=3, horizon=4):
        super().__init__()
        self.horizon, self.lookback, self.leave = horizon, lookback, nn.Linear(lookback, 3 * horizon)

    def scale(self, std):
        return std

    def forward(self, past):
        """past (batch, lookback, channels)"""
        b, _, c = past.shape
        mean, std = past.mean(1, keepdim=True), past.std(1, keepdim=True) + 1e-5
        y = self.leave(((past - mean) / std).mT).view(b, c, self.horizon, 3).transpose(1, 2)
        return y * self.scale(std)[..., None] + mean[..., None]


class QuantilesOfTheVariance(Quantiles):
    def scale(self, std):
        return std**2


@pytest.mark.parametrize(("cls", "expected"), [(Quantiles, "PASS"), (QuantilesOfTheVariance, "FAIL")])
def test_of_several_quantiles_the_middle_one_is_the_forecast(cls, expected):
    assert verdict(cls, "forecast-follows-level-and-scale-where-said") == expected


LEVELS, PLACES = "forecast-quantiles-are-taught-their-levels", "forecast-channels-keep-their-places"
ERROR = "error = ((future - level) / scale)[..., None] - self(x)"
WEIGHED = "torch.maximum(self.levels * error, (self.levels - 1) * error)"
TURNED = "((x - level) / scale * self.gain).transpose(1, 2).reshape("


@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    [
        (LEVELS, {}, "PASS"),
        (LEVELS, {WEIGHED: "2 * ((self.levels - (error < 0).float()) * error)"}, "PASS"),
        (LEVELS, {ERROR: "error = self(x) - ((future - level) / scale)[..., None]"}, "FAIL"),
        (LEVELS, {WEIGHED: "error.square()"}, "NOT_PROVIDED"),
        (PLACES, {TURNED: TURNED.replace(".transpose(1, 2)", "")}, "FAIL"),
        (PLACES, {}, "PASS"),
        ("positions-differ-from-place-to-place", {"torch.randn(1, count, width)": "torch.randn(1, 1, width)"}, "FAIL"),
    ],
)
def test_a_forecaster_of_quantiles(made, claim, changes, expected):
    assert told(made, QUANTILES, claim, changes) == expected
