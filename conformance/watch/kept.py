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
    kept = [found for source in everything for found in _unread(source, everything)]
    return kept + [found for source in everything for found in _not_loaded(source)]


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


def _not_loaded(source: Source) -> Iterator[Kept]:
    """Weights in the file of the best, which is read for something else."""
    choices = {one.place for one in choices_in(source)}
    for test in (n for n in source.nodes if isinstance(n, ast.If) and source.place(n) in choices):
        for saved, path in _saved(test):
            weights = [key.value for key, value in zip(saved.keys, saved.values, strict=True)
                       if isinstance(key, ast.Constant) and "state_dict(" in ast.unparse(value)]  # fmt: skip
            later = [n for n in source.nodes if isinstance(n, ast.Assign) and n.lineno > test.lineno]
            for one in (n for n in later if _reads(n.value, path) and isinstance(n.targets[0], ast.Name)):
                name = one.targets[0].id  # type: ignore[attr-defined]
                uses = [
                    n for n in source.nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
                ]
                keys = [_key(source.around[use]) for use in uses]
                if weights and uses and None not in keys and not {*keys} & {*weights}:
                    yield Kept(f"{name}[{weights[0]!r}]", source.place(one), source.place(saved))


def _saved(test: ast.If) -> Iterator[tuple[ast.Dict, str]]:
    """The dictionaries that are saved in a branch, and where to."""
    for one in (n for statement in test.body for n in ast.walk(statement)):
        is_save = isinstance(one, ast.Call) and ast.unparse(one.func) == "torch.save" and len(one.args) == 2
        if is_save and isinstance(one.args[0], ast.Dict):  # type: ignore[attr-defined]
            yield one.args[0], ast.unparse(one.args[1])  # type: ignore[attr-defined]


def _reads(value: ast.expr, path: str) -> bool:
    return (
        isinstance(value, ast.Call)
        and ast.unparse(value.func) == "torch.load"
        and bool(value.args)
        and ast.unparse(value.args[0]) == path
    )


def _key(around: ast.AST) -> Any:
    """The constant that something is asked for; None where it is used otherwise."""
    is_asked = isinstance(around, ast.Subscript) and isinstance(around.slice, ast.Constant)
    return around.slice.value if is_asked else None  # type: ignore[attr-defined]


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
