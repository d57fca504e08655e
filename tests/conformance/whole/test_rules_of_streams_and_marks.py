"""Rules that right models need whose heads have matrices in one slab, whose blocks carry two streams, whose layers are
run again, or whose texts begin with a mark; beside each right model a real mistake of the same place."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, HEADS, VOCAB = 12, 3, 23
GRADIENT = "model-every-parameter-gets-a-gradient"


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- matrices of all heads in one slab


class SlabAttention(nn.Module):
    """A matrix (head, in, out) for queries, for keys and for values, each head applying its own to its part."""

    slabs = HEADS

    def __init__(self, emb: int = WIDTH, heads: int = HEADS):
        super().__init__()
        self.heads, narrow = heads, emb // heads
        self.mix, self.unify = nn.Linear(emb, emb, bias=False), nn.Linear(emb, emb)
        shape = (self.slabs, narrow, narrow)
        self.tokeys, self.toqueries, self.tovalues = (nn.Parameter(torch.randn(shape)) for _ in range(3))

    def forward(self, x):
        b, t, e = x.shape
        parts = self.mix(x).view(b, t, self.heads, e // self.heads)
        slabs = (w.expand(self.heads, -1, -1) for w in (self.toqueries, self.tokeys, self.tovalues))
        folded = [torch.einsum("bthk,hik->bthi", parts, slab).transpose(1, 2).flatten(0, 1) for slab in slabs]
        query, key, value = folded
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
        return self.unify((weights @ value).view(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, e))


class OneSlabAttention(SlabAttention):
    """One matrix (1, in, out), spread over the parts."""

    slabs = 1


@pytest.mark.parametrize(("cls", "verdict"), [(SlabAttention, "PASS"), (OneSlabAttention, "FAIL")])
def test_a_slab_of_matrices_holds_one_for_each_head(cls, verdict):
    assert result(cls, "attention-heads-have-their-own-projections").verdict == verdict


# --- a head that needs labels


class Classifier(nn.Module):
    def __init__(self, n_words=VOCAB, next_words=True):
        super().__init__()
        self.words, self.classes = nn.Embedding(n_words, WIDTH), nn.Linear(WIDTH, 5)
        self.next_words = nn.Linear(WIDTH, n_words) if next_words else None

    def forward(self, ids, next_ids=None):
        x = self.words(ids).tanh()
        loss = None
        if self.next_words is not None and next_ids is not None:
            loss = nn.functional.cross_entropy(self.next_words(x).transpose(1, 2), next_ids)
        return {"logits": self.classes(x.mean(1)), "loss": loss}


class ClassifierThatForgets(Classifier):
    def forward(self, ids, next_ids=None):
        x = self.words(ids).tanh()
        return {"logits": self.classes(x.mean(1)), "asked": self.next_words is not None}


@pytest.mark.parametrize(("cls", "verdict"), [(Classifier, "PASS"), (ClassifierThatForgets, "FAIL")])
def test_a_head_that_may_be_none_is_read_where_its_labels_are_handed_in(cls, verdict):
    assert result(cls, GRADIENT).verdict == verdict


# --- two streams, of which a second head reads the last


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.whole, self.spread = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, whole):
        x = (x + self.words(x) + self.spread(whole)[:, None]).tanh()
        return x, (whole + self.whole(x.mean(1))).tanh()


class TwoStreams(nn.Module):
    """The words of the answer read the stream of the whole text up to the last block, a second head after it."""

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.start = nn.Embedding(n_words, WIDTH), nn.Parameter(torch.randn(WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.leave, self.of_whole = nn.Linear(WIDTH, n_words), nn.Linear(WIDTH, 4)

    def through(self, x, whole):
        for block in self.blocks:
            x, whole = block(x, whole)
        return x, whole

    def forward(self, ids):
        x, whole = self.through(self.words(ids), self.start.expand(len(ids), -1))
        return self.leave(x), self.of_whole(whole)


class TwoStreamsOneLost(TwoStreams):
    """The answer is made before the last block, which only the second head reads."""

    def through(self, x, whole):
        for block in self.blocks:
            before, (x, whole) = x, block(x, whole)
        return before, whole


@pytest.mark.parametrize(("cls", "verdict"), [(TwoStreams, "PASS"), (TwoStreamsOneLost, "FAIL")])
def test_a_second_head_may_read_what_the_answer_leaves_of_the_last_block(cls, verdict):
    assert result(cls, GRADIENT).verdict == verdict


# --- layers that are run again on the way back


class RunAgain(nn.Module):
    """Numbers in: checkpoint gives no gradient where nothing that it reads wants one, as an embedding's answer does."""

    def __init__(self, width: int = WIDTH):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(2))

    def given(self, x):
        return x

    def forward(self, x):
        """x (B, T, width)"""
        x = self.given(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x


class RunAgainFromNothing(RunAgain):
    def given(self, x):
        return x.detach()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(("cls", "verdict"), [(RunAgain, "NOTE"), (RunAgainFromNothing, "FAIL")])
def test_layers_that_are_run_again_are_taught_by_what_stands_before(cls, verdict):
    assert result(cls, GRADIENT).verdict == verdict


# --- words beyond the vocabulary, and a mark of the start


class Pooled(nn.Module):
    """Pools what a score chooses; ids beyond the vocabulary are read as its last word."""

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.score, self.leave = nn.Embedding(n_words, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 5)

    def counted(self, ids):
        return torch.ones_like(ids)

    def forward(self, ids):
        x = self.words(ids.clamp(max=self.words.num_embeddings - 1))
        weights = self.score(x).masked_fill(self.counted(ids)[..., None] == 0, -torch.inf).softmax(1)
        return self.leave((weights * x).sum(1))


class PooledAloud(Pooled):
    def forward(self, ids):
        if int(ids.max()) >= self.words.num_embeddings:
            print("Warning: clamped ids to the valid range")
        return super().forward(ids)


@pytest.mark.parametrize(("cls", "verdict"), [(PooledAloud, "NOTE"), (Pooled, "FAIL")])
def test_words_beyond_the_vocabulary_may_be_read_as_its_last_where_that_is_said(cls, verdict):
    assert result(cls, "model-refuses-tokens-outside-its-vocabulary").verdict == verdict


class AfterTheMark(Pooled):
    """Pools over all tokens but the first, a mark of the start."""

    def counted(self, ids):
        mask = torch.ones_like(ids)
        mask[:, 0] = 0
        return mask


class AsVariance(Pooled):
    """Divides by the number of tokens less one."""

    def forward(self, ids):
        return super().forward(ids) / (self.score.weight.new_tensor(ids.shape[1]) - 1)


@pytest.mark.parametrize(("cls", "verdict"), [(AfterTheMark, "NOTE"), (AsVariance, "FAIL")])
def test_a_mark_of_the_start_alone_is_no_text(cls, verdict):
    assert result(cls, "model-takes-one-token-and-its-longest-input").verdict == verdict


# --- half steps: the factor stands on what a network gives


class HalfSteps(nn.Module):
    """A Conformer's block: half a network, attention, half a network."""

    def __init__(self):
        super().__init__()
        self.first, self.last = (
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 24), nn.SiLU(), nn.Linear(24, WIDTH)) for _ in range(2)
        )
        self.norm, self.attn = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def half(self, x):
        return x + 0.5 * self.first(x)

    def forward(self, x):
        x = self.half(x)
        y = self.norm(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + 0.5 * self.last(x)


class HalfOfTheStream(HalfSteps):
    def half(self, x):
        return 0.5 * x + self.first(x)


class Listener(nn.Module):
    block = HalfSteps

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, WIDTH)
        self.blocks, self.out = nn.ModuleList(self.block() for _ in range(2)), nn.Linear(WIDTH, 5)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean(1))


class ListenerOfHalfStreams(Listener):
    block = HalfOfTheStream


@pytest.mark.parametrize(("cls", "expected"), [(Listener, "PASS"), (ListenerOfHalfStreams, "FAIL")])
def test_half_steps_halve_what_a_network_gives(cls, expected):
    assert result(cls, "sublayers-add-their-input-once").verdict.name == expected
