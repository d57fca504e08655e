"""A family of the library `transformers` as its user has it: the class, and what writes by the library's `generate`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def generate(
    model: nn.Module,
    input_ids: Tensor,
    max_new_tokens: int,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos_token_id: int | None = None,
) -> Tensor:
    """What the model writes behind ids ``(B, T)``, or for sources: the whole text ``(B, T + new)``."""
    drawn = {"temperature": temperature, "top_k": top_k or 0, "top_p": 1.0 if top_p is None else top_p}
    return _written(model, input_ids, max_new_tokens, eos_token_id, do_sample=do_sample, **drawn if do_sample else {})


def beam_search(
    model: nn.Module, input_ids: Tensor, max_new_tokens: int, num_beams: int, eos_token_id: int | None = None
) -> Tensor:
    """The best text by beam search, otherwise as `generate`."""
    return _written(model, input_ids, max_new_tokens, eos_token_id, do_sample=False, num_beams=num_beams)


def _written(model: Any, ids: Tensor, count: int, end: int | None, **options: Any) -> Tensor:
    config = model.config
    real = ids != config.pad_token_id if config.is_encoder_decoder else torch.ones_like(ids)  # prompts have no padding
    written: Tensor = model.generate(ids, attention_mask=real.long(), max_new_tokens=count, eos_token_id=end, **options)
    return written


def beside(cls: type[nn.Module]) -> type[nn.Module]:
    """A class of the library as one of this file, so that the functions here are seen to stand beside it."""
    return type(cls.__name__, (cls,), {"__module__": __name__, "__doc__": cls.__doc__})
