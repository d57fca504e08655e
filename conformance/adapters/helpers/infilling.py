"""Helpers that cut a text into pieces and put them together in another order: filling in the middle, hidden spans."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, parts, shown

_LENGTH, _TIMES = 24, 12


@helper(
    "rearranged-texts-keep-every-word",
    r"fim|infill|fill_in|span_corrupt|corrupt_spans?|noise_spans?|prefix_suffix|psm|(^|_)spm",
    {
        "ids": r"ids|input_ids|tokens?|text|seq(uence)?|x|doc(ument)?|sample|example",
        "random": r"rng|random(_state)?|generator|gen|np_rng|seed",
        "rate": r"(fim_?|noise_?|corruption_?)?(rate|prob(ability)?|density|p)",
        "length": r"(max_?)?(seq_?)?len(gth)?|n_positions|block_size",
    },
    ("ids",),
)
def rearranged(change: Called) -> Iterator[Trouble]:
    """Of a text whose words are all different each word stands once in what is given back, but for marks; where pieces
    are exchanged, each is a piece of the text."""
    low = 1 + max([*_numbers(change), 9])
    words = list(range(low, low + _LENGTH))
    form, source = _form(change, words)
    made = [_words(change, form(words), source, draw) for draw in range(_TIMES)]
    if not any(text != words and len(set(text) & set(words)) > _LENGTH // 2 for text in made):
        raise OtherKind("it gives no text in another order")
    one_text = re.search(r"fim|infill|fill_in|psm|spm|prefix_suffix", change.name.lower())
    for text in made:
        lost = [word for word in words if word not in text]
        twice = [word for word in words if text.count(word) > 1]
        if lost or (twice and one_text):
            what = f"loses {len(lost)} words" if lost else f"gives {len(twice)} words twice"
            yield Trouble(
                f"{change.name} {what} of a text of {_LENGTH}: its pieces do not make up the text.",
                f"each of the words {words[0]} to {words[-1]} once",
                shown([word - low for word in (lost or twice)][:6]) + " (places in the text)",
            )
            return
        if one_text and (torn := _torn(text, words)):
            yield Trouble(
                f"{change.name} gives pieces whose words are not in the order of the text.", "pieces of the text", torn
            )
            return


def _torn(text: list[int], words: list[int]) -> str:
    """What is no piece of the text, between two marks; "" for nothing."""
    inside = set(words)
    for one, other in pairwise(text):
        if one in inside and other in inside and other < one and other != words[0]:
            return f"{other - words[0]} behind {one - words[0]} (places in the text)"
    return ""


def _numbers(change: Called) -> list[int]:
    """The whole numbers that its file and its model know: marks are among them. Large ones are sizes."""
    named = re.compile(r".*(pad|bos|eos|cls|sep|mask|unk|fim|prefix|suffix|middle|sentinel|extra|special).*")
    return [v for n, v in change.settings.items() if type(v) is int and named.fullmatch(n) and v < 10_000]


def _form(change: Called, words: list[int]) -> tuple[Any, Any]:
    """In which form it takes a text, and its random numbers. Raises OtherKind where it takes none of those known."""
    for form in (list, torch.tensor, np.array, lambda w: torch.tensor([w])):
        for source in (random.Random, np.random.default_rng, lambda s: torch.Generator().manual_seed(s), int):
            with suppress(Exception):
                _words(change, form(words), source, 0)
                return form, source
    raise OtherKind("it takes no text")


def _words(change: Called, text: Any, source: Any, draw: int) -> list[int]:
    """All words that it gives back, one behind another."""
    torch.manual_seed(draw)
    random.seed(draw)
    np.random.seed(draw)
    made = change.arguments.call(
        change.function, ids=text, random=source(draw), rate=0.5 if draw % 2 else 1.0, length=512
    )
    found: list[int] = []
    for part in [made] if isinstance(made, list) and all(type(one) is int for one in made) else parts(made):
        flat = part.reshape(-1).tolist() if isinstance(part, (Tensor, np.ndarray)) else part
        found += [int(word) for word in flat if not isinstance(word, (list, tuple, str))]
    return found
