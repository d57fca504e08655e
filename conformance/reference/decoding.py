"""Teacher forcing, greedy and beam decoding, sampling filters (document 002 training and inference; 003 training)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.reference.training import log_softmax

Array = np.ndarray
NextLogits = Callable[[Array], Array]


def shift(ids: Array) -> tuple[Array, Array]:
    """Decoder input (all but the last token) and labels (all but the first) of ``(B, T)`` ids."""
    return ids[:, :-1], ids[:, 1:]


def greedy_decode(
    next_logits: NextLogits, ids: Array, max_new_tokens: int, eos_id: int | None = None, pad_id: int = 0
) -> Array:
    """Append the argmax of the last position until every row has written `eos_id`, at most `max_new_tokens` times.

    A row that has finished is filled with `pad_id`. ids ``(B, T)`` to ``(B, T + new)``.
    """
    finished = np.zeros(len(ids), bool)
    for _ in range(max_new_tokens):
        token = np.where(finished, pad_id, next_logits(ids).argmax(axis=-1))
        ids = np.concatenate([ids, token[:, None]], axis=1)
        if eos_id is not None:
            finished |= token == eos_id
            if finished.all():
                break
    return ids


def beam_search(
    next_logits: NextLogits,
    prompt: Array,
    beam: int,
    max_new_tokens: int,
    eos_id: int | None = None,
    length_penalty: float = 0.0,
) -> tuple[Array, float]:
    """The best hypothesis and its score; finished hypotheses are frozen and leave the beam.

    prompt ``(T,)``. score: summed log-probability / new tokens ** length_penalty (at least 0). Stops when no live
    hypothesis can beat the best finished one: log-probabilities only fall, and a penalty favours the longest.
    """

    def score(item: tuple[float, Array]) -> float:
        log_probability, ids = item
        return float(log_probability / (len(ids) - len(prompt)) ** length_penalty)

    live: list[tuple[float, Array]] = [(0.0, prompt)]
    finished: list[tuple[float, Array]] = []
    for _ in range(max_new_tokens):
        steps = log_softmax(next_logits(np.stack([ids for _, ids in live])))
        grown = [
            (before + row[token], np.append(ids, token))
            for (before, ids), row in zip(live, steps, strict=True)
            for token in np.flatnonzero(row > -np.inf)
        ]
        best = sorted(grown, key=lambda item: -item[0])[:beam]
        finished += [item for item in best if item[1][-1] == eos_id]
        live = [item for item in best if item[1][-1] != eos_id]
        if not live:
            break
        reachable = live[0][0] / max_new_tokens**length_penalty
        if finished and max(map(score, finished)) >= reachable:
            break
    best_one = max(finished or live, key=score)
    return best_one[1], score(best_one)


def top_k_filter(logits: Array, k: int) -> Array:
    """-inf below the k-th largest logit of each row; ties with it stay, and k above V keeps all."""
    kth = np.sort(logits, axis=-1)[:, -min(k, logits.shape[-1])][:, None]
    return np.where(logits < kth, -np.inf, logits)


def top_p_filter(logits: Array, p: float) -> Array:
    """-inf outside the smallest set of most probable tokens whose probability reaches p (one token at least)."""
    order = np.argsort(-logits, axis=-1, kind="stable")
    ranked = np.exp(log_softmax(np.take_along_axis(logits, order, axis=-1)))
    before = np.cumsum(ranked, axis=-1) - ranked
    keep = before < p
    keep[:, 0] = True
    kept = np.zeros_like(keep)
    np.put_along_axis(kept, order, keep, axis=-1)
    return np.where(kept, logits, -np.inf)


def sampling_probabilities(
    logits: Array, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Array:
    """softmax of logits ``(B, V)`` after temperature, then top-k, then top-p on what is left.

    Raises ValueError when the temperature is not positive.
    """
    if temperature <= 0:
        raise ValueError(f"the temperature must be positive, not {temperature}; take the argmax for greedy decoding")
    logits = logits / temperature
    if top_k is not None:
        logits = top_k_filter(logits, top_k)
    if top_p is not None:
        logits = top_p_filter(logits, top_p)
    return np.exp(log_softmax(logits))
