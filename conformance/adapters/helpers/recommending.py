"""Helpers of recommendation: histories of items, negative items, examples for training."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import torch

from conformance.adapters.helpers.collating import named_as_returned
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, shown, tensor

_ITEMS = r"history|hist|items?|seq(uence)?|x|ids|tokens?|user_items|interactions"
_LONGEST = r"max_?len(gth)?|length|n|size|seq_?len|l"
_SOURCES: tuple[Any, ...] = (np.random.default_rng(0), random.Random(0), torch.Generator().manual_seed(0), None)


@helper(
    "histories-keep-the-last-items",
    r"left_?pad|pad_?left|pad_(history|sequence|items|or_trunc\w*)|trunc\w*(_|$)|pad_and_trunc\w*|fix_length",
    {"pad": r"pad(_?(id|value|token|idx))?|fill|value", "longest": _LONGEST, "items": _ITEMS},
    ("items", "longest"),
)
def last_items(cut: Called) -> Iterator[Trouble]:
    """A long history loses what is oldest; a short one is padded on the side that its name says."""

    def row(items: list[int]) -> list[int]:
        for given in (items, torch.tensor(items), np.array(items)):
            with suppress(Exception):
                return [int(n) for n in tensor(cut(items=given, longest=6, pad=0)).reshape(-1).tolist()]
        raise OtherKind("it gives no items")

    long, short = row(list(range(1, 11))), row([1, 2, 3])
    of_last = bool(re.search(r"left|last|recent|newest|history|latest", cut.says))
    sides = re.findall(r"left|right", cut.name.lower()) or re.findall(r"\b(left|right)\b(?!-?\s?aligned)", cut.says)
    only_pads = long == list(range(1, 11)) and not re.search(r"trunc|fix|cut|crop", cut.says)
    if len(long) != 6 and not only_pads:  # what only pads leaves it to its callers to cut
        yield Trouble(f"{cut.name} gives {len(long)} items where 6 is the longest.", 6, len(long))
    elif of_last and not only_pads and long != [5, 6, 7, 8, 9, 10]:
        yield Trouble(f"{cut.name} does not keep the last items.", "5, 6, 7, 8, 9, 10", shown(long))
    elif sides == ["left"] and len(short) == 6 and short != [0, 0, 0, 1, 2, 3]:
        yield Trouble(f"{cut.name} does not pad on the left.", "0, 0, 0, 1, 2, 3", shown(short))
    elif sides == ["right"] and len(short) == 6 and short != [1, 2, 3, 0, 0, 0]:
        yield Trouble(f"{cut.name} does not pad on the right.", "1, 2, 3, 0, 0, 0", shown(short))


@helper(
    "negative-items-were-never-seen",
    r"neg(ative)?s?(_|$)|random_?neq|sample_neg",
    {
        "rng": r"rng|generator|random(_state)?|g|gen",
        "seen": r"seen|history|positives?|user_items|s|items?|pos(_set)?|exclude|ts",
        "many": r"n_?items|num_?items|item_?num|n_total|vocab(_size)?|r|high|max_id",
        "shape": r"(out_?)?shape",
        "size": r"size|k|n|num(_neg(atives)?)?|n_neg(atives)?|count|length|max_?len",
        "low": r"l|low",
    },
    ("seen", "many"),
)
def unseen(sample: Called) -> Iterator[Trouble]:
    """Of items 1 to 12 of which ten were seen, only the other two can be drawn."""
    seen = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12}
    drawn: set[int] = set()
    for source in _SOURCES:
        with suppress(Exception):
            for _ in range(12):
                made = sample(seen=seen, many=12, size=8, shape=(8,), rng=source, low=1)
                drawn |= {int(n) for n in tensor(made).reshape(-1).tolist()}
            break
    if not drawn:
        yield from _unseen_of_rows(sample)
    elif drawn & seen:
        yield Trouble(
            f"{sample.name} draws items that were seen.", "items that were not seen", shown(sorted(drawn & seen))
        )
    elif not drawn <= set(range(1, 14)) or 0 in drawn:
        yield Trouble(
            f"{sample.name} draws numbers that are no items, such as padding.", "1 to 12", shown(sorted(drawn))
        )


def _unseen_of_rows(sample: Called) -> Iterator[Trouble]:
    """Of rows of items in a tensor, of which three of twelve were seen: these come more seldom than others, since some
    draw again so many times only, and padding never."""
    counts = torch.zeros(16)
    for source in (None, torch.Generator().manual_seed(0)):
        with suppress(Exception):
            for _ in range(12):
                made = tensor(sample(seen=torch.tensor([[2, 4, 6]] * 2), many=12, size=64, shape=(64,), rng=source))
                counts += torch.bincount(made.reshape(-1).long(), minlength=16)[:16]
            break
    whole = float(counts.sum())
    if not whole:
        raise OtherKind("it gives no items")
    pads = any("pad" in name and value == 0 and type(value) is int for name, value in sample.settings.items())
    told = re.search(r"seen|histor|exclude|visited|user_items", sample.arguments.parameter_of["seen"].lower())
    if told and float(counts[[2, 4, 6]].sum()) > whole / 8:
        yield Trouble(f"{sample.name} draws items that were seen.", "items that were not seen", "2, 4, 6")
    elif pads and counts[0]:
        got = shown([n for n, count in enumerate(counts.tolist()) if count])
        yield Trouble(f"{sample.name} draws numbers that are no items, such as padding.", "1 to 12", got)


_HISTORIES = (
    [31, 12, 45, 23, 14, 38, 27],
    [31, 12, 45, 23, 14, 38, 27, 41, 19, 33, 16, 29],
)
"""Histories of items that are all different, shorter and longer than what is asked for."""
_ROOM = 9
_PAIR = r"seq(uence)?|history|example|sample|instance"


@helper(
    "examples-are-labelled-with-the-next-item",
    rf"(make|build|get|create|training|train|sample|draw|prepare)_?((training|train|user|next|pos_neg)_?)*({_PAIR})s?$"
    rf"|({_PAIR}|items)_?to_?(example|sample|instance|pair|input)s?|make_example|shift_(history|items|sequence)",
    {
        "rng": r"rng|generator|random(_state)?|gen",
        "longest": _LONGEST,
        "many": r"n_?items?|num_?items?|item_?(num|count)|vocab(_size)?",
        "items": _ITEMS,
    },
    ("items",),
)
def next_items(example: Called) -> Iterator[Trouble]:
    """The label of each item is the one behind it in the history."""
    if _OTHER_WAYS.search(example.says) or (re.search("mask|mlm", example.source.lower()) and not _has_pos(example)):
        raise OtherKind("it may hide or exchange items, or go backwards")
    judged = [_steps(example, history) for history in _HISTORIES]
    for history, steps in zip(_HISTORIES, judged, strict=True):
        if len(steps) < 3:
            raise OtherKind("it gives too few items with labels")
        if all(step < 1 for step, _, _ in steps):
            step, item, label = steps[0]
            what = "itself" if step == 0 else "one before it"
            yield Trouble(
                f"{example.name} labels an item with {what}, not with the next of the history.",
                f"{history[history.index(item) + 1]} for the item {item} of {', '.join(map(str, history[:7]))}",
                label,
            )
            return
    if any(step != 1 for steps in judged for step, _, _ in steps):
        raise OtherKind("its labels are other items, and nothing shows which")


_OTHER_WAYS = re.compile(r"mask|cloze|mlm|bert|backward|revers|flip|augment|view|contrast|crop|shuffl")
_LABELS = re.compile(r"(pos|label|target|tgt|next|gold|y|out)\w*|\w*_(pos|labels?|targets?|next|y|out)")


def _has_pos(example: Called) -> bool:
    return re.search(r"\bpos", example.source.lower()) is not None


def _steps(example: Called, history: list[int]) -> list[tuple[int, int, int]]:
    """How far behind each item its label stands in the history, with both. Raises OtherKind where the whole history
    is given twice: then something else shifts the labels."""
    rows = _rows(example, history)
    items, labels = rows[:2]
    both = [(a, b) for a, b in zip(items, labels, strict=True) if a != 0 and b != 0]
    read = [a for a, _ in both]
    if not {*read, *(b for _, b in both)} <= {*history} or read != [a for a in history if a in read]:
        raise OtherKind("it gives no items of the history in their order")
    if len(rows) == 2 and items == labels and history[-1] in items:
        raise OtherKind("inputs and labels are the same: what trains shifts them")
    return [(history.index(b) - history.index(a), a, b) for a, b in both]


def _rows(example: Called, history: list[int]) -> list[list[int]]:
    """What it makes of a history: the items, their labels, and what else is as long; the labels second."""
    for source, form in product(_SOURCES, (list[int], np.array, torch.tensor)):
        with suppress(Exception):
            made = example(items=form(history), longest=_ROOM, many=60, rng=source)
            named = named_as_returned(example, made)
            break
    else:
        raise OtherKind("it gives no example")
    rows = [(name, tensor(part)) for name, part in named if not re.fullmatch(r"\w*(mask|len)\w*", name)]
    rows = [(name, row.reshape(-1)) for name, row in rows if row.dim() == 1 or (row.dim() == 2 and len(row) == 1)]
    if len(rows) not in (2, 3) or any(len(row) != len(rows[0][1]) for _, row in rows):
        raise OtherKind("it gives no labels")
    if _LABELS.fullmatch(rows[0][0]) and not _LABELS.fullmatch(rows[1][0]):
        rows[:2] = rows[1::-1]
    return [[int(number) for number in row.tolist()] for _, row in rows]
