"""Checks of the options by which a writer keeps from words: penalties for repetition, a least length, repeated n-grams.

The words are decided by a script, so that the text is the same with and without an option. What is compared is what
each word was chosen from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.generation import KINDS, built, columns_are_tokens, prompt, script, writers
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import Array, NotProvided

PENALTIES = {"repetition": 1.5, "presence": 0.7, "frequency": 0.7}
FORBIDDEN = -1e4
"""What lies below cannot be chosen."""
STEPS = 4
LEAST = 3


def logarithms(scores: Array) -> Array:
    """Logits up to a number a row, whether scores are logits or probabilities."""
    likely = bool((scores >= 0).all()) and bool((np.abs(scores.sum(-1) - 1) < 1e-3).all())
    with np.errstate(divide="ignore"):
        return np.log(scores) if likely else scores


def changes(subject: Any, writer: Any, **options: Any) -> Iterator[tuple[int, Array, Array, float]]:
    """How an option moves what each step chooses from: the number of the step, the text before it (rows, T), the change
    of each word beside those that were not written (rows, V), and what rounding may do."""
    data = prompt(subject, writer.rows, 81)
    if not columns_are_tokens(subject, writer, data):
        return
    words = script(subject, writer.rows, STEPS)
    plain, other = (writer.write(subject, data, STEPS, script=words, **more) for more in ({}, options))
    vocab = subject.calling.main.vocab
    for at, (one, two) in enumerate(zip(plain.steps, other.steps, strict=False)):
        if one.scores.shape != (writer.rows, vocab) or two.scores.shape != one.scores.shape or at >= STEPS:
            return
        text = np.concatenate([plain.prefix, words[:, :at]], 1)
        before, after = logarithms(one.scores), logarithms(two.scores)
        with np.errstate(invalid="ignore"):
            moved = after - before
        moved[~np.isfinite(before)] = 0.0
        for row in range(len(text)):
            rest = np.delete(moved[row], np.unique(text[row]))
            moved[row] -= np.median(rest[np.isfinite(rest)])
        scale = float(np.abs(before[before > FORBIDDEN]).max(initial=1e-9))
        yield at, text, moved, max(plain.noise, 1e-6) * scale


@check("generate-with-a-penalty-lowers-what-was-written", roles=KINDS)
def lowers_what_was_written(impl: Any, draw: Draw) -> Evidence:
    """With a penalty for repetition no word that was written is likelier than without, and some are less likely."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        for meaning, value in PENALTIES.items():
            if writer.has(meaning):
                parts += list(_of_penalty(subject, writer, meaning, value))
    if not parts:
        raise NotProvided("it takes no penalty for repetition")
    return all_of(*parts)


def _of_penalty(subject: Any, writer: Any, meaning: str, value: float) -> Iterator[Evidence]:
    option = writer.options[meaning]
    place = writer.line_of(rf"[-*/+]=?\s*\(?\w*\.?{option}|where\(.*{option}|{option}\s*[*/]", rf"\b{option}\b.*[^,)]$")
    lowered = {"prompt": False, "new": False}
    seen = False
    sources = prompt(subject, writer.rows, 81).get("src", np.zeros((writer.rows, 0), int))
    for at, text, moved, noise in changes(subject, writer, **{meaning: value}):
        seen = True
        start = text.shape[1] - at
        for row, words in enumerate(text):
            rise = {int(word): float(moved[row, word]) for word in words}
            worst = max(rise, key=lambda word: rise[word])
            if rise[worst] > noise:
                yield true(
                    f"{writer.name} with {option}={value} lowers what was written",
                    False,
                    expected="no more than without it",
                    got=f"word {worst}, which was written, by {rise[worst]:+.4g}",
                ).saying(
                    diagnosis=f"With {option}={value} {writer.name} makes a word likelier that was written: it rewards "
                    "repetition.",
                    place=place,
                    mend="divide logits above 0 by the penalty, and multiply those below",
                )
                return
            for where, part in (("prompt", words[:start]), ("new", words[start:])):
                lowered[where] = lowered[where] or any(rise[int(word)] < -noise for word in part)
            others = np.setdiff1d(np.flatnonzero(np.abs(moved[row]) > noise), [*words, *sources[row]])
            if len(others):
                yield true(
                    f"{writer.name} with {option}={value} leaves other words",
                    False,
                    expected="the words of the text alone",
                    got=f"{len(others)} words that were not written, the first {int(others[0])}",
                ).saying(diagnosis=f"{option} changes words that were not written.", place=place)
                return
    if seen:
        unlike = "nothing" if not any(lowered.values()) else "the prompt's words alone"
        yield true(
            f"{writer.name} with {option}={value} lowers what was written",
            lowered["new"],
            got=unlike,
            expected="new words",
        ).saying(
            diagnosis=f"{option}={value} changes {unlike}: a word that {writer.name} wrote is as likely as before.",
            place=place,
        )


