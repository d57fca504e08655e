"""Span corruption: pieces of a text are hidden behind sentinels, and the targets give them behind the same ones."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, named_parts, seeded, shown

_LOW, _LENGTHS, _DRAWS = 10, (60, 40), 6
"""The first word, lengths of texts with words that are all different, and how often each is changed."""
_SENTINEL = 900
_AGAIN = re.compile(r"mask|decoder_in|dec_in|pos|weight|len")
"""Parts beside the inputs and the targets."""

Pair = tuple[list[int], list[int]]


@helper(
    "sentinels-stand-for-what-is-behind-them",
    r"(corrupt|hid(e|den)|mask|noise?|noisy|denois\w*|drop)_?(random_?)?(the_)?spans?|spans?_?(corrupt|mask|nois|hid|drop|denois)"
    r"|t5_?(corrupt|mask|nois|denois|example|pretrain)|sentinel|^corrupt(ed)?$|corrupt_?(text|tokens?|ids|seq(uence)?|example|row)s?$",
    {
        "random": r"rng|random(_state)?|generator|gen|np_rng|seed",
        "rate": r"(noise_?|corrupt(ion)?_?|mask(ing)?_?|drop_?)?(rate|prob(ability)?|density|ratio|p)",
        "mean": r"(mean|avg|average)_?(noise_?)?(span_?)?(len(gth)?|span|size)|span_?len(gth)?",
        "vocab": r"(n_)?vocab(_size)?",
        "sentinels": r"sentinels|(sentinel|extra)_?(token_?)?ids|extra_tokens",
        "sentinel": r"(first_?)?(sentinel|extra_?id)_?((token_?)?id|start|first|base|0|offset)?(_id)?|first_sentinel",
        "many": r"(n|num|max)_?(sentinels?|extra_?ids|spans)(_tokens)?",
        "eos": r"(eos|end)(_?(token|id|idx|index)){0,2}",
        "pad": PAD,
        "length": r"(max_?)?(seq_?|input_?|target_?)?len(gth)?|n_positions|block_size",
        "ids": r"ids|input_ids|tokens?(_ids)?|text|seq(uence)?|x|doc(ument)?|sample|example|words",
    },
    ("ids",),
)
def sentinels(hide: Called) -> Iterator[Trouble]:
    """The pieces in the places of their sentinels make up the text, in each draw that tells."""
    judged = [one for length in _LENGTHS for one in _drawn(hide, length)]
    if not judged:
        raise OtherKind("it gives no inputs and targets that share sentinels")
    if _cuts(judged):
        raise OtherKind("it cuts texts to a length")
    for words, inputs, targets in judged:
        if (wrong := _wrong(words, inputs, targets)) is not None and _wrong(words, targets, inputs) is not None:
            places = [word - _LOW if word in words else word for word in targets]
            yield Trouble(
                f"{hide.name}: {wrong}. The text is not what its pieces make up in the places of their sentinels.",
                "each word once and in order, as they stood in the text",
                f"the targets {shown(places)} (words by their places in the text)",
            )
            return


def _cuts(judged: list[tuple[list[int], list[int], list[int]]]) -> bool:
    """Whether something is as long for a short text as for a long one, while words of both are lost."""
    lost = all({*words} - {*inputs} - {*targets} for words, inputs, targets in judged)
    held = [{len({*words} & {*inputs, *targets}) for words, inputs, targets in judged}]
    held += [{len(one[side]) for one in judged} for side in (1, 2)]
    return lost and (len({len(words) for words, _, _ in judged}) == 1 or any(len(sizes) == 1 for sizes in held))


def _drawn(hide: Called, length: int) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """A text, and what it is made into; only of draws that have a few sentinels and pieces."""
    words = list(range(_LOW, _LOW + length))
    form, source = _form(hide, words)
    draws = []
    for draw in range(_DRAWS):
        with suppress(Exception):  # more spans than sentinels
            made = _pair(hide, form(words), source, draw)
            back = _pair(hide, form(words[::-1]), source, draw)
            draws.append((made, back))
    swap = dict(zip(words, words[::-1], strict=True))
    if any([[swap.get(w, w) for w in part] for part in made] != [*back] for made, back in draws):
        raise OtherKind("sentinels are words of the text, or what it does depends on the words")
    pairs = [made for made, _ in draws]
    ends = [{(one[at], other[at]) for one, other in pairs} for at in (0, -1)]
    around = {one for end in ends for one, other in end if len(end) == 1 and one == other}  # as an end of the text
    for inputs, targets in pairs:
        if _tells({*words}, inputs, targets, around):
            yield words, inputs, targets


def _tells(words: set[int], inputs: list[int], targets: list[int], around: set[int]) -> bool:
    """Whether the form is clear: at least two sentinels, with numbers in a row, each once on both sides; words are
    hidden, and not all."""
    shared = {mark for mark in {*inputs} & {*targets} - words - around if mark >= 0}
    found = sorted(mark for mark in shared if inputs.count(mark) == 1 == targets.count(mark))
    in_a_row = all(b == a + 1 for a, b in pairwise(found))
    repeated = [mark for mark in shared if targets.count(mark) > 1 and any(_pieces(words, targets, mark))]
    hidden = {*targets} & words
    return len(found) >= 2 and in_a_row and not repeated and 0 < len(hidden) < len(words) and bool({*inputs} & words)


def _pieces(words: set[int], text: list[int], mark: int) -> list[list[int]]:
    """The words behind a mark, wherever it stands."""
    found = []
    for at in (at for at, one in enumerate(text) if one == mark):
        end = next((n for n in range(at + 1, len(text)) if text[n] not in words), len(text))
        found.append(text[at + 1 : end])
    return found


def _wrong(words: list[int], inputs: list[int], targets: list[int]) -> str | None:
    """What does not fit together; None where the text comes out."""
    known = {*words}
    first = next((at for at, word in enumerate(targets) if word not in known), len(targets))
    made: list[int] = []
    for word in inputs:
        made += [word] if word in known else (_pieces(known, targets, word) or [[]])[0]
    shared = [mark for mark in inputs if mark not in known and mark in targets]
    in_targets = [mark for mark in targets if mark in shared]
    if made == words and not first and list(dict.fromkeys(shared)) == list(dict.fromkeys(in_targets)):
        return None
    both = [*inputs, *targets]
    if lost := [word for word in words if word not in both]:
        return f"{len(lost)} of {len(words)} words are lost"
    if twice := [word for word in words if both.count(word) > 1]:
        return f"{len(twice)} of {len(words)} words stand there twice"
    if first:
        return "the targets begin with words before any sentinel"
    return "a piece stands behind the sentinel of another place, or the order is another one"


def _form(hide: Called, words: list[int]) -> tuple[Callable[[list[int]], Any], Callable[[int], Any]]:
    """In which form it takes a text, and its random numbers, in most draws. Raises OtherKind where in none."""
    for form in (list[int], np.array, torch.tensor):
        for source in (random.Random, np.random.default_rng, lambda s: torch.Generator().manual_seed(s), int):
            fit = 0
            for draw in range(_DRAWS):
                with suppress(Exception):
                    _pair(hide, form(words), source, draw)
                    fit += 1
            if fit > _DRAWS // 2:
                return form, source
    raise OtherKind("it takes no text, or gives no pair")


def _pair(hide: Called, text: Any, source: Callable[[int], Any], draw: int) -> Pair:
    """Inputs and targets. Raises OtherKind where it gives something else."""
    given = {
        "ids": text, "random": source(draw), "vocab": 1000, "sentinel": _SENTINEL, "many": 90, "eos": 1, "pad": 0,
        "sentinels": list(range(_SENTINEL, _SENTINEL + 90)), "length": 512,
    }  # fmt: skip
    required = _required(hide)
    given |= {"rate": 0.3, "mean": 3} if {"rate", "mean"} & required else {}
    options = {"vocab", "many", "length", "eos", "pad", "rate", "mean"} - required
    with seeded(draw):
        made = hide.arguments.call(hide.function, **{name: one for name, one in given.items() if name not in options})
    found = [_without_padding(_numbers(part)) for name, part in named_parts(made) if not _AGAIN.search(name.lower())]
    if len(found) != 2 or not all(found):
        raise OtherKind("it gives no pair of texts")
    return found[0], found[1]


def _without_padding(text: list[int]) -> list[int]:
    """Without what stands more than once at its end."""
    last = len(text)
    while last > 1 and text[last - 1] == text[-1]:
        last -= 1
    return text[:last] if len(text) - last > 1 else text


def _required(hide: Called) -> set[str]:
    """The meanings of the parameters without a default."""
    parameters = inspect.signature(hide.function).parameters
    named = hide.arguments.parameter_of.items()
    return {meaning for meaning, name in named if parameters[name].default is inspect.Parameter.empty}


def _numbers(part: Any) -> list[int]:
    """Raises OtherKind for what is no row of whole numbers."""
    if isinstance(part, (Tensor, np.ndarray)):
        part = part.reshape(-1).tolist() if part.ndim == 1 or len(part) == 1 else [None]
    if not isinstance(part, (list, tuple)) or not all(isinstance(one, (int, np.integer)) for one in part):
        raise OtherKind("it gives no words")
    return [int(one) for one in part]
