"""The course of a run for a picture: loss, rate and norm by step, norms by layer, padding, and what a step does."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

from conformance.watch.events import Backward, Clear, Clip, Forward, Loss, Schedule, Step, Unscale
from conformance.watch.record import Run

WORDS = {
    Clear: "zero",
    Forward: "forward",
    Backward: "backward",
    Unscale: "unscale",
    Clip: "clip",
    Step: "step",
    Schedule: "schedule",
}
MOST = 12
"""So many layers are shown, those with the largest gradients."""


def course_of(run: Run) -> dict[str, Any]:
    """JSON values; a number that was not seen, or is not finite, is None. Empty where no optimizer stepped."""
    steps = run.of(Step)
    return {
        "steps": [_step(run, step) for step in steps],
        "layers": _layers(run, next((step for step in steps if step.norms), None)),
        "timeline": _timeline(run, steps[1] if len(steps) > 1 else steps[0]),
    } if steps else {}  # fmt: skip


def _step(run: Run, step: Step) -> dict[str, float | None]:
    start = step.previous
    passes = list(run.between(start, step.order, Backward))
    clips = [clip.norm for clip in run.between(start, step.order, Clip) if clip.by == "norm"]
    asked = [one.targets for one in run.between(start, step.order, Loss) if one.targets and one.targets.counted]
    labels = sum(one.total for one in asked)
    return {
        "loss": _finite(sum(one.value / one.factor for one in passes)) if passes else None,
        "rate": _finite(max(step.rates, default=0.0)),
        "norm": _finite(clips[-1] if clips else step.norm) if step.closely or clips else None,
        "pads": sum(one.pads for one in asked) / labels if labels else None,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _layers(run: Run, step: Step | None) -> list[list[Any]]:
    """Layers with the norms of their gradients in the first step that was seen closely, the largest first."""
    squares: dict[str, float] = {}
    for number, norm in step.norms.items() if step is not None else ():
        layer = run.parameters[number].name.rpartition(".")[0] or run.parameters[number].name
        squares[layer] = squares.get(layer, 0.0) + norm**2
    rows = sorted(((layer, square**0.5) for layer, square in squares.items()), key=lambda row: -row[1])
    return [[layer, norm] for layer, norm in rows if math.isfinite(norm)][:MOST]


def _timeline(run: Run, step: Step) -> list[list[Any]]:
    """What happened in one step, in order: the word, the line, and how often in a row. What follows the step up to the
    next forward pass belongs to it."""
    events = [event for event in run.events[step.previous + 1 :] if type(event) in WORDS]
    last = events.index(step)
    after = next((i for i, e in enumerate(events) if i > last and isinstance(e, (Forward, Step))), len(events))
    first = next((i for i, e in enumerate(events) if isinstance(e, Forward)), 0)
    while first and isinstance(events[first - 1], Clear):
        first -= 1
    said = ((WORDS[type(event)], event.place) for event in events[first:after])
    return [[word, place, len(list(group))] for (word, place), group in groupby(said)]
