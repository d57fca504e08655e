"""Forecasters with covariates and gaps, losses of several labels, streams that are dropped, and starts that are told a
mean: what is right passes, and a real mistake of the same place is told."""

from __future__ import annotations

import math
import sys

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters import SpecificationError, resolve  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- covariates, gaps and quantiles ----------------------------------------------------------------

GAPS, LEVELS = "series-are-read-where-they-were-observed", "forecast-quantiles-are-taught-their-levels"


class Covariates(nn.Module):
    """Forecasts quantiles of a series from it and covariates that are known ahead."""

    def __init__(self, context=16, horizon=8, patch=4, n_covariates=3, width=16):
        super().__init__()
        self.context, self.horizon, self.patch = context, horizon, patch
        self.embed = nn.Linear(patch * (2 + n_covariates), width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)
        self.head = nn.Linear(width, self.patch * 3)
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

    def statistics(self, past, observed):
        count = observed.sum(1, keepdim=True).clamp(min=1)
        mean = (past * observed).sum(1, keepdim=True) / count
        return mean, (((past - mean) ** 2 * observed).sum(1, keepdim=True) / count + 1e-5).sqrt()

    def forward(self, past, known, observed=None):
        """past: (B, context), known: (B, context + horizon, C), observed: (B, context)."""
        observed = torch.ones_like(past) if observed is None else observed
        mean, scale = self.statistics(past, observed)
        series = F.pad((past - mean) / scale * observed, (0, self.horizon))
        steps = torch.cat([series[..., None], F.pad(observed, (0, self.horizon))[..., None], known], -1)
        x = self.layer(self.embed(steps.unfold(1, self.patch, self.patch).flatten(2)))
        return self.head(x[:, -self.horizon // self.patch :]).view(len(past), self.horizon, 3), mean, scale

    def loss(self, past, known, future):
        forecast, mean, scale = self(past, known)
        return self.weighed(((future - mean) / scale)[..., None] - forecast)

    def weighed(self, error):
        return torch.maximum(self.levels * error, (self.levels - 1) * error).mean()


class CovariatesWithGapsInTheSpread(Covariates):
    def statistics(self, past, observed):
        count = observed.sum(1, keepdim=True).clamp(min=1)
        mean = (past * observed).sum(1, keepdim=True) / count
        return mean, (((past - mean) ** 2).sum(1, keepdim=True) / count + 1e-5).sqrt()


class CovariatesTurnedRound(Covariates):
    def weighed(self, error):
        return torch.maximum(-self.levels * error, (1 - self.levels) * error).mean()


class FlagsAlone(nn.Module):
    """What stands in gaps was filled by the caller, and is read with a flag."""

    def __init__(self, context=16, horizon=8, patch=4, width=16):
        super().__init__()
        self.context, self.horizon, self.patch = context, horizon, patch
        self.embed, self.head = nn.Linear(patch * 2, width), nn.Linear(width * context // patch, horizon)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)

    def forward(self, past, observed=None):
        """past, observed: (B, context)."""
        observed = torch.ones_like(past) if observed is None else observed
        mean, scale = past.mean(1, keepdim=True), past.std(1, keepdim=True) + 1e-5
        steps = torch.stack([(past - mean) / scale, observed], -1)
        x = self.layer(self.embed(steps.unfold(1, self.patch, self.patch).flatten(2)))
        return self.head(x.flatten(1)) + mean


class Sensors(nn.Module):
    """Forecasts several series at times that are given, of numbers of which some were not read."""

    def __init__(self, sensors=5, width=16):
        super().__init__()
        self.read, self.clock, self.head = nn.Linear(2 * sensors, width), nn.Linear(1, width), nn.Linear(width, sensors)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)

    def forward(self, values, times, seen, future):
        """values: (B, T, sensors), times: (B, T), seen: (B, T, sensors) bool, future: (B, F)."""
        values = torch.where(seen, values, torch.zeros_like(values))
        mean = (values * seen).sum(1, keepdim=True) / self.number(seen)
        x = self.read(torch.cat([self.emptied(values - mean, seen), seen.to(values.dtype)], -1))
        x = self.layer(x + self.clock(times[..., None]), src_key_padding_mask=~seen.any(-1))
        return self.head(x.mean(1, keepdim=True) + self.clock(future[..., None])) + mean

    def number(self, seen):
        return seen.sum(1, keepdim=True).clamp(min=1)

    def emptied(self, centred, seen):
        return centred * seen


class SensorsByAllSteps(Sensors):
    def number(self, seen):
        return seen.shape[1]


class SensorsOfFullGaps(Sensors):
    def emptied(self, centred, seen):
        return centred


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (Covariates, GAPS, "PASS"),
        (Sensors, GAPS, "PASS"),
        (SensorsByAllSteps, GAPS, "FAIL"),
        (SensorsOfFullGaps, GAPS, "FAIL"),
        (Covariates, LEVELS, "PASS"),
        (CovariatesWithGapsInTheSpread, GAPS, "FAIL"),
        (CovariatesTurnedRound, LEVELS, "FAIL"),
        (FlagsAlone, GAPS, "NOT_PROVIDED"),
    ],
)
def test_what_a_forecaster_with_covariates_is_asked(cls, claim, verdict):
    assert said(cls, claim) == verdict


