"""What a script's text says of its parts of the data: which overlap, which is taken where another one is named, and
from where crops of a text begin."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.parts import (
    EITHER_CASE,
    JUDGING,
    TOOLS,
    Bound,
    are_beside,
    bindings,
    names_judging,
    names_training,
)
from conformance.watch.ranges import have_common, part_of
from conformance.watch.stated import sources
from conformance.watch.unread import unread_parts


class Overlap(NamedTuple):
    """Two parts of one sequence that share some of it. train, other: their names. place: where the training part is
    cut."""

    train: str
    other: str
    place: str


def overlaps(run: Any) -> list[Overlap]:
    """The training parts that share something with the part of the same sequence that judges."""
    return [found for source in sources(run) for found in _overlaps(source)]


def _overlaps(source: Source) -> Iterator[Overlap]:
    bound = [*bindings(source)]
    for train in (one for one in bound if names_training(one.name)):
        beside = (one for one in bound if names_judging(one.name) and are_beside(source, train, one))
        for other in beside:
            of = _common(source, train, other)
            if of and all(_is_bound_once(source, one) for one in (train, other)) and not _changes(source, of, train):
                yield Overlap(train.name, other.name, source.place(train.value))


def _common(source: Source, train: Bound, other: Bound) -> str:
    """The sequence of which both are parts that overlap; "" where there is none."""
    mine, its = _part(train.value), _part(other.value)
    if mine is not None and its is not None and mine[0] == its[0] and _share(mine[1], its[1]):
        return mine[0]
    first, second = part_of(train.value), part_of(other.value)
    if first is not None and second is not None and have_common(source, first, second, train.statement):
        return first.of
    return ""


Range = tuple[str, str] | None
"""From where to where a slice goes, as it is written; None: the whole."""


def _part(value: ast.expr) -> tuple[str, Range] | None:
    """Of which sequence a value is which part."""
    if isinstance(value, ast.Name):
        return value.id, None
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name):
        return None
    if not isinstance(value.slice, ast.Slice) or value.slice.step is not None:
        return None
    ends = [ast.unparse(end) if end is not None else "" for end in (value.slice.lower, value.slice.upper)]
    return value.value.id, (ends[0], ends[1]) if any(ends) else None


def _share(first: Range, second: Range) -> bool:
    """Whether two parts of one sequence have something in common: the whole and a part, two beginnings, two ends."""
    if first is None or second is None:
        return first is not second
    starts = [one[0] in ("", "0") for one in (first, second)]
    ends = [one[1] == "" for one in (first, second)]
    return all(starts) or all(ends)


def _is_bound_once(source: Source, one: Bound) -> bool:
    around = source.function(one.statement)
    inside = (n for n in source.inside(around) if isinstance(n, ast.Name) and n.id == one.name)
    return sum(not isinstance(n.ctx, ast.Load) for n in inside) == 1


def _changes(source: Source, name: str, one: Bound) -> bool:
    """Whether a part of a sequence is taken out of it, or the sequence is bound again and again."""
    inside = source.inside(source.function(one.statement))
    own = [n for n in inside if isinstance(n, ast.Name) and n.id == name]
    taken = [n for n in inside if isinstance(n, ast.Subscript) and not isinstance(n.ctx, ast.Load)]
    if any(ast.unparse(n.value) == name for n in taken) or any(isinstance(n.ctx, ast.Del) for n in own):
        return True
    return any(n.lineno > one.statement.lineno for n in own if isinstance(n.ctx, ast.Store))


class Taken(NamedTuple):
    """The training data are taken where another part is named. asked: what names that. place: where they are taken."""

    asked: str
    given: str
    place: str


_MEASURE = re.compile(
    r"loss|acc|ppl|perplex|nll|score|f1|bleu|rouge|metric|err|auc|result|correct|total", re.IGNORECASE
)
_MEASURES = re.compile(r"(^|_)(eval\w*|valid\w*|val|test\w*|estimate\w*|measure\w*|perplexity)(_|$)")
_HOLDS = re.compile(
    r"load|data|set|dl$|ds$|iter|pairs|rows|batch|docs|texts|sent|examples|samples|^x_|^y_", re.IGNORECASE
)
_COUNTS = re.compile(r"size|num|^n_|len|steps|iters|count|freq|every|loss|acc", re.IGNORECASE)
_LOADERS = ("DataLoader", "TensorDataset")


def taken_for_others(run: Any) -> list[Taken]:
    """Where training data are taken in the place of others."""
    ways = (_loops_over_names, _unread_splits, _measures_of_training, _best_of_training)
    found = [found for source in sources(run) for way in ways for found in way(source)]
    return [*found, *(Taken(*one) for source in sources(run) for one in unread_parts(source))]


def _texts(node: ast.AST) -> Iterator[str]:
    """The names and texts in an expression."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
        elif isinstance(one, (ast.Name, ast.Attribute)):
            yield one.id if isinstance(one, ast.Name) else one.attr


