"""Checks of models of items: which they recommend, and which of two their loss prefers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
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


@check("recommendations-are-the-best-that-are-new", roles=("model",))
def best_that_are_new(impl: Any, draw: Draw) -> Evidence:
    """What is recommended are the items with the highest scores behind the newest item of a history; where the method
    says that items of the history are left out, all of them are."""
    subject = impl.build("model", {})
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


@check("recommendations-hold-no-padding", roles=("model",))
def hold_no_padding(impl: Any, draw: Draw) -> Evidence:
    """Who asks for as many items as are left gets items, and no padding."""
    subject = impl.build("model", {})
    needs_a_token_of_padding(subject)
    return all_of(
        *(
            true(f"what {one.name} recommends", not (one.items == subject.pad_id).any(), got="padding").saying(
                diagnosis=f"{one.name} recommends padding ({subject.pad_id}), as if it were an item.",
                place=one.chosen_at,
                mend=f"scores[:, {subject.pad_id}] = -torch.inf",
            )
            for one in subject.recommended(0)
        )
    )


@check("candidates-are-scored-behind-the-newest-item", roles=("model",))
def scored_behind_the_newest(impl: Any, draw: Draw) -> Evidence:
    """A method that scores candidates reads the state of the newest item, also where padding stands in front."""
    subject = impl.build("model", {})
    if not subject.counts_from_the_end() or subject.pad_id is None:
        raise NotProvided("it does not say that padding stands in front of its histories")
    whole = subject.example(3, WORDS, seed=96)[subject.calling.main.meaning]
    padded = np.concatenate([np.full((3, WIDER), subject.pad_id), whole], 1)
    candidates, parts = np.sort(whole, 1)[:, :4], []
    for name, place, scores in subject.scorers():
        for history in (whole, padded):
            expected = np.take_along_axis(subject.item_scores(history)[:, -1], candidates, 1)
            got = scores(history, candidates)
            right = got.shape == expected.shape and np.allclose(got, expected, rtol=1e-4, atol=1e-5)
            if history is whole and not right:
                break  # its scores are made in another way
            parts.append(
                true(f"the scores of {name}", right, expected=expected[0], got=got[0]).saying(
                    diagnosis=f"With padding in front of a history {name} scores candidates by another place than that "
                    "of the newest item, which is the last.",
                    place=place,
                    mend="states[:, -1]",
                )
            )
    if not parts:
        raise NotProvided("its methods score candidates in another way than by the states of forward")
    return all_of(*parts)


@check("long-histories-are-cut-to-their-newest-items", roles=("model",))
def cut_to_the_newest(impl: Any, draw: Draw) -> Evidence:
    """Of a history that is too long a model that says what comes next reads the newest items."""
    subject = impl.build("model", {})
    if not subject.recommends():
        raise NotProvided("nothing says that it recommends items")
    got, newest, oldest = subject.cut_histories()
    if not (same(got, newest) or same(got, oldest)):
        raise NotProvided(
            "what it answers for a history that is too long is neither for its newest nor its oldest items"
        )
    return true(
        f"the {got.shape[1]} items that are read", same(got, newest), expected="the newest", got="the oldest"
    ).saying(
        diagnosis=f"Of a history that is too long the oldest {got.shape[1]} items are read: the newest ones, which "
        "tell most about the next, are never seen.",
        place=subject.line_of(r"\[:, *:[^\]]*len") or subject.place(),
        mend="history[:, -max_len:]",
    )


def same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, atol=1e-5)


@check("losses-of-samples-prefer-the-true-item", roles=("model",))
def prefers_the_true_item(impl: Any, draw: Draw) -> Evidence:
    """A true item with a higher score lowers the loss, and a false item with a higher score raises it."""
    subject = impl.build("model", {})
    if subject.calling.main.vocab < 8:
        raise NotProvided("its scores of each place are not given, or of a few items only")
    parts = [*_of_drawn_items(subject), *_of_given_items(subject)]
    if not parts:
        raise NotProvided("none of its losses compares true items with false ones by the scores of forward")
    return all_of(*parts)


def _of_drawn_items(subject: Any) -> Iterator[Evidence]:
    """Of losses that draw their false items by themselves."""
    with suppress(NotProvided):
        found = subject.pushes() if subject.kind == "language_model" else []
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


@check("losses-of-samples-leave-padding-out", roles=("model",))
def leave_padding_out(impl: Any, draw: Draw) -> Evidence:
    """A loss of true and false items teaches nothing at places of padding, and does not count them."""
    subject = impl.build("model", {})
    needs_a_token_of_padding(subject)
    if subject.longest is not None and subject.longest < WORDS + WIDER:
        raise NotProvided("its longest text is too short to fill it up")
    parts = [*_padding_of_given_items(subject)]
    with suppress(NotProvided) if parts else nullcontext():
        parts += _padding_of_drawn_items(subject)
    return all_of(*parts)


def _padding_of_given_items(subject: Any) -> Iterator[Evidence]:
    """Of losses that are given true and false items: with padding in front, where that changes no answer, they are the
    same."""
    losses: list[Any] = []
    with suppress(NotProvided):
        losses = subject.losses_of_pairs() if subject.says_left() else []
    names = ("history", "true", "false")
    plain = {name: subject.example(2, WORDS, seed=at)[subject.calling.main.meaning] for at, name in enumerate(names)}
    padded = {name: np.concatenate([np.full((2, WIDER), subject.pad_id), ids], 1) for name, ids in plain.items()}
    for name, place, loss in losses:
        answers = [subject(**{subject.calling.main.meaning: one["history"]})["out"] for one in (plain, padded)]
        if not same(answers[0], answers[1][:, WIDER:]):
            continue  # another claim speaks of it
        one, other = (loss(given["history"], given["true"], given["false"]) for given in (plain, padded))
        ok = bool(np.isclose(one, other, rtol=1e-4))
        yield true(f"what {name} counts", ok, expected=one, got=other).saying(
            diagnosis=f"{name} counts places of padding, whose next item is padding, too: with more padding it is "
            "another loss of the same items.",
            place=place,
            mend="(each * real).sum() / real.sum()",
        )


def _padding_of_drawn_items(subject: Any) -> list[Evidence]:
    if subject.kind != "language_model":
        raise NotProvided("it gives no scores of items")
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
    return parts


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
    order = subject.item_scores(history).argsort(-1)
    rows = [[[item for item in place if item != subject.pad_id] for place in row] for row in order.tolist()]
    return tuple(np.array([[place[at] for place in row] for row in rows]) for at in (0, len(rows[0][0]) // 2, -1))  # type: ignore[return-value]
