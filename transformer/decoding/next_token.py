"""Next-token logits: what every way of decoding asks of a model, whole or through a cache.

Through a cache a model runs by compiled plans (see `transformer.decoding.plans`), and eagerly where it is asked to, or
where it cannot be compiled: the same logits, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad as mg
from minigrad import Tensor
from transformer.cache import KVCache
from transformer.decoding.evaluation import evaluation
from transformer.decoding.plans import bucket, plans_of
from transformer.ids import check_ids

NextLogits = Callable[[Tensor], Tensor]


class _Decoder:
    """A model that writes, its cache, and its plans while it has any."""

    def __init__(self, model: Any, cache: KVCache | None, eager: bool) -> None:
        self.model, self.cache = model, cache
        self.max_len: int = model.max_len
        self._plans = None if eager or cache is None else plans_of(model, cache)

    def _by_plan(self, new: Tensor, real: Tensor | None, memory: tuple[Tensor, ...] = ()) -> Tensor | None:
        """Logits of the token after `new`; None where no plan can be made, which is not tried for every single one."""
        if self._plans is None or self.cache is None:
            return None
        check_ids(new)
        if not self._plans.serves(new):
            return None
        try:
            with mg.no_grad():
                return self._plans.step(self.cache, new, real, memory)
        except RuntimeError:  # a trace that would depend on values
            self._plans = None if new.shape[1] == 1 else self._plans
            return None

    def reorder(self, rows: Tensor) -> None:
        """From the next call on, row i of the ids continues what was row rows[i]. rows ``(B',)`` int."""
        if self.cache is not None:
            with mg.no_grad():
                self.cache.reorder(rows)


class language_model(_Decoder):
    """Next-token logits of a decoder-only model: call with ids ``(B, T)``, get ``(B, V)``.

    With a cache only the tokens that it has not seen are computed, by compiled plans unless `eager`. With a `pad_id`,
    rows may be padded with it on the left, and padding is hidden from the model.
    """

    def __init__(
        self, model: Any, cache: KVCache | None = None, pad_id: int | None = None, eager: bool = False
    ) -> None:
        super().__init__(model, cache, eager)
        self.pad_id = pad_id

    def __call__(self, ids: Tensor) -> Tensor:
        start = 0 if self.cache is None else self.cache.length
        new, hidden = ids[:, start:], {}
        if self.pad_id is not None:  # once a row has begun, its padding id is a token as any other
            hidden["real"] = ((ids != self.pad_id).long().cumsum(1) > 0)[:, start:]
        found = self._by_plan(new, hidden.get("real"))
        if found is not None:
            return found
        with evaluation(self.model):
            return self.model(new, self.cache, **hidden)[:, -1]


class translator(_Decoder):
    """Next-token logits of an encoder-decoder for the sources `src` ``(B, Ts)``, or as its encoder takes them, which
    are encoded once.

    Call with the target so far, ids ``(B, T)``; otherwise as `language_model`.
    """

    def __init__(self, model: Any, src: Tensor, cache: KVCache | None = None, eager: bool = False) -> None:
        check_source(model, src)
        super().__init__(model, cache, eager)
        self.memory, self.memory_mask = self._encoded(src)

    def _encoded(self, src: Tensor) -> tuple[Tensor, Tensor]:
        if self._plans is not None:
            try:
                with mg.no_grad():
                    memory, mask = self._plans.encode(_padded(self.model, src))
                return memory, mask
            except RuntimeError:  # a trace that would depend on values
                self._plans = None
        with evaluation(self.model):
            memory, mask = self.model.encode(src)
        return memory, mask

    def __call__(self, ids: Tensor) -> Tensor:
        new, memory = ids if self.cache is None else ids[:, self.cache.length :], (self.memory, self.memory_mask)
        found = self._by_plan(new, None, memory)
        if found is not None:
            return found
        with evaluation(self.model):
            return self.model.decode(new, *memory, self.cache)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.memory, self.memory_mask = (x.index_select(0, rows) for x in (self.memory, self.memory_mask))


def _padded(model: Any, src: Tensor) -> Tensor:
    """The sources with padding behind, as wide as a bucket; as they are for a model that knows no padding of them."""
    if not model.reads_ids:
        return src
    pad = model.pad_id if hasattr(model, "pad_id") else model.config.pad_token_id
    more = min(bucket(src.shape[1]), model.max_len) - src.shape[1]
    return src if pad is None or more == 0 else mg.cat([src, mg.full((src.shape[0], more), pad, dtype=src.dtype)], 1)


def check_source(model: Any, src: Tensor) -> None:
    """Raise ValueError where a source is empty or longer than the model reads."""
    if not model.reads_ids:
        return  # the encoder knows the one shape
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
