"""Checks of the beam search of a whole model: which numbers it adds, and whether it finds the best there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.generation import KINDS, apart, built, log_softmax, never_taken, prompt, writers
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import Array, NotProvided

_CLOSE = 1e-6
"""How far two scores in float64 may lie apart, beside the largest."""
MOST = 256
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
    """With as many beams as words, two words are the likeliest pair of all; with fewer, of those that begin with a word
    that has a beam."""
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
    written, beams, end = _pair_written(subject, writer, data)
    got = written.new[0]
    marks = [mark for mark in (end, subject.pad_id) if mark is not None and 0 <= mark < vocab]
    if len(got) != 2 or np.isin(got, marks).any():
        return None
    least = None
    for scores in _pairs(subject.called_as_in(written), written, data, beams):
        scores[marks] = -np.inf  # a sentence that has ended is compared by a rule of its own
        scores[:, marks] = -np.inf
        best = np.unravel_index(int(scores.argmax()), scores.shape)
        lost = float(scores.max() - scores[got[0], got[1]])
        if least is None or lost < least[0]:
            least = lost, best
    assert least is not None
    lost, best = least
    wide = "for every word" if beams == vocab else f"for each of {beams} words"
    found = true(f"the pair that {writer.name} finds", lost < 1e-4, got=got.tolist(), expected=[int(b) for b in best])
    return found.saying(
        diagnosis=f"With a beam {wide} {writer.name} misses the likeliest pair by {lost:.3g} in the logarithm "
        "of its probability: scores are not summed, or beams take each other's words.",
        place=writer.line_of(r"topk\(|sort"),
        mend="rank by the score so far + the logarithm of the next word's probability",
    )


def _pair_written(subject: Any, writer: Any, data: dict[str, Array]) -> tuple[Any, int, int | None]:
    """The two words that it writes with a beam for every word, the beams, and the end where it could not be switched
    off. Fewer beams where it cannot hold so many: one that looks at two words a beam has only as many as the first step
    has words."""
    vocab = subject.calling.main.vocab
    failure: Exception | None = None
    for beams in (vocab, vocab // 2, vocab // 4):
        with suppress(RuntimeError, ValueError, IndexError):
            if (written := _without_end(subject, writer, data, beams=beams)) is not None:
                return written, beams, None
        try:
            return writer.write(subject, data, 2, beams=beams), beams, writer.end_of(subject)
        except (RuntimeError, ValueError, IndexError) as error:
            failure = failure or error
    raise NotProvided(f"{writer.name} takes no {vocab} beams: {failure}") from failure


def _without_end(subject: Any, writer: Any, data: dict[str, Array], words: int = 2, **options: Any) -> Any:
    """What it writes when no token is the end; None where that cannot be said."""
    twin = subject.twin()
    with suppress(NotProvided), writer.ending(twin, -1) as none:
        return writer.write_with(twin, data, words, **options, **none)
    return None


def _one(data: dict[str, Array]) -> dict[str, Array]:
    return {name: value[:1] for name, value in data.items()}


def _pairs(subject: Any, written: Any, data: dict[str, Array], beams: int) -> Iterator[Array]:
    """(V, V): the logarithm of the probability of each pair of words behind the prefix of one row; minus infinity where
    the first word may have no beam. Words that the search bars may be barred before or behind the softmax."""
    src, prefix = data.get("src"), written.prefix[:1]
    first = subject.next_logits(prefix, src)
    vocab = first.shape[1]
    longer = np.concatenate([np.repeat(prefix, vocab, 0), np.arange(vocab)[:, None]], 1)
    second = subject.next_logits(longer, None if src is None else np.repeat(src, vocab, 0))
    never = never_taken(written, vocab)
    without = np.argsort(-first[0], kind="stable")[beams:]
    for before in (False, True)[: 1 + never.any()]:
        scores = np.array(_barred(first, never, before)[0][:, None] + _barred(second, never, before))
        scores[without] = -np.inf
        yield scores


def _barred(logits: Array, never: Array, before: bool) -> Array:
    """The logarithms of the probabilities, where words are never taken: barred before the softmax or behind it."""
    if before:
        return log_softmax(np.where(never, -np.inf, logits))
    return np.where(never, -np.inf, log_softmax(logits))


@check("beam-search-scores-are-those-of-its-tokens", roles=KINDS)
def scores_of_tokens(impl: Any, draw: Draw) -> Evidence:
    """What a sentence is worth is the sum of its words' log-probabilities, up to a factor of its length."""
    subject = built(impl)
    parts: list[Evidence] = []
    with suppress(NotProvided):
        parts += [part for writer in _scoring(subject) for part in _worth(subject, writer)]
    for writer in writers(subject, beam=True) if not parts else ():
        seeds = SEEDS if writer.has("beams") else ()
        parts += [part for seed in seeds if (part := _of_one_history(subject, writer, seed)) is not None]
    if not parts:
        raise NotProvided("its beam search returns no scores, and keeps nothing of each beam")
    return all_of(*parts)


