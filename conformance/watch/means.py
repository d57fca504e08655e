"""Where a script adds up losses of batches and divides by what it has counted beside them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import FUNCTIONS, Source, source_of
from conformance.watch.stated import sources

_LOSS = re.compile(r"loss|nll|\bce\b|xent|criterion|bits|nats", re.IGNORECASE)
_COUNT = re.compile(r"\.sum\(|numel\(|len\(|\.size\(|\.shape\b")


class Sum(NamedTuple):
    """Means of batches are added up and divided by a number of rows or labels. total, number: their names. place: where
    they are added."""

    total: str
    number: str
    place: str


def sums_of_means(loss: Any) -> Iterator[Sum]:
    """What the functions around a loss, a mean over its batch, do with it: `total += loss.item()`, `count += len(x)`,
    `total / count`."""
    for source, function, totals, counts in _around(loss):
        for one in _divisions(source, function):
            total, count = ast.unparse(one.left), ast.unparse(one.right)
            if total in totals and _COUNT.search(counts.get(count, "")):
                yield Sum(total, count, source.place(totals[total]))


def sums_over_all(loss: Any) -> Iterator[Sum]:
    """What the functions around a loss, a sum that leaves some labels out, divide it by: the number of all labels."""
    for source, function, totals, counts in _around(loss):
        call = next(at.call() for at in loss.stack if source.defined(at.code) is function)
        given = {name for one in _labels_of(call) for name in one}
        for one in _divisions(source, function):
            total, count = ast.unparse(one.left), ast.unparse(one.right)
            text = counts.get(count, count)
            if total in totals and any(re.search(rf"(?<![\w.]){re.escape(name)}\.numel\(", text) for name in given):
                yield Sum(total, count, source.place(totals[total]))


def _labels_of(call: ast.Call) -> Iterator[set[str]]:
    """The names that a loss is given as its labels."""
    named = [one.value for one in call.keywords if one.arg in ("target", "labels")]
    for value in named or call.args[1:2]:
        yield {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}


def _around(loss: Any) -> Iterator[tuple[Source, Any, dict[str, ast.AugAssign], dict[str, str]]]:
    """The functions around a loss, with the totals that only its number is added to, and the texts of all that is
    added up."""
    for at in loss.stack:
        source = source_of(at.code.co_filename)
        node, call = source.defined(at.code) if source else None, at.call()
        if source is None or call is None or not isinstance(node, FUNCTIONS[:2]):
            continue
        inside, made = source.inside(node), source.statement(call)
        losses = {*_bound(made)}
        added = [one for one in inside if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add)]
        totals = {
            ast.unparse(one.target): one
            for one in added
            if _number_of(one.value) in losses or (one is made and _without_item(one.value) is call)
        }
        often = Counter(ast.unparse(one.target) for one in inside if isinstance(one, ast.AugAssign))
        counts = {name: _value(inside, one.value) for one in added if often[name := ast.unparse(one.target)] == 1}
        yield source, node, {name: one for name, one in totals.items() if often[name] == 1}, counts


def _divisions(source: Source, function: ast.AST) -> Iterator[ast.BinOp]:
    for one in source.inside(function):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div):
            yield one


class Weighed(NamedTuple):
    """Means are weighed by one number and divided by another one: by the labels that count here, by all there; by rows
    here, by batches there. weight, number: as they are written. place: where the number is counted."""

    weight: str
    number: str
    place: str


_PART = re.compile(r"(!=|==|>|mask|\.ne\(|\.gt\().*sum\(")
_ALL = re.compile(r"numel\(|\.size\(|\.shape\b")


def weighed_otherwise(run: Any) -> list[Weighed]:
    """`total += loss.item() * counted`, `number += labels.numel()`, `total / number`, in a function of the scripts; or
    `total += loss.item() * len(x)` for each batch of a loader, `total / len(loader)`."""
    functions = ((source, node) for source in sources(run) for node in source.nodes if isinstance(node, FUNCTIONS[:2]))
    return [found for source, node in functions for found in _weighed(source, node)]


def _weighed(source: Source, function: ast.AST) -> Iterator[Weighed]:
    inside = source.inside(function)
    added = [one for one in inside if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add)]
    weights = {ast.unparse(one.target): (weight, one) for one in added for weight in _weights(one.value)}
    for one in inside:
        if not (isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)) or ast.unparse(one.left) not in weights:
            continue
        weight, adding = weights[ast.unparse(one.left)]
        number, text = ast.unparse(one.right), _value(inside, weight)
        loops = (around for around in source.outward(adding) if isinstance(around, ast.For))
        if _COUNT.search(text) and number in {f"len({_looped(loop.iter)})" for loop in loops}:
            yield Weighed(ast.unparse(weight), number, source.place(one))
        counts = [other for other in added if ast.unparse(other.target) == number]
        if len(counts) != 1:
            continue
        texts = [text, _value(inside, counts[0].value)]
        kinds = [(bool(_PART.search(text)), bool(_ALL.search(text))) for text in texts]
        if {*kinds} == {(True, False), (False, True)}:
            yield Weighed(ast.unparse(weight), f"the sum of {ast.unparse(counts[0].value)}", source.place(counts[0]))


def _weights(value: ast.expr) -> Iterator[ast.expr]:
    """What a loss is multiplied by."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        for loss, weight in ((value.left, value.right), (value.right, value.left)):
            bare = _without_item(loss)
            if _LOSS.search(ast.unparse(bare)) and not _COUNT.search(ast.unparse(bare)):
                yield weight


_AS_IT_IS = re.compile(r"enumerate|iter|islice|track|\w*(tqdm|trange|bar|progress)\w*", re.IGNORECASE)
"""What gives the elements of its first argument one by one; what makes batches of them does not."""


def _looped(iterated: ast.expr) -> str:
    """What a loop goes through, behind `enumerate` and bars that show how far it is."""
    while isinstance(iterated, ast.Call) and iterated.args and not isinstance(iterated.args[0], ast.Starred):
        if not _AS_IT_IS.fullmatch(ast.unparse(iterated.func).rpartition(".")[2]):
            break
        iterated = iterated.args[0]
    return ast.unparse(iterated)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that the statement of a loss binds to it: its only one, or those that are called so."""
    if not isinstance(statement, ast.Assign):
        return
    names = [n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    yield from names if len(names) == 1 and len(statement.targets) == 1 else filter(_LOSS.search, names)


def _number_of(node: ast.expr) -> str:
    """The name whose number an expression is: `loss.item()`, `float(loss)`, `loss.detach()`."""
    bare = _without_item(node)
    return bare.id if isinstance(bare, ast.Name) else ""


def _without_item(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call):
        is_plain = (
            isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "detach", "cpu") and not node.args
        )
        if isinstance(node.func, ast.Attribute) and is_plain:
            node = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1:
            node = node.args[0]
        else:
            break
    return node


def _value(inside: list[Any], node: ast.expr) -> str:
    """The text of an expression, and of what binds it where it is a name."""
    bound = [n.value for n in inside if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == ast.unparse(node)]
    return " ".join(map(ast.unparse, [node, *bound]))
