"""Verifications of the documents' statements on teacher forcing, beam search and nuclei."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, true
from conformance.reference import decoding as f
from conformance.verifications.base import erratum, verify

Array = np.ndarray


class Table:
    """A language model from a table: text (a string of letters) -> {letter: probability}. "$" is EOS, "^" SOS.

    `rows` counts the texts that it was asked about.
    """

    def __init__(self, table: Mapping[str, Mapping[str, float]]) -> None:
        letters = {letter for following in table.values() for letter in following}
        self.letters = "^$" + "".join(sorted(letters - {"^", "$"}))
        self.table, self.rows = table, 0

    def __call__(self, ids: Array) -> Array:
        self.rows += len(ids)
        probabilities = np.zeros((len(ids), len(self.letters)))
        for row, text in zip(probabilities, ids, strict=True):
            for letter, p in self.table.get(self.text(text), {"$": 1.0}).items():  # what has probability 0 ends
                row[self.letters.index(letter)] = p
        return np.log(np.maximum(probabilities, 1e-30))

    def text(self, ids: Array) -> str:
        return "".join(self.letters[i] for i in ids[1:])

    def probability(self, text: str) -> float:
        return float(np.prod([self.table[text[:i]][letter] for i, letter in enumerate(text)]))

    def greedy(self) -> str:
        return self.text(f.greedy_decode(self, np.array([[0]]), 8, eos_id=1)[0])

    def beam(self, size: int) -> tuple[str, float]:
        ids, score = f.beam_search(self, np.array([0]), size, 8, eos_id=1)
        return self.text(ids), score


def misleading() -> Table:
    """A is the likelier first word, and its best end 0.34 / 0.33 / 0.33; B ends with 0.9."""
    return Table(
        {
            "": {"A": 0.6, "B": 0.4},
            "A": {"$": 0.34, "C": 0.33, "D": 0.33},
            "B": {"$": 0.9, "C": 0.1},
            **{text: {"$": 1.0} for text in ("AC", "AD", "BC")},
        }
    )


@verify("greedy-can-miss-the-best-sequence")
def greedy_misses() -> Evidence:
    model = misleading()
    text = model.greedy()
    asked = model.rows
    model.beam(4)
    best = max(model.probability(t) for t in ("A$", "AC$", "AD$", "B$", "BC$"))
    return all_of(
        close("probability that greedy finds", model.probability(text), 0.204, 1e-12),
        close("the best of all", best, 0.36, 1e-12),
        true("a beam asks about more texts", model.rows - asked > asked, got=(asked, model.rows - asked)),
    )


@verify("a-beam-of-two-finds-what-greedy-misses")
def beam_of_two() -> Evidence:
    text, score = misleading().beam(2)
    return all_of(same("sequence", text, "B$"), close("its probability", np.exp(score), 0.36, 1e-12))


@verify("a-beam-can-do-worse-than-greedy")
def beam_does_worse() -> Evidence:
    """Greedy goes A, x, EOS with 0.168. A beam of two keeps By and Bz (0.175 each) instead, which then scatter."""
    six = dict.fromkeys("abcdef", 1 / 6)
    table: dict[str, dict[str, float]] = {
        "": {"A": 0.40, "B": 0.35, "C": 0.25},
        "A": {"x": 0.42, "p": 0.30, "q": 0.28},
        "B": {"y": 0.5, "z": 0.5},
        "C": {"$": 0.3, "w": 0.7},
        "By": six,
        "Bz": six,
    }
    ended = ["Ax", "Ap", "Aq", "Cw", *(first + letter for first in ("By", "Bz") for letter in six)]
    model = Table({**table, **{text: {"$": 1.0} for text in ended}})
    text = model.greedy()
    greedy, beam = model.probability(text), np.exp(model.beam(2)[1])
    exact = np.exp(model.beam(30)[1])
    best = max(model.probability(t + "$") for t in (*ended, "C"))
    return erratum(
        "whether a beam of two does at least as well as greedy",
        1.0,
        float(beam >= greedy),
        close("greedy", greedy, 0.168, 1e-12),
        close("beam of two", beam, 0.175 / 6, 1e-12),
        close("a beam of all prefixes is exact", exact, best, 1e-12),
    )


@verify("a-beam-of-one-is-greedy")
def beam_of_one() -> Evidence:
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(20):
        logits = rng.standard_normal((6, 6))

        def model(ids: Array, logits: Array = logits) -> Array:
            return logits[ids[:, -1]]

        greedy = f.greedy_decode(model, np.array([[0]]), 6, eos_id=1)[0]
        parts.append(same("tokens", f.beam_search(model, np.array([0]), 1, 6, eos_id=1)[0], greedy))
    return all_of(*parts)


@verify("beam-scores-are-summed-log-probabilities")
def beam_score() -> Evidence:
    return close("score of the best hypothesis", misleading().beam(2)[1], np.log(0.4) + np.log(0.9), 1e-12)


@verify("a-beam-of-all-prefixes-is-exhaustive")
def exhaustive() -> Evidence:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((3, 3, 3))

    def model(ids: Array) -> Array:
        before = ids[:, -2] if ids.shape[1] > 1 else np.zeros(len(ids), int)
        return logits[before, ids[:, -1]]

    def score(tokens: tuple[int, ...]) -> float:
        text, total = [0], 0.0
        for token in tokens:
            total += f.log_softmax(model(np.array([text])))[0, token]
            text.append(token)
        return float(total)

    best = max(product(range(3), repeat=3), key=score)
    found, total = f.beam_search(model, np.array([0]), 27, 3, eos_id=-1)
    return all_of(same("sequence", tuple(found[1:]), best), close("score", total, score(best), 1e-12))


@verify("the-best-finished-hypothesis-is-returned")
def best_finished() -> Evidence:
    endless = Table({"a" * n: {"a": 1.0} for n in range(9)})
    never = f.beam_search(endless, np.array([0]), 2, 8, eos_id=-1)
    return all_of(
        same("of B$ (0.36) and A$ (0.204)", misleading().beam(4)[0], "B$"),
        same("without any end, the first beam", endless.text(never[0]), "a" * 8),
    )


@verify("teacher-forcing-saves-passes-not-updates")
def passes() -> Evidence:
    """Free running over T = 8 tokens asks the model 8 times, for each of which it must run forward again."""
    calls = []

    def model(ids: Array) -> Array:
        calls.append(ids.shape[1])
        return np.eye(4)[ids[:, -1]]

    f.greedy_decode(model, np.array([[1]]), 8)
    decoder_input, labels = f.shift(np.arange(9)[None])
    return erratum(
        "forward passes of an update with and without teacher forcing, if only convergence differed",
        len(calls),
        1,
        same("positions that one pass with teacher forcing trains", decoder_input.shape[1], len(calls)),
        same("labels that it is trained on", labels.shape[1], len(calls)),
    )


@verify("top-p-keeps-the-smallest-set-that-reaches-p")
def flat_nucleus() -> Evidence:
    """Four equal logits: the listing keeps ranks whose predecessors sum to at most p, the smallest set below p."""
    sums = np.cumsum(np.full(4, 0.25))
    listing = [int(np.sum(sums - 0.25 <= p)) for p in (0.5, 0.25, 0.75)]
    nucleus = [int((f.sampling_probabilities(np.zeros((1, 4)), top_p=p) > 0).sum()) for p in (0.5, 0.25, 0.75)]
    return erratum(
        "tokens kept of four equal ones at p = 0.5, 0.25, 0.75",
        listing,
        nucleus,
        same("as listed", listing, [3, 2, 4]),
        same("smallest sets", nucleus, [2, 1, 3]),
    )


@verify("defaults-of-the-decoding-listings")
def listing_defaults() -> Evidence:
    """What follows from pad 0, SOS 1, EOS 2, max_len 100, beam size 4, temperature 1, top_k 50 and top_p 0.9."""
    pad, sos, eos, max_len, beams, top_k, top_p = 0, 1, 2, 100, 4, 50, 0.9
    widths = []

    def endless(ids: Array) -> Array:
        widths.append(len(ids))
        return np.array([0.0, 0, -np.inf, 3, 2, 1])[None].repeat(len(ids), 0)

    def ends_at(ids: Array) -> Array:
        """The first row ends with its third new token, the second with its fifth."""
        length = np.array([3, 5]) == ids.shape[1]
        return np.eye(6)[np.where(length, eos, 3)]

    greedy = f.greedy_decode(ends_at, np.full((2, 1), sos), max_len, eos, pad)
    longest = f.greedy_decode(endless, np.array([[sos]]), max_len, eos, pad)
    found, _ = f.beam_search(endless, np.array([sos]), beams, max_len, eos)
    logits = np.linspace(0.0, 0.5, 1000)[None]
    drawn = f.sampling_probabilities(logits, 1.0, top_k, top_p)
    return all_of(
        same("rows begin with SOS, end with EOS and are padded", greedy, [[1, 3, 3, 2, 0, 0], [1, 3, 3, 3, 3, 2]]),
        same("tokens at most", [longest.shape[1], len(found)], [1 + max_len, 1 + max_len]),
        same("hypotheses side by side", max(widths), beams),
        true(
            "fewer than 50 words", 40 < (drawn > 0).sum() < top_k, got=(drawn > 0).sum(), expected="nine tenths of 50"
        ),
    )
