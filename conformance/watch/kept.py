"""What a script's text says of the weights that it keeps as the best: whether anything reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.choices import choices_in
from conformance.watch.lines import Source
from conformance.watch.stated import sources


class Kept(NamedTuple):
    """The best weights are kept, and nothing reads them. name: under which they are kept. place: behind the loop, where
    they would be loaded; also: where they are kept."""

    name: str
    place: str
    also: str


_COPIES = re.compile(r"deepcopy\(|state_dict\(")


def unread_best(run: Any) -> list[Kept]:
    """Copies of the best weights that nothing reads."""
    everything = sources(run)
    return [found for source in everything for found in _unread(source, everything)]


def _unread(source: Source, everything: list[Source]) -> Iterator[Kept]:
    choices = {one.place for one in choices_in(source)}
    for test in source.nodes:
        if not isinstance(test, ast.If) or source.place(test) not in choices:
            continue
        for one in (n for branch in (test.body, test.orelse) for n in branch if isinstance(n, ast.Assign)):
            for target, value in _bound(one):
                is_kept = isinstance(target, (ast.Name, ast.Attribute)) and _COPIES.search(ast.unparse(value))
                if is_kept and not _is_read(target, source, everything):
                    yield Kept(ast.unparse(target), source.place(_behind(source, test) or one), source.place(one))


def _bound(statement: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment binds, one by one where it binds several, and what to."""
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=False)
    else:
        yield target, value


def _is_read(target: ast.expr, source: Source, everything: list[Source]) -> bool:
    """Whether a name is read anywhere in its file, or an attribute in any file."""
    if isinstance(target, ast.Attribute):
        nodes = [n for one in everything for n in one.nodes]
        texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
        return target.attr in read | texts or any(getattr(n, "id", "") in ("vars", "getattr") for n in nodes)
    name = getattr(target, "id", "")
    return any(isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Store) for n in source.nodes)


def _behind(source: Source, node: ast.AST) -> ast.stmt | None:
    """The first statement behind the outermost loop around a node in its function."""
    around = source.function(node)
    loops = [n for n in source.outward(node) if isinstance(n, (ast.For, ast.While)) and source.function(n) is around]
    if not loops:
        return None
    block = getattr(source.around[loops[-1]], "body", [])
    later = [one for one in block if one.lineno > loops[-1].lineno]
    return later[0] if later else None
