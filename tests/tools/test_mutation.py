"""Systematic mutation: the edits are real edits, and trials tell killed mutants from living and broken ones."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import mutate
from tools.mutation import trials as t
from tools.mutation.operators import mutations

SOFTMAX = '''
import numpy as np

class Softmax:
    """1 + 1 in a docstring is text."""

    dtype = np.dtype("float64")
    attributes = {}

    def __call__(self, x):
        shifted = x - x.max(-1, keepdims=True)
        unused = 1 + 2
        return {"out": np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)}

class Mine:
    def build(self, role, config):
        return Softmax() if role == "softmax" and config["dim"] == -1 else None
'''


def test_every_mutation_is_another_program_that_compiles() -> None:
    found = mutations(SOFTMAX)
    assert len({mutation.source for mutation in found}) == len(found) > 15
    original = ast.dump(ast.parse(SOFTMAX))
    for mutation in found:
        assert ast.dump(ast.parse(mutation.source)) != original, mutation.diff
        assert "1 + 1 in a docstring is text" in mutation.source


def test_a_class_is_mutated_with_what_it_uses_and_nothing_else() -> None:
    lines = {mutation.line for mutation in mutations(SOFTMAX, "Softmax")}
    assert max(lines) < SOFTMAX[: SOFTMAX.index("class Mine")].count("\n") + 1
    assert {mutation.line for mutation in mutations(SOFTMAX, "Mine")} > lines


def test_a_class_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="defines no Nowhere; it defines Softmax, Mine"):
        mutations(SOFTMAX, "Nowhere")


@pytest.mark.slow
def test_trials_kill_wrong_programs_and_leave_equal_ones(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SOFTMAX)
    target, name = mutate.target_of(f"{file}:Mine", "")
    base = t.baseline(target, tmp_path)
    assert base.reached
    assert not base.failing
    chosen = [m for m in mutations(SOFTMAX, name) if "np.exp(shifted) * np.exp" in m.after or "unused" in m.before]
    found = {trial.mutation.after: trial for trial in t.trials(chosen, base, 2)}
    assert any(trial.outcome == t.KILLED for text, trial in found.items() if "out" in text)
    assert all(trial.outcome == t.SURVIVED for text, trial in found.items() if "unused" in text)
    text = mutate.report(list(found.values()), {})
    assert "Survivors:" in text
    assert "unused = (1 - 2)" in text


ATTENTION = """
from torch import nn

class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        def split(x):
            return x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)

        q, k, v = split(self.query(query)), split(self.key(key)), split(self.value(value))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.slow
def test_a_mask_turned_around_is_not_read_as_a_convention(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "attention.py"
    file.write_text(ATTENTION)
    target, name = mutate.target_of(f"{file}:Attention", "")
    base = t.baseline(target, tmp_path)
    assert "mask mask: bool, True = may attend" in "\n".join(base.notes)
    masking = [m for m in mutations(ATTENTION, name) if "masked_fill" in m.before]
    chosen = [m for m in masking if "mask != 0" in m.after or "masked_fill" not in m.after]
    assert len(chosen) == 2
    assert all(trial.dead for trial in t.trials(chosen, base, 1))
