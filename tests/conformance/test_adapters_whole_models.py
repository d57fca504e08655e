"""Whole models taken apart: each component is tested in its role, through the model's own constructor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_subjects import lecture, models  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.inference.construct import Constructor  # noqa: E402
from conformance.adapters.torch_module import TorchModuleImplementation, Unresolved  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import BROKEN, Verdict  # noqa: E402


class Layer(nn.Module):
    """Its constructor tells nothing: only the model can build it."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(model.width)
        self.attn = nn.MultiheadAttention(model.width, model.heads, batch_first=True)
        self.norm2 = nn.LayerNorm(model.width)
        self.fc1 = nn.Linear(model.width, model.inner)
        self.fc2 = nn.Linear(model.inner, model.width)

    def forward(self, x: torch.Tensor, attn_mask: torch.Tensor | None = None) -> torch.Tensor:
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=attn_mask, need_weights=False)[0]
        return x + self.fc2(torch.relu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocab_size: int, n_embd: int, n_head: int, n_layer: int, d_ff: int, block_size: int) -> None:
        super().__init__()
        self.width, self.heads, self.inner = n_embd, n_head, d_ff
        self.tokens = nn.Embedding(vocab_size, n_embd)
        self.positions = nn.Embedding(block_size, n_embd)
        self.layers = nn.ModuleList(Layer(self) for _ in range(n_layer))
        self.head = nn.Linear(n_embd, vocab_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_the_components_of_a_model_play_their_roles() -> None:
    implementation = TorchModuleImplementation(GPT)
    assert {"embedding", "layer_norm", "multi_head_attention", "encoder_layer"} <= set(implementation.roles)
    subject = implementation.build("layer_norm", {"d_model": 6, "eps": 1e-5})
    x = np.random.default_rng(0).normal(size=(2, 3, 6))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(subject(x=x)["out"], expected, atol=1e-5)


def test_a_role_that_no_component_plays_is_not_provided() -> None:
    with pytest.raises(NotProvided):
        TorchModuleImplementation(GPT).build("swiglu", {"d_model": 6, "d_ff": 8})


def verdicts(cls: Callable[..., nn.Module], *roles: str) -> dict[str, Verdict]:
    implementation = TorchModuleImplementation(cls)
    checks = [check for check in CHECKS.values() if {*roles} & {*check.roles}]
    return {check.claim: run_check(check, implementation, "quick").verdict for check in checks}


@pytest.mark.parametrize(
    "cls",
    [models.LanguageModel, models.SteppedLanguageModel, models.LargerEpsLanguageModel],
    ids=lambda cls: cls.__name__,
)
def test_a_language_model_keeps_its_claims_with_and_without_its_cache(cls: type[nn.Module]) -> None:
    found = verdicts(cls, "decoder_lm", "cached_decoder_lm")
    assert not [claim for claim, verdict in found.items() if verdict in BROKEN]
    for claim in ("decoder-lm-formula", "decoder-lm-is-causal", "cached-steps-equal-the-full-pass"):
        assert found[claim] is Verdict.PASS
    handed_on = found["cache-holds-the-shared-heads-only"] is Verdict.PASS
    assert handed_on == (cls is not models.SteppedLanguageModel)


@pytest.mark.slow
def test_a_cache_that_forgets_is_seen() -> None:
    found = verdicts(models.ForgetfulLanguageModel, "cached_decoder_lm")
    assert found["cached-steps-equal-the-full-pass"] is Verdict.FAIL


def test_layers_of_wrapped_sublayers_are_tested_in_widths_that_the_model_is_built_in() -> None:
    found = verdicts(models.WrappedEncoder, "encoder_layer")
    assert not [claim for claim, verdict in found.items() if verdict in BROKEN]
    for claim in ("pre-norm-encoder-layer-formula", "encoder-layer-sees-the-whole-input", "residual-adds-the-sublayer"):
        assert found[claim] is Verdict.PASS


def test_sinusoids_are_found_by_their_name() -> None:
    assert "sinusoidal_positions" in TorchModuleImplementation(models.WrappedEncoder).roles


def test_an_odd_width_that_a_component_refuses_is_refused_by_the_model() -> None:
    found = verdicts(models.WrappedEncoder, "sinusoidal_positions")
    assert found["odd-width-is-exact-or-refused"] is Verdict.PASS


def test_dropout_that_the_model_does_not_hand_on_is_set_on_its_part() -> None:
    implementation = TorchModuleImplementation(models.WrappedEncoder)
    for rate in (0.0, 0.4):
        subject = implementation.build("multi_head_attention", {"d_model": 12, "n_heads": 3, "dropout": rate})
        assert subject.module.dropout.p == rate


class Tagger(nn.Module):
    """An encoder of torch, whose attention keeps the rate of its dropout as a plain number, and no option for it."""

    def __init__(self, vocab_size: int = 50, hidden: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, hidden)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(hidden, heads, 24, batch_first=True), 2)

    def forward(self, ids: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        return self.encoder(self.words(ids), src_key_padding_mask=padding)


def test_a_rate_of_dropout_that_is_a_plain_number_is_switched_off() -> None:
    implementation = TorchModuleImplementation(Tagger)
    assert Tagger().encoder.layers[0].self_attn.dropout == 0.1
    assert implementation.build("multi_head_attention", {"d_model": 12, "n_heads": 3}).module.dropout == 0.0
    found = run_check(CHECKS["multi-head-obeys-both-masks"], implementation, "default")
    assert found.verdict is Verdict.PASS


@pytest.mark.slow
def test_an_encoder_decoder_keeps_its_claims() -> None:
    found = verdicts(models.Translator, "encoder_decoder")
    assert {claim for claim, verdict in found.items() if verdict is not Verdict.PASS} == set()


@pytest.mark.slow
def test_an_overwritten_padding_row_is_seen() -> None:
    found = verdicts(models.OverwrittenPadding, "encoder_decoder")
    assert {claim for claim, verdict in found.items() if verdict is not Verdict.PASS} == {"pad-row-starts-at-zero"}


def test_the_class_alone_serves_where_the_model_has_no_option() -> None:
    subject = TorchModuleImplementation(GPT).build("layer_norm", {"d_model": 5, "eps": 0.5})
    x = np.ones((1, 1, 5)) * np.arange(5)
    np.testing.assert_allclose(subject(x=x)["out"], (x - 2.0) / np.sqrt(2.0 + 0.5), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (models.MaskedByItsCallerLanguageModel, "without mask MaskedByItsCallerLanguageModel hides not what"),
        (models.MaskedByItsCaller, "without tgt_mask, src_padding_mask MaskedByItsCaller hides not what"),
        (models.PreNormTranslator, "another design than the documents"),
        (models.SequenceFirstTranslator, "another design than the documents"),
    ],
)
def test_a_model_of_another_design_or_that_leaves_masks_to_its_caller_is_not_tested_as_a_whole(
    cls: type[nn.Module], why: str
) -> None:
    found = verdicts(cls, "decoder_lm", "encoder_decoder")
    assert set(found.values()) == {Verdict.NOT_PROVIDED}
    assert [line for line in TorchModuleImplementation(cls).unresolved if "  the whole as" in line and why in line]


