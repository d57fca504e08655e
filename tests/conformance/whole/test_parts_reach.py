"""Components of odd ways of writing are tested all the same; what their own words say is no mistake of theirs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from test_parts import pointed  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.calling_parts import part_calling  # noqa: E402
from conformance.adapters.whole.told import used_as_masks  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402


def verdict(claim: str, cls: type[nn.Module]) -> Verdict:
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict


class SelfAttention(nn.Module):
    """A causal mask that is written into the scores by its indices, and a bias at the end only."""

    def __init__(self, emb: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.keys, self.queries, self.values = (nn.Linear(emb, emb, bias=False) for _ in range(3))
        self.unify = nn.Linear(emb, emb)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def scale(self, scores: Tensor, width: int) -> Tensor:
        return scores / width**0.5

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.split(f(x)) for f in (self.queries, self.keys, self.values))
        scores = self.scale(query @ key.mT, query.shape[-1])
        rows, columns = torch.triu_indices(*scores.shape[-2:], offset=1)
        scores[..., rows, columns] = float("-inf")
        return self.unify((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class SelfAttentionByLength(SelfAttention):
    def scale(self, scores: Tensor, width: int) -> Tensor:
        return scores / scores.shape[-1] ** 0.5


@pytest.mark.slow
def test_a_mask_that_is_written_into_the_scores_by_indices_is_followed() -> None:
    impl = pointed(SelfAttention)
    assert impl.untested == []
    assert "attention" in impl.running.inside().seen


def test_biases_of_some_projections_leave_the_claim_about_gradients_tested() -> None:
    assert verdict("multi-head-gradients-reach-every-projection", SelfAttention) is Verdict.PASS


def test_scores_that_are_divided_by_the_number_of_keys_are_a_known_mistake() -> None:
    impl = pointed(SelfAttentionByLength)
    assert impl.untested == []
    assert any("square root of the number of keys" in note for note in impl.notes)
    assert verdict("multi-head-scales-by-the-width-of-one-head", SelfAttentionByLength) is Verdict.FAIL


class NarrowAttention(nn.Module):
    def __init__(self, emb: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads, narrow = heads, emb // heads
        self.keys, self.queries, self.values = (nn.Linear(narrow, narrow, bias=False) for _ in range(3))
        self.unify = nn.Linear(emb, emb)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query, key, value = self.queries(x), self.keys(x), self.values(x)
        out = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1) @ value
        return self.unify(out.transpose(1, 2).flatten(2))


class ThriftyAttention(NarrowAttention):
    """Uses the same three matrices in each of its heads, which saves parameters."""


def test_one_matrix_for_all_heads_is_a_note_where_the_docstring_says_so() -> None:
    claim = "attention-heads-have-their-own-projections"
    assert verdict(claim, NarrowAttention) is Verdict.FAIL
    assert verdict(claim, ThriftyAttention) is Verdict.NOTE


class NewGELU(nn.Module):
    factor = 0.044715

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + self.factor * x**3)))


class GELU(NewGELU):
    factor = 0.44715


def test_a_class_that_is_called_an_activation_is_compared_with_it() -> None:
    claims = ("gelu-by-tanh-is-an-approximation", "gelu-uses-the-error-function")
    assert pointed(NewGELU).untested == []
    assert [verdict(claim, NewGELU) for claim in claims] == [Verdict.PASS, Verdict.NOT_PROVIDED]
    assert Verdict.FAIL in [verdict(claim, GELU) for claim in claims]


class PositionEmbedding(nn.Module):
    """A table of positions whose rows are called embeddings, as in nn.Embedding."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_embeddings, embedding_dim))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[: x.shape[1]]


def test_a_table_of_positions_may_be_called_one_of_embeddings() -> None:
    assert pointed(PositionEmbedding).parts.roles == ("learned_positions",)
    assert verdict("learned-position-is-a-table-row", PositionEmbedding) is Verdict.PASS


