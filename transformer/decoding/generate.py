"""Decoding token by token: greedily or by sampling, all at once or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import minigrad as mg
from minigrad import Tensor
from minigrad.random import Generator
from transformer.decoding.next_token import NextLogits, check_prompt
from transformer.decoding.sampling import Choose, most_probable, sampler


def stream_decode(
    next_logits: NextLogits,
    ids: Tensor,
    max_new_tokens: int,
    choose: Choose | None = None,
    eos_id: int | None = None,
    pad_id: int = 0,
    stop: Sequence[Sequence[int]] = (),
) -> Iterator[Tensor]:
    """Yield the new tokens ``(B,)`` one step at a time, until every row has finished, at most `max_new_tokens` times.

    ids ``(B, T)`` is the prompt; `choose` is given it without padding on the left, where `next_logits` knows any (its
    pad_id), so that a row is continued in the same way however it is padded. A row finishes when it has written
    `eos_id` or one of the sequences `stop` (which it then ends with), and yields `pad_id` from then on. choose:
    `most_probable()` unless given. Raises ValueError for an empty prompt, one longer than the model's positions, more
    new tokens than they hold, a negative max_new_tokens, or an empty stop sequence - when it is called, before the
    first token.
    """
    check_prompt(next_logits, ids, max_new_tokens)
    if any(len(sequence) == 0 for sequence in stop):
        raise ValueError("a stop sequence needs at least one token")
    return _steps(next_logits, ids, max_new_tokens, choose or most_probable(), eos_id, pad_id, stop)


def _steps(
    next_logits: NextLogits,
    ids: Tensor,
    max_new_tokens: int,
    choose: Choose,
    eos_id: int | None,
    pad_id: int,
    stop: Sequence[Sequence[int]],
) -> Iterator[Tensor]:
    prompt, padding = ids.shape[1], getattr(next_logits, "pad_id", None)
    seen = ids if padding is None else _without_padding(ids, padding)
    ends = eos_id is not None or len(stop) > 0
    finished = mg.zeros(ids.shape[0], dtype=mg.bool, device=ids.device)
    for _ in range(max_new_tokens):
        with mg.no_grad():
            token = choose(next_logits(ids), seen)
            if ends:
                token = mg.where(finished, pad_id, token)
            same, ids = seen is ids, mg.cat([ids, token.unsqueeze(1)], 1)
            seen = ids if same else mg.cat([seen, token.unsqueeze(1)], 1)
            if eos_id is not None:
                finished = finished | (token == eos_id)
            for sequence in stop:
                if ids.shape[1] - prompt >= len(sequence):
                    written = ids[:, -len(sequence) :] == mg.tensor([*sequence], device=ids.device)
                    finished = finished | written.all(-1)
        yield token
        if ends and finished.all():
            return


def _without_padding(ids: Tensor, pad_id: int) -> Tensor:
    """The ids with each row's last one where `pad_id` stands on the left: the same tokens, and no padding."""
    return mg.where((ids != pad_id).long().cumsum(1) > 0, ids, ids[:, -1:])


def _decode(ids: Tensor, tokens: Iterator[Tensor]) -> Tensor:
    return mg.cat([ids, *(token.unsqueeze(1) for token in tokens)], 1)


def greedy_decode(
    next_logits: NextLogits,
    ids: Tensor,
    max_new_tokens: int,
    eos_id: int | None = None,
    pad_id: int = 0,
    repetition_penalty: float = 1.0,
    stop: Sequence[Sequence[int]] = (),
) -> Tensor:
    """Append the most probable token until every row has finished, at most `max_new_tokens` times.

    ids ``(B, T)`` to ``(B, T + new)``. What finishes a row, and what is raised, is `stream_decode`'s.
    """
    choose = most_probable(repetition_penalty)
    return _decode(ids, stream_decode(next_logits, ids, max_new_tokens, choose, eos_id, pad_id, stop))


def sample_decode(
    next_logits: NextLogits,
    ids: Tensor,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos_id: int | None = None,
    pad_id: int = 0,
    generator: Generator | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Sequence[Sequence[int]] = (),
) -> Tensor:
    """As `greedy_decode`, but each token is drawn, see `sampling_probabilities`. The same generator, the same draws."""
    choose = sampler(temperature, top_k, top_p, min_p, repetition_penalty, generator)
    return _decode(ids, stream_decode(next_logits, ids, max_new_tokens, choose, eos_id, pad_id, stop))
