"""A model that answers what a claim asks for, in the shapes that decoders and losses expect of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

ANSWERS = ("logits", "(logits, None)", "an object with logits")
"""What a model can return: the logits alone, first in a tuple, or as an attribute."""
_SIZES = ("block_size", "max_seq_len", "max_len", "context_length", "n_positions", "max_position_embeddings")


class Scripted(nn.Module):
    """Answers each text with logits (B, T, V), of which `next_logits` of the text gives the last position.

    The text is the last matrix of int64 that it is given; one token alone continues the text before it, as with a
    cache. sequence_first: texts are (T, B), and answers (T, B, V).
    """

    def __init__(self, next_logits: Callable[[Tensor], Tensor], answer: str, sequence_first: bool) -> None:
        super().__init__()
        self.next_logits = next_logits
        self.answer = answer
        self.sequence_first = sequence_first
        self.text: Tensor | None = None
        self.weight = nn.Parameter(torch.zeros(1))
        sizes = dict.fromkeys(_SIZES, 1 << 12)
        self.config = self.params = self.args = SimpleNamespace(**sizes)
        for name, size in sizes.items():
            setattr(self, name, size)
        self.device = torch.device("cpu")

    def encode(self, *arguments: Any, **keywords: Any) -> Tensor:
        return torch.zeros(*texts_in((arguments, keywords))[0].shape, 4)

    def decode(self, *arguments: Any, **keywords: Any) -> Tensor:
        return self._logits(arguments, keywords)

    encoder = encode
    decoder = decode

    def generator(self, logits: Tensor) -> Tensor:
        """The head is in the answer already; some heads end with a log-softmax, which changes no choice."""
        return logits

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        logits = self._logits(arguments, keywords)
        if self.answer == "an object with logits":
            return SimpleNamespace(logits=logits, past_key_values=None, loss=None)
        return logits if self.answer == "logits" else (logits, None)

    def _logits(self, arguments: Any, keywords: Any) -> Tensor:
        given = texts_in((arguments, keywords))[-1]
        text = given.t() if self.sequence_first else given
        if self.text is not None and text.shape[1] == 1 and len(self.text) == len(text):
            text = torch.cat([self.text, text], 1)
        self.text = text.clone()
        last = self.next_logits(text)
        logits = torch.zeros(len(text), given.shape[0 if self.sequence_first else 1], last.shape[-1])
        logits[:, -1] = last
        return logits.transpose(0, 1).contiguous() if self.sequence_first else logits


def texts_in(value: Any) -> list[Tensor]:
    """The matrices of int64 in what a model was called with, in order."""
    return list(_texts(value))


def _texts(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.dtype == torch.int64 and value.ndim == 2:
            yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