@check("generate-does-not-end-before-its-least-length", roles=KINDS)
def least_length(impl: Any, draw: Draw) -> Evidence:
    """Below a least length the end token is not chosen, or ends nothing."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        if not writer.has("least") or not writer.ends(subject):
            continue
        data, words = prompt(subject, writer.rows, 82), script(subject, writer.rows, 2 * LEAST)
        rows = {name: value[:1] for name, value in data.items()}
        token = int(words[0, 0])
        if not columns_are_tokens(subject, writer, data):
            continue
        asked = LEAST + (0 if "new" in writer.options["least"] else next(iter(data.values())).shape[1])
        with writer.ending(subject, token) as options:
            written = writer.write(subject, rows, 2 * LEAST, script=words[:1], least=asked, **options)
        scores = written.steps[0].scores if written.steps else np.zeros((1, 0))
        if scores.shape[1] != subject.calling.main.vocab:
            continue
        least = float(logarithms(scores)[0, token])
        blocked = not np.isfinite(least) or least < FORBIDDEN
        goes_on = written.new.shape[1] > 1 and written.new[0, 1] == words[0, 1]
        name = writer.options["least"]
        parts.append(
            true(
                f"{writer.name} with {name}={asked}", blocked or goes_on, got="an end as token 1", expected="none"
            ).saying(
                diagnosis=f"{writer.name} ends at its first token in spite of {name}={asked}.",
                place=writer.line_of(rf"[<>=]=?\s*\(?{name}|{name}\s*[<>]", name),
            )
        )
    if not parts:
        raise NotProvided("it takes no least length beside an end token")
    return all_of(*parts)


@check("generate-repeats-no-n-gram-where-asked", roles=KINDS)
def no_repeated_n_grams(impl: Any, draw: Draw) -> Evidence:
    """Where no two words in a row may be repeated, the word that would repeat them cannot be chosen; others can."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        if not writer.has("ngram"):
            continue
        data, words = prompt(subject, writer.rows, 83), script(subject, writer.rows, STEPS)
        words[:, 2] = words[:, 0]  # a b a: the next is not b
        if not columns_are_tokens(subject, writer, data):
            continue
        written = writer.write(subject, data, STEPS, script=words, ngram=2)
        vocab = subject.calling.main.vocab
        if len(written.steps) < STEPS or written.steps[3].scores.shape != (writer.rows, vocab):
            continue
        scores = logarithms(written.steps[3].scores)
        blocked = [bool(scores[row, word] < FORBIDDEN) for row, word in enumerate(words[:, 1])]
        name = writer.options["ngram"]
        parts.append(
            true(
                f"{writer.name} with {name}=2 behind the words a b a", all(blocked), got="b", expected="b is left out"
            ).saying(
                diagnosis=f"With {name}=2 {writer.name} lets a pair of words be written twice.",
                place=writer.line_of(name),
            )
        )
    if not parts:
        raise NotProvided("it takes no length of n-grams that are not repeated")
    return all_of(*parts)


@check("generate-with-min-p-keeps-words-near-the-best", roles=KINDS)
def min_p(impl: Any, draw: Draw) -> Evidence:
    """With min_p = p a word can be drawn whose probability is at least p times that of the best, and no other."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        if not writer.has("min_p"):
            continue
        data = prompt(subject, writer.rows, 84)
        whole = writer.distribution(subject, data)[0]
        ranked = np.sort(whole)[::-1]
        ratios = ranked / ranked[0]
        gap = int(np.argmax(ratios[1:10] / np.maximum(ratios[2:11], 1e-12))) + 1  # the limit lies between two words
        limit = float((ratios[gap] * ratios[gap + 1]) ** 0.5)
        kept = 0
        with suppress(NotProvided):  # what it draws by is nothing, where no word is left
            kept = int((writer.distribution(subject, data, min_p=limit)[0] > 0).sum())
        name = writer.options["min_p"]
        parts.append(
            true(
                f"{writer.name} with {name}={limit:.4g}",
                kept == gap + 1,
                got=f"{kept} words",
                expected=f"{gap + 1} words",
            ).saying(
                diagnosis=f"With {name}={limit:.4g} {writer.name} draws from {kept} words; as likely as that part of "
                f"the best are {gap + 1}.",
                place=writer.line_of(name),
            )
        )
    if not parts:
        raise NotProvided("it takes no least share of the best word's probability")
    return all_of(*parts)