def _loops_over_names(source: Source) -> Iterator[Taken]:
    """`for split in ("train", "val")` with a call in it that is given "train" each time."""
    for loop in source.nodes:
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
            continue
        values = [one.value for one in getattr(loop.iter, "elts", []) if isinstance(one, ast.Constant)]
        parts = [one for one in values if isinstance(one, str)]
        if not (any(map(names_training, parts)) and any(map(names_judging, parts))):
            continue
        uses = [
            n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == loop.target.id and n is not loop.target
        ]
        if not all(_only_keeps(source, one) for one in uses):
            continue
        for call in (n for n in ast.walk(loop) if isinstance(n, ast.Call)):
            given = [
                one.value for one in (*call.args, *(k.value for k in call.keywords)) if isinstance(one, ast.Constant)
            ]
            fixed = next((one for one in given if one in parts), None)
            if fixed is not None:
                yield Taken(loop.target.id, repr(fixed), source.place(call))


_SHOWS = re.compile(r"print|log|write|set_description|set_postfix|add_scalar|format|info$")


def _only_keeps(source: Source, node: ast.Name) -> bool:
    """Whether a name is only the key under which something is kept, or is shown."""
    for around in source.outward(node):
        if isinstance(around, ast.JoinedStr):
            return True
        if isinstance(around, ast.Subscript) and not isinstance(around.ctx, ast.Load):
            return True
        if isinstance(around, ast.Call):
            return _SHOWS.search(ast.unparse(around.func)) is not None
        if isinstance(around, ast.stmt):
            return False
    return False


def _unread_splits(source: Source) -> Iterator[Taken]:
    """A function that is called for several parts by their names, and never reads which."""
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef) or source.owner(node) is not None or node.decorator_list:
            continue
        order = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
        for name in (one for one in order if one in ("split", "part", "partition", "subset", "phase")):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node)):
                continue
            calls = [n for n in source.nodes if isinstance(n, ast.Call) and getattr(n.func, "id", "") == node.name]
            given = [*_given(calls, name, order.index(name))]
            if any(isinstance(one, ast.Name) for one in given) or len({*map(ast.unparse, given)}) > 1:
                used = (n for n in ast.walk(node) if isinstance(n, ast.Name) and names_training(n.id))
                first = next(used, None)
                if first is not None and not any(map(names_judging, _texts(ast.Module(node.body, [])))):
                    yield Taken(name, first.id, source.place(first))


def _given(calls: list[ast.Call], name: str, position: int) -> Iterator[ast.expr]:
    for call in calls:
        yield from (one.value for one in call.keywords if one.arg == name)
        yield from call.args[position : position + 1]


def _measures_of_training(source: Source) -> Iterator[Taken]:
    """`val_loss = evaluate(model, train_loader)`, `val_loader = DataLoader(train_set)`, and a loop over training data
    that adds to `val_loss`."""
    for one in bindings(source):
        call = one.value
        if not names_judging(one.name) or not isinstance(call, ast.Call):
            continue
        called = ast.unparse(call.func).rpartition(".")[2]
        is_measure = _MEASURES.search(called) and (_MEASURE.search(one.name) or _MEASURE.search(called))
        if is_measure or called in _LOADERS:
            taken = _training_alone(_data_of(call), call) or (is_measure and _pieces_of_training(source, one, call))
            if taken:
                yield Taken(one.name, taken, source.place(one.statement))
    for loop in (n for n in source.nodes if isinstance(n, ast.For)):
        read = _data_of(loop.iter) if isinstance(loop.iter, ast.Call) else [loop.iter]
        taken = _training_alone(read, loop.iter)
        inside = (n for n in ast.walk(loop) if isinstance(n, ast.AugAssign))
        added = [ast.unparse(n.target) for n in inside if _innermost(source, n) is loop]
        judged = next((one for one in added if names_judging(one) and _MEASURE.search(one)), "")
        if taken and judged:
            yield Taken(judged, taken, source.place(loop))


