"""Rules that fresh repositories taught: rotations that need no table, losses of quantiles, dropouts of experts, batches
that are sorted, inputs that are flattened, parts that keep what they computed, inputs that are handed on.

Beside what is right stands a real mistake of the same place, where there is one.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.functions.implementation import FunctionImplementation  # noqa: E402
from conformance.adapters.functions.positions import of_class  # noqa: E402
from conformance.adapters.functions.roles import proposed  # noqa: E402
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.adapters.whole.absent_weights import absent_weights  # noqa: E402
from conformance.adapters.whole.copying import copied  # noqa: E402
from conformance.adapters.whole.running import moved  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.check import CHECKS, Check  # noqa: E402
from conformance.evidence import true  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

WIDTH, HEADS, VOCAB = 16, 2, 23
GRADIENTS = "model-every-parameter-gets-a-gradient"


def of_function(function, claim):
    found = FunctionImplementation(function, Specification("", "", function.__name__))
    return run_check(CHECKS[claim], found, "quick").verdict


def verdict(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict


# --- functions


def apply_rope(x, start_pos=0):
    """(B, H, T, d) turned by its places, with halves as pairs."""
    half = x.shape[-1] // 2
    places = torch.arange(start_pos, start_pos + x.shape[2], dtype=x.dtype)
    angles = places[:, None] / 10000 ** (torch.arange(half, dtype=x.dtype) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def rope_from_the_start(x):
    return apply_rope(x)


def apply_rope_with_a_wrong_sign(x, start_pos=0):
    half = x.shape[-1] // 2
    turned = apply_rope(torch.cat([x[..., :half], -x[..., half:]], -1), start_pos)
    return torch.cat([turned[..., :half], turned[..., half:].abs()], -1)


@pytest.mark.parametrize(
    ("function", "is_right"), [(apply_rope, True), (rope_from_the_start, True), (apply_rope_with_a_wrong_sign, False)]
)
def test_a_function_that_rotates_by_itself_gets_no_table(function, is_right):
    told = of_function(function, "rope-rotates-pairs-by-position-times-frequency")
    assert (told is Verdict.PASS) is is_right


class RotaryTable(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", 1 / base ** (torch.arange(0, dim, 2).float() / dim), persistent=False)

    def forward(self, position_ids, dtype):
        angles = position_ids.unsqueeze(-1).float() @ self.inv_freq.unsqueeze(0)
        wide = torch.cat((angles, angles), -1)
        return wide.cos().to(dtype), wide.sin().to(dtype)


def test_a_table_of_places_that_are_handed_in_is_one_of_rotations():
    assert [served.role for served in of_class(RotaryTable)] == ["rope"]


class QuantileLoss(nn.Module):
    def forward(self, preds, target):
        """preds (B, N, 3), target (B, N)"""
        errors = target[..., None] - preds
        return torch.max(0.5 * errors, -0.5 * errors).mean()


class SmoothLoss(QuantileLoss):
    """Its name says what it is."""


def test_a_loss_of_quantiles_is_no_cross_entropy():
    assert proposed(QuantileLoss) == ()
    assert proposed(SmoothLoss) == ("cross_entropy",)


def loss_with_a_rate(logits, target, smoothing):
    """Word 0 is padding; the rate has no default."""
    logp = F.log_softmax(logits, dim=-1)
    nll = -logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    real = (target != 0).float()
    return (((1 - smoothing) * nll - smoothing * logp.mean(-1)) * real).sum() / real.sum().clamp(min=1)


def test_the_padding_of_a_loss_that_asks_for_its_rate_is_found():
    assert of_function(loss_with_a_rate, "cross-entropy-leaves-padding-out-of-the-mean") is Verdict.PASS


def collate_longest_first(batch):
    batch = sorted(batch, key=len, reverse=True)
    return nn.utils.rnn.pad_sequence([torch.as_tensor(one) for one in batch], batch_first=True)


def collate_backwards(batch):
    batch = [one[::-1] for one in batch]
    return nn.utils.rnn.pad_sequence([torch.as_tensor(one) for one in batch], batch_first=True)


@pytest.mark.parametrize(("function", "is_told"), [(collate_longest_first, False), (collate_backwards, True)])
def test_a_batch_may_be_sorted(function, is_told):
    assert bool(examine([function]).wrong) is is_told


# --- models


class Experts(nn.Module):
    """Each expert drops of the words that it gets: which numbers are drawn depends on the other words."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3)) for _ in range(3))

    def forward(self, x, ids):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            at = ids % 3 == number
            out[at] = expert(x[at])
        return out