def test_a_model_that_decides_the_width_of_its_gated_network_keeps_its_claims() -> None:
    found = verdicts(models.MultipliedLanguageModel, "decoder_lm", "swiglu")
    assert not [claim for claim, verdict in found.items() if verdict in BROKEN]
    for claim in ("decoder-lm-formula", "decoder-lm-is-causal", "swiglu-formula"):
        assert found[claim] is Verdict.PASS


def test_more_positions_than_a_model_without_an_option_for_them_has_are_not_provided() -> None:
    implementation = TorchModuleImplementation(models.EncoderOfFixedLength)
    implementation.build("sinusoidal_positions", {"d_model": 6, "max_len": 3000})  # the class alone has the option
    found = implementation.resolutions["sinusoidal_positions"]
    with pytest.raises(NotProvided, match="does not serve 3000 positions"):
        found.build({"d_model": 6, "max_len": 3000})
    claims = verdicts(models.EncoderOfFixedLength, "sinusoidal_positions")
    assert claims["sinusoid-is-defined-at-any-length"] is Verdict.PASS


def said(cls: type[nn.Module], subject: str) -> list[str]:
    """The lines about a subject, doubtful ones with their mark."""
    return [line for line in TorchModuleImplementation(cls).notes if line[2:].startswith(f"{subject}:")]


def test_the_mistake_is_named_where_a_mutant_computes_the_same() -> None:
    (line,) = said(models.RestartedLanguageModel, "looks like")
    assert line.startswith("! looks like: Every call rotates from position 0.   (equals this mistake to ")
    assert said(models.SteppedLanguageModel, "looks like") == []


@pytest.mark.slow
def test_a_causal_mask_that_is_off_by_one_is_named() -> None:
    for cls in (models.CausalAttention, models.SwitchedAttention):
        (line,) = said(cls, "causal")
        assert line.startswith("  causal: True")
    (line,) = said(models.MaskOffByOne, "causal")
    assert line == "! causal: but for the next position   (changing it changes an output)"
    assert verdicts(models.MaskOffByOne, "multi_head_attention")["multi-head-causality-holds-in-every-head"] in BROKEN


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [
        (models.CodesAlongTheBatch, Verdict.FAIL),
        (models.CodesTurnedAround, Verdict.PASS),
        (models.CodesTurnedAroundBehindMasks, Verdict.PASS),
    ],
)
def test_codes_are_laid_out_as_the_attention_of_the_model(cls: type[nn.Module], verdict: Verdict) -> None:
    assert verdicts(cls, "sinusoidal_positions")["positions-run-along-the-sequence"] is verdict


