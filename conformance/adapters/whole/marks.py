"""The numbers that a model looks for among its words, to find the place that it answers for.

``(ids == self.eot_id).int().argmax(-1)`` finds the end of each text: what has no such word is answered for its first
place, which has seen nothing. ``(ids != pad_id)`` finds the last real word: what a mask hides must be padding by its
number, too. So the texts that such a model is given end with that word, or have that number where they are padded.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.facts import Fact
from conformance.adapters.whole.calling import Calling, T, default_dtype, first_data, quiet_evaluation
from conformance.adapters.whole.copying import main_dtype
from conformance.adapters.whole.layouts import ONE_ANSWER
from conformance.adapters.whole.pads import said_pad
from conformance.adapters.whole.watching import Watching


def with_marks(module: nn.Module, calling: Calling) -> Calling:
    """The calling with the numbers that end and fill each text, where a model that gives one answer looks for them."""
    vocab = calling.main.vocab
    if calling.layout not in ONE_ANSWER or not vocab or calling.two_sided:
        return calling
    data = first_data(calling, calling.main.length or T)
    searched = _Searched(data[calling.main.meaning])
    with suppress(Exception), quiet_evaluation(module), torch.no_grad(), default_dtype(main_dtype(module)), searched:
        module(**calling.arguments(data))
    pad = said_pad(module, vocab)
    if pad in searched.compared:
        fact = Fact("padding", f"the number {pad}", "forward compares its words with it")
        calling = replace(calling, filler=pad, facts=(*calling.facts, fact))
    end = searched.end
    if end is None or end == pad or not 0 <= end < vocab:
        return calling
    fact = Fact("end", f"each text ends with {end}", "forward looks for it to find the place that it answers for")
    return replace(calling, end=end, facts=(*calling.facts, fact))


class _Searched(Watching):
    """The numbers that ids are compared with. end: the one whose first place is searched."""

    def __init__(self, ids: Tensor) -> None:
        super().__init__()
        self.ids = ids
        self.end: int | None = None
        self.compared: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("eq", "ne") and type(args[1]) in (int, float) and args[0].shape == self.ids.shape:
            if torch.equal(args[0].long(), self.ids):
                self.compared[int(args[1])] = result if name == "eq" else ~result
        elif name in ("argmax", "max", "nonzero") and self.end is None:
            alike = (
                n for n, at in self.compared.items() if at.shape == args[0].shape and torch.equal(args[0] != 0, at)
            )
            self.end = next(alike, None)
        return result