class SparseScribe(nn.Module):
    def __init__(self, leaks=False):
        super().__init__()
        self.table, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(32, WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.experts, self.head, self.leaks = Experts(), nn.Linear(WIDTH, VOCAB), leaks

    def forward(self, ids):
        n = ids.shape[1]
        x = self.table(ids) + self.places(torch.arange(n))
        mask = None if self.leaks and self.training else torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        x = x + self.attn(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.head(x + self.experts(x, ids))


class LeakyScribe(SparseScribe):
    def __init__(self):
        super().__init__(leaks=True)


@pytest.mark.parametrize(("cls", "expected"), [(SparseScribe, Verdict.PASS), (LeakyScribe, Verdict.FAIL)])
def test_what_experts_drop_is_no_look_ahead(cls, expected):
    assert verdict(cls, "language-model-is-causal-in-training") is expected


class Plain:
    """No nn.Module: eval() never reaches its dropout."""

    def __init__(self):
        self.dropout = nn.Dropout(0.5)


class DropsAlways(nn.Module):
    def __init__(self, d_model=WIDTH, n_heads=HEADS):
        super().__init__()
        self.heads, self.plain = n_heads, Plain()
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        q, k, v = (
            turn(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for turn in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.out((self.plain.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


def test_a_dropout_that_eval_does_not_reach_is_told():
    assert verdict(DropsAlways, "model-evaluation-repeats-itself") is Verdict.FAIL
    assert pointed(DropsAlways).draws_anew


@pytest.mark.parametrize(
    ("random", "role", "expected"),
    [
        (True, "multi_head_attention", Verdict.NOT_PROVIDED),
        (False, "multi_head_attention", Verdict.FAIL),
        (True, "module", Verdict.FAIL),
    ],
)
def test_of_answers_at_random_no_claim_about_components_speaks(random, role, expected):
    apart = Check(
        "heads-do-not-influence-each-other", (role,), (), 1, lambda impl, draw: true("apart", False, got="no")
    )
    assert run_check(apart, SimpleNamespace(draws_anew=random), "quick").verdict is expected


class Flattened(nn.Module):
    """Takes 14 steps of what it embeds in one row, beside 5 numbers that do not change."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(14 * WIDTH + 5, 3)

    def forward(self, x_seq, x_static):
        """x_seq: [batch, steps, 8], x_static: [batch, 5]"""
        x = self.encoder(self.embed(x_seq)).flatten(1)
        return self.out(torch.cat([x, x_static], 1))


def test_the_width_of_what_is_flattened_tells_the_length():
    calling = calling_of(Flattened())
    assert (calling.main.parameter, calling.main.length) == ("x_seq", 14)


class Keeping(nn.Module):
    """Keeps what it computed: a tensor of the constructor, a list, a memory that is written into."""

    def __init__(self):
        super().__init__()
        self.table, self.out, self.empty = nn.Embedding(VOCAB, 8), nn.Linear(8, VOCAB), nn.Linear(0, 4)
        self.twice = self.out.weight * 2
        self.layers = [self.table.weight[:3]]
        self.memory = torch.zeros(8, 32, 8)

    def forward(self, ids):
        x = self.table(ids).tanh()
        self.memory = self.memory.to(x)
        self.memory[: len(x), : x.shape[1]] = x
        return self.out(self.memory[: len(x), : x.shape[1]] + x)


def test_what_a_part_keeps_is_copied_and_leads_back_to_no_earlier_run():
    other = copied(moved(Keeping()))
    assert not other.twice.requires_grad and not other.layers[0].requires_grad  # noqa: PT018
    running = pointed(Keeping).running
    once, again = (running.gradients(running.example())["out.weight"] for _ in range(2))
    assert abs(once - again).max() < 1e-12


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.days = nn.Embedding(VOCAB, 8), nn.Embedding(7, 8)

    def forward(self, ids, days=None):
        x = self.words(ids)
        return x if days is None else x + self.days(days)


class HandsOn(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = Embeds(), nn.Linear(8, VOCAB)

    def forward(self, ids, days=None):
        return self.out(self.embed(ids, days))


class HandsNothingOn(HandsOn):
    def forward(self, ids):
        return self.out(self.embed(ids))


@pytest.mark.parametrize(("cls", "expected"), [(HandsOn, Verdict.PASS), (HandsNothingOn, Verdict.FAIL)])
def test_a_table_of_what_may_be_handed_on_needs_no_gradient(cls, expected):
    assert verdict(cls, GRADIENTS) is expected


# --- unit numbers by another name


def positional_embeddings(model_dimension, sequence_lenght_limit, base=10000.0):
    powers = torch.arange(0, model_dimension, 2) / model_dimension
    angles = torch.outer(torch.arange(sequence_lenght_limit), base**-powers)
    return torch.polar(torch.ones_like(angles), angles)


def positional_embeddings_of_half_the_power(model_dimension, sequence_lenght_limit, base=10000.0):
    powers = torch.arange(0, model_dimension, 2) / (2 * model_dimension)
    angles = torch.outer(torch.arange(sequence_lenght_limit), base**-powers)
    return torch.polar(torch.ones_like(angles), angles)


@pytest.mark.parametrize(
    ("function", "expected"),
    [(positional_embeddings, Verdict.PASS), (positional_embeddings_of_half_the_power, Verdict.FAIL)],
)
def test_what_makes_unit_numbers_makes_rotary_positions(function, expected):
    assert of_function(function, "rope-rotates-pairs-by-position-times-frequency") is expected


# --- targets that are distributions


def cross_entropy(preds, targets, reduction="none"):
    loss = (-targets * preds.log_softmax(-1)).sum(1)
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean()


def cross_entropy_over_rows(preds, targets):
    return (-targets * preds.log_softmax(0)).sum(1)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("position-100-is-the-101st-word", Verdict.PASS),
        ("cross-entropy-is-minus-log-probability", Verdict.PASS),
        ("sequence-probability-is-a-product-of-conditionals", Verdict.NOT_PROVIDED),  # it gives no sum
    ],
)
def test_a_loss_of_distributions_is_given_ones_and_zeros(claim, expected):
    assert of_function(cross_entropy, claim) is expected


def test_a_loss_of_distributions_may_be_wrong():
    assert of_function(cross_entropy_over_rows, "cross-entropy-is-minus-log-probability") is Verdict.FAIL


# --- masks of another input, networks that are not here


class CaptionDecoder(nn.Module):
    """Judged by its memory, since its vocabulary is tiny; its mask is that of the words beside it."""

    def __init__(self, words=4):
        super().__init__()
        self.table, self.places = nn.Embedding(words, WIDTH, padding_idx=0), nn.Embedding(64, WIDTH)
        layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.head = nn.Linear(WIDTH, words)

    def forward(self, tgt_tokens, memory, tgt_key_padding_mask=None):
        """tgt_tokens: (B, T) ids. memory: (B, S, d_model) patches. tgt_key_padding_mask: (B, T), True where padding."""
        hidden = nn.Transformer.generate_square_subsequent_mask(tgt_tokens.shape[1])
        words = self.table(tgt_tokens) + self.places(torch.arange(tgt_tokens.shape[1])[None])
        return self.head(self.decoder(words, memory, hidden, tgt_key_padding_mask=tgt_key_padding_mask))


def test_a_mask_of_the_words_hides_no_memory():
    assert verdict(CaptionDecoder, "encoder-padding-changes-nothing") is not Verdict.FAIL


class PretrainedModel:
    """As the base class of transformers, where there is no network."""

    @classmethod
    def from_pretrained(cls, name, *, local_files_only=False, **options):
        raise OSError(f"no connection for {name}" if not local_files_only else f"{name} is not in the cache")


class Config:
    """As its configurations."""

    @classmethod
    def from_pretrained(cls, name, *, local_files_only=False, **options):
        raise OSError(f"{name} is not in the cache")

    def __init__(self):
        self.hidden_size, self.num_hidden_layers, self.vocab_size, self.output_attentions = WIDTH, 12, 30_000, False

    def update(self, settings):
        vars(self).update(settings)

    def to_dict(self):
        return vars(self) | {"pad_token_id": 0, "sep_token_id": 102}


class AutoConfig:
    from_pretrained = classmethod(Config.from_pretrained.__func__)


class Tokenizer:
    from_pretrained = classmethod(Config.from_pretrained.__func__)


class AutoTokenizer:
    from_pretrained = classmethod(Config.from_pretrained.__func__)


class Network(PretrainedModel, nn.Module):
    config_class = Config

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(config.num_hidden_layers))


def test_a_pretrained_network_that_is_not_here_is_made_anew(monkeypatch):
    library = SimpleNamespace(
        PreTrainedModel=PretrainedModel,
        PretrainedConfig=Config,
        AutoConfig=AutoConfig,
        PreTrainedTokenizerBase=Tokenizer,
        AutoTokenizer=AutoTokenizer,
        CONFIG_MAPPING={"bert": Config},
    )
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.delitem(sys.modules, "transformers.models.auto.auto_factory", raising=False)
    with absent_weights() as absent:
        made = Network.from_pretrained("bert-base-uncased", output_attentions=True)
    assert absent == ["bert-base-uncased"]
    assert (len(made.layers), made.words.num_embeddings, made.words.embedding_dim) == (2, 1000, WIDTH)
    assert made.config.output_attentions
    with absent_weights():
        config = AutoConfig.from_pretrained("some/bert-tiny", output_attentions=True)
        assert (config.num_hidden_layers, config.hidden_size, config.output_attentions) == (2, WIDTH, True)
        assert isinstance(Config.from_pretrained("any"), Config)
        with pytest.raises(OSError, match="its name does not say"):
            AutoConfig.from_pretrained("some/model")
    with pytest.raises(OSError, match="no connection"):
        Network.from_pretrained("bert-base-uncased")


LIBRARY = """
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.drop = nn.Embedding(23, 16), nn.Dropout(0.1)
        self.layer, self.pooler = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 16)

    def forward(self, ids):
        h = self.layer(self.drop(self.words(ids)))
        return h, self.pooler(h[:, 0])
"""


@pytest.fixture
def library(monkeypatch):
    """A package that is installed, with a network."""
    module = ModuleType("networks")
    module.__file__ = "/env/site-packages/networks.py"
    monkeypatch.setitem(sys.modules, "networks", module)
    exec(compile(LIBRARY, module.__file__, "exec"), vars(module))
    return module


class OfALibrary(nn.Module):
    """Reads the words of a network, and not its pooler."""

    rate = None

    def __init__(self, dropout=0.2):
        super().__init__()
        self.encoder, self.drop = sys.modules["networks"].Encoder(), nn.Dropout(self.rate or dropout)
        self.head, self.beside = nn.Linear(WIDTH, 5), self.part()

    def part(self):
        return None

    def forward(self, ids):
        return self.head(self.drop(self.encoder(ids)[0].mean(1)))


class WithARateOfItsOwn(OfALibrary):
    rate = 0.1


class WithAPartThatIsForgotten(OfALibrary):
    def part(self):
        return nn.Linear(WIDTH, WIDTH)


@pytest.mark.parametrize(
    ("claim", "wrong"),
    [("model-dropout-is-what-its-option-says", WithARateOfItsOwn), (GRADIENTS, WithAPartThatIsForgotten)],
)
def test_a_network_of_a_library_has_rates_and_parts_of_its_own(claim, wrong, library):
    assert verdict(OfALibrary, claim) is Verdict.PASS
    assert verdict(wrong, claim) is Verdict.FAIL
