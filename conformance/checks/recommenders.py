"""Checks of models of items: which they recommend, and which of two their loss prefers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.losses_of_models import needs_a_token_of_padding
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import Array, NotProvided

MANY = 6
"""How many items are asked for."""
WORDS, WIDER, SEEDS = 5, 2, (1, 2, 3)
"""How many items the histories of a loss have, how many places of padding are added to them, and how often false items
are drawn."""


@check("recommendations-are-the-best-that-are-new", roles=("language_model",))
def best_that_are_new(impl: Any, draw: Draw) -> Evidence:
    """What is recommended are the items with the highest scores behind the newest item of a history; where the method
    says that items of the history are left out, all of them are."""
    subject = impl.build("language_model", {})
    if subject.last_only:
        raise NotProvided("it answers for the last position only")
    return all_of(*(_judged(subject, one) for one in subject.recommended(MANY)))


def _judged(subject: Any, one: Any) -> Evidence:
    pad = [] if subject.pad_id is None else [subject.pad_id]

    def fits(at: int, held: slice | None, sign: float = 1.0) -> bool:
        """Whether these are the best by the scores of a place, without padding and what a part of the history holds.
        sign -1: the worst; what is left out by a score of minus infinity may be among them."""
        for row, items in enumerate(one.items):
            scores = sign * one.scores[row, at]
            for out, value in ((pad, -np.inf), ([], -np.inf), (pad, -sign * np.inf)):
                left = scores.copy()
                left[[*out, *(one.histories[row, held] if held else [])]] = value
                best = np.sort(left)[::-1][: len(items)]  # by their scores: what is left out has one score
                if len({*items.tolist()}) == len(items) and np.array_equal(np.sort(left[items])[::-1], best):
                    break
            else:
                return False
        return True

    every, newest, what = slice(None), slice(-1, None), f"what {one.name} recommends"
    if fits(-1, every) or (not one.says and fits(-1, None)):
        return true(what, True, got="the best behind the newest item")
    parts = ((None, "nothing of the history is left out"), (newest, "only its newest item is left out"))
    for held, words in parts:
        if fits(-1, held) and not one.says:
            return note(f"of what a history holds {one.name} leaves out a part", words)
        if fits(-1, held):
            return true(what, False, expected="items that the history does not hold", got=words).saying(
                diagnosis=f"{one.name} says that what was seen is left out, and {words}.",
                place=one.place,
                mend="hide the scores of all items of the history",
            )
    for held in (every, newest, None):
        if fits(0, held):
            return true(what, False, expected="by the last place", got="by the first place").saying(
                diagnosis=f"{one.name} reads the scores of the first place of the history, not those behind its newest "
                "item.",
                place=one.place,
                mend="scores[:, -1]",
            )
        if fits(-1, held, -1.0):
            return true(what, False, expected="the highest scores", got="the lowest").saying(
                diagnosis=f"{one.name} recommends the items with the lowest scores.", place=one.chosen_at or one.place
            )
    raise NotProvided("by which rule it recommends is not known")


@check("losses-of-samples-prefer-the-true-item", roles=("language_model",))
def prefers_the_true_item(impl: Any, draw: Draw) -> Evidence:
    """A true item with a higher score lowers the loss, and a false item with a higher score raises it."""
    subject = impl.build("language_model", {})
    if subject.last_only or subject.calling.outputs < 8:
        raise NotProvided("its scores of each place are not given, or of a few items only")
    parts = [*_of_drawn_items(subject), *_of_given_items(subject)]
    if not parts:
        raise NotProvided("none of its losses compares true items with false ones by the scores of forward")
    return all_of(*parts)


def _of_drawn_items(subject: Any) -> Iterator[Evidence]:
    """Of losses that draw their false items by themselves."""
    with suppress(NotProvided):
        found = subject.pushes()
        for name in dict.fromkeys(push.loss for push in found):
            mine = [push for push in found if push.loss == name]
            for is_true, (wrong, change) in ((True, ("true", "lower")), (False, ("false", "raise"))):
                right = [(push.slope < 0) == is_true for push in mine if push.is_true == is_true]
                if right and all(one == right[0] for one in right):
                    yield _preferred(name, mine[0].place, right[0], wrong, change, [push.slope for push in mine])


def _preferred(name: str, place: str, right: bool, wrong: str, change: str, got: Any) -> Evidence:
    return true(f"what {name} prefers", right, got=got).saying(
        diagnosis=f"In {name} a higher score of the {wrong} item does not {change} the loss: its sign is turned round.",
        place=place,
        mend="softplus(-score of the true item) + softplus(score of the false item)",
    )


def _of_given_items(subject: Any) -> Iterator[Evidence]:
    """Of losses that are given true and false items."""
    losses: list[Any] = []
    with suppress(NotProvided):
        losses = subject.losses_of_pairs()
    for name, place, loss in losses:
        history = subject.example(2, seed=96)["ids"]
        worst, middle, best = _by_score(subject, history)
        by_true = loss(history, worst, middle) - loss(history, best, middle)
        by_false = loss(history, middle, best) - loss(history, middle, worst)
        if by_true and not any(loss(history, middle, middle) - loss(history, middle, one) for one in (best, worst)):
            yield (
                true(f"the false items of {name} count", False, expected="another loss", got="the same loss").saying(
                    diagnosis=f"{name} takes false items, and its loss is the same whichever they are: no score of a "
                    "false item is lowered.",
                    place=place,
                    mend="add softplus(score of the false item)",
                )
            )
            continue
        if not (by_true > 0 or by_false > 0) or 0 in (by_true, by_false):
            continue  # its scores are not those of forward, or it compares other things
        wrong, change = ("true", "lower") if by_true < 0 else ("false", "raise")
        right = by_true > 0 and by_false > 0
        yield _preferred(name, place, right, wrong, change, f"{by_true:.3g} and {by_false:.3g}")


@check("losses-of-samples-leave-padding-out", roles=("language_model",))
def leave_padding_out(impl: Any, draw: Draw) -> Evidence:
    """A loss that draws false items by itself teaches nothing at places of padding, and does not count them."""
    subject = impl.build("language_model", {})
    needs_a_token_of_padding(subject)
    if subject.longest is not None and subject.longest < WORDS + WIDER:
        raise NotProvided("its longest text is too short to fill it up")
    less, more = ([push for seed in SEEDS for push in subject.pushes(wider, seed)] for wider in (0, WIDER))
    parts = []
    for name in dict.fromkeys(push.loss for push in more):
        mine = [push for push in more if push.loss == name]
        taught = [push for push in mine if push.padded]
        shares = _shares(less, mine)
        diluted = [share for share in shares if any(abs(share - n / (n + WIDER)) < 1e-4 for n in (WORDS, WORDS - 1))]
        parts.append(
            true(f"what {name} counts", not taught and not diluted, got=f"{len(taught)} places of padding").saying(
                diagnosis=f"{name} teaches drawn items at places of padding, whose next item is padding, too."
                if taught
                else f"{name} counts places of padding in its mean: the more a batch has, the less its items count.",
                place=mine[0].place,
                mend="(each * real).sum() / real.sum()",
            )
        )
    return all_of(*parts)


def _shares(less: list[Any], more: list[Any]) -> Iterator[float]:
    """How large a part of the slope of each true item is left with more padding, where that can be told: no drawn item
    changes it, and its place has the same state."""
    for push in more:
        others = [one for one in less if one.item == push.item and one.loss == push.loss]
        alike = all(np.allclose(one.state, push.state, rtol=1e-6) for one in others)
        repeats = all(np.isclose(one.slope, others[0].slope, rtol=1e-6) for one in others)
        if push.is_true and len(others) > 1 and alike and repeats:
            yield push.slope / others[0].slope


@check("drawn-false-items-are-false", roles=("language_model",))
def drawn_items_are_false(impl: Any, draw: Draw) -> Evidence:
    """A method that draws false items for true ones, and says that none is the true one, gives none that is."""
    parts = []
    for one in impl.build("language_model", {}).samplers():
        if one.hits and not one.says:
            return note("drawn false items may be the true ones", f"{one.hits} of {one.count} in {one.name}")
        parts.append(
            true(f"what {one.name} draws", not one.hits, got=f"{one.hits} of {one.count} are the true item").saying(
                diagnosis=f"{one.name} says that it draws no item that is the true one, and it does: the loss "
                "pushes the true item down, too.",
                place=one.place,
                mend="(true + randint(1, n)) % n",
            )
        )
    return all_of(*parts)


def _by_score(subject: Any, history: Array) -> tuple[Array, Array, Array]:
    """For each place the item with the lowest score of forward, one between, and the one with the highest."""
    order = subject(ids=history)["out"].argsort(-1)
    rows = [[[item for item in place if item != subject.pad_id] for place in row] for row in order.tolist()]
    return tuple(np.array([[place[at] for place in row] for row in rows]) for at in (0, len(rows[0][0]) // 2, -1))  # type: ignore[return-value]