def _pieces_of_training(source: Source, judged: Bound, call: ast.Call) -> str:
    """What a measure is given of `train_x[:256], train_y[:256]`, alone or behind a model, where the script has `val_x`
    and `val_y`; else ""."""
    given = [*call.args, *(one.value for one in call.keywords)]
    pieces = [
        one.value if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice) else one for one in given
    ]
    names = [one.id for one in pieces if isinstance(one, ast.Name) and names_training(one.id)]
    is_first = any(isinstance(one, ast.Name) and one.id in names for one in pieces[:2])
    is_of_others = any(JUDGING.search(EITHER_CASE.sub("_", one)) for piece in pieces for one in _texts(piece))
    if not is_first or is_of_others:
        return ""
    inside = source.inside(source.function(judged.statement))
    bound = {n.id for n in inside if isinstance(n, ast.Name) and names_judging(n.id)}
    others = {_PART.sub("", one): one for one in bound}
    return names[0] if all(_PART.sub("", one) in others for one in names) else ""


_PART = re.compile(r"train(ing)?|trn|valid(ation)?|val|test|dev", re.IGNORECASE)
_BEST = re.compile(r"(^|[._'\"\[])(best|lowest|highest)_", re.IGNORECASE)


def _best_of_training(source: Source) -> Iterator[Taken]:
    """`if train_loss < best_val_loss`."""
    for node in source.nodes:
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            sides = [ast.unparse(one) for one in (node.left, node.comparators[0])]
            best = next((one for one in sides if _BEST.search(one) and names_judging(one)), "")
            other = next((one for one in sides if names_training(one) and _MEASURE.search(one)), "")
            if best and other and not _BEST.search(other):
                yield Taken(best, other, source.place(node))


def _innermost(source: Source, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a statement."""
    return next((one for one in source.outward(node) if isinstance(one, (ast.For, ast.While))), None)


def _training_alone(given: list[ast.expr], everything: ast.expr) -> str:
    """The training data among what is given; "" where there are none, or others besides."""
    if any(JUDGING.search(EITHER_CASE.sub("_", one)) for one in _texts(everything) if not _MEASURES.fullmatch(one)):
        return ""
    names = [n.id if isinstance(n, ast.Name) else n.attr for n in given if isinstance(n, (ast.Name, ast.Attribute))]
    data = [one for one in names if not TOOLS.search(one) and not _COUNTS.search(one)]
    return data[0] if len(data) == 1 and names_training(data[0]) and _HOLDS.search(data[0]) else ""


def _data_of(call: ast.Call) -> list[ast.expr]:
    """What a call is given; of what loads data, the data alone; and what it loads where that is inside the call."""
    is_loader = ast.unparse(call.func).rpartition(".")[2] in _LOADERS
    given = [*call.args[: 1 if is_loader else None]]
    given += [one.value for one in call.keywords if not is_loader or one.arg == "dataset"]
    inner = [one for one in given if isinstance(one, ast.Call)]
    return [*given, *(part for one in inner for part in _data_of(one))]


class Crop(NamedTuple):
    """Crops of a text begin at random places of its first piece alone. length: of the piece, as it is written."""

    length: str
    text: str
    place: str


def crops_of_the_beginning(run: Any) -> list[Crop]:
    """Where random beginnings of crops are drawn below the length of one crop."""
    return [found for source in sources(run) for found in _crops(source)]


def _crops(source: Source) -> Iterator[Crop]:
    for drawn in bindings(source):
        call = drawn.value
        if not isinstance(call, ast.Call) or ast.unparse(call.func).rpartition(".")[2] not in ("randint", "randrange"):
            continue
        numbers = [one for one in call.args if isinstance(one, (ast.Name, ast.Attribute, ast.Constant, ast.BinOp))]
        if numbers and isinstance(numbers[0], ast.Constant) and numbers[0].value == 0:
            numbers = numbers[1:]
        if not numbers or isinstance(numbers[0], (ast.Constant, ast.BinOp)):
            continue
        high = ast.unparse(numbers[0])
        for part in source.inside(source.function(drawn.statement)):
            if not isinstance(part, ast.Subscript) or not isinstance(part.slice, ast.Slice):
                continue
            start, end = part.slice.lower, part.slice.upper
            if start is None or end is None or not _begins(source, part, start, drawn.name):
                continue
            if ast.unparse(end) in (f"{ast.unparse(start)} + {high}", f"{high} + {ast.unparse(start)}"):
                yield Crop(high, ast.unparse(part.value), source.place(drawn.statement))
                break


def _begins(source: Source, part: ast.AST, start: ast.expr, drawn: str) -> bool:
    """Whether a slice begins at one of the numbers that were drawn."""
    if ast.unparse(start) == drawn:
        return True
    for around in source.outward(part):
        for one in getattr(around, "generators", []):
            if ast.unparse(one.target) == ast.unparse(start) and drawn in {*_texts(one.iter)}:
                return True
        if isinstance(around, ast.For) and ast.unparse(around.target) == ast.unparse(start):
            return drawn in {*_texts(around.iter)}
        if isinstance(around, FUNCTIONS):
            return False
    return False
