"""Checks of the beam search of a whole model: which numbers it adds, and whether it finds the best there is."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.generation import KINDS, built, log_softmax, prompt, writers
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import Array, NotProvided

MOST = 128
"""Vocabularies above this are not searched whole."""


@check("beam-search-adds-logarithms-of-probabilities", roles=KINDS)
def adds_logarithms(impl: Any, draw: Draw) -> Evidence:
    """A number added to all logits of a row changes no probability, and so not what beam search finds."""
    subject = built(impl)
    parts = []
    for writer in writers(subject, beam=True):
        if not writer.has("beams"):
            continue
        for seed in (81, 82, 83):
            data = _one(prompt(subject, writer.rows, seed))
            expected = writer.write(subject, data, 4, beams=3).new
            got = subject.written_with_raised_logits(writer, data, 4, beams=3)
            same = got.shape == expected.shape and bool((got == expected).all())
            parts.append(
                true(f"what {writer.name} finds", same, expected=expected[0].tolist(), got=got[0].tolist()).saying(
                    diagnosis=f"{writer.name} adds logits, not logarithms of probabilities: a number that is added to "
                    "all logits of a step changes what it finds.",
                    place=writer.line_of(r"log_?softmax|logits|scores?\s*\+"),
                    mend="score + logits.log_softmax(-1)",
                )
            )
    if not parts:
        raise NotProvided("its beam search has no size")
    return all_of(*parts)


@check("beam-search-with-all-words-finds-the-best", roles=KINDS)
def all_words(impl: Any, draw: Draw) -> Evidence:
    """With as many beams as words, two words are the likeliest pair of all."""
    subject = built(impl)
    vocab = subject.calling.main.vocab
    if vocab > MOST or subject.calling.outputs != vocab:
        raise NotProvided("its vocabulary is too large to try all pairs of words")
    parts = []
    for writer in writers(subject, beam=True):
        if not writer.has("beams") or not writer.counts:
            continue
        if re.search(r"(?i)repet|n_?gram|divers|group|coverage|min_len", writer.source):
            continue  # it looks for more than the likeliest
        parts += [part for seed in (84, 85, 86, 87) if (part := _best_pair(subject, writer, seed)) is not None]
    if not parts:
        raise NotProvided("its beam search has no size, or ends at once")
    return all_of(*parts)


def _best_pair(subject: Any, writer: Any, seed: int) -> Evidence | None:
    """Whether the pair of words that it finds is the best; None where it ends a sentence."""
    vocab = subject.calling.main.vocab
    data = _one(prompt(subject, writer.rows, seed))
    try:
        written = writer.write(subject, data, 2, beams=vocab)
    except (RuntimeError, ValueError, IndexError) as error:
        raise NotProvided(f"{writer.name} takes no {vocab} beams: {error}") from error
    got, end = written.new[0], writer.end_of(subject)
    marks = [mark for mark in (end, subject.pad_id) if mark is not None and 0 <= mark < vocab]
    if len(got) != 2 or np.isin(got, marks).any():
        return None
    scores = _pairs(subject, written.prefix, data)
    scores[marks] = -np.inf  # a sentence that has ended is compared by a rule of its own
    scores[:, marks] = -np.inf
    best = np.unravel_index(int(scores.argmax()), scores.shape)
    lost = float(scores.max() - scores[got[0], got[1]])
    found = true(f"the pair that {writer.name} finds", lost < 1e-4, got.tolist(), [int(b) for b in best])
    return found.saying(
        diagnosis=f"With a beam for every word {writer.name} misses the likeliest pair by {lost:.3g} in the logarithm "
        "of its probability: scores are not summed, or beams take each other's words.",
        place=writer.line_of(r"topk\(|sort"),
    )


def _one(data: dict[str, Array]) -> dict[str, Array]:
    return {name: value[:1] for name, value in data.items()}


def _pairs(subject: Any, prefix: Array, data: dict[str, Array]) -> Array:
    """(V, V): the logarithm of the probability of each pair of words behind a prefix of one row."""
    src = data.get("src")
    first = log_softmax(subject.next_logits(prefix[:1], src))[0]
    vocab = len(first)
    longer = np.concatenate([np.repeat(prefix[:1], vocab, 0), np.arange(vocab)[:, None]], 1)
    second = subject.next_logits(longer, None if src is None else np.repeat(src, vocab, 0))
    return np.asarray(first[:, None] + log_softmax(second))
