"""Components as they run: how they are called, and when a run of one counts as a test of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import parse  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.calling_parts import part_calling  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.adapters.whole.names import FAMILIES, families_of  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None = None) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores if hidden is None else scores.masked_fill(hidden, -1e9)).softmax(-1) @ v


class HeadwiseAttention(nn.Module):
    """Of vectors that are split into heads already."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, heads, length, width = q.shape
        return attend(q, k, v).transpose(1, 2).reshape(batch, length, heads * width)


class CrossAttention(nn.Module):
    def __init__(self, dim: int = 12, context_dim: int = 20) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(dim, 8), nn.Linear(context_dim, 16)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return attend(self.q(x), *self.kv(context).chunk(2, -1))


class TurnedAttention(nn.Module):
    """Its caller hands it the numbers by which it turns queries and keys."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x: Tensor, freqs_cis: Tensor) -> Tensor:
        def turn(y: Tensor) -> Tensor:
            pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2).contiguous())
            return torch.view_as_real(pairs * freqs_cis).flatten(-2)

        return attend(turn(self.q(x)), turn(self.k(x)), self.v(x))


class CosineAttention(TurnedAttention):
    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # type: ignore[override]
        def turn(y: Tensor) -> Tensor:
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat([-second, first], -1) * sin

        return attend(turn(self.q(x)), turn(self.k(x)), self.v(x))


class PairedAttention(TurnedAttention):
    """Each head is turned apart, by pairs of (cosine, sine)."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__(dim)
        self.n_head = 2

    def forward(self, x: Tensor, rope: Tensor) -> Tensor:  # type: ignore[override]
        batch, length, width = x.shape
        heads = [map_(x).view(batch, length, self.n_head, -1) for map_ in (self.q, self.k, self.v)]
        unit = torch.view_as_complex(rope.view(1, length, 1, width // self.n_head // 2, 2))
        pairs = [torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2)) for y in heads[:2]]
        q, k = (torch.view_as_real(y * unit).flatten(3).transpose(1, 2) for y in pairs)
        return attend(q, k, heads[2].transpose(1, 2)).transpose(1, 2).reshape(x.shape)