def test_a_component_that_raises_in_its_role_is_doubtful() -> None:
    doubts = [
        line for line in TorchModuleImplementation(models.ExchangedDecoder).notes if line.startswith("! layers.0")
    ]
    assert len(doubts) == 1
    assert "running ExchangedDecoderLayer as decoder_layer raised RuntimeError" in doubts[0]


@pytest.mark.slow
@pytest.mark.parametrize("function", [models.make_embedded, models.make_from_options])
def test_a_function_that_makes_a_model_is_tested_like_a_class(function: Callable[..., nn.Module]) -> None:
    found = verdicts(function, "multi_head_attention", "sinusoidal_positions")
    assert not [claim for claim, verdict in found.items() if verdict in BROKEN]
    for claim in ("multi-head-formula", "sinusoid-formula", "fresh-projections-are-random-and-independent"):
        assert found[claim] is Verdict.PASS
    alone = verdicts(models.ClonedAttention, "multi_head_attention")
    assert alone["fresh-projections-are-random-and-independent"] is Verdict.FAIL


def test_a_function_that_makes_a_component_is_tested_like_its_class() -> None:
    implementation = TorchModuleImplementation(models.make_attention)
    assert implementation.roles == ("multi_head_attention",)
    assert "causal: True" in implementation.describe()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (models.make_pair, "returns tuple, which is no nn.Module"),
        (models.make_nothing, "takes no size of a module"),
        (models.split, "needs x, whose meaning is unknown"),
    ],
)
def test_a_function_that_makes_no_module_is_unresolved_with_what_to_write(
    function: Callable[..., object], says: str
) -> None:
    with pytest.raises(Unresolved, match=f"{function.__name__} is a function that {says}: write one around it"):
        TorchModuleImplementation(function)


SIZES = {name: value for name, value in vars(lecture).items() if isinstance(value, (int, float))}


@pytest.mark.slow
@pytest.mark.parametrize("cls", [lecture.Lecture, lecture.FusedLecture, lecture.Book], ids=lambda cls: cls.__name__)
def test_sizes_are_constants_of_the_file_or_in_a_dict(cls: type[nn.Module]) -> None:
    found = verdicts(cls, "multi_head_attention", "feed_forward", "encoder_layer", "layer_norm", "self_attention")
    assert not [claim for claim, verdict in found.items() if verdict in BROKEN]
    for claim in ("multi-head-formula", "pre-norm-encoder-layer-formula", "layer-norm-formula"):
        assert found[claim] is Verdict.PASS
    assert {name: vars(lecture)[name] for name in SIZES} == SIZES
    (line,) = [line for line in TorchModuleImplementation(cls).unresolved if "decoder_lm" in line]
    assert "decoder_lm has SwiGLU in its layers" in line


def test_constants_are_read_by_the_class_and_by_what_it_uses_of_the_file() -> None:
    read = {cls: set(Constructor(cls).constants) for cls in (lecture.Head, lecture.FusedHeads, lecture.HeadsOfBook)}
    assert read[lecture.Head] == {"d_model", "max_len", "dropout"}
    assert read[lecture.FusedHeads] == {"d_model", "n_heads", "dropout"}
    assert read[lecture.HeadsOfBook] == set()


@pytest.mark.parametrize("cls", [lecture.NetworkOfBook, lecture.BlockOfBook])
def test_a_config_has_the_options_that_are_read_of_it(cls: type[nn.Module]) -> None:
    (implementation,) = TorchModuleImplementation(cls).resolutions.values()
    shared = {"d_model"} if cls is lecture.NetworkOfBook else {"d_model", "max_len", "n_heads", "dropout", "bias"}
    assert implementation.constructor.known == shared
    assert implementation.fits


def test_one_head_is_self_attention_behind_a_causal_mask() -> None:
    claim = "self-attention-projects-one-sequence-three-times"
    for cls in (lecture.Head, lecture.Lecture):
        implementation = TorchModuleImplementation(cls)
        assert not [fact for fact in implementation.inference if fact.doubtful]
        assert run_check(CHECKS[claim], implementation, "quick").verdict is Verdict.PASS


def test_a_layer_that_decides_its_number_of_heads_is_unresolved() -> None:
    with pytest.raises(Unresolved, match="SixHeads decides its number of heads by itself: write"):
        TorchModuleImplementation(lecture.SixHeads)


def test_a_model_that_generates_and_looks_ahead_is_doubtful() -> None:
    doubt = "! the whole: it generates, and a token changes what is said before it"
    assert doubt in TorchModuleImplementation(lecture.LooksAhead).notes
    assert doubt not in TorchModuleImplementation(lecture.GeneratingBook).notes


def test_a_component_that_gives_nan_is_tested_and_fails() -> None:
    assert said(lecture.HidesItself, "output")[0] == "! output: NaN   (of random inputs, no key hidden)"
    claim = "multi-head-formula"
    assert run_check(CHECKS[claim], TorchModuleImplementation(lecture.HidesItself), "quick").verdict is Verdict.FAIL
