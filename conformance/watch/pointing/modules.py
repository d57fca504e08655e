"""Where modes, data, and parts of the model went wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any

from conformance.watch.events import Backward, Forward, Mode, Seed, Step
from conformance.watch.lines import FUNCTIONS, source_of
from conformance.watch.origins import DEEP, arguments, behind, scope_of
from conformance.watch.parts import JUDGING
from conformance.watch.pointing.common import (
    CUTS,
    first,
    functions_of,
    learned,
    node_of,
    statements,
    that,
)
from conformance.watch.stated import classes, sources
from conformance.watch.watcher import speaks_of_evaluation


def switched(run: Any, call: Any, switches: Sequence[Any]) -> list[str]:
    """Where a model was left in evaluation mode: the switch, the end of the function that made it, and the call. Where
    nothing sets it to training and an epoch has a function of its own, the head of that."""
    last = switches[-1] if switches else None
    if last is None:
        return first(call.place)
    own, around = next(functions_of(last), None), [*functions_of(call)]
    if own is None or own in around:
        return first(last.place, call.place)
    back = next(run.between(call.order, len(run.events), Backward), None)
    epoch = [one for one in around if back is not None and one in functions_of(back)]
    meeting = [one for one in epoch if one in functions_of(last)]
    if not any(m.training for m in run.of(Mode)) and epoch and epoch[0] not in meeting:
        return first(epoch[0][0].place(epoch[0][1].body[0]), own[0].place(own[1].body[-1]), last.place)
    return first(own[0].place(own[1].body[-1]), last.place, call.place)


def apart(run: Any, event: Any) -> list[str]:
    """The innermost line on the way to an event of an evaluation that training does not pass; only where the
    evaluation shares its innermost function with training."""
    learning = [e for e in run.events if isinstance(e, Backward) or (isinstance(e, Forward) and e.gradients)]
    plain = [e.stack for e in learning if e.stack and e is not event]
    trained = [stack for stack in plain if not any(speaks_of_evaluation(at.code.co_name) for at in stack)]
    passed = {at.place for stack in trained for at in stack}
    if not event.stack or event.stack[0].place not in passed:
        return []
    return [at.place for at in event.stack if at.place not in passed][:1]


def evaluating(run: Any, call: Any) -> list[str]:
    """Where an evaluation begins in training mode: a switch inside it, or the line of its function, and the call."""
    shared = apart(run, call)
    if shared:
        return first(shared, call.place)
    functions = [*functions_of(call)]
    named = [one for one in functions if one[1].name in call.evaluating]
    around = next(iter([*named, *functions]), None)
    switches = [m for m in run.events[: call.order] if isinstance(m, Mode) and m.training and m.stack]
    inside = [m.place for m in switches if around is not None and next(functions_of(m), None) == around]
    heads = [around[0].place(around[1].body[0]), around[0].place(around[1])] if around is not None else []
    return first(inside[-1:], heads[:1], call.place)


def seeded(run: Any, call: Any) -> list[str]:
    """The seed before a call, and the call."""
    return first([s.place for s in run.events[: call.order] if isinstance(s, Seed)][-1:], call.place)


def batched(batch: Any) -> list[str]:
    """The line that asks for a batch, and those behind what it gives."""
    source, _ = node_of(batch)
    scope = scope_of(batch.stack)
    if source is None or scope is None:
        return [batch.place]
    loops = [n for n in source.nodes if isinstance(n, ast.For) and n.lineno == batch.stack[0].line]
    lines = [line.place for loop in loops for line in behind(loop.iter, scope, (), DEEP)]
    return first(lines[:2], batch.place)


def used(run: Any, numbers: Iterable[int]) -> list[str]:
    """Where the parts of some parameters are used: the line of the user's forward that names the part."""
    for number in numbers:
        path = run.parameters[number].name.split(".")
        for source, owner in classes(run, run.parameters[number].name):
            attributes = {part for part in path if not part.isdigit()}
            for one in ast.walk(owner):
                is_own = isinstance(one, ast.Attribute) and one.attr in attributes and isinstance(one.ctx, ast.Load)
                inside = source.function(one) if is_own else None
                if is_own and getattr(inside, "name", "__init__") != "__init__":
                    return [source.place(source.statement(one))]
    return []


def _last_first(run: Any, numbers: Iterable[int]) -> list[int]:
    """Parameters in the order in which their parts stand in the model, the last one first."""
    order = {path: place for parts in run.parts.values() for place, path in enumerate(parts)}
    owners = {number: run.parameters[number].name.rpartition(".")[0] for number in numbers}
    return sorted(owners, key=lambda number: order.get(owners[number], -1), reverse=True)


_HALTS = re.compile(CUTS.pattern + r"|\.numpy\(|torch\.tensor\(|from_numpy|\.tolist\(|argmax|\.round\(|\.item\(")


def dead(run: Any, weights: Iterable[int], zero: Iterable[int]) -> list[str]:
    """Where the part is used behind which gradients are zero: the last one all of whose parameters get none."""

    def owner(number: int) -> str:
        return str(run.parameters[number].name.rpartition(".")[0])

    alive = {owner(n) for n in range(len(run.parameters)) if n in run.parameters and n not in set(zero)}
    whole = [n for n in weights if owner(n) not in alive]
    return used(run, _last_first(run, whole or weights))


def halts(run: Any, numbers: Iterable[int], passes: Sequence[Any]) -> list[str]:
    """Where the graph between some parameters and the loss is cut."""
    found: list[str] = []
    numbers = _last_first(run, numbers)
    for number in numbers[:1]:
        for source, owner in classes(run, run.parameters[number].name):
            for method in owner.body:
                if isinstance(method, FUNCTIONS[:2]) and method.name != "__init__":
                    found += statements(source, method, _HALTS)
    on_the_way = that(learned(passes[-1]), CUTS) if passes else []
    return first(on_the_way, found, used(run, numbers))