# --- several labels --------------------------------------------------------------------------------

EACH = "losses-of-several-labels-teach-each"


class TwoLabels(nn.Module):
    """Words and their text are labelled."""

    def __init__(self, vocab_size=40, width=16):
        super().__init__()
        self.words, self.layer = nn.Embedding(vocab_size, width), nn.TransformerEncoderLayer(width, 2, 24, 0.0)
        self.of_words, self.of_texts = nn.Linear(width, vocab_size), nn.Linear(width, 3)

    def forward(self, input_ids, word_labels=None, labels=None):
        x = self.layer(self.words(input_ids).transpose(0, 1)).transpose(0, 1)
        words, texts = self.of_words(x), self.of_texts(x.mean(1))
        loss = None
        if word_labels is not None:
            loss = F.cross_entropy(words.flatten(0, 1), word_labels.flatten())
        if labels is not None:
            loss = self.joined(loss, F.cross_entropy(texts, labels))
        return {"loss": loss, "word_logits": words, "label_logits": texts}

    def joined(self, loss, other):
        return other if loss is None else loss + other


class OneOfTwoLabels(TwoLabels):
    def joined(self, loss, other):
        return other


@pytest.mark.parametrize(("cls", "verdict"), [(TwoLabels, "PASS"), (OneOfTwoLabels, "FAIL")])
def test_each_of_several_labels_teaches(cls, verdict):
    assert said(cls, EACH) == verdict


def test_labels_of_words_are_told_from_those_of_texts():
    for claim in ("model-every-parameter-gets-a-gradient", "masked-language-model-loss-counts-masked-labels-only"):
        assert said(TwoLabels, claim) in ("PASS", "NOT_PROVIDED")


LENGTHS = "losses-compare-vectors-of-length-one"


class Cosines(nn.Module):
    """A causal language model of items: scores behind each place, and a loss over the cosines of the states."""

    def __init__(self, n_items=60, width=16):
        super().__init__()
        self.items, self.layer = nn.Embedding(n_items, width), nn.TransformerEncoderLayer(width, 2, 24, 0.0)

    def states(self, ids):
        future = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        return self.layer(self.items(ids).transpose(0, 1), future).transpose(0, 1)

    def forward(self, ids):
        return self.states(ids) @ self.items.weight.T

    def loss(self, ids):
        states, items = self.states(ids[:, :-1]), F.normalize(self.items.weight)
        scores = self.of_length_one(states) @ items.T
        return F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())

    def of_length_one(self, states):
        return F.normalize(states, dim=-1)


class CosinesOverSteps(Cosines):
    def of_length_one(self, states):
        return F.normalize(states)


class CosinesOfRows(Cosines):
    def of_length_one(self, states):
        return F.normalize(states.flatten(0, 1)).view_as(states)


@pytest.mark.parametrize(
    ("cls", "verdict"), [(Cosines, "NOT_PROVIDED"), (CosinesOfRows, "NOT_PROVIDED"), (CosinesOverSteps, "FAIL")]
)
def test_vectors_are_normalised_and_not_steps(cls, verdict):
    assert said(cls, LENGTHS) == verdict


# --- what stands beside words ---------------------------------------------------------------------------

BESIDE = "padding-hides-what-stands-beside-it"


class Remembers(nn.Module):
    """Tags words, and reads states of another text, which has a length of its own."""

    def __init__(self, vocab_size=40, width=16, pad_id=0):
        super().__init__()
        self.pad_id, self.words, self.tags = pad_id, nn.Embedding(vocab_size, width), nn.Linear(width, 5)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True)

    def forward(self, input_ids, states):
        hidden = self.layer(self.words(input_ids), src_key_padding_mask=input_ids == self.pad_id)
        return self.tags(hidden + (hidden @ states.transpose(1, 2)).softmax(-1) @ states)


def test_what_has_a_length_of_its_own_does_not_stand_beside_words():
    assert said(Remembers, BESIDE) == "NOT_PROVIDED"


# --- streams that are dropped ----------------------------------------------------------------------

STREAM = "model-keeps-the-stream-where-branches-are-dropped"


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0:
            return x
        return x * (torch.rand(len(x), *[1] * (x.dim() - 1)) >= self.rate) / (1 - self.rate)


