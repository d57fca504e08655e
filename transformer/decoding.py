"""Decoding: from next-token logits to sequences, greedily or by sampling, with and without a KV cache.

A decoder is given as a function ids ``(B, T)`` -> logits ``(B, V)`` of the next token; `language_model` and
`translator` make one from a model. With a cache, such a function feeds the model only the tokens that it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import minigrad as mg
from minigrad import Tensor, nn
from minigrad.random import Generator
from transformer.cache import KVCache
from transformer.ids import check_ids
from transformer.models.decoder_lm import DecoderLM
from transformer.models.encoder_decoder import EncoderDecoder

NextLogits = Callable[[Tensor], Tensor]


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients for the duration of a block: dropout must not touch what is decoded."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with mg.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def language_model(model: DecoderLM, cache: KVCache | None = None) -> NextLogits:
    """Next-token logits of a decoder-only model."""

    def next_logits(ids: Tensor) -> Tensor:
        with evaluation(model):
            return model(ids if cache is None else ids[:, cache.length :], cache)[:, -1]

    return next_logits


def translator(model: EncoderDecoder, src: Tensor, cache: KVCache | None = None) -> NextLogits:
    """Next-token logits of an encoder-decoder for the sources `src` ``(B, Ts)``, which are encoded once."""
    with evaluation(model):
        memory, memory_mask = model.encode(src)

    def next_logits(ids: Tensor) -> Tensor:
        with evaluation(model):
            return model.decode(ids if cache is None else ids[:, cache.length :], memory, memory_mask, cache)[:, -1]

    return next_logits


def greedy_decode(
    next_logits: NextLogits, ids: Tensor, max_new_tokens: int, eos_id: int | None = None, pad_id: int = 0
) -> Tensor:
    """Append the most probable token until every row has written `eos_id`, at most `max_new_tokens` times.

    A row that has finished is filled with `pad_id`. ids ``(B, T)`` to ``(B, T + new)``. Raises ValueError for an empty
    prompt or a negative max_new_tokens.
    """
    return _decode(next_logits, ids, lambda logits: logits.argmax(-1), max_new_tokens, eos_id, pad_id)


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
) -> Tensor:
    """As `greedy_decode`, but each token is drawn from `sampling_probabilities`."""

    def choose(logits: Tensor) -> Tensor:
        probabilities = sampling_probabilities(logits, temperature, top_k, top_p)
        return mg.multinomial(probabilities, 1, generator=generator).squeeze(-1)

    return _decode(next_logits, ids, choose, max_new_tokens, eos_id, pad_id)


@mg.no_grad()
def _decode(
    next_logits: NextLogits,
    ids: Tensor,
    choose: Callable[[Tensor], Tensor],
    max_new_tokens: int,
    eos_id: int | None,
    pad_id: int,
) -> Tensor:
    check_ids(ids, "the prompt")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    finished = mg.zeros(ids.shape[0], dtype=mg.bool)
    for _ in range(max_new_tokens):
        token = mg.where(finished, pad_id, choose(next_logits(ids)))
        ids = mg.cat([ids, token.unsqueeze(1)], 1)
        if eos_id is not None:
            finished = finished | (token == eos_id)
            if finished.all():
                break
    return ids


def sampling_probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """softmax of logits ``(B, V)`` after temperature, then top-k, then top-p on what is left (document 002, sampling).

    Raises ValueError for a temperature that is not above 0, a top_k below 1, a top_p outside (0, 1].
    """
    if not temperature > 0.0:
        raise ValueError(f"the temperature must be above 0, got {temperature}: decode greedily for the limit at 0")
    logits = logits / temperature
    if top_k is not None:
        logits = top_k_filter(logits, top_k)
    if top_p is not None:
        logits = top_p_filter(logits, top_p)
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
    if p == 1.0:  # rounding of the cumulative sum must not hide anything
        return logits
    ranked, order = logits.sort(-1, descending=True)
    probabilities = ranked.softmax(-1)
    hidden = probabilities.cumsum(-1) - probabilities >= p
    hidden[..., 0] = False
    return logits.masked_fill(mg.zeros_like(hidden).scatter(-1, order, hidden), float("-inf"))
