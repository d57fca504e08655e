"""Checks of models of items: which they recommend, and which of two their loss prefers."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import Array, NotProvided

MANY = 6
"""How many items are asked for."""


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
    parts = []
    for name, place, loss in subject.losses_of_pairs():
        history = subject.example(2, seed=96)["ids"]
        worst, middle, best = _by_score(subject, history)
        by_true = loss(history, worst, middle) - loss(history, best, middle)
        by_false = loss(history, middle, best) - loss(history, middle, worst)
        if by_true and not any(loss(history, middle, middle) - loss(history, middle, one) for one in (best, worst)):
            parts.append(
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
        parts.append(
            true(f"what {name} prefers", by_true > 0 and by_false > 0, got=f"{by_true:.3g} and {by_false:.3g}").saying(
                diagnosis=f"In {name} a higher score of the {wrong} item does not {change} the loss: its sign is "
                "turned round.",
                place=place,
                mend="softplus(-score of the true item) + softplus(score of the false item)",
            )
        )
    if not parts:
        raise NotProvided("its loss of pairs does not follow the scores of forward")
    return all_of(*parts)


def _by_score(subject: Any, history: Array) -> tuple[Array, Array, Array]:
    """For each place the item with the lowest score of forward, one between, and the one with the highest."""
    order = subject(ids=history)["out"].argsort(-1)
    rows = [[[item for item in place if item != subject.pad_id] for place in row] for row in order.tolist()]
    return tuple(np.array([[place[at] for place in row] for row in rows]) for at in (0, len(rows[0][0]) // 2, -1))  # type: ignore[return-value]