class Branch(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.map, self.drop_path = nn.LayerNorm(width), nn.Linear(width, width), DropPath(0.2)

    def forward(self, x):
        return x + self.drop_path(self.map(self.norm(x)))


class PostNorm(Branch):
    def forward(self, x):
        return self.norm(x + self.drop_path(self.map(x)))


class DropsTheSum(Branch):
    def forward(self, x):
        return self.drop_path(x + self.map(self.norm(x)))


class Deep(nn.Module):
    branch: type[nn.Module] = Branch

    def __init__(self, vocab_size=30, width=16):
        super().__init__()
        self.words, self.head = nn.Embedding(vocab_size, width), nn.Linear(width, vocab_size)
        self.blocks = nn.ModuleList(self.branch(width) for _ in range(2))

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize(("branch", "verdict"), [(Branch, "PASS"), (PostNorm, "PASS"), (DropsTheSum, "FAIL")])
def test_the_stream_goes_on_where_branches_are_dropped(branch, verdict, monkeypatch):
    monkeypatch.setattr(Deep, "branch", branch)
    assert said(Deep, STREAM) == verdict


# --- starts ----------------------------------------------------------------------------------------

START = "modules-start-by-a-deviation-and-not-a-mean"


class Named(Deep):
    def __init__(self, std=0.02):
        super().__init__()
        nn.init.normal_(self.words.weight, 0.0, std)
        nn.init.trunc_normal_(self.head.weight, std=std)
        self.blocks[0].map.weight.data.normal_(0.0, std)
        nn.init.normal_(self.blocks[1].map.weight, 0, 1 / math.sqrt(16))
        nn.init.normal_(self.blocks[1].map.bias, 1.0)  # a mean of one may be meant


class Unnamed(Deep):
    def __init__(self):
        super().__init__()
        nn.init.trunc_normal_(self.head.weight, 0.02)


class UnnamedSetting(Deep):
    def __init__(self, std=0.02):
        super().__init__()
        nn.init.normal_(self.head.weight, std)


class UnnamedMethod(Deep):
    def __init__(self):
        super().__init__()
        self.head.weight.data.normal_(0.02)


@pytest.mark.parametrize(
    ("cls", "verdict"), [(Named, "PASS"), (Unnamed, "FAIL"), (UnnamedSetting, "FAIL"), (UnnamedMethod, "FAIL")]
)
def test_a_deviation_is_told_by_its_name(cls, verdict):
    assert said(cls, START) == verdict


LOOKED_FOR = "modules-that-are-looked-for-by-name-exist"


class LooksForMaps(Deep):
    wanted = "map.weight"

    def __init__(self):
        super().__init__()
        for name, parameter in self.named_parameters():
            std = 0.02
            if name.endswith("map.weight"):
                std /= 2
            nn.init.normal_(parameter, std=std)


class LooksForOthers(Deep):
    def __init__(self):
        super().__init__()
        for name, parameter in self.named_parameters():
            std = 0.02
            if name.endswith("oo_proj.weight"):
                std /= 2
            nn.init.normal_(parameter, std=std)


class LooksForOthersInALine(Deep):
    def __init__(self):
        super().__init__()
        for name, parameter in self.named_parameters():
            nn.init.normal_(parameter, std=0.01 if name.endswith("oo_proj.weight") else 0.02)


@pytest.mark.parametrize(
    ("cls", "verdict"), [(LooksForMaps, "PASS"), (LooksForOthers, "FAIL"), (LooksForOthersInALine, "FAIL")]
)
def test_names_by_which_numbers_are_chosen_exist(cls, verdict):
    assert said(cls, LOOKED_FOR) == verdict


# --- lists of layers, codes of positions, sums and filters ---------------------------------------------


class EachLayer(nn.Module):
    """Gives what each of its layers answers, in a list."""

    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True) for _ in range(2))

    def forward(self, hidden_states):
        found = []
        for layer in self.layers:
            hidden_states = layer(hidden_states)
            found.append(hidden_states)
        return found


def test_of_a_list_of_layers_the_last_one_answers():
    assert said(EachLayer, "model-every-parameter-gets-a-gradient") == "PASS"


FUNCTIONS = """
import torch

def position_embedding(input, d_model):
    input = input.view(-1, 1)
    angle = input / 10000 ** (2 * torch.arange(d_model // 2).float().view(1, -1) / d_model)
    out = torch.zeros(len(input), d_model)
    out[:, ::2], out[:, 1::2] = torch.sin(angle), torch.cos(angle)
    return out

def top_p(logits, thres=0.9):
    values, order = torch.sort(logits, descending=True)
    gone = values.softmax(-1).cumsum(-1) > 1 - thres
    gone[:, 1:] = gone[:, :-1].clone()
    gone[:, 0] = False
    return values.masked_fill(gone, float("-inf")).scatter(1, order, values.masked_fill(gone, float("-inf")))

def cumsum_exclusive(x, dim=-1):
    return x.cumsum(dim) - x
"""


def test_functions_are_taken_for_what_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "functions_of_a_test.py"
    path.write_text(FUNCTIONS)
    codes = resolve(f"{path}:position_embedding")
    assert run_check(CHECKS["positions-run-along-the-sequence"], codes, "quick").verdict.name == "PASS"
    filtering = resolve(f"{path}:top_p")
    assert run_check(CHECKS["no-top-k-keeps-every-token"], filtering, "quick").verdict.name == "NOT_PROVIDED"
    with pytest.raises(SpecificationError):
        resolve(f"{path}:cumsum_exclusive")
