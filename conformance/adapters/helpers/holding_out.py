"""Splits of each user's history: what is held out for validation and test is not what is trained on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, named_parts, shown

_HISTORIES = {user: [7 * user + (3 * at + user) % 7 for at in range(5 + user % 3)] for user in range(1, 7)}
"""By user, items that are all different."""
_EVENTS = [(user, items[at]) for at in range(8) for user, items in _HISTORIES.items() if at < len(items)]
"""The same, one after another in time."""

_FORMS: tuple[Callable[[], Any], ...] = (
    lambda: list(_EVENTS),
    lambda: {user: list(items) for user, items in _HISTORIES.items()},
    lambda: [(user, item, time) for time, (user, item) in enumerate(_EVENTS)],
    lambda: np.array(_EVENTS),
    lambda: [list(items) for items in _HISTORIES.values()],
)
_TRAIN, _HELD_OUT = re.compile(r"\w*train\w*"), re.compile(r"\w*(val|dev|test|held|eval)\w*")
_IN_TIME = re.compile(r"\btime\b|chronolog|(?<!\bat )\blast\b|most recent|newest|latest")


@helper(
    "held-out-items-are-not-trained-on",
    r"leave_?one_?out|(^|_)loo(_|$)|data_?partition|partition_?data|hold_?out"
    r"|split_?(by_)?(user|item|histor|interaction|sequence|event|rating|log|data)|(train|val|valid)\w*_test(_|$)"
    r"|(user|histor\w+|interactions?|sequences?|data|dataset)_?split|make_splits?",
    {
        "rng": r"rng|generator|random_?(state)?|gen|seed",
        "data": (
            r"interactions?|pairs?|events?|ratings?|logs?|data(set)?|(user_?)?(histories|history|items|seqs|sequences)|"
            r"by_user|user_?(to_?items|dict|map)|records|rows|purchases|clicks|sessions"
        ),
    },
    ("data",),
)
def held_out(split: Called) -> Iterator[Trouble]:
    """Of users with five to seven different items: nothing that is held out is trained on, or held out twice."""
    trained, others = _parts(split)
    whole = {user: [items, *(part[user] for part in others)] for user, items in trained.items()}
    if not all(all(one) and len(one[0]) > 1 for one in whole.values()):
        raise OtherKind("it leaves something empty for a user")
    if any({item for part in one for item in part} - {*_HISTORIES[user]} for user, one in whole.items()):
        raise OtherKind("it gives something else than the user's items")
    for user, (items, *held) in whole.items():
        asked = [part[-1] for part in held]  # a part may hold what comes before it, too
        if not all(len(part) == 1 or part[-2] == _before(user, part[-1]) for part in held):
            raise OtherKind("its parts are no items that are held out")
        if seen := [item for item in asked if item in items]:
            if not all({*one[0]} & {part[-1] for part in one[1:]} for one in whole.values()):
                raise OtherKind("items of some users only are in both parts")
            yield Trouble(
                f"{split.name} trains on an item that is held out for validation or test.",
                f"items for training without {shown(asked)}, which are held out",
                shown(items) + f": the item {seen[0]} is in both parts",
            )
            return
        if len({*asked}) < len(asked):
            yield Trouble(
                f"{split.name} holds the same item out for validation and for test.", "different items", shown(asked)
            )
            return
        alone = all(len(part) == 1 for part in held)
        in_order = [*items, *asked] == _HISTORIES[user][-len(items) - len(asked) :]
        if alone and not in_order and _IN_TIME.search(split.says):
            yield Trouble(
                f"{split.name} does not hold out the last items of a history in their order.",
                shown(_HISTORIES[user]),
                shown([*items, *asked]),
            )
            return


def _before(user: int, item: int) -> int:
    """The item before one in the user's history."""
    items = _HISTORIES[user]
    return items[items.index(item) - 1]


Part = dict[int, list[int]]


def _parts(split: Called) -> tuple[Part, list[Part]]:
    """What is trained on, and what is held out, by user; one item alone is a list of it. Raises OtherKind."""
    for form in _FORMS:
        with suppress(Exception):
            made = named_parts(split(data=form(), rng=0))
            named = [(name.lower(), part) for name, part in made if len(_lists(part)) == len(_HISTORIES)]
            parts = [_lists(part) for _, part in named]
            names = [name for name, _ in named]
            if len(parts) not in (2, 3) or any(part.keys() != _HISTORIES.keys() for part in parts):
                continue
            if not any(names):
                return parts[0], parts[1:]
            trained = [part for name, part in zip(names, parts, strict=True) if _TRAIN.fullmatch(name)]
            held = [part for name, part in zip(names, parts, strict=True) if _HELD_OUT.fullmatch(name)]
            if len(trained) == 1 and len(held) == len(parts) - 1:
                return trained[0], held
    raise OtherKind("it gives no parts of each user's items")


def _lists(part: Any) -> Part:
    """Items by user: of a mapping, or of a list with one list for each user. Raises TypeError for anything else."""
    if isinstance(part, (list, tuple)) and len(part) == len(_HISTORIES) and all(isinstance(one, list) for one in part):
        part = dict(zip(_HISTORIES, part, strict=True))
    if not isinstance(part, Mapping):
        return {}
    return {
        int(user): [int(one) for one in (items if hasattr(items, "__len__") else [items])]
        for user, items in part.items()
    }