class LabelEmbedder(nn.Module):
    """Labels of which some are left out, when its caller says that it trains."""

    def __init__(self, classes: int, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.table, self.classes, self.dropout = nn.Embedding(classes + 1, width), classes, dropout

    def forward(self, labels: Tensor, train: bool) -> Tensor:
        if train and self.dropout > 0:
            labels = torch.where(torch.rand(labels.shape) < self.dropout, self.classes, labels)
        return self.table(labels)


@pytest.mark.slow
def test_what_drops_when_its_caller_says_that_it_trains_is_called_and_not_blamed() -> None:
    assert pointed(LabelEmbedder).untested == []
    assert verdict("model-evaluation-repeats-itself", LabelEmbedder) is Verdict.PASS
    assert verdict("model-dropout-is-what-its-option-says", LabelEmbedder) is Verdict.NOT_PROVIDED


class TurnedAttention(nn.Module):
    """Its caller computes the cosines and sines; their axis for heads is made here, or not."""

    def __init__(self, dim: int = 12, n_heads: int = 3, axis: bool = False) -> None:
        super().__init__()
        self.n_heads, self.head_dim, self.axis = n_heads, dim // n_heads, axis
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def forward(self, x: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = position_embeddings
        if self.axis:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        query, key = self.turned(query, cos, sin), self.turned(key, cos, sin)
        weights = (query @ key.mT / self.head_dim**0.5).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class TurnedAttentionOfRows(TurnedAttention):
    def __init__(self, dim: int = 12, n_heads: int = 3, axis: bool = True) -> None:
        super().__init__(dim, n_heads, axis)


@pytest.mark.parametrize("cls", [TurnedAttention, TurnedAttentionOfRows])
def test_what_is_unpacked_into_cosines_and_sines_is_a_pair_of_tables(cls: type[nn.Module]) -> None:
    calling = part_calling(cls())
    cos, sin = calling.arguments({"x": torch.zeros(3, 5, 12)})["position_embeddings"]
    assert cos.shape == sin.shape == ((1, 5, 4) if cls is TurnedAttentionOfRows else (5, 4))


class UnpacksItsRows(nn.Module):
    """Unpacks what it takes into two: a tensor of two rows runs, and one of three does not."""

    def __init__(self, d_model: int = 8) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x
        return torch.stack([self.proj(first), self.proj(second)])


def test_a_component_that_takes_two_rows_only_is_refused() -> None:
    with pytest.raises(Unresolved, match="takes 2 rows only"):
        part_calling(UnpacksItsRows())


class MasksOfTwoAxes(nn.Module):
    """Its mask is (Tq, Tk): two axes are put before it, and more of them are broadcast against others."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        b, n, d = query.shape
        q = self.q_proj(query).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = (
            f(x).view(b, -1, self.heads, d // self.heads).transpose(1, 2)
            for f, x in ((self.k_proj, key), (self.v_proj, value))
        )
        scores = q @ k.mT / (d // self.heads) ** 0.5
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask.unsqueeze(0).unsqueeze(1) == 0, -1e9)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n, d)[:b])


def test_a_mask_has_the_shapes_in_which_one_that_hides_nothing_changes_nothing() -> None:
    resolution = pointed(MasksOfTwoAxes).parts.resolutions["multi_head_attention"]
    (channel,) = resolution.conventions.channels
    assert channel.shapes == ("(Tq, Tk)",)


class PadsOfRows(nn.Module):
    """Time first, and beside it a mask whose name says nothing."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.mix = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        x = x.masked_fill(pad.t()[:, :, None], 0.0)
        return x + self.mix(x.permute(1, 2, 0)).permute(2, 0, 1)


class WordsOfRows(PadsOfRows):
    """What is compared with the padding are ids, and no mask."""

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        return x.masked_fill(pad.eq(0).t()[:, :, None], 0.0)


def test_what_forward_hands_on_as_a_mask_is_one() -> None:
    calling = part_calling(PadsOfRows())
    assert [mask.parameter for mask in calling.masks] == ["pad"]
    assert not calling.batch_first
    assert used_as_masks(WordsOfRows(), ["x", "pad"]) == []


class PlainScores(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.heads = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


class ScoresOfT5(PlainScores):
    def forward(self, x: Tensor) -> Tensor:
        # Raw scores, NO division by sqrt(d_kv): q begins smaller.
        return super().forward(x)


class ScaledBesideT5(PlainScores):
    """A bias as in T5 could be added here."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_who_says_that_scores_are_not_divided_is_not_blamed_by_the_formula() -> None:
    claim = "multi-head-scales-by-the-width-of-one-head"
    verdicts = [verdict(claim, cls) for cls in (PlainScores, ScoresOfT5, ScaledBesideT5)]
    assert verdicts == [Verdict.FAIL, Verdict.NOT_PROVIDED, Verdict.PASS]
