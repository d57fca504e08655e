"""Decoding: from next-token logits to sequences - greedy, by sampling, by beam search - with and without a KV cache.

A decoder is given as a function ids ``(B, T)`` -> logits ``(B, V)`` of the next token; `language_model` and
`translator` make one from a model.
"""

from transformer.decoding.beam import Hypothesis, beam_decode, beam_search
from transformer.decoding.evaluation import evaluation
from transformer.decoding.generate import greedy_decode, sample_decode, stream_decode
from transformer.decoding.next_token import NextLogits, language_model, translator
from transformer.decoding.sampling import (
    min_p_filter,
    most_probable,
    penalise_repetition,
    sampler,
    sampling_probabilities,
    top_k_filter,
    top_p_filter,
)

__all__ = [
    "Hypothesis",
    "NextLogits",
    "beam_decode",
    "beam_search",
    "evaluation",
    "greedy_decode",
    "language_model",
    "min_p_filter",
    "most_probable",
    "penalise_repetition",
    "sample_decode",
    "sampler",
    "sampling_probabilities",
    "stream_decode",
    "top_k_filter",
    "top_p_filter",
    "translator",
]
