"""What a script's text says of how it draws and changes its data: orders that are drawn from the same seed in each
epoch, and noise that is written into the data that stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.parts import names_judging
from conformance.watch.stated import sources

_SEEDED = re.compile(r"(^|\.)(manual_seed|default_rng|RandomState|Random)$")
_ORDERS = re.compile(r"shuffle|randperm|permutation|sample\(")
_RANDOM = re.compile(r"rand|rng|noise|bernoulli|dropout|choice|jitter")
_COPIES = re.compile(r"clone|copy|deepcopy|\blist\(|tensor\(|array\(|\+ 0\b|stack|cat\(")
_EPOCH = re.compile(r"_?epochs?(_?(idx|num|number))?")


class Drawn(NamedTuple):
    """What is drawn or changed. what: as it is written; place: file:line."""

    what: str
    place: str


def drawn_alike(run: Any) -> Iterator[Drawn]:
    """Where the order of each epoch is drawn from one seed: in ``__iter__``, by a number that nothing changes, or in a
    method that is told the epoch and does not ask for it."""
    files = sources(run)
    changed = {name for source in files for name in _changed_outside(source)}
    for source in files:
        for function in (n for n in source.nodes if isinstance(n, FUNCTIONS[:2])):
            told = [one.arg for one in function.args.args if _EPOCH.fullmatch(one.arg)]
            inside = source.inside(function)
            ignores = bool(told) and not any(isinstance(n, ast.Name) and n.id in told for n in inside)
            owner = source.owner(function)
            judges = owner is not None and names_judging(owner.name)
            if judges or not (function.name == "__iter__" or ignores) or not _ORDERS.search(ast.unparse(function)):
                continue
            for call in (n for n in inside if isinstance(n, ast.Call) and _SEEDED.search(ast.unparse(n.func))):
                named = [n for given in call.args for n in ast.walk(given)]
                free = any(isinstance(n, ast.Name) and n.id != "self" for n in named)
                moves = any(isinstance(n, ast.Attribute) and n.attr in changed for n in named)
                if call.args and not free and not moves and not any(isinstance(n, ast.Call) for n in named):
                    yield Drawn(ast.unparse(call), source.place(call))


def _changed_outside(source: Source) -> Iterator[str]:
    """The attributes that are bound outside of a constructor: an epoch that is set."""
    for node in source.nodes:
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            continue
        if getattr(source.function(node), "name", "") != "__init__":
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.attr for one in targets if isinstance(one, ast.Attribute))


def written_into(run: Any) -> Iterator[Drawn]:
    """Where noise is written into what a data set keeps: into a slice of it, which is no copy, or into a list or a
    tensor of it that a function is handed."""
    for source in sources(run):
        functions = [n for n in source.nodes if isinstance(n, FUNCTIONS[:2])]
        for function in functions:
            inside = source.inside(function)
            if function.name == "__getitem__":
                for node in inside:
                    name = _written(node)
                    if name and _is_kept(inside, name, node) and _RANDOM.search(ast.unparse(node)):
                        yield Drawn(ast.unparse(node), source.place(node))
            parameters = {one.arg for one in function.args.args} - {"self"}
            for node in (n for n in inside if _written(n) in parameters and _fills(n)):
                handed = (n for n in source.nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == function.name)
                if any(_hands_kept(source, call) for call in handed) and _RANDOM.search(ast.unparse(node)):
                    yield Drawn(ast.unparse(node), source.place(node))
            bound = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            blanks = [n for n in inside if _written(n) in parameters - bound and _is_blank(n)]
            if blanks and _RANDOM.search(ast.unparse(function)):
                calls = [n for n in source.nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == function.name]
                if any(_hands_an_item(source, call) for call in calls):
                    yield Drawn(ast.unparse(blanks[0]), source.place(blanks[0]))


def _written(node: ast.AST) -> str:
    """The name whose value a statement changes in place; "" for another one."""
    target: ast.AST | None = None
    if isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0].value
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        is_in_place = node.value.func.attr.endswith("_") and not node.value.func.attr.endswith("__")
        target = node.value.func.value if is_in_place else None
    return target.id if isinstance(target, ast.Name) else ""


def _fills(node: ast.AST) -> bool:
    """Whether all of a list is written anew, ``ids[:] = ...``."""
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)


def _is_blank(node: ast.AST) -> bool:
    """Whether a part of a tensor is filled with one number, ``spec[:, a:b] = 0.0``."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Subscript)
        and any(isinstance(one, ast.Slice) for one in ast.walk(node.targets[0].slice))
        and isinstance(node.value, ast.Constant)
    )


def _hands_an_item(source: Source, call: ast.Call) -> bool:
    """Whether a call in ``__getitem__`` hands over, first, an item of what an attribute of ``self`` holds, or a cut of
    one, which is no copy."""
    function = source.function(call)
    if getattr(function, "name", "") != "__getitem__" or not call.args:
        return False
    name = ast.unparse(call.args[0])
    bound = [
        n.value
        for n in source.inside(function)
        if isinstance(n, ast.Assign) and n.lineno < call.lineno and name in [ast.unparse(one) for one in n.targets]
    ]
    values = bound if isinstance(call.args[0], ast.Name) else [call.args[0]]
    cuts = [one for one in values if isinstance(one, ast.Subscript)]
    is_item = any(re.match(r"self\.\w+\[\w+\]", ast.unparse(one)) for one in cuts)
    return is_item and len(cuts) == len(values)


def _is_kept(inside: list[Any], name: str, before: ast.AST) -> bool:
    """Whether a name stands for a slice of an attribute of ``self``, and for no copy of one."""
    line = getattr(before, "lineno", 0)
    bound = [
        n.value
        for n in inside
        if isinstance(n, ast.Assign) and n.lineno < line and name in [ast.unparse(one) for one in n.targets]
    ]
    value = bound[-1] if bound else None
    if not isinstance(value, ast.Subscript) or not ast.unparse(value).startswith("self."):
        return False
    index = value.slice.elts[0] if isinstance(value.slice, ast.Tuple) else value.slice
    return isinstance(index, ast.Slice) and not any(isinstance(n, ast.Call) for n in ast.walk(value.value))


def _hands_kept(source: Source, call: ast.Call) -> bool:
    """Whether a call hands over, as its first argument, an element of what an attribute of ``self`` keeps."""
    given = call.args[0] if call.args else None
    return isinstance(given, ast.Name) and _is_of_self(source, call, given.id, 3)


def _is_of_self(source: Source, at: ast.AST, name: str, deep: int) -> bool:
    """Whether a name runs over what an attribute of ``self`` holds, as far as names are bound one by the other."""
    for around in source.outward(at):
        loops = getattr(around, "generators", [around] if isinstance(around, ast.For) else [])
        for loop in loops:
            names = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
            if name in names:
                return _holds_kept(source, loop.iter, deep)
    inside = source.inside(source.function(at))
    values = [n.value for n in inside if isinstance(n, ast.Assign) and name in [ast.unparse(t) for t in n.targets]]
    return len(values) == 1 and _holds_kept(source, values[0], deep)


def _holds_kept(source: Source, value: ast.expr, deep: int) -> bool:
    text = ast.unparse(value)
    if deep == 0 or _COPIES.search(text):
        return False
    if isinstance(value, ast.ListComp):
        return _holds_kept(source, value.elt, deep - 1)
    if isinstance(value, (ast.Subscript, ast.Attribute)):
        return text.startswith("self.")
    return isinstance(value, ast.Name) and _is_of_self(source, value, value.id, deep - 1)
