"""A mean that leaves -100 out, a head of CTC without room, weights stored once for many rows, times, and a cache."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.functions.implementation import FunctionImplementation  # noqa: E402
from conformance.adapters.specification import Specification  # noqa: E402
from conformance.adapters.whole.running import moved  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

GRADIENTS = "model-every-parameter-gets-a-gradient"


def verdict(implementation, claim):
    return run_check(CHECKS[claim], implementation, "quick").verdict.name


def sequence_loss(logits, targets):
    return F.cross_entropy(logits.transpose(1, 2), targets)


def sequence_loss_of_the_first(logits, targets):
    return F.cross_entropy(logits[:, :1].expand_as(logits).transpose(1, 2), targets)


@pytest.mark.parametrize(("function", "expected"), [(sequence_loss, "PASS"), (sequence_loss_of_the_first, "FAIL")])
def test_a_mean_that_leaves_no_word_out_is_asked_for_each_row(function, expected):
    implementation = FunctionImplementation(function, Specification("", function.__module__, function.__name__))
    assert verdict(implementation, "a-position-is-scored-by-its-own-logits") == expected


class Listener(nn.Module):
    """Frames in, scores of words out, and a loss of CTC beside them whose texts have more words than there are
    frames."""

    reads = True

    def __init__(self):
        super().__init__()
        self.ear, self.words, self.out = nn.Linear(40, 32), nn.Embedding(30, 32), nn.Linear(32, 30)
        self.ctc_head = nn.Linear(32, 31)

    def forward(self, feats, text):
        memory = self.ear(feats)
        logits = self.out(self.words(text) + memory.mean(1, keepdim=True))
        scores = self.ctc_head(memory[:, ::8]).log_softmax(-1) if self.reads else memory[:, ::8, :31]
        frames, letters = ([one.shape[1]] * len(one) for one in (scores, text))
        loss = F.ctc_loss(scores.transpose(0, 1), text, frames, letters, blank=30, zero_infinity=True)
        return {"loss": loss, "logits": logits}


class Deaf(Listener):
    reads = False


@pytest.mark.parametrize(("cls", "expected"), [(Listener, "PASS"), (Deaf, "FAIL")])
def test_a_head_of_ctc_needs_no_gradient_where_its_texts_have_no_room(cls, expected):
    assert verdict(pointed(cls), GRADIENTS) == expected


def test_a_parameter_that_is_stored_once_for_many_rows_can_be_moved():
    model = nn.Linear(3, 4)
    model.weight = nn.Parameter(torch.zeros(1, 3).expand(4, 3))
    assert len(moved(model).weight.unique()) == 12


class Recommender(nn.Module):
    """The next item after items and the times at which they were seen."""

    def __init__(self, n_items=50, hidden=16):
        super().__init__()
        self.items, self.gaps = nn.Embedding(n_items, hidden, padding_idx=0), nn.Embedding(24, 1)
        self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))

    def forward(self, items, times):
        x = self.items(items)
        gap = (times[:, :, None] - times[:, None, :]).clamp(min=0)
        bias = self.gaps(torch.log2(1.0 + gap.double()).long().clamp(max=23)).permute(0, 3, 1, 2)[:, 0]
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 4.0 + bias
        hidden = torch.ones(items.shape[1], items.shape[1], dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ self.v(x)


def test_times_that_forward_must_be_told_are_one_number_for_each_step():
    assert verdict(pointed(Recommender), "model-rows-of-a-batch-are-apart") == "PASS"


class Cached(nn.Module):
    """Keys are written into a cache, which is a parameter that wants no gradient."""

    def __init__(self, vocab_size=37):
        super().__init__()
        self.words, self.out = nn.Embedding(vocab_size, 16), nn.Linear(16, vocab_size)
        self.cache = nn.Parameter(torch.zeros(16, 64, 16), requires_grad=False)

    def forward(self, ids):
        x = self.words(ids)
        self.cache[: len(x), : x.shape[1]] = x
        keys = self.cache[: len(x), : x.shape[1]]
        scores = (x @ keys.transpose(1, 2)).masked_fill(
            torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), float("-inf")
        )
        return self.out(scores.softmax(-1) @ keys)


def test_a_cache_that_is_a_parameter_leads_back_to_no_earlier_run():
    assert verdict(pointed(Cached), GRADIENTS) == "PASS"
