"""What the names of arguments say: which words are learned, what is ranked, what is a share."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import resolve  # noqa: E402
from conformance.adapters.inference.construct import Constructor  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class TalkerLM(nn.Module):
    """A causal language model that is told which words of a dialogue it learns."""

    shift = 1

    def __init__(self, vocab_size=40, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.table, self.norm = nn.Embedding(vocab_size, 16, padding_idx=pad_id), nn.LayerNorm(16)
        self.head = nn.Linear(16, vocab_size)

    def forward(self, ids):
        real = (ids != self.pad_id)[..., None]
        return self.head(self.norm((self.table(ids) * real).cumsum(1)))

    def loss(self, ids, learn):
        logits, counts = self(ids[:, :-1]), (learn[:, 1:] if self.shift else learn[:, :-1]).float()
        each = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        return (each * counts).sum() / counts.sum().clamp(min=1)


class LearnsOneEarly(TalkerLM):
    shift = 0


@pytest.mark.parametrize(("cls", "verdict"), [(TalkerLM, "PASS"), (LearnsOneEarly, "FAIL")])
def test_what_says_which_words_are_learned_is_shifted_with_them(cls, verdict):
    assert run_check(CHECKS["losses-count-the-words-that-a-mask-marks"], pointed(cls), "quick").verdict.name == verdict


def test_whoever_says_which_words_are_learned_leaves_padding_out():
    found = run_check(CHECKS["losses-teach-no-padding"], pointed(TalkerLM), "quick")
    assert found.verdict.name == "NOT_PROVIDED"


HELPERS = """
import torch


def mean_reciprocal_rank(found, gold):
    hit = found == gold[:, None]
    rank = hit.float().argmax(dim=1) + {first}
    return (hit.any(dim=1).float() / rank).mean().item()


def soft_target_loss(logits, soft_target):
    return -(soft_target * logits.log_softmax(dim=-1)).sum(dim=-1).mean()


def soft_target_cross_entropy(logits, soft):
    return -(soft * logits.float().log_softmax(dim=-1)).sum(dim=-1).mean()


def soft_target_distillation(student_logits, teacher_logits):
    return -(teacher_logits * student_logits.log_softmax(dim=-1)).sum(dim=-1).mean()
"""


@pytest.mark.parametrize(
    ("name", "claim", "first", "verdict"),
    [
        ("mean_reciprocal_rank", "retrieval-counts-the-own-partner", 1, "PASS"),
        ("mean_reciprocal_rank", "retrieval-counts-the-own-partner", 2, "FAIL"),
        ("soft_target_loss", "distillation-is-lowest-at-the-teacher", 1, "NOT_PROVIDED"),
        ("soft_target_cross_entropy", "distillation-is-lowest-at-the-teacher", 1, "NOT_PROVIDED"),
        ("soft_target_distillation", "distillation-is-lowest-at-the-teacher", 1, "FAIL"),
    ],
)
def test_ranked_rows_and_shares_of_classes(tmp_path, name, claim, first, verdict):
    path = tmp_path / f"helpers_of_names_{first}.py"
    path.write_text(HELPERS.format(first=first))
    found = run_check(CHECKS[claim], resolve(f"{path}:{name}"), "quick")
    assert found.verdict.name == verdict, found.message


class Masked(nn.Module):
    def __init__(self, d_model, n_heads, mask_future: bool):
        super().__init__()


def test_a_flag_that_hides_the_future_is_known():
    assert Constructor(Masked).names["causal"] == ["mask_future"]
