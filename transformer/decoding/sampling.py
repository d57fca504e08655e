"""From next-token logits to the next token: the most probable one, or a draw from filtered probabilities."""

from __future__ import annotations

from collections.abc import Callable

from ml_dtypes import finfo

import minigrad as mg
from minigrad import Tensor
from minigrad.random import Generator

Choose = Callable[[Tensor, Tensor], Tensor]  # logits (B, V) and ids so far (B, T) -> tokens (B,)


def most_probable(repetition_penalty: float = 1.0) -> Choose:
    """The token of the largest logit; of equal ones the first."""
    _check_penalty(repetition_penalty)
    return lambda logits, ids: penalise_repetition(logits, ids, repetition_penalty).argmax(-1)


def sampler(
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    generator: Generator | None = None,
) -> Choose:
    """A draw from `sampling_probabilities` of the penalised logits; errors about settings come at once."""
    _check_penalty(repetition_penalty)
    sampling_probabilities(mg.zeros(1, 1), temperature, top_k, top_p, min_p)

    def choose(logits: Tensor, ids: Tensor) -> Tensor:
        logits = penalise_repetition(logits, ids, repetition_penalty)
        probabilities = sampling_probabilities(logits, temperature, top_k, top_p, min_p)
        return mg.multinomial(probabilities, 1, generator=generator).squeeze(-1)

    return choose


def sampling_probabilities(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """softmax of logits ``(B, V)`` after temperature, top-k, top-p and min-p, each on what the one before left.

    (Document 002, sampling.) Raises ValueError for a temperature that is 0 or infinite in the dtype of the logits (at 0
    there is nothing to draw: decode greedily) or negative, a top_k below 1, a top_p outside (0, 1], a min_p outside
    [0, 1].
    """
    limits = finfo(logits.dtype)
    low, high = float(limits.smallest_subnormal), float(limits.max)
    if not low <= temperature <= high:
        raise ValueError(
            f"the temperature must be above 0 and finite, got {temperature}: decode greedily for the limit at 0 "
            f"({mg.dtypes.name(logits.dtype)} holds {low:.1e} to {high:.1e})"
        )
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature  # none above 0: the largest does not overflow
    if top_k is not None:
        logits = top_k_filter(logits, top_k)
    if top_p is not None:
        logits = top_p_filter(logits, top_p)
    if min_p is not None:
        logits = min_p_filter(logits, min_p)
    return logits.softmax(-1)


def top_k_filter(logits: Tensor, k: int) -> Tensor:
    """-inf below the k-th largest logit of each row; ties with it stay, and k above V keeps all."""
    if k < 1:
        raise ValueError(f"top_k must be at least 1, got {k}")
    kth = logits.topk(min(k, logits.shape[-1]), -1)[0][..., -1:]
    return logits.masked_fill(logits < kth, float("-inf"))


def top_p_filter(logits: Tensor, p: float) -> Tensor:
    """-inf outside the smallest set of most probable tokens whose probability reaches p (Holtzman et al. 2020).

    The token that crosses p stays, so that one at least does.
    """
    if not 0.0 < p <= 1.0:
        raise ValueError(f"top_p must lie in (0, 1], got {p}")
    ranked, order = logits.sort(-1, descending=True)
    probabilities = ranked.softmax(-1)
    hidden = probabilities.cumsum(-1) - probabilities >= p
    hidden[..., 0] = False
    return logits.masked_fill(mg.zeros_like(hidden).scatter(-1, order, hidden), float("-inf"))


def min_p_filter(logits: Tensor, p: float) -> Tensor:
    """-inf where a token's probability is below p times that of the most probable one (Nguyen et al. 2024)."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"min_p must lie in [0, 1], got {p}")
    probabilities = logits.softmax(-1)
    return logits.masked_fill(probabilities < p * probabilities.amax(-1, keepdim=True), float("-inf"))


def penalise_repetition(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Logits of tokens among ids ``(B, T)`` over `penalty` where positive, else times it (Keskar et al. 2019)."""
    if penalty == 1.0:
        return logits
    seen = mg.zeros(*logits.shape, dtype=mg.bool, device=ids.device).scatter(-1, ids, True)
    return mg.where(seen, mg.where(logits > 0, logits / penalty, logits * penalty), logits)


def _check_penalty(penalty: float) -> None:
    if not 0.0 < penalty < float("inf"):
        raise ValueError(f"repetition_penalty must be above 0 and finite (1 changes nothing), got {penalty}")
