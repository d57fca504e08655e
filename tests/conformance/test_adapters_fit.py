"""What is said of modules that equal their formula in no layout: the mistake in the layout that shows it, or what is
missing."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
import torch_subjects.families  # noqa: E402, F401
from torch import nn  # noqa: E402
from torch_subjects import CORRECT, WRONG, split  # noqa: E402

from conformance.adapters.inference.calls import weights_of  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.inference.resolve import resolution_of  # noqa: E402


def said(cls: type[nn.Module], subject: str, role: str | None = None) -> list[str]:
    return [str(fact.value) for fact in resolution_of(cls, role).facts if fact.subject == subject]


def layout_of(cls: type[nn.Module]) -> str:
    (fact,) = [fact for fact in resolution_of(cls).facts if fact.subject == "layout"]
    assert fact.doubtful
    return fact.evidence


class UnscaledInTheSecondLayout(nn.Module):
    """Square matrices that are stored (out, in); the scores are not divided."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Parameter(torch.randn(d_model, d_model)) for _ in range(4))

    def heads_of(self, x):
        return split(x, self.heads)

    def forward(self, x):
        q, k, v = (self.heads_of(x @ w.T) for w in (self.W_Q, self.W_K, self.W_V))
        return (self.scores(q, k).softmax(-1) @ v).transpose(1, 2).flatten(2) @ self.W_O.T

    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


class SplitWithoutTransposing(UnscaledInTheSecondLayout):
    """Cuts heads across words."""

    def heads_of(self, x):
        return x.reshape(len(x), self.heads, x.shape[1], -1)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5


def test_a_mistake_is_recognised_in_the_layout_in_which_it_was_made() -> None:
    assert said(UnscaledInTheSecondLayout, "looks like") == ["The heads do not scale their scores."]
    assert said(UnscaledInTheSecondLayout, "layout") == ["separate projections"]


def test_a_missing_transpose_is_no_wrong_scale() -> None:
    (mistake,) = said(SplitWithoutTransposing, "looks like")
    assert mistake == "Heads are split by a reshape to (B, H, T, d_head), which cuts across words."


class SharedHeads(nn.Module):
    """One small matrix projects every head."""

    def __init__(self, embed_size, heads):
        super().__init__()
        self.heads, width = heads, embed_size // heads
        self.queries, self.keys, self.values = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, x):
        q, k, v = (f(split(x, self.heads)) for f in (self.queries, self.keys, self.values))
        return self.fc_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_numbers_that_are_missing_are_told() -> None:
    evidence = layout_of(SharedHeads)
    assert "not the formula in any layout: q_proj.weight has 36 numbers of 576" in evidence


class MaskedTheOtherWay(CORRECT["CachedHeads"]):  # type: ignore[misc]
    """Sees the later keys instead of the earlier ones: with one token at a time, the newest only."""

    def forward(self, x, past_kv=None):
        q, k, v = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        if past_kv is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(past_kv, (k, v), strict=True))
        visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(k.shape[2] - q.shape[2])
        out = F.scaled_dot_product_attention(q, k, v, visible)
        return self.dense(out.transpose(1, 2).flatten(2)), (k, v)


