"""Where what shows over many steps went wrong: schedules, settings, repeated batches, averages, weights of classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.watch.events import Schedule, Step
from conformance.watch.lines import FUNCTIONS, Source, source_of
from conformance.watch.origins import Line, argument, arguments, receiver
from conformance.watch.pointing.common import first, inputs_of, statements, that
from conformance.watch.pointing.updates import rate
from conformance.watch.stated import classes

_RATES = re.compile(r"//|return .*(\*\*|warm|/)")
_AVERAGES = re.compile(r"mul_\(|lerp|add_\(|copy_\(|\* .* \+ ")
_WEIGHTS = re.compile(r"parameters\(\)|state_dict\(\)|shadow|\bema\b")
_AGAIN = re.compile(r"\] \* |\* \[|repeat|cycle|next\(|=")


def scheduled(run: Any, step: Any) -> list[str]:
    """Where the formula of a schedule stands: an integer division first, else its last line; then who uses it."""
    plain = rate(run, step)
    found = [place for source, node in _formulas(run) for place in statements(source, node, _RATES)]
    divided = [place for source, node in _formulas(run) for place in statements(source, node, re.compile("//"))]
    return first(divided[:1], found[-1:], plain)


def over(run: Any, step: Any) -> list[str]:
    """Where a schedule was made that is over before the run is: the call of the function that steps, where a function
    of the user's makes it; and its formula."""
    numbers = dict.fromkeys(one.scheduler for one in run.of(Schedule) if one.optimizer == step.optimizer)
    stepping = {at.code for at in step.stack if at.code.co_name != "<module>"}
    made = [stack for stack in (run.planned.get(number, ()) for number in numbers) if stack]
    calls = [next((at.place for at in stack if at.code in stepping), stack[0].place) for stack in made]
    return first(calls[:1], scheduled(run, step))


_TOTAL = re.compile(r"^(self\.)?\w*(total|steps|iters|updates|horizon)\w* = ")


def setting(run: Any, number: int, name: str) -> list[str]:
    """Where a schedule was given a setting by its name; else where it was made."""
    stack = run.planned.get(number, ())
    source, call = (source_of(stack[0].code.co_filename), stack[0].call()) if stack else (None, None)
    given = [one for one in call.keywords if one.arg == name] if call is not None else []
    return first([source.place(one) for one in given] if source else [], run.schedulers.get(number, ""))


def total(run: Any, step: Any) -> list[str]:
    """Where a schedule gets the number of its steps; else where it was made."""
    mine = dict.fromkeys(one.scheduler for one in run.of(Schedule) if one.optimizer == step.optimizer)
    stacks = [run.planned[number] for number in mine if run.planned.get(number)]
    lines = [line for stack in stacks for line in arguments(stack) if isinstance(line.node, ast.Assign)]
    for source, formula in _formulas(run):
        names = {ast.unparse(node) for node in ast.walk(formula) if isinstance(node, (ast.Name, ast.Attribute))}
        bound = [node for node in source.nodes if isinstance(node, ast.Assign) and formula not in source.outward(node)]
        lines += [Line(source, n) for n in bound if {*map(ast.unparse, n.targets)} & names]
    made = max((at.line for stack in stacks for at in stack), default=0)
    lines = sorted((one for one in lines if one.node.lineno < made), key=lambda one: -one.node.lineno)
    return first(that(lines, _TOTAL)[:1], over(run, step))


def _formulas(run: Any) -> Iterator[tuple[Source, ast.AST]]:
    """The user's functions that work out rates: those that schedules were given, those that they call, and those whose
    result becomes group["lr"]."""
    for codes in run.rate_functions.values():
        for code in codes:
            source = source_of(code.co_filename)
            node = source.defined(code) if source else None
            if source and node is not None:
                yield from _called(source, node)
                yield source, node
    for source in dict.fromkeys(source_of(at.code.co_filename) for event in run.events for at in event.stack):
        for node in source.nodes if source else ():
            if source and isinstance(node, ast.Assign) and re.search(r"\['lr'\]$", ast.unparse(node.targets[0])):
                names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
                yield from _called(source, node)
                for other in source.nodes:
                    if isinstance(other, ast.Assign) and any(getattr(t, "id", "") in names for t in other.targets):
                        yield from _called(source, other)


def _called(source: Source, node: ast.AST) -> Iterator[tuple[Source, ast.AST]]:
    """The functions of the file that are called in a node."""
    names = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    for one in source.nodes:
        if isinstance(one, FUNCTIONS[:2]) and one.name in names and one is not node:
            yield source, one


