"""Models that learn no more and are asked while another one learns: teachers, and models to compare with."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import NamedTuple

from conformance.watch.events import Backward, Event, Forward, Loss, Mode
from conformance.watch.lines import source_of
from conformance.watch.record import Run

_NAMED = re.compile(r"(^|\.|_)(teacher|reference|ref|ref_model)(_\w+)?$", re.IGNORECASE)
FEWEST = 3
"""So many calls in the steps of another model make a model one that learns no more."""


class Dropping(NamedTuple):
    """A call of a fixed model that drops. is_certain: whether its answers are what the other one is to give."""

    call: Forward
    is_certain: bool


def answers(run: Run) -> tuple[int, Dropping | None]:
    """How many calls of fixed models with dropout there are, and the first one that drops."""
    moving = any(run.parameters[number].in_model for number in run.copies)
    taught = next((call for call in run.of(Forward) if call.taught), None)
    if taught is not None:
        return 1, Dropping(taught, not moving)
    if moving:
        return 0, None
    fixed = asked(run)
    first = next((c for c in fixed if c.random), None)
    if first is None:
        return len(fixed), None
    certain = (c for c in fixed if c.random and _is_teacher(run, c))
    teacher = next(certain, None)
    return len(fixed), Dropping(teacher or first, teacher is not None)


def asked(run: Run) -> list[Forward]:
    """The calls of models with dropout that learn no more, in the steps of another one."""
    calls = [c for c in run.of(Forward) if c.random or c.resting]
    frozen = [c for c in calls if c.frozen]
    return [*frozen, *(c for c in _retired(run, calls) if not c.frozen)]


def _retired(run: Run, calls: list[Forward]) -> list[Forward]:
    """The calls without a graph of models that have learned before and do so no more, in the steps of another one."""
    passes = run.of(Backward)
    learning = [(c, next((b for b in passes if b.order > c.order), None)) for c in run.of(Forward) if c.gradients]
    last: dict[int, int] = {}
    for call, back in learning:
        if back is not None:
            last[call.module] = back.order
    found = []
    for module, end in last.items():
        if not any(other != module and order > end for other, order in last.items()):
            continue
        mine = [c for c in calls if c.module == module and c.order > end and not c.gradients and not c.evaluating]
        mine = [c for c in mine if any(b.order > c.order for b in passes)]
        steps = {c.step for c in mine}
        waited = max((c.step for c in mine), default=0) - max((b.step for b in passes if b.order <= end), default=0)
        if len(steps) >= FEWEST and waited > _longest_pause(run, module):
            found += mine
    return found


def _longest_pause(run: Run, module: int) -> int:
    """The most steps between two calls of a module that are recorded."""
    steps = [c.step for c in run.of(Forward) if c.module == module and c.gradients]
    return max((2 * (after - before) for before, after in pairwise(steps)), default=0)


def _is_teacher(run: Run, call: Forward) -> bool:
    """Whether a call is named a teacher's, or a divergence with a fixed side follows before the backward pass."""
    made = call.stack[0].call() if call.stack else None
    if made is not None and _NAMED.search(ast.unparse(made.func)):
        return True
    back = next(run.between(call.order, len(run.events), Backward), None)
    losses = run.between(call.order, back.order if back else len(run.events), Loss)
    return any(loss.name == "kl_div" and loss.learner == "input" for loss in losses)


def left(run: Run, call: Forward) -> list[str]:
    """Where a model was left in training mode: where it is frozen under its name; else the switch, where one was made
    since it learned last; else behind the statement in which it did."""
    return [*dict.fromkeys([*_freezing(call), *_switched(run, call)])]


def _freezing(call: Forward) -> list[str]:
    """The first statement that freezes what is called, by its last name: `teacher.requires_grad_(False)` of
    `self.teacher(x)`, or a loop over its parameters."""
    at = call.stack[0] if call.stack else None
    source, made = (source_of(at.code.co_filename), at.call()) if at is not None else (None, None)
    if source is None or made is None or not isinstance(made.func, (ast.Name, ast.Attribute)):
        return []
    name = made.func.id if isinstance(made.func, ast.Name) else made.func.attr
    own, loop = re.compile(rf"(.*\.)?{name}\.requires_grad_\(False\)"), re.compile(rf"(?<!\w){name}\.parameters\(\)")
    for node in source.nodes:
        is_own = isinstance(node, ast.Expr) and own.fullmatch(ast.unparse(node))
        is_loop = isinstance(node, ast.For) and loop.search(ast.unparse(node.iter))
        if is_own or (is_loop and "requires_grad" in ast.unparse(node)):
            return [source.place(node)]
    return []


def _switched(run: Run, call: Forward) -> list[str]:
    """The last switch to training since a model learned last; else behind the statement in which it did."""
    taught = [c for c in run.of(Forward) if c.module == call.module and c.gradients and c.order < call.order]
    back = next(run.between(taught[-1].order, call.order, Backward), None) if taught else None
    since = back.order if back is not None else -1
    modes = [m for m in run.of(Mode) if m.module == call.module and m.training and since < m.order < call.order]
    if modes or back is None:
        return [m.place for m in modes[-1:]]
    return behind(back, call)


def behind(event: Event, later: Event) -> list[str]:
    """The first statement behind the one in which an event was, in the innermost function that both events passed; of
    loops around it, behind the outermost that the later one is not in."""
    lines = {at.code: at.line for at in later.stack}
    meeting = next((at for at in event.stack if at.code in lines), None)
    source, call = (source_of(meeting.code.co_filename), meeting.call()) if meeting is not None else (None, None)
    if source is None or call is None or meeting is None:
        return []
    inner, line = source.statement(call), lines[meeting.code]
    for around in source.outward(inner):
        is_loop = isinstance(around, (ast.For, ast.While)) and source.function(around) is source.function(call)
        if is_loop and not around.lineno <= line <= (around.end_lineno or line):  # type: ignore[attr-defined]
            inner = around  # type: ignore[assignment]
    block = getattr(source.around[inner], "body", [])
    after = [one for one in block if one.lineno > inner.lineno]
    return [source.place(after[0])] if after else []