def together(run: Any, names: Sequence[str]) -> list[str]:
    """The statement that names two parts at once, as one that ties them does."""
    parts = [name.rpartition(".")[0].rpartition(".")[2] for name in names]
    files = {at.code.co_filename for event in run.events for at in event.stack}
    sources = [source for source, _ in classes(run)] + [s for s in map(source_of, sorted(files)) if s]
    for source in dict.fromkeys(sources):
        for node in source.nodes:
            if isinstance(node, (ast.Assign, ast.Expr)) and "weight" in ast.unparse(node):
                text = ast.unparse(node)
                if all(re.search(rf"\b{re.escape(part)}\b", text) for part in parts):
                    return [source.place(node)]
    return []


_APPLIED = re.compile(r"masked_fill|scaled_dot_product_attention|is_causal|_mask\s*=|mask=|float\('-inf'\)|-inf")
_MADE = re.compile(r"tril|triu|subsequent|causal")
PADS = re.compile(r"pad|mask")
_WEIGHED = re.compile(r"softmax")
_POOLED = re.compile(r"\.(mean|sum|max|amax)\((dim=)?1\b")
_WRITES = re.compile(r"multinomial|topk\(|def (generate|sample)")
"""What a method says that writes words: it hides scores of words, and no words."""
_ANSWERS = re.compile(r"(tgt|trg|target|dec\w*)_mask\w* =")
_OTHERS = re.compile(r"(src|source|enc\w*|pad\w*)_mask\w* =")
_FILLS = re.compile(r"pad_sequence|padding_value")
_TRUTHS = re.compile(r"\b(ones|zeros)\(|bool\b")


def hides(run: Any, probe: Any, wanted: re.Pattern[str] = _MADE) -> list[str]:
    """Where a mask is made and used in the user's model, or handed to it."""
    calls = [one for one in run.of(Forward) if one.stack]
    given = arguments(calls[0].stack) if calls else []
    given = [line for line in given if not _FILLS.search(line.text)]
    side = _OTHERS if wanted is PADS else _ANSWERS
    named = that(given, re.compile(r"\w*mask\w* ="))
    handed = that(given, wanted) or that(given, side)[:1] or named
    if wanted is not PADS:
        handed = handed or that(given, _TRUTHS)
    made: list[str] = []
    applied: list[str] = []
    weighed: list[str] = []
    pooled: list[str] = []
    for source, owner in classes(run):
        for method in owner.body:
            writes = isinstance(method, FUNCTIONS[:2]) and _WRITES.search(ast.unparse(method))
            if isinstance(method, FUNCTIONS[:2]) and method.name != "__init__" and not writes:
                applied += statements(source, method, _APPLIED)
                weighed += statements(source, method, _WEIGHED)
                pooled += statements(source, method, _POOLED)
            if isinstance(method, FUNCTIONS[:2]):
                made += statements(source, method, wanted)
    pooled = pooled[:1] if wanted is PADS and not handed else []
    own = [*pooled, *(applied or weighed)]
    late = [place for place in weighed if place in applied]  # hidden in the softmax's own statement: after it
    return first(late[:1], handed[:1], own[:1], [p for p in made if p not in own][:1], probe.place)


def split(one: Any) -> list[str]:
    """Where the rows of loaders that share some were drawn: the lines behind the one that judges which speak of subsets
    and numbers of rows, the nearest first."""
    lines = arguments(one.judging.stack)
    return that(lines, _DRAWS) or [line.place for line in lines]


_DRAWS = re.compile(r"random_split|Subset|randperm|permutation|range\(|\[.*:.*\]|split\(|sample\(")


def last_evaluated(run: Any) -> list[str]:
    """The call of the last evaluation, seen from where training goes on: in the function that steps."""
    steps = run.of(Step)
    calls = [e for e in run.of(Forward) if not e.gradients]
    passed = {at.code for step in steps[-1:] for at in step.stack}
    return [at.place for at in calls[-1].stack if at.code in passed][:1] if calls else []


_SCALES = re.compile(r"\.std\(|\.mean\(|\bstd\b|\bmean\b|[Nn]ormaliz|/ 255|[Ss]caled?\b|[Ss]caler")


def scales(run: Any) -> list[str]:
    """The statements that scale data which judge, by the names in them; else those that scale any."""
    plain = [(source, n) for source in sources(run) for n in source.nodes if isinstance(n, ast.Assign)]
    found = [(source.place(n), ast.unparse(n)) for source, n in plain if _SCALES.search(ast.unparse(n))]
    judging = [place for place, text in found if any(map(JUDGING.search, re.findall(r"\w+", text)))]
    return [*judging, *(place for place, _ in found)][:2]


_ALONG = re.compile(r"nn\.(GRU|LSTM|RNN|MultiheadAttention|Transformer\w*Layer|Transformer)\((?!.*batch_first)")
_PLACES = re.compile(
    r"(pe|pos\w*|position\w*|places?)\w*(\.\w+)*[\[(].*(size\(0\)|shape\[0\]|len\()|arange\(.*(size\(0\)|shape\[0\]|len\()"
)


def along_the_batch(run: Any) -> list[str]:
    """Where layers of the model are made that take the batch second, and where positions are counted along the first
    axis."""
    found: list[str] = []
    for pattern in (_PLACES, _ALONG):
        for source, owner in classes(run):
            statements = [
                n for n in ast.walk(owner) if isinstance(n, (ast.Assign, ast.Return, ast.Expr, ast.AugAssign))
            ]
            found += [source.place(n) for n in statements if pattern.search(ast.unparse(n))]
    return found[:1]