SEEDS = range(90, 106)
"""Beams change their places in few searches."""


def _of_one_history(subject: Any, writer: Any, seed: int) -> Evidence | None:
    """Whether each word of the sentence that a search with a cache finds was ranked by the numbers of the words before
    it; None where these numbers are of no text that was fed."""
    data = _one(prompt(subject, writer.rows, seed))
    written = _without_end(subject, writer, data, words=10, beams=5)
    if written is None or len(written.beams) < 4 or written.prefix.shape[1] != 1:
        return None
    src, begin, got = data.get("src"), tuple(written.prefix[0].tolist()), written.new[0].tolist()
    known = [{begin}]
    for fed, scores in written.beams[1:]:
        texts = [(*text, int(word)) for text in known[-1] for word in set(fed.tolist())]
        given = None if src is None else np.repeat(src, len(texts), 0)
        logits = subject.next_logits(np.array(texts), given)
        rows = [(word, row) for word, row in zip(fed, scores, strict=True) if row.max() > -1e6]
        known.append(
            {
                text
                for text, own in zip(texts, logits, strict=True)
                if any(text[-1] == word and _ranked_by(own, row) for word, row in rows)
            }
        )
        if not known[-1]:
            return None
    steps = range(1, min(len(known), len(got)))
    if not steps:
        return None  # it ends at once
    apart = [n for n in steps if (*begin, *got[:n]) not in known[n]]
    what = f"the words before each word that {writer.name} finds"
    evidence = true(what, not apart, expected="those that its numbers were computed from", got="those of another beam")
    return evidence.saying(
        diagnosis=f"{writer.name} goes on with the cache of another beam: its words were ranked by numbers of another "
        "text.",
        place=writer.line_of(r"cache\w*\s*=(?!=).*(\[|select|reorder|gather)", r"(cache|past)\w*\s*=(?!=)", r"topk"),
        mend="take the rows of the cache that the beams come from: cache[rows]",
    )


@check("beam-search-divides-by-the-length-of-each-sentence", roles=KINDS)
def divides_by_length(impl: Any, draw: Draw) -> Evidence:
    """With a length penalty, sentences of different lengths are divided by different numbers, longer ones by more."""
    subject = built(impl)
    parts = []
    for writer in writers(subject, beam=True):
        if writer.has("beams") and (found := _prefers_shorter(subject, writer)) is not None:
            parts.append(found)
    for writer in _scoring(subject):
        if not writer.has("length_penalty"):
            continue
        factors = _factors(subject, writer, length_penalty=1.0)
        by_length = {length: factor for length, factor in factors if factor > 0}
        if len(by_length) < 2:
            continue
        spread = max(by_length.values()) / min(by_length.values()) - 1
        name = writer.options["length_penalty"]
        parts.append(
            true(f"{name} of {writer.name} depends on the length", spread > 1e-3, got=f"factors {by_length}").saying(
                diagnosis=f"{writer.name} divides the scores of all sentences by one number, whatever their length: "
                "its length penalty does nothing.",
                place=writer.line_of(r"/\s*\w*(pen\w*|norm\w*|lp)\b", r"\*\*\s*\w*alpha|len_?pen"),
                mend="divide each score by the penalty of its own length",
            )
        )
    if not parts:
        raise NotProvided("its beam search has no length penalty, or gives sentences of one length")
    return all_of(*parts)


