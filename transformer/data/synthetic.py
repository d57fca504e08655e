"""Tasks whose right answers a formula gives: copy, reverse, sort, addition. Each is pairs (question, answer) of text.

A pair belongs to the held-out part when a hash of its question says so, which no seed changes: what a model is tested
on it has never seen, however long it trained.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Pairs = list[tuple[str, str]]


def _word(rng: np.random.Generator, longest: int) -> str:
    return "".join(LETTERS[n] for n in rng.integers(0, len(LETTERS), rng.integers(1, longest + 1)))


def _sum(rng: np.random.Generator, digits: int) -> tuple[str, str]:
    """Both numbers and their sum in fixed width, the sum's units first, as one adds by hand.

    Numbers of one digit are as frequent as those of two: sums without carries are where the learning begins.
    """
    a, b = (int(n) for n in rng.integers(0, 10 ** rng.integers(1, digits + 1), 2))
    return f"{a:0{digits}}+{b:0{digits}}", f"{a + b:0{digits + 1}}"[::-1]


TASKS: dict[str, Callable[[np.random.Generator, int], tuple[str, str]]] = {
    "copy": lambda rng, size: (word := _word(rng, size), word),
    "reverse": lambda rng, size: (word := _word(rng, size), word[::-1]),
    "sort": lambda rng, size: (word := _word(rng, size), "".join(sorted(word))),
    "addition": _sum,
}


def is_held_out(question: str) -> bool:
    """One question in eight, by a hash of its text; single letters are all for training."""
    return len(question) > 1 and zlib.crc32(question.encode()) % 8 == 0


def examples(task: str, count: int, rng: np.random.Generator, size: int, held_out: bool = False) -> Pairs:
    """`count` pairs of a task: words of up to `size` letters, or numbers of `size` digits.

    All from the training part, or all from the held-out one. Raises ValueError for an unknown task or a size below 1.
    """
    if task not in TASKS:
        raise ValueError(f"there is no task {task!r}: the synthetic tasks are {', '.join(TASKS)}")
    if size < 1 + held_out * (task != "addition"):
        raise ValueError(f"{task} needs a size of at least {1 + held_out * (task != 'addition')}, got {size}")
    found: Pairs = []
    while len(found) < count:
        pair = TASKS[task](rng, size)
        if is_held_out(pair[0]) == held_out:
            found.append(pair)
    return found