class NormOfTheSpread(nn.Module):
    """Divides by the deviation of a sample, d - 1."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model)), eps

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred / (x.var(-1, keepdim=True) + self.eps).sqrt() + self.bias


class LayerWithItsOwnNorms(CORRECT["EncoderBlock"]):  # type: ignore[misc]
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        for name, child in list(self.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(self, name, NormOfTheSpread(child.weight.numel()))


def test_a_mask_the_wrong_way_round_is_no_forgetful_cache() -> None:
    assert said(MaskedTheOtherWay, "looks like") == []
    assert "not the formula in any layout" in layout_of(MaskedTheOtherWay)


def test_a_mistake_that_only_its_norms_make_is_theirs() -> None:
    (norms,) = said(LayerWithItsOwnNorms, "norms")
    assert norms == "NormOfTheSpread"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Unscaled", "The heads do not scale their scores."),
        ("ScaledByModelWidth", "Each head divides by sqrt(d_model) instead of sqrt(d_head)."),
        ("KeysFromTheQueryProjection", "K is projected with W_Q."),
        ("GatedByGELU", "The gate passes through GELU (GeGLU)."),
    ],
)
def test_a_known_mistake_is_named(name: str, says: str) -> None:
    assert says in said(WRONG[name], "looks like")
    assert layout_of(WRONG[name]) == "in no layout the formula; in this one a known mistake"


def test_what_equals_nothing_is_said_to_equal_nothing() -> None:
    assert "not the formula in any layout: the nearest of 1 is" in layout_of(WRONG["MixedPositions"])


class OtherActivation(CORRECT["EncoderBlock"]):  # type: ignore[misc]
    """Post-norm, with a network that the documents do not know."""

    def forward(self, x, *masks, **named):
        return super().forward(x.sin(), *masks, **named)


def test_a_post_norm_layer_that_equals_no_formula_stays_a_post_norm_layer() -> None:
    found = resolution_of(OtherActivation)
    assert not found.fits
    assert found.fixed["norm_first"] is False


class NeedsAnEvenLength(CORRECT["SeparateProjections"]):  # type: ignore[misc]
    def forward(self, query, key, value, mask=None):
        assert key.shape[1] % 8 == 0, "lengths are multiples of 8"
        return super().forward(query, key, value, mask)


def test_what_cannot_be_run_in_its_role_is_unresolved_and_no_error_of_every_claim() -> None:
    with pytest.raises(Unresolved, match="lengths are multiples of 8"):
        resolution_of(NeedsAnEvenLength)


class TurnsPairsOfWords(nn.Module):
    def forward(self, x):
        raise ValueError("5 dimensions expected")


def test_a_rotation_that_takes_no_known_layout_says_why() -> None:
    with pytest.raises(Unresolved, match="5 dimensions expected"):
        resolution_of(TurnsPairsOfWords, "rope")


class Keeps(nn.Module):
    """Keeps one result of the shape of the weights, under a name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        setattr(self, name, torch.rand(2, 3, 4, 5))


@pytest.mark.parametrize(("name", "is_found"), [("attn", True), ("attention_weights", True), ("Y", False)])
def test_only_what_is_called_weights_is_taken_for_the_weights_that_a_module_keeps(name: str, is_found: bool) -> None:
    assert (weights_of((), Keeps(name), (2, 3, 4, 5)) is not None) is is_found


class CausalUnlessTold(nn.Module):
    """A head of a language model: keys of another text are an option, and so is to see the future."""

    def __init__(self, d_model, d_k):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d_model, d_k, bias=False) for _ in range(3))

    def forward(self, x, k=None, v=None, mask=1):
        q, k, v = self.query(x), self.key(x if k is None else k), self.value(x if v is None else v)
        scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        if mask == 1:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -float("inf"))
        return scores.softmax(-1) @ v


def test_what_hides_the_future_without_other_keys_is_causal_self_attention() -> None:
    found = resolution_of(CausalUnlessTold)
    assert found.fits
    assert found.conventions.causal


class DropsWeightsOnly(nn.Module):
    """A post-norm layer that writes its rates: 0 for what its sublayers give."""

    drops = 0.0

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, dropout, batch_first=True)
        self.dropout1 = nn.Dropout(dropout if self.drops is None else self.drops)
        self.dropout2 = nn.Dropout(dropout if self.drops is None else self.drops)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        x = self.norm1(x + self.dropout1(self.self_attn(x, x, x)[0]))
        return self.norm2(x + self.dropout2(self.linear2(self.linear1(x).relu())))


class DropsWhatSublayersGive(DropsWeightsOnly):
    drops = None


@pytest.mark.parametrize(("cls", "is_fixed"), [(DropsWeightsOnly, True), (DropsWhatSublayersGive, False)])
def test_a_rate_of_0_that_is_written_beside_a_sublayer_is_a_choice(cls: type[nn.Module], is_fixed: bool) -> None:
    assert ("dropout" in resolution_of(cls).fixed) is is_fixed


class FusedGate(nn.Module):
    """One map gives the gate and what it lets through; which half is which is a convention."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, 2 * d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(self.joined(gate, value))

    def joined(self, gate, value):
        return F.silu(gate) * value


class FusedValueFirst(FusedGate):
    """The second half is the gate."""

    def joined(self, gate, value):
        return gate * F.silu(value)


class FusedWithoutActivation(FusedGate):
    """The gate has no activation."""

    def joined(self, gate, value):
        return gate * value


def test_halves_of_one_map_may_stand_in_either_order() -> None:
    found = {cls: resolution_of(cls, "swiglu") for cls in (FusedGate, FusedValueFirst, FusedWithoutActivation)}
    assert [one.fits for one in found.values()] == [True, True, False]
    labels = [next(f.value for f in one.facts if f.subject == "layout") for one in found.values()]
    assert labels[:2] == ["fused [gate | up]", "fused [up | gate]"]
