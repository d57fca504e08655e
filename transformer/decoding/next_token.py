"""Next-token logits: what every way of decoding asks of a model, whole or through a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from transformer.cache import KVCache
from transformer.ids import check_ids

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


class language_model:
    """Next-token logits of a decoder-only model: call with ids ``(B, T)``, get ``(B, V)``.

    With a cache only the tokens that it has not seen are computed. With a `pad_id`, rows may be padded with it on the
    left, and padding is hidden from the model.
    """

    def __init__(self, model: Any, cache: KVCache | None = None, pad_id: int | None = None) -> None:
        self.model, self.cache, self.pad_id = model, cache, pad_id
        self.max_len: int = model.max_len

    def __call__(self, ids: Tensor) -> Tensor:
        start = 0 if self.cache is None else self.cache.length
        hidden = {}
        if self.pad_id is not None:  # once a row has begun, its padding id is a token as any other
            hidden["real"] = ((ids != self.pad_id).long().cumsum(1) > 0)[:, start:]
        with evaluation(self.model):
            return self.model(ids[:, start:], self.cache, **hidden)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        """From the next call on, row i of the ids continues what was row rows[i]. rows ``(B',)`` int."""
        if self.cache is not None:
            self.cache.reorder(rows)


class translator:
    """Next-token logits of an encoder-decoder for the sources `src` ``(B, Ts)``, which are encoded once.

    Call with the target so far, ids ``(B, T)``; otherwise as `language_model`.
    """

    def __init__(self, model: Any, src: Tensor, cache: KVCache | None = None) -> None:
        check_source(model, src)
        self.model, self.cache = model, cache
        self.max_len: int = model.max_len
        with evaluation(model):
            self.memory, self.memory_mask = model.encode(src)

    def __call__(self, ids: Tensor) -> Tensor:
        new = ids if self.cache is None else ids[:, self.cache.length :]
        with evaluation(self.model):
            return self.model.decode(new, self.memory, self.memory_mask, self.cache)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        """From the next call on, row i of the ids continues what was row rows[i]. rows ``(B',)`` int."""
        self.memory, self.memory_mask = self.memory.index_select(0, rows), self.memory_mask.index_select(0, rows)
        if self.cache is not None:
            self.cache.reorder(rows)


def check_source(model: Any, src: Tensor) -> None:
    """Raise ValueError where a source is empty or longer than the model reads."""
    check_ids(src, "the source")
    if src.shape[1] > model.max_len:
        raise ValueError(f"a source of {src.shape[1]} tokens does not fit the model's {model.max_len}: shorten it")


def check_prompt(next_logits: NextLogits, ids: Tensor, max_new_tokens: int) -> None:
    """Raise ValueError for an empty prompt, a negative max_new_tokens, or more than the model's positions hold.

    The last new token is never read again, so it needs no position.
    """
    check_ids(ids, "the prompt")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    max_len, length = getattr(next_logits, "max_len", None), ids.shape[1]
    if max_len is not None and length > max_len:
        raise ValueError(f"a prompt of {length} tokens is longer than the model's {max_len} positions: shorten it")
    if max_len is not None and length + max_new_tokens - 1 > max_len:
        raise ValueError(
            f"a prompt of {length} tokens leaves room for {max_len + 1 - length} new ones in the model's {max_len} "
            f"positions, and {max_new_tokens} were asked for"
        )
