"""What a script states in words of its own, as numbers that have a telling name; and where that is read: its files, and
the classes of its modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from conformance.slips.slip import Slip
from conformance.watch.lines import Source, source_of

_WARM_UP = re.compile(r"^-*(n_|num_)?warm(_?up)?(_?(steps|iters|iterations|updates))?$", re.IGNORECASE)


def sources(run: Any) -> list[Source]:
    """The user's files that took part in a run, those among them that make what loaders give, and those that were
    imported."""
    files = dict.fromkeys(at.code.co_filename for event in run.events for at in event.stack)
    files |= dict.fromkeys([*(code.co_filename for code in run.givers), *run.files])
    return [source for source in map(source_of, files) if source is not None]


def in_files(slip: Slip) -> Callable[[Any], Iterator[tuple[str, str]]]:
    """The rule of a slip as one of a run: what is written in the user's files, and where."""

    def rule(run: Any) -> Iterator[tuple[str, str]]:
        files = sources(run)
        if not slip.is_of_all:
            yield from ((text, source.place(node)) for source in files for text, node in slip.rule(source.tree))
            return
        for text, node in slip.rule(ast.Module([one for source in files for one in source.tree.body], [])):
            yield text, next(source.place(node) for source in files if node in source.around)

    return rule


def classes(run: Any, name: str = "") -> Iterator[tuple[Source, ast.ClassDef]]:
    """The user's classes of the modules that ran; those around a parameter, innermost first, where one is named, then
    those that were replaced, as merged adapters are."""
    seen = set()
    for parts in [*run.parts.values(), *(reversed(run.earlier) if name else ())]:
        paths = [p for p in parts if not name or not p or name.startswith(f"{p}.")]
        for path in sorted(paths, key=len, reverse=bool(name)):
            found = _class(parts[path])
            if found is not None and found[1] not in seen:
                seen.add(found[1])
                yield found


def _class(cls: type) -> tuple[Source, ast.ClassDef] | None:
    forward = getattr(cls, "forward", None)
    code = getattr(forward, "__code__", None)
    source = source_of(code.co_filename) if code else None
    node = source.defined(code) if source and code else None
    owner = source.owner(node) if source and node is not None else None
    return (source, owner) if source and owner else None


def warm_up(run: Any, in_steps: bool = False) -> int | None:
    """The number of warm-up steps that the script gives; None where it gives none, or several. What a function takes
    when nothing is given counts only where nothing is. in_steps: leave it out where the script speaks of epochs."""
    if in_steps and any(re.search(r"warm_?up_?epoch", name, re.IGNORECASE) for name in _names(run)):
        return None
    for numbers in (_given, _taken):
        found = {value for source in sources(run) for name, value in numbers(source) if _WARM_UP.match(name)}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _names(run: Any) -> Iterator[str]:
    for source in sources(run):
        for node in source.nodes:
            yield getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None) or ""


def whole_numbers(source: Source) -> Iterator[tuple[str, int]]:
    """The whole numbers that have a name, in whatever way."""
    yield from _given(source)
    yield from _taken(source)


def _given(source: Source) -> Iterator[tuple[str, int]]:
    """The whole numbers that have a name: keyword=4, name = 4, {"key": 4}, add_argument("--name", default=4)."""
    for node in source.nodes:
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.keyword):
            pairs = [(node.arg or "", node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _assigned(target, node.value)]
        elif isinstance(node, ast.AnnAssign):
            pairs = [(_name(node.target), node.value)]
        elif isinstance(node, ast.Dict):
            pairs = [(_text(key), value) for key, value in zip(node.keys, node.values, strict=True)]
        elif isinstance(node, ast.Call) and node.args:
            pairs = [(_text(node.args[0]), one.value) for one in node.keywords if one.arg == "default"]
        yield from _whole(pairs)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    """The names of an assignment with their values, one by one where several are bound at once."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, its)
    else:
        yield _name(target), value


def _taken(source: Source) -> Iterator[tuple[str, int]]:
    """The whole numbers that parameters of functions have when nothing is given."""
    for node in source.nodes:
        if isinstance(node, ast.arguments):
            plain = [*node.posonlyargs, *node.args]
            pairs = [*zip(plain[len(plain) - len(node.defaults) :], node.defaults, strict=True)]
            pairs += [(one, value) for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
            yield from _whole([(one.arg, value) for one, value in pairs])


def _whole(pairs: Iterable[tuple[str, ast.expr | None]]) -> Iterator[tuple[str, int]]:
    for name, value in pairs:
        if isinstance(value, ast.Constant) and type(value.value) is int:
            yield name, value.value


def _name(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


_UPDATES = re.compile(r"update|enqueue|ema\b|_ema|ema_|momentum|moving|push")
_INITIAL = re.compile(r"init|reset|load|set_|resize|config|param")


@dataclass(frozen=True)
class Method:
    """A method of a class of the model that updates state. names: of the attributes that it speaks of. is_called:
    whether a line of the user's names it."""

    name: str
    place: str
    names: frozenset[str]
    is_called: bool


def updates(run: Any) -> list[Method]:
    """The methods of the user's modules that are named after an update, and write something in place."""
    everything = sources(run)
    named = {n.attr for one in everything for n in one.nodes if isinstance(n, ast.Attribute)}
    found = []
    for source, owner in classes(run):
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef) or not _UPDATES.search(method.name):
                continue
            if _INITIAL.search(method.name) or not any(map(_writes, ast.walk(method))):
                continue
            names = frozenset(n.attr for n in ast.walk(method) if isinstance(n, ast.Attribute))
            found.append(Method(method.name, source.place(method), names, method.name in named))
    return found


_BACK = re.compile(r"^_*(restore|put_back|swap_back|swap_out|undo|revert|unapply)(_\w+)?$")
_HELD = re.compile(r"shadow|backup|averag|\bema|ema\b", re.IGNORECASE)


def puts_back(run: Any) -> bool:
    """Whether a class of the script's that keeps averages has a method that is named after putting weights back."""
    for source in sources(run):
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef) and _BACK.match(node.name):
                owner = source.owner(node)
                if owner is not None and _HELD.search(ast.unparse(owner)):
                    return True
    return False


def _writes(node: ast.AST) -> bool:
    """Whether a statement changes a tensor in place."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(one, ast.Subscript) or _is_data(one) for one in targets)
    return isinstance(node, ast.Attribute) and node.attr.endswith("_") and not node.attr.endswith("__")


def _is_data(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == "data"