EXPONENTS = (-10.0, 0.0, 10.0)
"""So strong that the length decides, by any of the usual powers of it."""


def _prefers_shorter(subject: Any, writer: Any) -> Evidence | None:
    """Whether a larger power of the length makes what it writes longer; None where it takes no power, or the length
    stays the same. Sums of logarithms are below zero: divided by more they are worth more."""
    name = writer.options.get("length_penalty", "")
    default = writer.default("length_penalty") if name else None
    power = rf"\*\*\s*\(?\s*(self\.)?{name}\b|pow\([^()]*\b{name}\b"
    if (
        not name
        or not any(re.search(power, source) for source in writer.sources)
        or (isinstance(default, int | float) and default < 0)
    ):
        return None
    data = _one(prompt(subject, writer.rows, 89))
    plain = writer.write(subject, data, WORDS, beams=BEAMS)
    best = subject.called_as_in(plain).next_logits(plain.prefix, data.get("src"))[0].argsort()[::-1]
    lengths: dict[int, list[int]] = {}
    for token in map(int, best[:BEAMS]):
        with suppress(NotProvided, ValueError, AssertionError, ArithmeticError):
            twin = subject.twin()
            with writer.ending(twin, token) as end:
                options = {"beams": BEAMS, **end}
                runs = [writer.write_with(twin, data, WORDS, length_penalty=e, **options) for e in EXPONENTS]
            lengths[token] = [run.new.shape[1] for run in runs]
    shorter = {token: found for token, found in lengths.items() if found[-1] < found[0]}
    longer = [token for token, found in lengths.items() if found[-1] > found[0]]
    if not shorter and not longer:
        return None
    return true(
        f"a larger {name} of {writer.name} gives longer sentences",
        bool(longer) or not shorter,
        expected=f"lengths that grow for {name} of {EXPONENTS}",
        got=next(iter(shorter.values()), None),
    ).saying(
        diagnosis=f"The larger {name} is, the shorter is what {writer.name} finds: scores below zero are multiplied by "
        "the power of the length, not divided.",
        place=writer.line_of(
            r"\*\s*\w*(lp|pen\w*|norm\w*)\b\s*\(?|\*\s*\(?len\(", rf"\*\*\s*{name}", rf"\b{name}\b.*\)"
        ),
        mend="score / length ** alpha",
    )


def _scoring(subject: Any) -> list[Any]:
    """Its beam searches that return scores."""
    found = []
    for writer in writers(subject, beam=True):
        alone = _one(prompt(subject, writer.rows, 87))
        if writer.has("beams") and writer.write(subject, alone, 3, beams=2).hypotheses:
            found.append(writer)
    return found


BEAMS, WORDS = 4, 6


def _factors(subject: Any, writer: Any, **options: Any) -> list[tuple[int, float]]:
    """Length and, for each sentence that it returns, its score by the sum of the logarithms of its words; sentences end
    at different lengths where an end can be set."""
    data = _one(prompt(subject, writer.rows, 88))
    found = [(writer.write(subject, data, WORDS, beams=BEAMS, **options), writer.end_of(subject))]
    said = found[0][0].hypotheses[-1].tokens
    with suppress(NotProvided, ValueError):
        twin, token = subject.twin(), said[min(len(said) - 1, 2)]
        with writer.ending(twin, token) as end:
            found.append((writer.write_with(twin, data, WORDS, beams=BEAMS, **options, **end), token))
    return [pair for written, token in found for pair in _of_written(subject, written, data, token)]


