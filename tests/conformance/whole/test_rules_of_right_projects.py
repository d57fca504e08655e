"""Rules that right projects taught: places by which vectors are chosen, masks of pictures, parts of graphs, settings
that a model never imports, models that answer for the last position only.

Beside what is right stands a real mistake of the same place, where there is one.
"""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.functions.implementation import FunctionImplementation  # noqa: E402
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.stated import Shape  # noqa: E402
from conformance.adapters.whole.beside import beside  # noqa: E402
from conformance.adapters.whole.calling import Calling, Input, RunTooLong  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.adapters.whole.told import Told, told_by_forward  # noqa: E402
from conformance.adapters.whole.trying import Trial  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

WIDTH, HEADS, VOCAB = 16, 2, 23


# --- words that are chosen, and pictures with padding


class ForChosenWords(nn.Module):
    """where: bool (B, T), the words to predict."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, ids, where):
        """where: bool (B, T), the words to predict"""
        h = self.table(ids)
        return self.out(h[where])


class Undocumented(ForChosenWords):
    """Its own words say nothing."""

    def forward(self, ids, chosen):
        h = self.table(ids)
        return self.out(h[chosen])


def test_the_word_before_a_shape_is_its_dtype():
    assert told_by_forward(ForChosenWords(), ["where"]) == {"where": Told(("B", "T"), "bool")}


def test_what_vectors_of_forward_are_indexed_by_says_where():
    assert told_by_forward(Undocumented(), ["chosen"]) == {"chosen": Told((), "bool")}


def test_an_input_of_padding_says_that_there_is_none():
    assert not beside(Shape("padding", (2, 8, 8), "bool")).any()
    assert beside(Shape("present", (2, 8, 8), "bool")).any()


# --- parts of graphs belong to as many rows as there are


class Nodes(nn.Module):
    """What the nodes of a graph (N, 8) say to each other along its edges."""

    def __init__(self):
        super().__init__()
        self.say = nn.Linear(8, 8)

    def forward(self, x, edges):
        """x: (nodes, 8); edges: (nodes, nodes) of bool"""
        assert edges.shape == (len(x), len(x))
        return x + torch.where(edges, 1.0, 0.0) @ self.say(x)


def test_what_stands_beside_a_graph_does_not_grow_with_it():
    """A calling that is taken runs with one sample more; without one there is a sentence."""
    try:
        calling = calling_of(Nodes())
    except Unresolved:
        return
    data = {calling.main.meaning: torch.randn(3, *(size or 6 for size in calling.main.shape))}
    calling(Nodes(), data)


class EachPixel(nn.Module):
    """Loops over numbers: a search that tries a picture would take hours."""

    def forward(self, x):
        return torch.stack([torch.tanh(one) for one in x.flatten()]).reshape(x.shape) @ torch.ones(9, 9)


def test_a_run_that_goes_on_is_given_up():
    trial = Trial(EachPixel(), until=time.process_time())
    with pytest.raises(RunTooLong, match="longer than the search"):
        trial.run(Calling((Input("x", "x", shape=(64, 64)),)), 0)


# --- the last position only


class Open(nn.Module):
    """Nothing in it hides the future, and its answer for the last position may see all."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(32, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, VOCAB)

    def mask(self, n):
        return None

    def forward(self, ids):
        x = (self.table(ids) + self.places(torch.arange(ids.shape[1]))).transpose(0, 1)
        return self.out(self.encoder(x, mask=self.mask(len(x)))[-1])


class LastOnly(Open):
    def mask(self, n):
        return torch.triu(torch.ones(n, n, dtype=torch.bool), 1)


class OneTooFar(Open):
    def mask(self, n):
        return torch.triu(torch.ones(n, n, dtype=torch.bool), 2)


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (LastOnly, "language-model-prefix-has-the-same-logits", Verdict.PASS),
        (OneTooFar, "language-model-is-causal", Verdict.FAIL),
        pytest.param(Open, "language-model-is-causal", Verdict.NOT_PROVIDED, marks=pytest.mark.slow),
    ],
)
def test_a_model_of_the_last_position_is_judged_by_what_its_last_layer_gives(cls, claim, verdict):
    of_words = PointedImplementation(cls, Specification("", cls.__module__, cls.__name__, "language_model"))
    found = run_check(CHECKS[claim], of_words, "quick")
    assert found.verdict is verdict, found


# --- losses and buckets with sizes of their own

PAD = 3


def smooth_loss(logits, gold, eps=0.1):
    """The smoothed loss over real words; the rest is spread over the words but the right one and the padding."""
    logp = logits.log_softmax(-1)
    spread = torch.full_like(logp, eps / (logits.shape[-1] - 2))
    spread[:, PAD] = 0.0
    spread.scatter_(1, gold[:, None], 1 - eps)
    return -(spread * logp).sum(-1)[gold != PAD].sum()


def test_a_loss_whose_padding_is_a_later_word_gets_so_many_words():
    found = FunctionImplementation(smooth_loss, Specification("", "", "smooth_loss"))
    told = run_check(CHECKS["cross-entropy-leaves-padding-out-of-the-mean"], found, "quick")
    assert told.verdict is Verdict.PASS, told


def bucket(relative, exact=16, half=32, far=512):
    """Signed distances in 64 buckets, exact up to 16: not those of T5."""
    n = relative.abs()
    log = exact + ((n.clamp(min=1) / exact).log() / torch.log(torch.tensor(far / exact)) * (half - exact)).long()
    return (relative > 0).long() * half + torch.where(n < exact, n, log.clamp(max=half - 1))


def bucket_of_t5(relative, exact=8, half=16, far=256):
    """Distances in 32 buckets, up to 256."""
    return bucket(relative, exact, half, far)


def bucket_without_signs(relative):
    """Distances in 32 buckets, and what lies before is as what lies behind."""
    return bucket(relative.abs(), 8, 16, 128)


@pytest.mark.parametrize(
    ("function", "is_told"), [(bucket, False), (bucket_of_t5, False), (bucket_without_signs, True)]
)
def test_buckets_are_compared_with_t5_where_they_are_as_many(function, is_told):
    assert bool(examine([function]).wrong) is is_told


@pytest.mark.parametrize(("others", "is_told"), [(3, False), (4, True)])
def test_a_few_distances_at_the_ends_may_be_in_other_buckets(others, is_told):
    def bucket_of_most(relative):
        made = bucket(relative, 8, 16, 128)
        return torch.where(relative.abs() > 200 - others, 1, made)

    assert bool(examine([bucket_of_most]).wrong) is is_told
