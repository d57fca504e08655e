"""Mistakes that the files of a model's classes show by their text, in whatever stands beside the classes, too."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.adapters.whole.class_source import file_of
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import Place, Record
from conformance.slips import (
    Rule,
    cut_apart,
    hashed,
    heads_joined_in_place,
    last_group_lost,
    moved_by_a_constant,
    ranks_off_by_one,
)

_TOLD: tuple[tuple[str, Rule, str, str, str, str], ...] = (
    (
        "results-stay-the-same-in-every-process",
        hashed,
        "Python's hash of a text is another one in every process: a saved model reads other words in the next.",
        "a number that stays",
        "another one in each process",
        "Take zlib.crc32(text.encode()), or a table of words that is saved.",
    ),
    (
        "results-that-are-nearest-are-chosen-by-distance",
        moved_by_a_constant,
        "The number that is taken off is the same for all, and changes nothing of which is chosen.",
        "what is nearest",
        "the least or the largest of all",
        "Choose by the distance, with abs().",
    ),
    (
        "results-stay-beside-their-tokens",
        cut_apart,
        "Of the tokens one end is cut off, and of what stands beside them the other: each is beside another token now.",
        "both cut at one end",
        "each at its own end",
        "Cut both in one way.",
    ),
    (
        "results-of-the-last-group-are-kept",
        last_group_lost,
        "A group is handed on when the next one begins, and nothing hands on the last one: it is lost each time.",
        "every group",
        "all but the last",
        "Behind the loop: if group: groups.append(group).",
    ),
    (
        "results-of-ranks-count-the-first-k",
        ranks_off_by_one,
        "The rank is the number of those that are better: one place too many, or too few, is taken for a hit.",
        "the first k",
        "another place is counted",
        "rank < k where the best has rank 0, rank <= k where it has rank 1.",
    ),
    (
        "attention-moves-its-heads-back",
        heads_joined_in_place,
        "Heads stand before positions, and are given another shape as they stand: each position gets parts of others.",
        "the results of its own heads",
        "those of other positions",
        "(weights @ v).transpose(1, 2).reshape(b, n, d)",
    ),
)
"""claim, rule, sentence, expected, got, mend."""


def told_by_files(record: Record) -> Iterator[Finding]:
    """What the rules find in the files of the user's classes that ran."""
    classes = dict.fromkeys(map(type, record.module.modules()))
    files = {found[1]: found[0] for found in map(file_of, classes) if found is not None}
    for file, tree in files.items():
        for claim, rule, sentence, expected, got, mend in _TOLD:
            for written, node in rule(tree):
                place = Place(file, getattr(node, "lineno", 0))
                yield Finding(claim, sentence, place, expected, f"{got}: {written}", mend)
