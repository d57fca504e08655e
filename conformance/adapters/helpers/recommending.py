"""Helpers of recommendation: histories of items, negative items, examples for training."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, parts, shown, tensor

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
                made = sample(seen=seen, many=12, size=8, rng=source, low=1)
                drawn |= {int(n) for n in tensor(made).reshape(-1).tolist()}
            break
    if not drawn:
        raise OtherKind("it gives no items")
    if drawn & seen:
        yield Trouble(
            f"{sample.name} draws items that were seen.", "items that were not seen", shown(sorted(drawn & seen))
        )
    elif not drawn <= set(range(1, 14)) or 0 in drawn:
        yield Trouble(
            f"{sample.name} draws numbers that are no items, such as padding.", "1 to 12", shown(sorted(drawn))
        )


@helper(
    "examples-are-labelled-with-the-next-item",
    r"(make|build|get|create|training|train)_?(training_?|train_?)?(example|sample|instance|sequences?)s?$|make_example",
    {
        "rng": r"rng|generator|random(_state)?|gen",
        "longest": _LONGEST,
        "many": r"n_?items|num_?items|item_?num|vocab(_size)?",
        "items": _ITEMS,
    },
    ("items", "longest"),
)
def next_items(example: Called) -> Iterator[Trouble]:
    """Of the history 1, 2, 3, ... each label is the item plus one."""
    for source in _SOURCES:
        with suppress(Exception):
            made = parts(example(items=list(range(1, 8)), longest=10, many=100, rng=source))
            rows = [tensor(part).reshape(-1) for part in made]
            break
    else:
        raise OtherKind("it gives no example")
    if len(rows) < 2 or len(rows[0]) != len(rows[1]):
        raise OtherKind("it gives no labels")
    items, labels = rows[:2]
    both = (items > 0) & (labels > 0)
    if not bool(both.any()) or set(items[both].tolist()) - set(range(1, 8)):
        raise OtherKind("it gives no items of the history")
    if not bool((labels[both] == items[both] + 1).all()):
        yield Trouble(
            f"{example.name} labels an item with another one than the next of the history.",
            shown(items[both] + 1),
            shown(labels[both]),
        )