class ConditionedAttention(nn.Module):
    """One vector for the whole sequence says how its input is scaled."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.maps, self.condition = nn.Linear(width, 3 * width), nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        scale, *_, shift = self.condition(c).chunk(6, dim=1)
        return attend(*self.maps(x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)).chunk(3, -1))


class WideConvolution(nn.Module):
    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.map = nn.Conv1d(channels, channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x)


class SequenceFirstAttention(nn.Module):
    def __init__(self, d_model: int = 12) -> None:
        super().__init__()
        self.maps = nn.Linear(d_model, 3 * d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.maps(x.transpose(0, 1)).chunk(3, -1)
        return attend(q, k, v).transpose(0, 1)


class HiddenAttention(nn.Module):
    """Its mask is required, and True hides."""

    def __init__(self, d_model: int = 12) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return attend(self.q(x), self.k(x), self.v(x), mask.bool())


class TokenCodes(nn.Module):
    def __init__(self, vocab: int = 19, width: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(16, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))


class PlainNorm(nn.Module):
    def __init__(self, features: int = 10) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, z: Tensor) -> Tensor:
        return self.gain * z / (z.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize(
    ("cls", "shapes"),
    [
        (HeadwiseAttention, [(4, None, 32)] * 3),
        (CrossAttention, [(None, 12), (None, 20)]),
        (TurnedAttention, [(None, 16)]),
        (CosineAttention, [(None, 16)]),
        (PairedAttention, [(None, 16)]),
        (ConditionedAttention, [(None, 12), (12,)]),
        (WideConvolution, [(8, None)]),
        (SequenceFirstAttention, [(None, 12)]),
        (HiddenAttention, [(None, 12)]),
        (PlainNorm, [(None, 10)]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_numbers_are_handed_in_the_shapes_that_a_component_takes(cls: type[nn.Module], shapes: list[Any]) -> None:
    torch.manual_seed(0)
    calling = part_calling(cls())
    assert [one.shape for one in calling.inputs] == shapes
    assert calling.batch_first is (cls is not SequenceFirstAttention)


def test_a_required_mask_hides_nothing() -> None:
    torch.manual_seed(0)
    (mask,) = part_calling(HiddenAttention()).masks
    assert mask.encoding == "bool, True = hidden"
    assert not mask.make({"x": torch.zeros(2, 6, 12)}).any()


def test_tokens_go_in_where_a_table_reads_them() -> None:
    (ids,) = part_calling(TokenCodes()).inputs
    assert (ids.vocab, ids.shape) == (19, ())


class Unknowable(nn.Module):
    def forward(self, recipe: Any) -> Tensor:
        raise RuntimeError("no such recipe")


def test_what_cannot_be_called_is_refused_with_what_it_said() -> None:
    with pytest.raises(Unresolved, match=r"Unknowable cannot be called: RuntimeError: no such recipe at .*test_parts"):
        part_calling(Unknowable())


def pointed(cls: type[nn.Module]) -> PointedImplementation:
    return PointedImplementation(cls, parse(f"{__name__}:{cls.__name__}"))


@pytest.mark.parametrize("cls", [HeadwiseAttention, CrossAttention, CosineAttention, PlainNorm])
def test_a_component_that_plays_no_role_is_tested_as_it_runs(cls: type[nn.Module]) -> None:
    found = pointed(cls)
    assert (found.kind, found.untested) == (None, [])
    claims = ["model-evaluation-repeats-itself", "model-rows-of-a-batch-are-apart"]
    claims += ["norm-is-its-formula" if cls is PlainNorm else "attention-scale-is-one-over-sqrt-d-head"]
    assert {claim: run_check(CHECKS[claim], found, "quick").verdict for claim in claims} == dict.fromkeys(
        claims, Verdict.PASS
    )


class MeanAttention(nn.Module):
    """It is called attention, and there is none in it."""

    def __init__(self, dim: int = 12) -> None:
        super().__init__()
        self.map = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x) + x.mean(1, keepdim=True)


def test_what_a_run_does_not_show_is_said_to_be_untested() -> None:
    (said,) = pointed(MeanAttention).untested
    assert "MeanAttention" in said


class MixingNorm(PlainNorm):
    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z) + z.mean(0)


def test_a_component_whose_rows_see_each_other_fails() -> None:
    result = run_check(CHECKS["model-rows-of-a-batch-are-apart"], pointed(MixingNorm), "quick")
    assert result.verdict is Verdict.FAIL


class InPlaceNorm(PlainNorm):
    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z.mul_(2.0))


def test_an_input_that_a_component_changes_in_place_is_a_note() -> None:
    result = run_check(CHECKS["model-leaves-its-inputs-alone"], pointed(InPlaceNorm), "quick")
    assert result.verdict is Verdict.NOTE


class InPlaceBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        x += self.up(self.down(x).relu())  # writes
        return x


class InPlaceTagger(nn.Module):
    """A part of it writes over the numbers that it was handed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(InPlaceBlock() for _ in range(2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_the_line_that_writes_over_an_input_is_named() -> None:
    result = run_check(CHECKS["model-leaves-its-inputs-alone"], pointed(InPlaceTagger), "quick")
    assert result.verdict is Verdict.FAIL
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[int(result.place.split(":")[1]) - 1]
    assert line.endswith("# writes")


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("PreNorm", {"norm"}),
        ("LocalMHA", {"attention"}),
        ("FeedForwardNetwork", {"feed-forward"}),
        ("PositionwiseFeedForward", {"feed-forward"}),
        ("PositionWiseFCNetwork", {"feed-forward"}),
        ("PositionalEncoder", {"positions"}),
        ("MLP_Head", {*FAMILIES, "modules"}),
        ("TransformerEncoderLayer", FAMILIES),
        ("DropPath", {*FAMILIES, "modules"}),
        ("ConvBlock", {*FAMILIES, "modules"}),
        ("TransformerOutputLayer", {*FAMILIES, "modules"}),
    ],
)
def test_the_name_of_a_component_says_what_its_run_must_show(name: str, families: set[str]) -> None:
    assert families_of(name) == families


class CyclicShift(nn.Module):
    """Its name promises no formula: what holds of any module is its core."""

    def __init__(self, displacement: int = 1) -> None:
        super().__init__()
        self.displacement = displacement

    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, self.displacement, dims=1)


class Wrapped(nn.Module):
    """Its own name promises nothing; that of its part does, and a run does not show it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.mix = MeanAttention(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x)


class CyclicShiftThatForgets(CyclicShift):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))


def test_a_component_without_parameters_has_no_piece_that_nothing_reads() -> None:
    result = run_check(CHECKS["model-every-piece-of-a-result-is-read"], pointed(CyclicShift), "quick")
    assert result.verdict is Verdict.NOT_PROVIDED


def test_of_a_component_without_a_known_formula_what_holds_of_any_module_is_the_core() -> None:
    assert pointed(CyclicShift).untested == []
    assert pointed(Wrapped).untested != []
    result = run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed(CyclicShiftThatForgets), "quick")
    assert result.verdict is Verdict.FAIL


class OneHead(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, head) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return attend(self.q(x), self.k(x), self.v(x))


class AttentionOfHeads(nn.Module):
    """Its heads are modules, and their results are put side by side."""

    def __init__(self, width: int = 12, n_heads: int = 3) -> None:
        super().__init__()
        self.heads = nn.ModuleList(OneHead(width, width // n_heads) for _ in range(n_heads))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([head(x) for head in self.heads], dim=-1))


class ShiftedHeads(AttentionOfHeads):
    """It reads the heads' vectors in another order than it wrote them."""

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([head(x) for head in self.heads], dim=-1)
        return self.out(joined.transpose(1, 2).reshape(joined.shape))


