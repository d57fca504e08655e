"""What a script's text says of averages of weights that are saved: whether it is the average that gets the name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.events import Averaged, Snapshot
from conformance.watch.followers import is_slow
from conformance.watch.lines import Source
from conformance.watch.stated import sources

_AVERAGE = re.compile(r"(?<![a-z])(ema|swa)(?![a-z])|shadow|averag", re.IGNORECASE)
_SWAPS = re.compile(
    r"\.(apply_\w+|copy_to|swap\w*|store|restore|average_parameters|transfer\w*|assign\w*)\(|_swap|swap_"
)


class Raw(NamedTuple):
    """Weights that are saved under the name of an average, and are none. name: it; what: as it is written."""

    name: str
    what: str
    place: str


def raw_under_its_name(run: Any) -> list[Raw]:
    """The states that scripts save as averages and that are those of the module that learns."""
    return [found for source in sources(run) for found in _raw(source)]


def _raw(source: Source) -> Iterator[Raw]:
    names = [getattr(n, "id", "") or getattr(n, "attr", "") for n in source.nodes]
    if not any(map(_AVERAGE.search, names)) or _SWAPS.search(ast.unparse(source.tree)):
        return
    for node in source.nodes:
        for name, value in _named(node):
            owner = _owner(value)
            if not _AVERAGE.search(name) or owner is None or _AVERAGE.search(ast.unparse(owner)):
                continue
            if isinstance(owner, ast.Name) and not _may_be_average(source, owner):
                yield Raw(name, ast.unparse(value), source.place(value))


def raw_by_choice(run: Any) -> list[Raw]:
    """The states of a module that learns that are kept because its average was the best so far."""
    return [found for source in sources(run) for found in _raw_by_choice(source)]


def _raw_by_choice(source: Source) -> Iterator[Raw]:
    if _SWAPS.search(ast.unparse(source.tree)):
        return
    for test in (n for n in source.nodes if isinstance(n, ast.If) and isinstance(n.test, ast.Compare)):
        names = {n.id for n in ast.walk(test.test) if isinstance(n, ast.Name)}
        bound = [
            n.value
            for n in source.inside(source.function(test))
            if isinstance(n, ast.Assign) and n.lineno < test.lineno and names & {*_targets(n)}
        ]
        calls = [one for one in bound[-1:] if isinstance(one, ast.Call) and one.args]
        asked = [ast.unparse(one.args[0]) for one in (_answered_by(source, calls[0], test) if calls else ())]
        measured = [text for text in asked if _AVERAGE.search(text)]
        for node in (inner for statement in test.body for inner in ast.walk(statement)):
            owner = _owner(node) if isinstance(node, ast.expr) else None
            if not measured or owner is None or _AVERAGE.search(ast.unparse(owner)):
                continue
            if isinstance(owner, ast.Name) and _MODEL.search(owner.id) and not _may_be_average(source, owner):
                yield Raw(measured[0], ast.unparse(node), source.place(node))


def _answered_by(source: Source, call: ast.Call, test: ast.If) -> Iterator[ast.Call]:
    """The calls that a figure is made of, the own one first where an average is handed to it; else what its arguments
    were given by: ``probs = predict(average, rows)``, of ``score(probs)``."""
    if _AVERAGE.search(ast.unparse(call.args[0])):
        yield call
    names = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
    for node in source.inside(source.function(test)):
        if not isinstance(node, ast.Assign) or node.lineno >= test.lineno or not names & {*_targets(node)}:
            continue
        if isinstance(node.value, ast.Call) and node.value.args and node.value is not call:
            yield node.value


_MODEL = re.compile(r"model|net|encoder|student", re.IGNORECASE)


def _targets(node: ast.Assign) -> Iterator[str]:
    yield from (n.id for one in node.targets for n in ast.walk(one) if isinstance(n, ast.Name))


def _named(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What is saved under which name: the keys of a dictionary, the file of a call that saves."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.save" and len(node.args) == 2:
        texts = [n.value for n in ast.walk(node.args[1]) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        for text in texts[:1]:
            yield text, node.args[0]


def _owner(value: ast.expr) -> ast.expr | None:
    """Whose state an expression is."""
    is_state = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    return value.func.value if is_state and value.func.attr == "state_dict" else None  # type: ignore[attr-defined]


def _may_be_average(source: Source, owner: ast.Name) -> bool:
    """Whether a name may stand for a module with the weights of an average: it is bound to one, is a parameter of a
    function, or gets its state."""
    around = source.function(owner)
    for one in source.inside(around):
        if isinstance(one, ast.arg) and one.arg == owner.id and around is not source.tree:
            calls = [n for n in source.nodes if isinstance(n, ast.Call) and getattr(n.func, "id", "") == around.name]
            if any(_AVERAGE.search(ast.unparse(n)) for n in calls) and len(calls) != 1:
                return True
    return any(_makes_average(source, one, owner.id) for one in source.nodes)


def _makes_average(source: Source, node: ast.AST, name: str) -> bool:
    """Whether a node binds a name to an average, loads the state of one into it, or copies one over its weights."""
    if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == name for t in node.targets):
        return _AVERAGE.search(ast.unparse(node.value)) is not None
    if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.load_state_dict":
        return _AVERAGE.search(ast.unparse(node)) is not None
    if isinstance(node, ast.Attribute) and node.attr == "copy_":
        return _AVERAGE.search(ast.unparse(source.statement(node))) is not None
    return False


_OUTSIDE = re.compile(r"pickle|safetensors|savez|np\.save|functional_call|vmap|\.numpy\(\)")


def unasked(run: Any) -> list[int]:
    """The averages of weights that followed to the end of a script, and that nothing asked: no module with them ran,
    and they were not loaded, saved, or handed to anything else that is not watched."""
    slow = {n: one for n, one in run.copies.items() if is_slow(one)}
    texts = [ast.unparse(source.tree) for source in sources(run)]
    names = [getattr(n, "id", "") or getattr(n, "attr", "") for source in sources(run) for n in source.nodes]
    if not run.whole or not any(map(_AVERAGE.search, names)) or any(map(_OUTSIDE.search, texts)):
        return []
    held = frozenset[int]().union(*(one.held for one in run.of(Snapshot)))
    if run.of(Averaged) or any(n in run.asked or n in held or run.parameters[n].in_model for n in slow):
        return []
    return [*slow]


def aliases(run: Any) -> list[str]:
    """The lines that give the model itself the name of an average, where its weights shrink between steps."""
    shrinks = len(run.kept) >= 3 and all(share < 1 - 1e-7 for share in run.kept)
    nodes = (
        [(source, n) for source in sources(run) for n in source.nodes if isinstance(n, ast.Assign)] if shrinks else []
    )
    return [source.place(n) for source, n in nodes if _ALIAS.match(ast.unparse(n))]


_ALIAS = re.compile(r"^(self\.)?\w*(ema|swa|shadow|average|avg)\w* = (self\.)?\w*(model|net|student|encoder)\w*$")