def _of_written(subject: Any, written: Any, data: dict[str, Array], end: int | None) -> Iterator[tuple[int, float]]:
    """What stands behind the end of a sentence, as padding does, is none of its words."""
    for one in written.hypotheses:
        tokens = np.array([one.tokens])
        start = written.prefix.shape[1] if (tokens[:, : written.prefix.shape[1]] == written.prefix).all() else 0
        new = tokens[:, start:]
        ends = np.flatnonzero(new[0] == end)
        new = new[:, : ends[0] + 1] if len(ends) else new
        own = subject.called_as_in(written)
        total = 0.0
        for at in range(new.shape[1]):
            logits = own.next_logits(np.concatenate([written.prefix, new[:, :at]], 1), data.get("src"))
            total += float(log_softmax(logits)[0, new[0, at]])
        if new.shape[1] and total:
            yield new.shape[1], one.score / total


def _worth(subject: Any, writer: Any) -> Iterator[Evidence]:
    of_length: dict[int, list[float]] = {}
    for length, factor in _factors(subject, writer):
        of_length.setdefault(length, []).append(factor)
    several = {length: factors for length, factors in of_length.items() if len(factors) > 1}
    if not several:
        yield note(f"{writer.name} returns one sentence of each length", len(of_length))
    for length, factors in several.items():
        apart = max(factors) - min(factors)
        found = true(
            f"scores of {length} words", apart < 1e-3 * abs(max(factors, key=abs)), got=factors, expected="one factor"
        )
        yield found.saying(
            diagnosis=f"{writer.name} gives sentences of {length} words scores that are not those of their words: a "
            "score and a history that belong to different beams are put together.",
            place=writer.line_of(r"//|div\(|%|divmod|\[:?,?\s*\w*(beam|parent|origin|prev)\w*\]"),
            mend="the beam of an index over all beams and words is index // vocabulary, its word index % vocabulary",
        )


def _ranked_by(own: Array, row: Array) -> bool:
    """Whether logits give the numbers by which a beam ranks its next words, but for words that are never taken."""
    taken = row > -1e6
    mine, theirs = (log_softmax(np.where(taken, one, -np.inf)[None])[0][taken] for one in (own, row))
    return np.allclose(mine, theirs, atol=1e-3)


@check("beam-search-searches-for-each-text-alone", roles=KINDS)
def each_text_alone(impl: Any, draw: Draw) -> Evidence:
    """Beside other texts beam search finds for a text what it finds for it alone."""
    subject = built(impl)
    parts = []
    for writer in writers(subject, beam=True):
        for seed in SEEDS[:2] if writer.rows > 1 else ():
            data = prompt(subject, writer.rows, seed)
            beams = {"beams": 3} if writer.has("beams") else {}
            together = _without_end(subject, writer, data, words=4, **beams)
            rows = [{name: value[at : at + 1] for name, value in data.items()} for at in range(writer.rows)]
            alone = [_without_end(subject, writer, one, words=4, **beams) for one in rows]
            if together is None or any(one is None or len(one.new) != 1 for one in alone):
                continue
            expected, got = [one.new[0].tolist() for one in alone], together.new.tolist()
            same = got == expected and not any(_chosen_otherwise(together, one, at) for at, one in enumerate(alone))
            parts.append(
                true(
                    f"what {writer.name} finds for each of {writer.rows} texts", same, got=got, expected=expected
                ).saying(
                    diagnosis=f"Beside another text {writer.name} finds something else for a text than for it alone: "
                    "the rows of its beams and of what they read are in different orders.",
                    place=writer.line_of(r"\.(repeat|expand|tile)\(", r"repeat_interleave", r"topk\("),
                    mend="x.repeat_interleave(beams, dim=0), where the beams of one text lie side by side",
                )
            )
    if not parts:
        raise NotProvided("its beam search takes one text, or cannot be told not to end")
    return all_of(*parts)


def _chosen_otherwise(together: Any, alone: Any, row: int) -> bool:
    """Whether a row of a search was chosen from other numbers than it is alone, where both choose row by row."""
    for one, other in zip(together.steps, alone.steps, strict=False):
        by_rows = len(other.scores) == 1 and one.scores.shape[1:] == other.scores.shape[1:] and len(one.scores) > row
        if by_rows and apart(one.scores[row], other.scores[0]) > max(together.noise, _CLOSE):
            return True
    return False
