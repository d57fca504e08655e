"""Checks of caches: a model fed in pieces against one pass over the same tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.generation import (
    KINDS,
    NEW,
    alike,
    best_tokens,
    built,
    ended,
    log_softmax,
    own_logits,
    prompt,
    script,
    writers,
)
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, true
from conformance.protocol import Array, NotProvided

SEGMENT, MOST, WIDEST = 8, 65, 40
"""How many tokens are fed at once, how many in all, and the widest window that is written through."""
_MEMORY = re.compile(r"mems|memories")
_LENGTHS = "mem|cache|past|window|max_"


@check("cached-steps-give-the-logits-of-one-pass", roles=KINDS)
def cached_steps(impl: Any, draw: Draw) -> Evidence:
    """Fed in pieces, with the cache that it takes or keeps, the model gives the logits of one pass."""
    subject = built(impl)
    parts = list(_written_with_a_cache(subject))
    if not parts:
        return _fed_by_hand(subject)
    if _MEMORY.search(subject.calling.cache) and all(one.ok for one in parts):  # it may choose by its ranks alone
        with suppress(NotProvided):
            parts.append(_fed_by_hand(subject))
    return all_of(*parts)


@check("caches-keep-the-newest-tokens", roles=KINDS)
def keeps_the_newest(impl: Any, draw: Draw) -> Evidence:
    """However many tokens were fed before, what a cache holds of them are the newest: the last answer follows the token
    fed right before it."""
    subject = built(impl)
    steps = subject.stepping()
    longest = min(subject.longest or MOST, MOST)
    ids = subject.example(2, longest, 63)["ids"]
    pieces = (SEGMENT,) * ((longest - 1) // SEGMENT)
    ids = ids[:, : sum(pieces) + 1]
    if len(pieces) < 3:
        raise NotProvided("it takes too few tokens to fill a cache that is cut")
    other = ids.copy()
    other[:, -1 - SEGMENT : -1] = subject.example(2, SEGMENT, 64)["ids"]
    try:
        first, second = (steps.logits(subject, fed, (*pieces, 1))[:, -1] for fed in (ids, other))
    except Exception as error:
        raise NotProvided(f"its cache takes no {len(pieces) + 1} pieces") from error
    follows = float(np.abs(first - second).max()) > 1e-9 * max(float(np.abs(first).max()), 1e-9)
    return true("the last answer follows the tokens fed right before", follows, got="no change").saying(
        diagnosis=f"Behind {sum(pieces)} tokens the cache holds none of the newest {SEGMENT}: it keeps the oldest.",
        place=subject.line_of(rf"\[.*:\s*(self\.)?\w*({_LENGTHS})\w*") or cache_line(subject),
        mend="keep the end: torch.cat([memory, hidden], dim)[-memory_length:]",
    )


def _written_with_a_cache(subject: Any) -> Iterator[Evidence]:
    """For each of its writers that feeds a cache, its steps against one pass; beyond its window, where it says one."""
    window = subject.window_length() or 0
    fits = NEW < window <= WIDEST and window + 2 * NEW <= (subject.longest or MOST)
    with suppress(NotProvided):
        for writer in writers(subject):
            data = prompt(subject, writer.rows, 78)
            words = script(subject, writer.rows, window if fits else NEW)
            written = writer.write(subject, data, words.shape[1], script=words)
            if written.cached:
                yield _steps_of(subject, writer, written, data)


def _fed_by_hand(subject: Any) -> Evidence:
    """A prefill, then one token at a time, as its forward takes a cache; larger pieces are a note. Of memories that are
    cut, as the model says, the tokens that have all of their past."""
    steps = subject.stepping()
    ids = subject.example(2, 6, 62)["ids"]
    held = subject.memory_length() if _MEMORY.search(subject.calling.cache) else None
    whole = ids.shape[1] if held is None else min(held + 1, ids.shape[1])
    one_pass = subject(ids=ids)["out"][:, :whole]
    bound = max(2e-4, 10 * subject.noise) * float(np.abs(one_pass).max())
    got = steps.logits(subject, ids, (3, 1, 1, 1))[:, :whole]
    evidence = close("the logits of pieces of 3, 1, 1 and 1 tokens", got, one_pass, bound, "rounding")
    if not evidence.ok:
        return evidence.saying(
            diagnosis=_of_piece(subject, ids, got, one_pass, bound),
            place=subject.stepped_otherwise_at(steps, ids, (3, 1, 1, 1)) or cache_line(subject),
        )
    try:
        chunks = steps.logits(subject, ids, (2, 3, 1))[:, :whole]
    except Exception as error:
        return note("pieces of 2 and 3 tokens are refused", type(error).__name__)
    if not close("", chunks, one_pass, bound).ok:
        return note("pieces of several tokens behind a cache have other logits", "one token at a time has the same")
    return evidence


def _of_piece(subject: Any, ids: Array, got: Array, one_pass: Array, bound: float) -> str:
    """What is wrong with pieces fed by hand, in words."""
    at = int((np.abs(got - one_pass).max((0, 2)) > bound).argmax())
    said = f"Token {at} fed with the cache has other logits than in one pass"
    for size in range(1, at + 1):
        if np.abs(subject(ids=ids[:, at + 1 - size : at + 1])["out"][:, -1] - got[:, at]).max() <= bound:
            return f"{said}: it sees the last {size} tokens only."
    return f"{said}: {LOOK}"


def _steps_of(subject: Any, writer: Any, written: Any, data: dict[str, Array]) -> Evidence:
    """The numbers that a cached writer chose by, against one pass: after the first choice, where that one fits."""
    counted = ended(subject, writer, written.new)
    readable = True
    what = f"the logits of {writer.name} with its cache"
    for at, own in enumerate(own_logits(subject, written, data)):
        rows = counted > at
        if at >= len(written.steps) or not rows.any():
            break
        scores = written.steps[at].scores
        error = alike(scores[rows], own[rows]) if readable else 0.0
        if at == 0 and error > written.noise:
            readable = False  # it chooses by other numbers: only its choices can be compared
        if at and error > written.noise:
            return close(f"{what}, step {at}", log_softmax(scores)[rows], log_softmax(own)[rows], written.noise).saying(
                diagnosis=_of_step(subject, writer, written, data, at, own, scores),
                place=subject.fed_otherwise_at(writer, written, data) or cache_line(subject) or writer.place,
            )
    if not readable and _ranked(subject, written, data):
        return true(what, True, got=f"{len(written.steps)} steps as in one pass, in the order of their ranks")
    if not readable:
        free = writer.write(subject, data, NEW)
        return best_tokens(subject, writer, free, data, f"{writer.name} takes the best token with its cache").saying(
            place=subject.fed_otherwise_at(writer, free, data) or cache_line(subject) or writer.place
        )
    return true(what, True, got=f"{len(written.steps)} steps as in one pass")


def _ranked(subject: Any, written: Any, data: dict[str, Array]) -> bool:
    """Whether it chooses by the probabilities of one pass, in the order of their size: a wrong choice is then none of
    the cache's."""
    pairs = list(zip(written.steps, own_logits(subject, written, data), strict=False))
    scores = [np.sort(step.scores, 1) for step, _ in pairs]
    likely = [np.sort(np.exp(log_softmax(own)), 1) for _, own in pairs]
    return bool(pairs) and all(
        one.shape == other.shape and np.abs(one - other).max() < 1e-4 for one, other in zip(scores, likely, strict=True)
    )


