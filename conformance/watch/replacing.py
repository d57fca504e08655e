"""What a script's text says of the words that it replaces, where labels ask for some of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.measures import values_of
from conformance.watch.stated import sources

_RANDOM = re.compile(r"(\b|_)(bernoulli|rand|random|uniform|binomial|multinomial|randperm|choice)(_|_like)?\(")


class Replaced(NamedTuple):
    """Random words are replaced at places that no label asks for. where: the places, as they are written. asked: those
    that labels ask for. place: where it is done; drawn: where the places are drawn."""

    where: str
    asked: str
    place: str
    drawn: str


def replaced_unasked(run: Any) -> list[Replaced]:
    """Where words are replaced at random places that are not among those that labels ask for."""
    return [found for source in sources(run) for found in _replaced(source)]


def _replaced(source: Source) -> Iterator[Replaced]:
    for function in (n for n in source.nodes if isinstance(n, FUNCTIONS[:2])):
        inside = source.inside(function)
        ignored = [found for one in inside for found in _ignored(one)]
        drawn = {labels: asked for labels, asked in ignored if _draws(inside, asked)}
        if len({*drawn.values()}) != 1:
            continue
        asked = next(iter(drawn.values()))
        for one in inside:
            for changed, where in _changed(one):
                common = _draws(inside, where) & ({asked} | _draws(inside, asked))
                if changed not in drawn and _draws(inside, where) and not common:
                    made = values_of(inside, where)
                    yield Replaced(where, asked, source.place(one), source.place(made[-1]))


class Overwritten(NamedTuple):
    """Words that were masked are replaced by random ones. masked, random: the places, as they are written. place: where
    those of the random words are drawn."""

    masked: str
    random: str
    place: str


def drawn_words(run: Any) -> Iterator[str]:
    """Where it is drawn which of the words that labels ask for become other words."""
    for source in sources(run):
        for function in (n for n in source.nodes if isinstance(n, FUNCTIONS[:2])):
            inside = source.inside(function)
            labels = {name for one in inside for name, _ in _ignored(one)}
            for one in inside:
                for changed, where in _changed(one):
                    is_mask = "mask" in ast.unparse(getattr(one, "value", one)).lower()
                    if labels and changed not in labels and not is_mask:
                        yield from (source.place(made) for made in values_of(inside, where)[-1:])


_SHARE = 0.3
"""A smaller share of random words takes few of the masks away, and may be meant."""


def overwritten(run: Any) -> list[Overwritten]:
    """Where random words are put, after the mask, at places that are drawn as if nothing were masked."""
    return [found for source in sources(run) for found in _overwritten(source)]


def _overwritten(source: Source) -> Iterator[Overwritten]:
    for function in (n for n in source.nodes if isinstance(n, FUNCTIONS[:2])):
        inside = source.inside(function)
        asked = {place for one in inside for _, place in _ignored(one)}
        placed = [(one, changed, where) for one in inside for changed, where in _changed(one)]
        for first, changed, masked in placed:
            if "mask" not in ast.unparse(getattr(first, "value", first)).lower():
                continue
            for later, same, random in placed:
                if same != changed or random == masked or later.lineno <= first.lineno:
                    continue
                mine, its = values_of(inside, random), values_of(inside, masked)
                if len(mine) != 1 or len(its) != 1 or masked in asked or random in asked:
                    continue
                names, known = _names(mine[0]), _names(its[0])
                both_draw = all(name in _draws(inside, name) for name in (random, masked))
                is_apart = bool(names & {masked, changed}) or not names & known & asked
                if both_draw and not is_apart and _share(mine[0]) >= _SHARE and _share(its[0]) > 0.5:
                    yield Overwritten(masked, random, source.place(mine[0]))


def _names(node: ast.expr) -> set[str]:
    """The names in an expression but those of which only the shape is taken."""
    everything = [*ast.walk(node)]
    shaped = {id(n.value) for n in everything if isinstance(n, ast.Attribute) and n.attr in _SHAPES}
    like = (n for n in everything if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("_like"))
    shaped |= {id(inner) for one in like for given in one.args for inner in ast.walk(given)}
    return {n.id for n in everything if isinstance(n, ast.Name) and id(n) not in shaped}


def _share(node: ast.expr) -> float:
    """The one number between 0 and 1 in an expression; 0 where there is none, or several."""
    numbers = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
    return numbers[0] if len(numbers) == 1 and 0 < numbers[0] < 1 else 0.0


def _ignored(node: Any) -> Iterator[tuple[str, str]]:
    """Labels that are ignored but at some places, and these: `labels[~asked] = -100`, and as masked_fill and where."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        if _is_number(node.value) and _inverted(target.slice):
            yield ast.unparse(target.value), _inverted(target.slice)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) < 2:
        return
    if node.func.attr in ("masked_fill", "masked_fill_") and _inverted(node.args[0]) and _is_number(node.args[1]):
        yield ast.unparse(node.func.value), _inverted(node.args[0])
    is_where = node.func.attr == "where" and len(node.args) == 3 and ast.unparse(node.args[-1]).startswith("-")
    if is_where and isinstance(node.args[0], ast.Name):
        yield ast.unparse(node.args[1]), node.args[0].id


def _is_number(node: ast.expr) -> bool:
    """Whether a value is a number, or a name in capitals."""
    is_name = isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node).rpartition(".")[2].isupper()
    return is_name or isinstance(node, (ast.Constant, ast.UnaryOp))


def _inverted(node: ast.expr) -> str:
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert) and isinstance(node.operand, ast.Name)
    return node.operand.id if is_not else ""  # type: ignore[attr-defined]


def _changed(node: Any) -> Iterator[tuple[str, str]]:
    """What is changed at some places that have a name, and this name."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name):
            yield ast.unparse(target.value), target.slice.id
        value = node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "torch.where" and len(value.args) == 3:
            is_own = ast.unparse(target) == ast.unparse(value.args[2])
            if is_own and isinstance(value.args[0], ast.Name):
                yield ast.unparse(target), value.args[0].id


def _draws(inside: list[Any], name: str) -> set[str]:
    """The names of random numbers that a mask is made of, and that of the mask where it draws some itself; not those
    of what it leaves out."""
    found, seen, waiting = set(), {name}, [name]
    while waiting:
        one = waiting.pop()
        for value in values_of(inside, one):
            kept = [*_but_inverted(value)]
            calls = (n for n in ast.walk(value) if isinstance(n, ast.Call))
            if any(_RANDOM.search(f"{ast.unparse(n.func)}(") for n in calls):
                found.add(one)
            names = {n.id for n in kept if isinstance(n, ast.Name)} - seen
            seen |= names
            waiting += sorted(names)
    return found


_SHAPES = ("shape", "dtype", "device", "size")


def _but_inverted(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression without those under `~`, and those of which only the shape is taken."""
    is_inverted = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)
    is_like = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("_like")
    if not is_inverted and not is_like and getattr(node, "attr", "") not in _SHAPES:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _but_inverted(child)
