"""What a script's own text says that its run cannot: whether a line steps a schedule, which flags it sets, which
counters it never begins anew."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import Source
from conformance.watch.stated import sources

_NO_SCHEDULE = re.compile(r"^(?!.*(sched|lr)).*(opt|scaler|engine|env)", re.IGNORECASE)


def may_step_a_schedule(run: Any) -> bool:
    """Whether a line of the user's may be a schedule's step: one that names `step` of something else than what stepped
    an optimizer in this run. Libraries that call the user's code may step schedules themselves."""
    from conformance.watch.record import Step

    steps = run.of(Step)
    if not all(at.is_direct for step in steps for at in step.stack[:-1]) or not all(step.stack for step in steps):
        return True
    passed = {at.place for step in steps for at in step.stack}
    for source in sources(run):
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "step" and isinstance(node.ctx, ast.Load):
                call = source.around.get(node)
                is_call = isinstance(call, ast.Call) and call.func is node
                if (is_call and source.place(node) in passed) or _NO_SCHEDULE.search(ast.unparse(node.value)):
                    continue
                if is_call or not _is_number(source, node.attr):
                    return True
    return False


def _is_number(source: Source, name: str) -> bool:
    """Whether a file counts with an attribute of a name: `self.step += 1`, `self.step = state["step"]`."""
    bound = [n.target for n in source.nodes if isinstance(n, ast.AugAssign)]
    bound += [target for n in source.nodes for target in _targets(n)]
    return any(getattr(one, "attr", "") == name for one in bound)


def flags(run: Any) -> list[str]:
    """Where `requires_grad` is set on something that is not taken from a list of parameters, the first one first."""
    return [source.place(node) for source in sources(run) for node in source.nodes if _is_flag(source, node)]


def _is_flag(source: Source, node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    owners = [one.value for one in node.targets if isinstance(one, ast.Attribute) and one.attr == "requires_grad"]
    loops = [one for one in source.outward(node) if isinstance(one, ast.For)]
    drawn = {n.id for one in loops if "parameters(" in ast.unparse(one.iter) for n in ast.walk(one.target)
             if isinstance(n, ast.Name)}  # fmt: skip
    return bool(owners) and not any(getattr(one, "id", "") in drawn | {"self"} for one in owners)


class Counter(NamedTuple):
    """A number that is counted up and compared with a patience. place: where it would begin anew."""

    name: str
    place: str


_PATIENCE = re.compile(r"patience", re.IGNORECASE)


def endless_counters(run: Any) -> list[Counter]:
    """The counters that are compared with a patience, counted up on a condition, and begun anew nowhere."""
    return [counter for source in sources(run) for counter in _endless(source)]


def _endless(source: Source) -> Iterator[Counter]:
    everywhere = [(node, target) for node in source.nodes for target in _targets(node)]
    for name in dict.fromkeys(_compared(source)):
        ups = [n for n in source.nodes if isinstance(n, ast.AugAssign) and ast.unparse(n.target) == name and _is_one(n)]
        if len(ups) != 1 or not isinstance(source.around[ups[0]], ast.If):
            continue
        attribute, up = name.rpartition(".")[2], ups[0]
        if "." in name:
            sets = [n for n, target in everywhere if isinstance(target, ast.Attribute) and target.attr == attribute]
            begun = [n for n in sets if getattr(source.function(n), "name", "") == "__init__"]
        else:
            around = source.function(up)
            loop = [n for n in source.outward(up) if isinstance(n, (ast.For, ast.While)) and n in source.inside(around)]
            sets = [n for n, target in everywhere if ast.unparse(target) == name and source.function(n) is around]
            begun = [n for n in sets if loop and loop[-1] not in source.outward(n)]
        if begun and len(begun) == len(sets):
            yield Counter(name, source.place(_other_branch(source, up)))


def _compared(source: Source) -> Iterator[str]:
    """The names that are compared with a patience."""
    for node in source.nodes:
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Gt, ast.GtE, ast.Eq)):
            mine, limit = ast.unparse(node.left), ast.unparse(node.comparators[0])
            if _PATIENCE.search(limit) and isinstance(node.left, (ast.Name, ast.Attribute)):
                yield mine


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What an assignment binds, one by one."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _is_one(node: ast.AugAssign) -> bool:
    return isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant) and node.value.value == 1


def _other_branch(source: Source, node: ast.stmt) -> ast.AST:
    """The first statement of the branch beside that of a statement; the statement itself where there is none."""
    around = source.around[node]
    if isinstance(around, ast.If) and around.orelse:
        return around.orelse[0] if node in around.body else around.body[0]
    return node


def names_a_rate(text: str) -> bool:
    """Whether an expression is a learning rate by its name."""
    return re.search(r"(^|[._'\"])(lr|learning_rate)\b", text) is not None