def settings(made: Any, pattern: str) -> list[str]:
    """Where an optimizer got a setting: a test in a function on the way, or the first line that speaks of it."""
    wanted, lines = re.compile(pattern), arguments(made.stack) if made.stack else []
    around = dict.fromkeys((line.source, line.source.function(line.node)) for line in lines)
    tests = [
        source.place(test)
        for source, function in around
        for test in _tests(function)
        if not isinstance(function, ast.Module) and wanted.search(ast.unparse(test))
    ]
    return first(tests[-1:], that(lines, wanted)[:1], made.place)


def _tests(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


def fed(run: Any, back: Any) -> list[str]:
    """Where the batch of a backward pass came from."""
    return first(that(inputs_of(run, back)[1:], _AGAIN)[:1], back.place)


def weights(loss: Any) -> list[str]:
    """Where the weights of classes are worked out, or handed on."""
    lines: list[Line] = receiver(loss.stack)
    computed = [line.place for line in lines if isinstance(line.node, ast.Return)]
    return first(computed[:1], that(lines, re.compile("weight")), loss.place)


def averaged(run: Any, name: str) -> list[str]:
    """Where a copy is made to follow: the line of the user's that averages, in a class of the model or elsewhere."""
    inside = [place for source, owner in classes(run) for place in statements(source, owner, _AVERAGES)]
    files = dict.fromkeys(source_of(at.code.co_filename) for event in run.events for at in event.stack)
    loops = [
        place
        for source in files
        for node in (source.nodes if source else ())
        if source and isinstance(node, ast.For) and _WEIGHTS.search(ast.unparse(node.iter))
        for place in statements(source, node, _AVERAGES)
    ]
    return first(loops[:1], inside[:1])


_SECOND = re.compile(r"self\.(k\b|\w*(key|target|teacher|ema|slow)\w*)[^=]* = \(?[\w.]+\(")


def slow_part(run: Any) -> list[str]:
    """Where a slow part is made, by its name."""
    return [place for source, owner in classes(run) for place in statements(source, owner, _SECOND)][:1]


def in_its_place(run: Any, name: str) -> list[str]:
    """Where another part is asked in place of a copy: under no_grad, in the class that holds the copy."""
    part = name.split(".")[0]
    for source, owner in classes(run):
        uses = [n for n in ast.walk(owner) if isinstance(n, ast.Attribute) and n.attr == part]
        if uses:
            blocks = [n for n in ast.walk(owner) if isinstance(n, ast.With) and "no_grad" in ast.unparse(n.items[0])]
            return [source.place(block.body[0]) for block in blocks][:1]
    return []


def later(run: Any, schedule: Any) -> list[str]:
    """Where an optimizer that steps was made after a schedule of another one."""
    places = [run.optimizers[number].place for number in dict.fromkeys(step.optimizer for step in run.of(Step))]
    made = run.schedulers.get(schedule.scheduler, "").rpartition(":")
    pairs = [place.rpartition(":") for place in places]
    return [":".join((p[0], p[2])) for p in pairs if p[0] == made[0] and made[2] and int(p[2]) > int(made[2])]


def clearing(run: Any) -> list[str]:
    """The body of a function of the script's own that is named after clearing, where nothing is cleared."""
    for source in dict.fromkeys(source_of(at.code.co_filename) for event in run.events for at in event.stack):
        for node in source.nodes if source else ():
            if source and isinstance(node, FUNCTIONS[:2]) and re.search("zero_?grad|clear_grad", node.name):
                return [source.place(node.body[0])]
    return []


def kept(event: Any) -> list[str]:
    """Where the state was kept that a model gets back."""
    lines = argument(event.stack, 0, "state_dict")
    return first(that(lines, re.compile(r"state_dict\(\)"))[:1], event.place)


def beside(run: Any, names: Sequence[str]) -> list[str]:
    """The last line that calls one of some methods."""
    sources = dict.fromkeys(source_of(at.code.co_filename) for event in run.events for at in event.stack)
    return [
        source.place(node)
        for source in sources
        for node in (source.nodes if source else ())
        if source and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names
    ][-1:]


def weighted(run: Any, place: str) -> list[str]:
    """Where the weights of a loader's samples are worked out; else where it was made."""
    for source in dict.fromkeys(source_of(at.code.co_filename) for event in run.events for at in event.stack):
        for call in (n for n in source.nodes if isinstance(n, ast.Call)) if source else ():
            if source and ast.unparse(call.func).endswith("WeightedRandomSampler") and call.args:
                names = {n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)}
                bound = [n for n in source.nodes if isinstance(n, ast.Assign)]
                made = [n for n in bound if {getattr(target, "id", "") for target in n.targets} & names]
                return first([source.place(n) for n in made][-1:], source.place(call), place)
    return [place]