def cache_line(subject: Any) -> str:
    """file:line where old keys and new ones are joined, or where a cache is written."""
    joined = r"cat\(.*(past|cache|prev|old|mem)"
    written = r"(cache|past|_k|_v|keys|values)\w*\[.*\]\s*="
    lines = (joined, written, r"\.(update|append)\(", r"cache|past")
    return next((line for pattern in lines if (line := subject.line_of(pattern))), "")


def _of_step(
    subject: Any, writer: Any, written: Any, data: dict[str, Array], at: int, own: Array, scores: Array
) -> str:
    """What a wrong cached step looks like, in words."""
    prefix = np.concatenate([written.prefix, written.new[:, :at]], 1)
    src, own_calls = data.get("src"), subject.called_as_in(written)
    said = f"Step {at + 1} with the cache gives other logits than one pass over the same tokens"
    if len(own) > 1 and alike(scores, own[::-1]) < written.noise:
        return f"{said}: the rows of the batch are mixed."
    for size in range(1, prefix.shape[1]):
        if alike(scores, own_calls.next_logits(prefix[:, -size:], src)) < written.noise:
            return f"{said}: it sees the last {size} tokens only" + (", none of the cache." if size == 1 else ".")
    skipped = np.concatenate([written.prefix, prefix[:, -1:]], 1)
    if at > 1 and alike(scores, own_calls.next_logits(skipped, src)) < written.noise:
        return f"{said}: the cache was not extended by the steps before."
    unseen = _unseen(subject, writer, data, written, at)
    if unseen:
        return f"{said}: it does not see tokens {unseen} of the prompt. Look at the mask."
    return f"{said}, though step 1 agrees: {LOOK}"


LOOK = (
    "look at the position of the new token, at the mask where there are fewer queries than keys, and at the order in "
    "which old and new keys and values are joined."
)


def _unseen(subject: Any, writer: Any, data: dict[str, Array], written: Any, at: int) -> str:
    """Tokens of the prompt that change nothing in a cached step, and something in one pass."""
    if subject.calling.two_sided or writer.tells_of:
        return ""
    name, ids = next(iter(data.items()))
    other = subject.example(len(ids), ids.shape[1], 63)[name]
    unseen = []
    for place in range(ids.shape[1]):
        changed = ids.copy()
        changed[:, place] = np.where(other[:, place] == ids[:, place], other[:, place - 1], other[:, place])
        again = writer.write(subject, {name: changed}, written.new.shape[1], script=written.new)
        if len(again.steps) > at and np.array_equal(again.steps[at].scores, written.steps[at].scores):
            unseen.append(str(place))
    return ", ".join(unseen)
