"""Where optimizers, schedules and what they are given went wrong."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from typing import Any

from conformance.watch.events import Forward
from conformance.watch.lines import FUNCTIONS, source_of
from conformance.watch.origins import Scope, argument, arguments, behind, receiver
from conformance.watch.pointing.common import (
    first,
    statements,
)
from conformance.watch.stated import sources
from conformance.watch.watcher import is_the_users

_RULES = (
    ("eps inside", re.compile(r"eps")),
    ("decay", re.compile(r"decay")),
    ("beta", re.compile(r"beta")),
    ("forgets", re.compile(r"^if (?!.*\bgrad\b)|\bnot state|len\(state|zeros")),
    ("bias correction", re.compile(r"\*\*|bias_corr")),
    ("bias correction", re.compile(r"^\w+ = state\[|addcdiv|sqrt")),
)


def formula(step: Any, cls: type) -> list[str]:
    """Where an optimizer of the user's own computes what is wrong."""
    methods = (inspect.unwrap(getattr(cls, name)) for name in ("update", "step") if hasattr(cls, name))
    codes = (getattr(method, "__code__", None) for method in methods)
    code = next((code for code in codes if code is not None and is_the_users(code.co_filename)), None)
    source = source_of(code.co_filename) if code else None
    node = source.defined(code) if source and code else None
    owner = source.owner(node) if source and node is not None else None
    if source is None or node is None or owner is None:
        return first(step.place)
    bodies = [one for one in owner.body if isinstance(one, FUNCTIONS[:2]) and one.name != "__init__"]
    for word, wanted in _RULES:
        if word in step.rule:
            found = [place for one in bodies for place in statements(source, one, wanted)]
            if not found:
                continue
            return first(found[:2], source.place(node), step.place)
    return first(source.place(node), step.place)


_COMPUTED = re.compile(r"return |\*\*|//|\bmin\(|\bmax\(| / ")


def rate(run: Any, step: Any) -> list[str]:
    """Where a rate is worked out: the function of a schedule, a line that sets group["lr"], or the optimizer."""
    for number, functions in run.rate_functions.items():
        for code in functions:
            source = source_of(code.co_filename)
            node = source.defined(code) if source else None
            if source and node is not None:
                last = node.body if isinstance(node, ast.Lambda) else node.body[-1]
                return first(source.place(last), run.schedulers.get(number, ""))
    files = dict.fromkeys(at.code.co_filename for event in run.events for at in event.stack)
    for source in filter(None, map(source_of, files)):
        for node in source.nodes:
            if isinstance(node, ast.Assign) and re.search(r"\[['\"]lr['\"]\]$", ast.unparse(node.targets[0])):
                scope = Scope(source, {})
                is_own = any(isinstance(one, ast.Constant) for one in ast.walk(node.value))
                lines = [line.place for line in behind(node.value, scope, (), 3) if _COMPUTED.search(line.text)]
                return first([] if is_own else lines[:1], source.place(node), run.optimizers[step.optimizer].place)
    return first(run.schedulers.values(), run.optimizers[step.optimizer].place)


def remade(run: Any, step: Any) -> list[str]:
    """Where a model was made anew, copied or given another part after its optimizer, and the optimizer's line."""
    made = run.optimizers[step.optimizer]
    for call in (one for one in run.of(Forward) if one.stack and one.gradients and run.parts.get(one.module)):
        frames = {at.code: at for at in call.stack}
        meeting = next((at for at in made.stack if at.code in frames), None)
        if meeting is None:
            continue
        source = source_of(meeting.code.co_filename)
        around = source.defined(meeting.code) or source.tree if source else None
        here = [one for one in receiver(call.stack) if one.source.function(one.node) is around]
        later = [one.place for one in here if one.node.lineno > meeting.line]
        return first(later[-1:], meeting.place, made.place)
    return first(made.place, step.place)


def parameters(run: Any, made: Any, numbers: Iterable[int]) -> list[str]:
    """Where parameters of an optimizer were listed, and where it was made."""
    parts = [run.parameters[n].name.rpartition(".")[0].rpartition(".")[2] for n in numbers]
    lines = arguments(made.stack) if made.stack else []
    naming = [line.place for line in lines if any(part and part in line.text for part in parts)]
    return first(naming[:1], [line.place for line in lines], made.place)


def given(event: Any, position: int, *names: str) -> list[str]:
    """The lines behind a name that a call was given, then the call; what it was given as it stands is the call's."""
    call = event.stack[0].call() if event.stack else None
    is_named = call is not None and len(call.args) > position and isinstance(call.args[position], ast.Name)
    lines = [line.place for line in argument(event.stack, position, *names)] if is_named else []
    return first(lines[:2], event.place)


_LISTS = re.compile(r"^\w+ = (?!.*optim).*parameters\(")
_FREEZES = re.compile(r"requires_grad")


def left_out(run: Any, step: Any) -> list[str]:
    """Where what an optimizer holds was listed, and where it was made."""
    made = run.optimizers[step.optimizer]
    lines = arguments(made.stack) if made.stack else []
    return first([line.place for line in lines if _LISTS.search(line.text)][:1], made.place)


def falling(run: Any, step: Any) -> list[str]:
    """Where the rates of layers are computed as powers: the loop over the layers, or the statement."""
    made = run.optimizers[step.optimizer]
    for source in sources(run):
        powers = [n for n in source.nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow)]
        for one in (n for n in powers if re.search(r"lr|rate", ast.unparse(source.statement(n)))):
            loops = [n for n in source.outward(one) if isinstance(n, ast.For)]
            return first([source.place(n) for n in loops[:1]], source.place(one), made.place)
    return first(made.place)


def thawed(run: Any, step: Any) -> list[str]:
    """Where the script freezes something, before the optimizer was made; else where that was made."""
    made = run.optimizers[step.optimizer]
    source = source_of(made.stack[0].code.co_filename) if made.stack else None
    loops = [n for n in source.nodes if isinstance(n, ast.For)] if source else []
    freezing = [n for n in loops if "parameters(" in ast.unparse(n.iter) and _FREEZES.search(ast.unparse(n.body[0]))]
    return first([source.place(n) for n in freezing if source][-1:], made.place)


def saved(save: Any) -> list[str]:
    """Where what is saved was chosen by its names; else where it was saved."""
    lines = arguments(save.stack) if save.stack else []
    return first([line.place for line in lines if re.search(r" in \w+\b.* for | if .* in ", line.text)][:1], save.place)
