"""A family of ours as its user has it: the model with its loss, and what writes, made of our public functions."""

from __future__ import annotations

from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from transformer.decoding import NextLogits, beam_decode, greedy_decode, language_model, sample_decode, translator

IGNORED = -100


class Taught(nn.Module):
    """A model that gives its loss beside its answer where it is given labels, as the library's classes do.

    shifts: whether the label of a position is the word behind it. Labels of -100 are left out.
    """

    def __init__(self, model: nn.Module, shifts: bool = False) -> None:
        self.model = model
        self.shifts = shifts

    def new_cache(self, max_len: int) -> Any:
        """The model's cache."""
        return self.model.new_cache(max_len)

    def with_loss(self, out: Tensor, labels: Tensor | None) -> Any:
        if labels is None:
            return out
        scores, wanted = (out[:, :-1], labels[:, 1:]) if self.shifts else (out, labels)
        return out, F.cross_entropy(scores.reshape(-1, scores.shape[-1]), wanted.reshape(-1), IGNORED)


class OfText(Taught):
    def forward(self, ids: Tensor, labels: Tensor | None = None, **options: Any) -> Any:
        return self.with_loss(self.model(ids, **options), labels)


class OfPairs(Taught):
    def forward(self, src: Tensor, tgt: Tensor, labels: Tensor | None = None) -> Any:
        return self.with_loss(self.model(src, tgt), labels)


class OfSound(Taught):
    def forward(self, tgt: Tensor, src: Tensor, labels: Tensor | None = None) -> Any:
        return self.with_loss(self.model(src, tgt), labels)


class OfImages(Taught):
    def forward(self, images: Tensor, labels: Tensor | None = None) -> Any:
        return self.with_loss(self.model(images), labels)


def generate(
    model: Taught,
    ids: Tensor,
    max_new_tokens: int,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos_token_id: int | None = None,
) -> Tensor:
    """What the model writes behind ids ``(B, T)``, or for sources: the whole text ``(B, T + new)``."""
    next_logits, text, pad = _begun(model.model, ids, max_new_tokens)
    if not do_sample:
        return greedy_decode(next_logits, text, max_new_tokens, eos_token_id, pad)
    return sample_decode(next_logits, text, max_new_tokens, temperature, top_k, top_p, eos_token_id, pad)


def beam_search(
    model: Taught, ids: Tensor, max_new_tokens: int, num_beams: int, eos_token_id: int | None = None
) -> Tensor:
    """The best text by beam search, otherwise as `generate`."""
    next_logits, text, pad = _begun(model.model, ids, max_new_tokens)
    return beam_decode(next_logits, text, max_new_tokens, num_beams, eos_id=eos_token_id, pad_id=pad)


def _begun(model: Any, ids: Tensor, room: int) -> tuple[NextLogits, Tensor, int]:
    """What gives the next logits, the text that stands before them, and what fills a row that has ended."""
    settings = model.config.to_dict()
    pad = settings["pad_token_id"]
    if "decoder_start_token_id" not in settings:
        return language_model(model, model.new_cache(ids.shape[1] + room), eager=True), ids, pad
    start = mg.full((ids.shape[0], 1), settings["decoder_start_token_id"], dtype=ids.dtype)
    return translator(model, ids, model.new_cache(1 + room), eager=True), start, pad
