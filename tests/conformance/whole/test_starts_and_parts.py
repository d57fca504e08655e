"""How models are put together and begin: defaults in a dict, a loss around an encoder, what a mask chooses, numbers
that a constructor draws. Beside what is right stands a real mistake of the same place."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters.helpers.configured import configured  # noqa: E402
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.adapters.whole.class_source import is_for_some_layers, read_for_some_arguments  # noqa: E402
from conformance.adapters.whole.configs import overridden_defaults  # noqa: E402
from conformance.adapters.whole.told import told_by_forward  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

PAD, BOS, EOS = 0, 1, 2
DEFAULTS = {"vocab": 40, "width": 16, "n_layers": 2, "dropout": 0.1}


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- defaults in a dict ---------------------------------------------------------------------------


class Spans(nn.Module):
    """Where an answer begins and where it ends."""

    deviation = 0.02

    def __init__(self, **options):
        super().__init__()
        self.options = options = {**DEFAULTS, **options}
        self.words = nn.Embedding(options["vocab"], options["width"], padding_idx=PAD)
        self.places = nn.Embedding(32, options["width"])
        layers = range(options["n_layers"])
        self.layers = nn.ModuleList(Layer(options["width"], options["dropout"]) for _ in layers)
        self.ends = nn.Linear(options["width"], 2)
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=0.02)
        for layer in self.layers:
            nn.init.normal_(layer.down.weight, std=self.deviation / math.sqrt(2 * options["n_layers"]))

    def forward(self, ids, types, may_answer):
        """ids, types, may_answer: (B, T). may_answer is True at tokens of the passage. Scores of both ends, (B, T)."""
        x = self.words(ids) + self.places(torch.arange(ids.shape[1])) + types[..., None]
        for layer in self.layers:
            x = layer(x, self.hidden(ids))
        first, last = self.ends(x).unbind(-1)
        return first.masked_fill(~may_answer, -1e9), last.masked_fill(~may_answer, -1e9)

    def hidden(self, ids):
        return ids == PAD


class Layer(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm, self.norm2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, x, hidden):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(hidden[:, None], float("-inf"))
        x = x + self.drop(self.out(scores.softmax(-1) @ v))
        return x + self.drop(self.down(torch.relu(self.up(self.norm2(x)))))


class SpansThatStartLarge(Spans):
    deviation = 1.0


class SpansThatSeePadding(Spans):
    def hidden(self, ids):
        return (ids == PAD) & (ids != PAD)


def test_keywords_over_a_dict_are_the_options():
    assert overridden_defaults(Spans) == DEFAULTS
    assert overridden_defaults(Layer) == {}
    subject = pointed(Spans).build("model", {})
    assert subject.made.options["n_layers"] == 2
    assert len(subject.made.fresh(n_layers=3).layers) == 3


def test_one_shape_is_told_of_several_inputs():
    found = told_by_forward(Spans(), ["ids", "types", "may_answer"])
    assert {name: len(told.axes) for name, told in found.items()} == {"ids": 2, "types": 2, "may_answer": 2}


def test_a_mask_that_chooses_among_answers_is_no_padding():
    subject = pointed(Spans).build("model", {})
    assert not any(mask.padding for mask in subject.calling.masks if mask.parameter == "may_answer")
    assert said(Spans, "encoder-padding-changes-nothing") == "PASS"
    assert said(SpansThatSeePadding, "encoder-padding-changes-nothing") == "FAIL"


@pytest.mark.parametrize(("cls", "verdict"), [(Spans, "PASS"), (SpansThatStartLarge, "FAIL")])
def test_what_is_scaled_by_depth_starts_no_larger(cls, verdict):
    assert said(cls, "matrices-scaled-by-depth-start-no-larger-than-others") == verdict


class LargeWords(Spans):
    def __init__(self, **options):
        super().__init__(**options)
        nn.init.normal_(self.words.weight, std=self.options["width"])


@pytest.mark.parametrize(("cls", "verdict"), [(Spans, "PASS"), (LargeWords, "FAIL")])
def test_tables_start_small(cls, verdict):
    assert said(cls, "tables-of-words-start-no-larger-than-torch-makes-them") == verdict


# --- names that are looked for --------------------------------------------------------------------


class Prefixed(Spans):
    def __init__(self, **options):
        super().__init__(**options)
        for name, parameter in self.named_parameters():
            if name.endswith("down.weight"):
                nn.init.normal_(parameter, std=0.01)


class PrefixedWrongly(Spans):
    def __init__(self, **options):
        super().__init__(**options)
        for name, parameter in self.named_parameters():
            if name.startswith("down.weight"):
                nn.init.normal_(parameter, std=0.01)


@pytest.mark.parametrize(("cls", "verdict"), [(Prefixed, "PASS"), (PrefixedWrongly, "FAIL")])
def test_names_begin_and_end_as_they_are_asked_to(cls, verdict):
    assert said(cls, "modules-that-are-looked-for-by-name-exist") == verdict


# --- a loss around an encoder ---------------------------------------------------------------------


class Encoder(nn.Module):
    axis = -1

    def __init__(self, vocab=50, width=24):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(32, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids, mask):
        """ids, mask: (B, T), True at words. Unit vectors (B, width)."""
        x = self.body(self.words(ids) + self.places(torch.arange(ids.shape[1])), src_key_padding_mask=~mask)
        real = mask[..., None].to(x.dtype)
        return F.normalize((x * real).sum(1) / real.sum(1), dim=self.axis)


class EncoderOverTheBatch(Encoder):
    axis = 0


class Pairs(nn.Module):
    """Trains an encoder: a batch of both sides to the loss of all pairs."""

    encoder = Encoder

    def __init__(self):
        super().__init__()
        self.side = self.encoder()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, batch):
        scores = self.side(batch["a"], batch["a_mask"]) @ self.side(batch["b"], batch["b_mask"]).T
        return F.cross_entropy(scores * self.scale.exp(), torch.arange(len(scores)))


class PairsOverTheBatch(Pairs):
    encoder = EncoderOverTheBatch


@pytest.mark.parametrize(("cls", "verdict"), [(Pairs, "PASS"), (PairsOverTheBatch, "FAIL")])
def test_of_a_loss_around_an_encoder_the_encoder_is_tested(cls, verdict):
    assert type(pointed(cls).build("model", {}).module) is cls.encoder
    assert said(cls, "model-rows-of-a-batch-are-apart") == verdict


# --- what is read for some arguments, and in some layers ------------------------------------------


class Forecast(nn.Module):
    def forward(self, x, future=None):
        if future is None:
            return x
        return (x - self.levels).abs()

    def predict(self, x):
        return self(x)[..., self.levels.argmin()]


class ForecastOfAll(Forecast):
    def forward(self, x, future=None):
        return x - self.levels


def test_what_forward_reads_for_some_arguments_another_method_may_read_anyway():
    assert "levels" in read_for_some_arguments(Forecast)
    assert "levels" not in read_for_some_arguments(ForecastOfAll)


class EveryThird(nn.Module):
    def forward(self, x):
        near, far = self.near(x), self.far(x)
        for i, layer in enumerate(self.layers):
            x = layer(x, far if i % 3 == 2 else near)
        return x + self.rest(x)


def test_what_some_layers_read_by_their_number():
    assert is_for_some_layers(EveryThird, "forward", "far")
    assert not is_for_some_layers(EveryThird, "forward", "rest")
    assert not is_for_some_layers(EveryThird, "predict", "far")


# --- masks ----------------------------------------------------------------------------------------


class Steadied(Layer):
    """The largest score of each row is taken off, and what is hidden is set to zero once more."""

    fill = -1e4

    def forward(self, x, hidden):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(hidden[:, None], self.fill)
        weights = (scores - scores.amax(-1, keepdim=True)).softmax(-1).masked_fill(hidden[:, None], 0.0)
        x = x + self.out(weights @ v)
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Reader(nn.Module):
    layer = Steadied

    def __init__(self, vocab=40, width=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width, padding_idx=PAD), nn.Embedding(32, width)
        self.block, self.head = self.layer(width, 0.0), nn.Linear(width, 5)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.block(x, ids == PAD))


def test_scores_without_their_largest_are_hidden_as_before():
    assert said(Reader, "attention-mask-hides-completely") == "PASS"


# --- writing --------------------------------------------------------------------------------------


class Writer(nn.Module):
    """A language model that writes with a cache while its text fits, and from a window then."""

    def __init__(self, vocab=24, width=16, block_size=12):
        super().__init__()
        self.block_size = block_size
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, ids, cache=None):
        past = 0 if cache is None else cache[0].shape[1]
        x = self.words(ids) + self.places(torch.arange(past, past + ids.shape[1]))
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        causal = torch.ones(ids.shape[1], k.shape[1], dtype=torch.bool).tril(past)
        scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(~causal, float("-inf"))
        return self.head(x + self.out(scores.softmax(-1) @ v)), (k, v)

    @torch.no_grad()
    def generate(self, ids, max_new_tokens):
        self.eval()
        cache = None
        for _ in range(max_new_tokens):
            if cache is not None and ids.shape[1] <= self.block_size:
                logits, cache = self(ids[:, -1:], cache)
            else:
                logits, cache = self(self.window(ids))
            logits = logits[:, -1]
            logits[:, PAD] = float("-inf")
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
        return ids

    def window(self, ids):
        return ids[:, -self.block_size :]


class WriterOfTheOldest(Writer):
    def window(self, ids):
        return ids[:, : self.block_size]


@pytest.mark.parametrize(("cls", "verdict"), [(Writer, "PASS"), (WriterOfTheOldest, "FAIL")])
def test_a_window_behind_a_cache_is_of_the_newest(cls, verdict):
    assert said(cls, "generate-reads-the-last-tokens-of-a-long-text") == verdict


# --- functions beside a model ---------------------------------------------------------------------


@dataclass(frozen=True)
class Signs:
    pad: int = 0
    cls: int = 1
    sep: int = 2
    mask: int = 3
    first_word: int = 5


@dataclass
class MaskedConfig:
    vocab_size: int = 60
    width: int = 16
    signs: Signs = field(default_factory=Signs)


class Masked(nn.Module):
    def __init__(self, config: MaskedConfig | None = None):
        super().__init__()
        self.config = config or MaskedConfig()


def mask_tokens(input_ids, config: MaskedConfig, probability: float = 0.15):
    return _masked(input_ids, config, probability, input_ids >= config.signs.first_word)


def mask_inputs(input_ids, config: MaskedConfig, probability: float = 0.15):
    return _masked(input_ids, config, probability, torch.ones_like(input_ids, dtype=torch.bool))


def _masked(ids, config, probability, may):
    chosen = (torch.rand(ids.shape) < probability) & may
    labels, action = ids.masked_fill(~chosen, -100), torch.rand(ids.shape)
    changed = ids.masked_fill(chosen & (action < 0.8), config.signs.mask)
    words = torch.randint(config.signs.first_word, config.vocab_size, ids.shape)
    return torch.where(chosen & (action >= 0.8) & (action < 0.9), words, changed), labels


def pinball(pred, target, quantiles, ok):
    diff = target.unsqueeze(-1) - pred
    loss = torch.maximum(quantiles * diff, (quantiles - 1) * diff)
    return (loss * ok.unsqueeze(-1)).sum() / (ok.sum() * quantiles.numel())


def even_pinball(pred, target, quantiles, ok):
    loss = (quantiles * (target.unsqueeze(-1) - pred)).abs()
    return (loss * ok.unsqueeze(-1)).sum() / (ok.sum() * quantiles.numel())


def judged(function, claim):
    examined = examine([configured(function, Masked(), {})])
    assert claim in examined.tested
    return [wrong.claim for wrong in examined.wrong]


def test_signs_that_a_config_holds_in_an_object_of_its_own_are_known():
    claim = "masked-words-are-what-is-taught"
    assert judged(mask_tokens, claim) == []
    assert judged(mask_inputs, claim) == [claim]


def test_quantile_losses_that_are_told_what_was_observed():
    claim = "quantile-losses-are-lowest-at-the-quantile"
    assert judged(pinball, claim) == []
    assert judged(even_pinball, claim) == [claim]


def apart(model: nn.Module, weight_decay: float = 0.01):
    """No decay on biases and norms."""
    decay, keep = [], []
    for p in model.parameters():
        (keep if p.ndim < 2 else decay).append(p)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": keep, "weight_decay": 0.0}]


def test_a_function_that_returns_groups_makes_an_optimizer_by_any_name():
    found = [one.name for one in pointed(Reader).build("model", {}).made_optimizers()]
    assert "apart" in found
    assert said(Reader, "model-optimizer-treats-norms-apart") == "PASS"