@pytest.mark.parametrize(("cls", "verdict"), [(AttentionOfHeads, Verdict.PASS), (ShiftedHeads, Verdict.FAIL)])
def test_heads_that_are_modules_are_put_side_by_side(cls: type[nn.Module], verdict: Verdict) -> None:
    assert run_check(CHECKS["attention-merges-heads-of-one-token"], pointed(cls), "quick").verdict is verdict


class SkippedPath(nn.Module):
    """It drops whole rows by numbers of its own; `ignored` forgets its rate."""

    ignored = False

    def __init__(self, drop_prob: float = 0.2) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if self.ignored or not self.training or not self.drop_prob:
            return x * 1.0
        kept = torch.rand(x.shape[0], 1, 1, dtype=x.dtype) >= self.drop_prob
        return x * kept / (1 - self.drop_prob)


class ForgottenPath(SkippedPath):
    ignored = True

    def __init__(self, drop_prob: float = 0.2) -> None:
        super().__init__(drop_prob)


@pytest.mark.parametrize(("cls", "verdict"), [(SkippedPath, Verdict.NOTE), (ForgottenPath, Verdict.FAIL)])
def test_a_rate_reaches_what_is_dropped_by_drawn_numbers(cls: type[nn.Module], verdict: Verdict) -> None:
    assert run_check(CHECKS["model-dropout-is-what-its-option-says"], pointed(cls), "quick").verdict is verdict


class Segments(nn.Module):
    """Its caller hands it no second segment: every token is of segment 0, which is padding in its table."""

    def __init__(self, vocab: int = 19, width: int = 8, second: bool = False) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(vocab, width)
        self.segment_embedding = nn.Embedding(3, width, padding_idx=0)

    def forward(self, tokens: Tensor, segment_info: Tensor) -> Tensor:
        return self.word_embedding(tokens) + self.segment_embedding(segment_info)


class ForgottenTable(Segments):
    def forward(self, tokens: Tensor, segment_info: Tensor) -> Tensor:
        return self.word_embedding(tokens)


@pytest.mark.parametrize(("cls", "verdict"), [(Segments, Verdict.PASS), (ForgottenTable, Verdict.FAIL)])
def test_a_table_of_which_only_the_padding_is_read_need_not_learn(cls: type[nn.Module], verdict: Verdict) -> None:
    assert run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed(cls), "quick").verdict is verdict


class GatedHeads(nn.Module):
    """Attention with a function behind each projection: another design, and no mistake."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def split(x: Tensor) -> Tensor:
            return torch.nn.functional.elu(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

        query, key, value = split(self.q(q)), split(self.k(k)), split(self.v(v))
        weights = (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5).softmax(-1)
        return torch.nn.functional.elu(self.o((weights @ value).transpose(1, 2).flatten(2)))


class PlainHeads(nn.Module):
    """Multi-head attention that forgets the scale: a known mistake in the formula."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

        query, key, value = split(self.q(q)), split(self.k(k)), split(self.v(v))
        return self.o(((query @ key.transpose(-1, -2)).softmax(-1) @ value).transpose(1, 2).flatten(2))


def test_another_design_is_not_blamed_by_the_formula_of_a_role() -> None:
    found = pointed(GatedHeads)
    assert found.untested == []
    asked = [check for check in CHECKS.values() if {"multi_head_attention", "module"} & {*check.roles}]
    verdicts = {check.claim: run_check(check, found, "quick").verdict for check in asked}
    assert not {Verdict.FAIL, Verdict.ERROR} & {*verdicts.values()}
    assert verdicts["attention-scale-is-one-over-sqrt-d-head"] is Verdict.PASS


def test_a_known_mistake_in_the_formula_is_blamed_in_its_role() -> None:
    result = run_check(CHECKS["multi-head-scales-by-the-width-of-one-head"], pointed(PlainHeads), "quick")
    assert result.verdict is Verdict.FAIL


class ManyKinks(nn.Module):
    """A triangle wave so steep that a small step meets many of its kinks."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return ((1e6 * self.gain * x) % 2 - 1).abs()


class DetachedKinks(ManyKinks):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1e9 * self.gain.detach() * x


@pytest.mark.parametrize(("cls", "verdict"), [(ManyKinks, Verdict.PASS), (DetachedKinks, Verdict.FAIL)])
def test_kinks_are_no_wrong_gradient(cls: type[nn.Module], verdict: Verdict) -> None:
    result = run_check(CHECKS["model-gradients-agree-with-differences"], pointed(cls), "quick")
    assert result.verdict is verdict


def test_a_component_is_not_handed_less_than_it_takes() -> None:
    result = run_check(CHECKS["model-keeps-no-state-between-calls"], pointed(WideConvolution), "quick")
    assert result.verdict is Verdict.PASS


class OneTokenAttention(nn.Module):
    """It runs on one vector for a sentence, in which there is nothing to attend to."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ValueError("one vector for each sentence")
        return self.map(x)


def test_an_attention_is_not_called_without_a_sequence() -> None:
    with pytest.raises(Unresolved, match="one vector for each sentence"):
        part_calling(OneTokenAttention())
