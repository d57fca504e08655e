"""Rates that follow half a cosine wave, known by their values alone: whatever sets them, r[k + 1] + r[k - 1] is a line
over r[k], whose slope tells how far each step turns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from conformance.watch.events import Backward, Step

FEWEST, SHORT = 10, 0.6
"""So many steps a wave has at least; one that turned less than this share of half a turn has not come down."""


class Wave(NamedTuple):
    """The rates of an optimizer from their peak to the end of the run. turned: how far, as a share of half a turn.
    steps: how many these are; before: how many came before the peak."""

    last: Step
    turned: float
    steps: int
    before: int


def is_in_passes(run: Any, wave: Wave) -> bool:
    """Whether a wave would come to its end after as many steps as there were backward passes, of which a step takes
    several."""
    passes = len(run.of(Backward))
    planned = wave.before + (wave.steps - 1) / max(wave.turned, 1e-9)
    return passes >= 1.8 * (wave.before + wave.steps) and abs(planned - passes) <= 0.03 * passes


def waves(run: Any) -> Iterator[Wave]:
    """The optimizers whose rates fall along one half of a cosine wave from their peak to the end."""
    steps = run.of(Step)
    for number in dict.fromkeys(one.optimizer for one in steps):
        mine = [one for one in steps if one.optimizer == number]
        rates = [max(one.rates, default=0.0) for one in mine]
        after = rates[len(rates) - 1 - rates[::-1].index(max(rates)) :] if rates else []
        turn = turn_of(after)
        is_last = mine[-1].step + len(run.optimizers) >= run.steps
        if turn is not None and is_last:
            yield Wave(mine[-1], turn * (len(after) - 1) / math.pi, len(after), len(rates) - len(after))


def turn_of(rates: Sequence[float]) -> float | None:
    """By which angle each step turns rates that only fall and are a cosine from its top on; None where they are not."""
    values = np.asarray(rates, np.float64) / max(rates[0], 1e-30) if rates else np.zeros(0)
    if len(values) < FEWEST or not (np.diff(values) < 0).all():
        return None
    middle, sums = values[1:-1], values[2:] + values[:-2]
    slope, rest = np.polyfit(middle, sums, 1)
    if np.abs(sums - slope * middle - rest).max() > 1e-9 or not -2 < slope < 2 - 1e-9:
        return None
    turn, middle = math.acos(slope / 2), rest / (2 - slope)
    is_half = middle > 0.499  # a quarter of a wave, as FixMatch's, ends where it should
    at_top = middle + (values[0] - middle) * np.cos(turn * np.arange(len(values)))
    return turn if is_half and np.abs(at_top - values).max() < 1e-3 else None
