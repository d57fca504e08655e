"""Schedules that are planned to come down, and how far they came when the script ended by itself."""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

from conformance.watch.events import Backward, Schedule, Step
from conformance.watch.lines import FUNCTIONS, source_of
from conformance.watch.stated import sources

FEWEST, FEWEST_PLANNED = 20, 4
"""So many steps a run has at least whose rate should have come down; one whose schedule is planned for the very number
of its steps shows it in fewer."""

SHARE = 0.55
"""A schedule that got no further than this share of its steps is planned for another run."""


class Descent(NamedTuple):
    """A schedule that did not come down. said: how far it came. is_rare: whether it was stepped in few of the steps.
    is_in_passes: whether it is planned for as many steps as there were backward passes. step: the optimizer's last
    one."""

    last: Schedule
    said: str
    is_rare: bool
    is_in_passes: bool
    step: Step


def unfinished(run: Any) -> tuple[int, Descent | None]:
    """How many schedules of a run that ended by itself were to come down, and the first one that did not."""
    schedules: list[Schedule] = run.of(Schedule)
    if not run.whole or not schedules:
        return 0, None
    found, seen = None, 0
    for optimizer in dict.fromkeys(one.optimizer for one in schedules):
        steps = [one for one in run.of(Step) if one.optimizer == optimizer]
        mine = [one for one in schedules if one.optimizer == optimizer]
        last = mine[-1]
        said = _not_down(run, last, mine, steps)
        is_done = not steps or steps[-1].step + len(run.optimizers) < run.steps  # another one took over
        planned = last.kind in ("OneCycleLR", "CosineAnnealingLR") and last.period == len(steps)
        if said is None or is_done or len(steps) < (FEWEST_PLANNED if planned else FEWEST):
            continue
        seen += 1
        if said and found is None:
            is_rare = len(mine) <= SHARE * len(steps)
            found = Descent(last, said, is_rare, not is_rare and _is_in_passes(run, last), steps[-1])
    return seen, found


def _is_in_passes(run: Any, last: Schedule) -> bool:
    """Whether a schedule comes to its end after as many steps as there were backward passes."""
    planned = run.descents.get(last.scheduler, last.period or 0)
    return abs(planned - len(run.of(Backward))) <= 0.03 * planned


def _not_down(run: Any, last: Schedule, mine: list[Schedule], steps: list[Step]) -> str | None:
    """How far a schedule came that did not come down; "" for one that did, None where it is not known what it plans."""
    if last.kind in ("OneCycleLR", "CosineAnnealingLR") and last.period:
        furthest = max(one.count for one in mine)
        return f"{furthest} of {last.period} steps" if furthest <= SHARE * last.period else ""
    if last.kind == "LambdaLR" and (peak := run.peaks.get(last.scheduler)):
        return f"{max(one.count for one in mine)} of about {peak} steps of its warm-up"
    if last.kind == "LambdaLR" and _is_cosine(run, last.scheduler):
        largest = max(max(rates, default=0.0) for rates in [s.rates for s in mine] + [s.rates for s in steps])
        now = max(last.rates, default=0.0)
        return f"{now:.3g}, the largest was {largest:.3g}" if now > SHARE * largest else ""
    planned, furthest = run.descents.get(last.scheduler, 0), max(one.count for one in mine)
    if last.kind == "LambdaLR" and planned > SHARE * furthest and (furthest >= planned or _is_in_passes(run, last)):
        return f"{furthest} of {planned} steps" if furthest <= SHARE * planned else ""
    return None


def _is_cosine(run: Any, number: int) -> bool:
    """Whether the function of a schedule, or one that it calls, takes half a cosine wave."""
    codes = run.rate_functions.get(number, [])
    found = [(source, source.defined(code)) for code in codes if (source := source_of(code.co_filename)) is not None]
    texts = [ast.unparse(node) for _, node in found if node is not None]
    others = [n for source, _ in found for n in source.nodes if isinstance(n, FUNCTIONS[:2])]
    texts += [ast.unparse(n) for n in others if any(re.search(rf"\b{n.name}\(", text) for text in texts)]
    return any(re.search(r"\bcos\(", text) for text in texts)


_ENDS = re.compile(r"patience|early_?stop|no_improve|since_best|bad_epochs|resume|interrupt|pause|stop_after", re.I)


def may_end_early(run: Any) -> bool:
    """Whether a script was told to make fewer steps, or may by itself."""
    return bool(run.options) or any(_ENDS.search(ast.unparse(source.tree)) for source in sources(run))
