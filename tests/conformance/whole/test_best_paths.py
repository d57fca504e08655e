"""Taggers that score paths of tags: the best path, and the whole of all paths, in the forms of the field."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class CRF(nn.Module):
    """Time first or batch first, with scores for the start and the end and a mask: the usual layer."""

    def __init__(self, num_tags=4, batch_first=True):
        super().__init__()
        self.batch_first = batch_first
        self.start_transitions = nn.Parameter(torch.randn(num_tags))
        self.end_transitions = nn.Parameter(torch.randn(num_tags))
        self.transitions = nn.Parameter(torch.randn(num_tags, num_tags))

    def forward(self, emissions, tags, mask=None):
        if self.batch_first:
            emissions, tags = emissions.transpose(0, 1), tags.transpose(0, 1)
        rows = torch.arange(tags.shape[1])
        path = self.start_transitions[tags[0]] + self.end_transitions[tags[-1]]
        for t in range(len(tags)):
            path = path + emissions[t, rows, tags[t]]
            if t:
                path = path + self.transitions[tags[t - 1], tags[t]]
        return (path - self.partition(emissions)).mean()

    def partition(self, emissions):
        total = self.start_transitions + emissions[0]
        for step in emissions[1:]:
            total = torch.logsumexp(total[:, :, None] + self.transitions, dim=1) + step
        return torch.logsumexp(total + self.end_transitions, dim=1)

    def choose(self, total):
        return (total[:, :, None] + self.transitions).max(1)

    def decode(self, emissions, mask=None):
        if self.batch_first:
            emissions = emissions.transpose(0, 1)
        total, history = self.start_transitions + emissions[0], []
        for step in emissions[1:]:
            best, tag = self.choose(total)
            history.append(tag)
            total = best + step
        found = []
        for row, last in enumerate((total + self.end_transitions).argmax(1)):
            path = [last.item()]
            for tag in reversed(history):
                path.append(tag[row, path[-1]].item())
            found.append(path[::-1])
        return found


class TimeFirst(CRF):
    def __init__(self, num_tags=4):
        super().__init__(num_tags, batch_first=False)


class Greedy(CRF):
    def decode(self, emissions, mask=None):
        return emissions.argmax(-1).tolist()


class OfTheNextTag(CRF):
    def choose(self, total):
        return (total[:, :, None] + self.transitions).max(2)


class Bars(CRF):
    """Tags that may not follow one another are barred by a table beside the scores."""

    axis = 1

    def __init__(self):
        super().__init__()
        self.register_buffer("allowed", torch.ones(4, 4, dtype=torch.bool).tril(1), persistent=False)

    def choose(self, total):
        return (total[:, :, None] + self.transitions.masked_fill(~self.allowed, -1e4)).max(self.axis)


class BarsOfTheNextTag(Bars):
    axis = 2


class WithoutTheEnd(CRF):
    def partition(self, emissions):
        total = self.start_transitions + emissions[0]
        for step in emissions[1:]:
            total = torch.logsumexp(total[:, :, None] + self.transitions, dim=1) + step
        return torch.logsumexp(total, dim=1)


class OfEachStep(CRF):
    """The mean over the steps of a text."""

    def forward(self, emissions, tags, mask=None):
        return -super().forward(emissions, tags) / tags.shape[1]


class FromNextToBefore(nn.Module):
    """transitions[i, j]: to i from j, with a start and an end among the tags, for one text."""

    def __init__(self, tagset_size=5):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tagset_size, tagset_size))
        self.transitions.data[3, :] = self.transitions.data[:, 4] = -10000.0

    def _viterbi_decode(self, feats):
        total, history = self.transitions[:, 3] + feats[0], []
        for feat in feats[1:]:
            best, tag = (total + self.transitions).max(1)
            history.append(tag)
            total = best + feat
        total = total + self.transitions[4]
        path = [int(total.argmax())]
        for tag in reversed(history):
            path.append(int(tag[path[-1]]))
        return total.max(), path[::-1]

    def forward(self, feats):
        return self._viterbi_decode(feats)


def verdict(claim, cls):
    """Of a tagger whose scores go into a part that scores paths."""

    class Tagger(nn.Module):
        def __init__(self, vocab_size=30):
            super().__init__()
            self.table, self.paths = nn.Embedding(vocab_size, 8), cls()
            self.head = nn.Linear(8, 4)

        def forward(self, input_ids):
            return self.head(self.table(input_ids).cumsum(1))

    return run_check(CHECKS[claim], pointed(Tagger), "quick").verdict.name


@pytest.mark.parametrize("cls", [CRF, TimeFirst, OfEachStep, WithoutTheEnd, FromNextToBefore, Bars])
def test_the_best_path_is_found(cls):
    assert verdict("tagger-finds-the-best-path", cls) == "PASS"


@pytest.mark.parametrize("cls", [Greedy, OfTheNextTag, BarsOfTheNextTag])
def test_another_path_than_the_best_is_told(cls):
    assert verdict("tagger-finds-the-best-path", cls) == "FAIL"


@pytest.mark.parametrize("cls", [CRF, TimeFirst, OfEachStep, Greedy])
def test_all_paths_share_one_whole(cls):
    assert verdict("tagger-paths-share-one-whole", cls) == "PASS"


def test_a_whole_that_leaves_something_out_is_told():
    assert verdict("tagger-paths-share-one-whole", WithoutTheEnd) == "FAIL"


@pytest.mark.parametrize(
    ("claim", "cls"),
    [("tagger-finds-the-best-path", nn.Identity), ("tagger-paths-share-one-whole", FromNextToBefore)],
)
def test_what_has_no_such_method_is_not_judged(claim, cls):
    assert verdict(claim, cls) == "NOT_PROVIDED"


class Padded(CRF):
    """It hands the mask on: padding keeps the scores of the last real tag."""

    reads = True

    def kept(self, mask, step, new, old):
        return torch.where(mask[:, step, None], new, old) if self.reads else new

    def forward(self, emissions, tags, mask):
        rows = torch.arange(len(tags))
        last = mask.sum(1) - 1
        path = self.start_transitions[tags[:, 0]] + self.end_transitions[tags[rows, last if self.reads else -1]]
        total = self.start_transitions + emissions[:, 0]
        for t in range(emissions.shape[1]):
            path = path + emissions[rows, t, tags[:, t]] * mask[:, t]
            if t:
                path = path + self.transitions[tags[:, t - 1], tags[:, t]] * mask[:, t]
                new = torch.logsumexp(total[:, :, None] + self.transitions, dim=1) + emissions[:, t]
                total = torch.where(mask[:, t, None], new, total)
        return (torch.logsumexp(total + self.end_transitions, dim=1) - path).mean()

    def decode(self, emissions, mask):
        total, history = self.start_transitions + emissions[:, 0], []
        for t in range(1, emissions.shape[1]):
            best, tag = self.choose(total)
            history.append(tag)
            total = self.kept(mask, t, best + emissions[:, t], total)
        found = []
        for row, last in enumerate((total + self.end_transitions).argmax(1)):
            path = [last.item()]
            for tag in reversed(history[: int(mask[row].sum()) - 1]):
                path.append(tag[row, path[-1]].item())
            found.append(path[::-1])
        return found


class CountsPadding(Padded):
    reads = False


@pytest.mark.parametrize(
    ("cls", "says"), [(Padded, "PASS"), (CountsPadding, "FAIL"), (FromNextToBefore, "NOT_PROVIDED")]
)
def test_padding_is_no_part_of_a_path(cls, says):
    assert verdict("tagger-paths-leave-padding-out", cls) == says
