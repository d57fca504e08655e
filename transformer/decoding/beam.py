"""Beam search: the best few hypotheses of each row side by side, finished ones put aside unchanged."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.ops import rules
from transformer.decoding.next_token import NextLogits, check_prompt

EarlyStopping = bool | Literal["never"]


class Hypothesis(NamedTuple):
    """New tokens (the end token included) and their score: log-probability / length ** length_penalty."""

    ids: list[int]
    score: float


class _Row:
    """The finished hypotheses of one row, best first, at most `beams`; done when no live one can enter."""

    def __init__(self, beams: int, length_penalty: float) -> None:
        self.beams, self.length_penalty = beams, length_penalty
        self.finished: list[Hypothesis] = []
        self.done = False

    def add(self, ids: list[int], log_probability: float) -> None:
        self.finished.append(Hypothesis(ids, log_probability / len(ids) ** self.length_penalty))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)  # stable: of equal ones the older stays
        del self.finished[self.beams :]

    def decide(self, best_live: float, length: int, early_stopping: EarlyStopping, longest: int) -> None:
        """Is this row done? Live hypotheses have `length` tokens, the best of them this log-probability."""
        if best_live == -np.inf:
            self.done = True
        elif len(self.finished) == self.beams:
            if early_stopping == "never" and self.length_penalty > 0:
                length = longest
            reachable = best_live / length**self.length_penalty
            self.done = early_stopping is True or reachable <= self.finished[-1].score


def beam_search(
    next_logits: NextLogits,
    ids: Tensor,
    max_new_tokens: int,
    beams: int = 4,
    length_penalty: float = 1.0,
    eos_id: int | None = None,
    early_stopping: EarlyStopping = False,
) -> list[list[Hypothesis]]:
    """For each row of ids ``(B, T)`` its best hypotheses, at most `beams`, best first.

    A hypothesis ends with `eos_id`, or after `max_new_tokens`. length_penalty: above 0 favours long ones, 0 compares
    bare log-probabilities. early_stopping: a row stops when it has `beams` finished hypotheses and (True) at once,
    (False) when no live one would beat them at its present length, ("never") when none could at any length. Raises
    ValueError for beams or max_new_tokens below 1, TypeError for beams that are no integer, what `stream_decode` does.
    """
    beams = rules.integer(beams, "beams")
    check_prompt(next_logits, ids, max_new_tokens)
    if beams < 1 or max_new_tokens < 1:
        raise ValueError(f"beam search needs at least 1 beam and 1 new token, got {beams} and {max_new_tokens}")
    reorder = getattr(next_logits, "reorder", lambda rows: None)  # a plain function of the ids has nothing to reorder
    batch, prompt = ids.shape
    rows = [_Row(beams, length_penalty) for _ in range(batch)]
    live = np.zeros((batch, 1))  # log-probabilities; one hypothesis a row at first, then `beams` with -inf for no one
    for length in range(1, max_new_tokens + 1):
        with mg.no_grad():
            steps = next_logits(ids).double().log_softmax(-1).numpy()
        vocab = steps.shape[-1]
        scores = (live[:, :, None] + steps.reshape(batch, -1, vocab)).reshape(batch, -1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, : 2 * beams]  # enough: each beam ends once at most
        width, written = live.shape[1], ids.numpy()[:, prompt:]
        live = np.full((batch, beams), -np.inf)
        parents, tokens = np.zeros((batch, beams), np.int64), np.zeros((batch, beams), np.int64)
        for b, row in enumerate(rows):
            parents[b] = b * width
            n_live = 0
            for rank, candidate in enumerate(best[b]):
                score, parent, token = scores[b, candidate], b * width + candidate // vocab, candidate % vocab
                if row.done or score == -np.inf:
                    break
                if token == eos_id or length == max_new_tokens:
                    if rank < beams:
                        row.add([*map(int, written[parent]), int(token)], float(score))
                elif n_live < beams:
                    live[b, n_live], parents[b, n_live], tokens[b, n_live] = score, parent, token
                    n_live += 1
            row.decide(live[b, 0], length, early_stopping, max_new_tokens)
        if all(row.done for row in rows):
            break
        chosen = mg.from_numpy(parents.reshape(-1), ids.device)
        reorder(chosen)
        ids = mg.cat([ids.index_select(0, chosen), mg.from_numpy(tokens.reshape(-1, 1), ids.device)], 1)
    return [row.finished for row in rows]


def beam_decode(
    next_logits: NextLogits,
    ids: Tensor,
    max_new_tokens: int,
    beams: int = 4,
    length_penalty: float = 1.0,
    eos_id: int | None = None,
    pad_id: int = 0,
    early_stopping: EarlyStopping = False,
) -> Tensor:
    """The best hypothesis of `beam_search` after each row: ids ``(B, T)`` to ``(B, T + longest)``, padded."""
    found = beam_search(next_logits, ids, max_new_tokens, beams, length_penalty, eos_id, early_stopping)
    best = [row[0].ids for row in found]
    longest = max(map(len, best))
    new = mg.tensor([[*row, *[pad_id] * (longest - len(row))] for row in best], dtype=ids.dtype, device=ids.device)
    return mg.cat([ids, new], 1)
