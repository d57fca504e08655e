"""With which sign a term reaches the backward pass, and where it gets that, as far as a script's text shows it."""

from __future__ import annotations

import ast
import math
import re

from conformance.watch.lines import FUNCTIONS, Source

DEEP = 8
"""So many assignments and calls are followed."""
_KEEPS = re.compile(r"mean|sum|squeeze|view|reshape|flatten|float|to|double|average|contiguous")


_LOSS = re.compile(r"loss|(^|_)(kl\w*|elbo|obj\w*)(_|$)", re.IGNORECASE)
Signs = set[tuple[int, str]]
"""1 where the loss grows with a term, -1 where it falls, and the place of what is first named as a loss on the way."""


def signs_in_loss(source: Source, node: ast.expr) -> Signs:
    """The signs of a term; both or none where the text shows that."""
    return _signs(source, node, (1, ""), DEEP)


def _signs(source: Source, node: ast.expr, begun: tuple[int, str], deep: int) -> Signs:
    child: ast.AST = node
    sign, place = begun
    for around in source.outward(node):
        if isinstance(around, ast.UnaryOp) and isinstance(around.op, ast.USub):
            sign = -sign
        elif isinstance(around, ast.BinOp):
            turn = _turn(around, child)
            if not turn:
                return set()
            sign *= turn
        elif isinstance(around, ast.Attribute):
            if around.attr == "backward":
                return {(sign, place)}
            if not _KEEPS.fullmatch(around.attr):
                return set()
        elif isinstance(around, ast.Call):
            if child is not around.func:
                called = ast.unparse(around.func).rpartition(".")[2]
                if called == "backward" and around.args and child is around.args[0]:
                    return {(sign, place)}
                if not (_KEEPS.search(called) and around.args and child is around.args[0]):
                    return set()
        elif isinstance(around, ast.Tuple):
            return _in_tuple(source, around, child, (sign, place), deep)
        elif isinstance(around, ast.stmt):
            return _bound_on(source, around, child, (sign, place), deep)
        elif not (isinstance(around, ast.IfExp) and child is not around.test):
            return set()
        child = around
    return set()


def _turn(around: ast.BinOp, child: ast.AST) -> int:
    """-1 where an operation turns the sign of one side, 0 where it is not known."""
    if isinstance(around.op, ast.Add):
        return 1
    if isinstance(around.op, ast.Sub):
        return -1 if child is around.right else 1
    if isinstance(around.op, ast.Mult) or (isinstance(around.op, ast.Div) and child is around.left):
        other = around.right if child is around.left else around.left
        if re.search(r"sign|neg|direction", ast.unparse(other)):
            return 0
        return -1 if isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.USub) else 1
    return 0


def _bound_on(source: Source, statement: ast.stmt, value: ast.AST, begun: tuple[int, str], deep: int) -> Signs:
    """The signs of what a statement binds or gives back."""
    sign, place = begun
    if not deep:
        return set()
    if isinstance(statement, ast.Return):
        place = place or source.place(statement)
        found = (_signs(source, call, (sign, place), deep - 1) for call in _calls(source, statement))
        return {one for signs in found for one in signs}
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and value is statement.value:
        return _of_name(source, statement.targets[0], statement, begun, deep)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        sign = -sign if isinstance(statement.op, ast.Sub) else sign
        return _of_name(source, statement.target, statement, (sign, place), deep)
    return set()


def _of_name(source: Source, target: ast.expr, statement: ast.stmt, begun: tuple[int, str], deep: int) -> Signs:
    """The signs of the places that read a name before it is bound again."""
    if not isinstance(target, ast.Name):
        return set()
    if not begun[1] and _LOSS.search(target.id):
        begun = begun[0], source.place(statement)
    inside = source.inside(source.function(statement))
    named = [one for one in inside if isinstance(one, ast.Name) and one.id == target.id and one is not target]
    later = [one for one in named if one.lineno > statement.lineno]
    again = [one for one in later if isinstance(one.ctx, ast.Store) and isinstance(source.statement(one), ast.Assign)]
    end = min((one.lineno for one in again), default=math.inf)
    reads = [one for one in later if isinstance(one.ctx, ast.Load) and one.lineno <= end]
    found = (_signs(source, one, begun, deep - 1) for one in reads)
    return {one for signs in found for one in signs}


def _in_tuple(source: Source, several: ast.Tuple, child: ast.AST, begun: tuple[int, str], deep: int) -> Signs:
    """The signs of one of several values: of the name that it is bound to."""
    statement, place = source.around[several], several.elts.index(child)  # type: ignore[arg-type]
    statements = [statement]
    if isinstance(statement, ast.Return):
        statements = [source.around[call] for call in _calls(source, statement)]
    found: Signs = set()
    for one in statements if deep else []:
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        names = target.elts[: place + 1] if isinstance(target, ast.Tuple) else []
        if len(names) > place and not any(isinstance(n, ast.Starred) for n in names):
            found |= _of_name(source, names[place], one, begun, deep - 1)  # type: ignore[arg-type]
    return found


def _calls(source: Source, statement: ast.Return) -> list[ast.Call]:
    """The calls of the function that a value is given back from, where no other one has its name."""
    function = source.function(statement)
    name = getattr(function, "name", "")
    if not name or sum(isinstance(n, FUNCTIONS[:2]) and n.name == name for n in source.nodes) != 1:
        return []
    calls = [n for n in source.nodes if isinstance(n, ast.Call)]
    return [n for n in calls if ast.unparse(n.func).rpartition(".")[2] == name]
