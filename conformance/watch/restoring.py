"""What a script's text says of going on from a checkpoint: whether all that it saves of its state is read again, and
whether the optimizer is one of the model that goes on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.stated import sources

_STATE = re.compile(r"optim|sched|scaler|(^|[_ ])(opt|ema|averaged?|shadow|swa)([_ ]|$)", re.IGNORECASE)
_COUNTED = re.compile(
    r"(self\.)?((start|begin|first|resume|global|init)\w*|(step|epoch|iter|it|iteration)s?(_?(num|idx))?)"
)
"""Names of what counts on from a number of a checkpoint. The epoch of the best weights has another name."""


class Forgotten(NamedTuple):
    """State that is saved and never restored, where training goes on. key: its name in the checkpoint; restored: those
    of what is restored; place: the last line that restores."""

    key: str
    restored: list[str]
    place: str


class _Key(NamedTuple):
    """A key of a checkpoint, and what it stands with: whose state it is ("" for other things), or where it is read."""

    name: str
    owner: str
    place: str


def forgotten(run: Any) -> list[Forgotten]:
    """The state of optimizers, schedules, scalers and averages that the files of a script save and never
    restore, where they restore the model and go on from a checkpoint: from its count, or with other state of it."""
    files = sources(run)
    saved = [one for source in files for one in _saved(source)]
    restored = [one for source in files for one in _restored(source)]
    read = {name for source in files for name in _read(source)}
    of_models = [one for one in restored if not _STATE.search(f"{one.name} {one.owner}")]
    goes_on = len(restored) > len(of_models) or any(_counts_on(source) for source in files)
    if not of_models or not goes_on:
        return []
    owners = {one.owner for one in restored}
    return [
        Forgotten(one.name, [other.name for other in restored], restored[-1].place)
        for one in saved
        if _STATE.search(f"{one.name} {one.owner}") and one.name not in read and one.owner not in owners
    ]


def _counts_on(source: Source) -> bool:
    """Whether a count begins with a number that is taken out of something by a key: `start = checkpoint["step"]`."""
    for target, value in _bound(source):
        one = value.left if isinstance(value, ast.BinOp) else value  # the epoch behind it
        named = _COUNTED.fullmatch(ast.unparse(target).lower()) is not None
        if named and isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant):
            return True
    return False


def _bound(source: Source) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What assignments bind, and what to, one by one where several are bound at once."""
    for node in source.nodes:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            value = node.value  # type: ignore[attr-defined]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                yield from zip(target.elts, value.elts, strict=False)
            else:
                yield target, value


def _saved(source: Source) -> Iterator[_Key]:
    """The states in the dicts that are saved: `torch.save({"optimizer": optimizer.state_dict()}, path)`."""
    for call in source.nodes:
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("save") or not call.args:
            continue
        held = call.args[0]
        if isinstance(held, ast.Name):
            bound = (
                n.value
                for n in source.inside(source.function(call))
                if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == held.id
            )
            held = next(bound, held)
        for key, value in zip(held.keys, held.values, strict=True) if isinstance(held, ast.Dict) else ():
            is_state = isinstance(value, ast.Call) and ast.unparse(value.func).endswith(".state_dict")
            if isinstance(key, ast.Constant) and is_state:
                yield _Key(str(key.value), _tail(value.func.value), source.place(call))  # type: ignore[attr-defined]


def _restored(source: Source) -> Iterator[_Key]:
    """What gets its state back from a key: `optimizer.load_state_dict(checkpoint["optimizer"])`."""
    for call in source.nodes:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".load_state_dict") and call.args:
            key = call.args[0].slice if isinstance(call.args[0], ast.Subscript) else None
            if isinstance(key, ast.Constant):
                yield _Key(str(key.value), _tail(call.func.value), source.place(call))  # type: ignore[attr-defined]


def _read(source: Source) -> Iterator[str]:
    """The keys that are taken out of something."""
    for node in source.nodes:
        key = node.slice if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            key = node.args[0] if node.func.attr in ("get", "pop") else key
        if isinstance(key, ast.Constant):
            yield str(key.value)


class Remade(NamedTuple):
    """A model that is made anew behind the optimizer of the one before. place: of the statement that makes it."""

    model: str
    optimizer: str
    place: str


def remade(run: Any) -> Iterator[Remade]:
    """The models that are made anew between the line that makes an optimizer of their parameters and the loop that
    steps it: the optimizer holds the parameters of the model before."""
    for source in sources(run):
        bodies = [source.tree, *(node for node in source.nodes if isinstance(node, FUNCTIONS[:2]))]
        for body in bodies:
            yield from _remade_in(source, source.inside(body))


def _remade_in(source: Source, nodes: list[Any]) -> Iterator[Remade]:
    made: list[Any] = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    for number, node in enumerate(made):
        optimizer = ast.unparse(node.targets[0])
        for model in _models_of(node.value):
            calls = [one for one in nodes if isinstance(one, ast.Call)]
            uses = [one for one in calls if ast.unparse(one.func) == f"{optimizer}.step"]
            uses += [one for one in calls if {model, optimizer} <= {*map(ast.unparse, one.args)}]
            last = max((one.lineno for one in uses), default=0)
            before = [ast.dump(one.value) for one in made[:number] if ast.unparse(one.targets[0]) == model]
            again = [one.lineno for one in made[number + 1 :] if ast.unparse(one.targets[0]) == optimizer]
            for later in made[number + 1 :]:
                is_anew = ast.unparse(later.targets[0]) == model and ast.dump(later.value) in before
                if is_anew and max(again, default=0) < later.lineno < last:
                    yield Remade(model, optimizer, source.place(later))


_OPTIMIZERS = re.compile(r"adam|sgd|optim|lion|adafactor|rmsprop|muon", re.IGNORECASE)


def _models_of(call: ast.Call) -> set[str]:
    """The models of whose parameters a call makes an optimizer: `Adam(model.parameters())`, `make_optimizer(model)`."""
    name = ast.unparse(call.func)
    if not _OPTIMIZERS.search(name) or "sched" in name:
        return set()
    found = {one.id for one in call.args if isinstance(one, ast.Name)}
    for node in ast.walk(call):
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
            found.add(ast.unparse(node.value))
    return found


def _tail(expression: ast.expr) -> str:
    """The last name of `self.trainer.optimizer`."""
    return ast.unparse(expression).rpartition(".")[2]
