"""What a script's text says of how it writes: which tokens a loop hands to the model when there are too many, when it
stops, and whether the mask that it keeps up to date is read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import Source
from conformance.watch.stated import sources

Loop = ast.For | ast.While
_MASK = re.compile(r"mask|^keep$|real|visible|valid|attention", re.IGNORECASE)
_SIZE = re.compile(r"block|context|ctx|max|window|limit|seq_?len|n_positions|length|size", re.IGNORECASE)


class Slip(NamedTuple):
    """What a loop that writes does wrongly. what: as it is written. place: where."""

    what: str
    place: str


def oldest_kept(run: Any) -> Iterator[Slip]:
    """The loops that hand the first tokens of a text that grows at its end to the model: ``model(ids[:, :block])``."""
    for source, loop, grown in _writing(run):
        for node in _of_loop(loop):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) in grown and isinstance(node.ctx, ast.Load):
                last = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
                upper = last.upper if isinstance(last, ast.Slice) and last.lower is None and not last.step else None
                is_size = isinstance(upper, (ast.Name, ast.Attribute)) and _SIZE.search(ast.unparse(upper))
                if is_size and _is_fed(source, loop, node):
                    yield Slip(ast.unparse(node), source.place(source.statement(node)))


def stopped_by_one(run: Any) -> Iterator[Slip]:
    """The loops over a batch that stop when one row has come to its end: ``if done.any(): break``, where `done` is kept
    from token to token. ``(token == EOS).any()`` may be of one text."""
    for source, loop, _ in _writing(run):
        nodes = [*_of_loop(loop)]
        marks = {name for node in nodes for name in _marks(node)}
        for node in nodes:
            if isinstance(node, ast.If) and any(isinstance(one, ast.Break) for one in node.body):
                test = node.test.args[0] if _is_call(node.test, "bool") else node.test  # type: ignore[attr-defined]
                if _is_any(test) and _root(test) in marks:
                    yield Slip(ast.unparse(test), source.place(node))


def unread_masks(run: Any) -> Iterator[Slip]:
    """The masks that a loop extends by what it has written, and hands to nothing."""
    for source, loop, grown in _writing(run):
        function = source.function(loop)
        for name in sorted(grown):
            if not _MASK.search(name) or "." in name:
                continue
            inside = source.inside(function)
            reads = [n for n in inside if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
            own = [n for n in reads if _binds(source.statement(n), name)]
            if reads and len(own) == len(reads):
                yield Slip(name, source.place(source.statement(own[-1])))


def _writing(run: Any) -> Iterator[tuple[Source, Loop, set[str]]]:
    """The innermost loops that choose tokens and put them behind what they have, and the names that grow so."""
    for source in sources(run):
        for loop in (n for n in source.nodes if isinstance(n, (ast.For, ast.While))):
            text = ast.unparse(loop)
            if re.search(r"argmax|multinomial|topk|\.max\(|sample", text) and not re.search(r"\.backward\(", text):
                grown = {name for node in _of_loop(loop) for name in _grown(node)}
                if grown:
                    yield source, loop, grown


def _of_loop(loop: Loop) -> Iterator[ast.AST]:
    return (node for statement in loop.body for node in ast.walk(statement))


def _grown(node: ast.AST) -> Iterator[str]:
    """What ``ids = torch.cat([ids, new], 1)`` makes longer."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        call = node.value
        parts = call.args[0] if call.args and ast.unparse(call.func).rpartition(".")[2] in ("cat", "concat") else None
        first = parts.elts[0] if isinstance(parts, (ast.List, ast.Tuple)) and parts.elts else None
        if first is not None and ast.unparse(first) == ast.unparse(node.targets[0]):
            yield ast.unparse(first)


def _marks(node: ast.AST) -> Iterator[str]:
    """What says which rows have come to an end: ``done |= token == EOS``, ``done = done | (token == EOS)``."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
        yield ast.unparse(node.target)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr):
        yield ast.unparse(node.targets[0])


def _is_any(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "any"


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == name and len(node.args) == 1


def _root(node: ast.expr) -> str:
    """What `any` is asked of."""
    call = node if isinstance(node, ast.Call) else None
    if call is not None and isinstance(call.func, ast.Attribute) and not call.args:
        return ast.unparse(call.func.value)
    return ast.unparse(call.args[0]) if call is not None and call.args else ""


def _binds(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(one, ast.Name) and one.id == name for one in targets)


def _is_fed(source: Source, loop: Loop, node: ast.Subscript) -> bool:
    """Whether a call gets the piece, itself or by the name that it is bound to."""
    around = source.around[node]
    if isinstance(around, ast.Call):
        return node in around.args
    names = {one.id for one in getattr(around, "targets", []) if isinstance(one, ast.Name)}
    fed = (one for call in _of_loop(loop) if isinstance(call, ast.Call) for one in call.args)
    return any(isinstance(one, ast.Name) and one.id in names for one in fed)
