"""A component that cannot be made or called by itself, taken out of a model of the user's that holds it.

`in_place(cls)` looks for classes that make the component, in its file and in files that only define things, runs one of
them once, and takes the component out with the arguments of its first call. What a model sets in its parts while it
runs (the height and width of an image) is then set, too.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.functions.subjects import source_of
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.specification import Specification
from conformance.adapters.whole.calling import Input, quiet_evaluation
from conformance.adapters.whole.calling_parts import PartCalling, first_that_runs
from conformance.adapters.whole.making import made_of
from conformance.adapters.whole.model import WholeModel, in_double, whole_model
from conformance.adapters.whole.syntax import Scope
from conformance.adapters.whole.usage import Surroundings, surroundings

_STEPS, _LONGER = 6, (32, 64)
"""So many steps a component should get, and so much longer data are tried for it."""
MODELS, LEVELS = 3, 3
"""So many models that hold it are tried, and so many classes may stand between."""


def in_place(cls: type[nn.Module], why: str) -> WholeModel:
    """The component as a model of the user's calls it. why: what kept it from being called by itself.

    Raises Unresolved where no model that holds it can be run.
    """
    around = surroundings(sys.modules[cls.__module__])
    for holder in islice(_holders(cls, around), MODELS):
        with suppress(Exception):
            whole = whole_model(made_of(holder, Specification(holder.__name__, target="", name=holder.__name__)))
            return _taken_from(whole, cls, why)
    raise Unresolved(f"no model that holds {cls.__name__} can be run")


# --- the models that hold it ----------------------------------------------------------------------


Holder = type[nn.Module] | FunctionType
"""A class, or a function that puts a model together."""
_DOES_MORE = re.compile(r"\b(backward|step|open|save|load\w*|download\w*|fit|train|system|run)\(")
"""What a function calls that trains, reads or writes: it is not run to have a part of what it gives."""


def _holders(cls: type[nn.Module], around: Surroundings) -> Iterator[Holder]:
    """What makes it, those that are the furthest above it first: they need the least."""
    levels: list[list[Holder]] = [[cls]]
    for _ in range(LEVELS):
        above = [holder for below in levels[-1] for holder in _makers(below, around)]
        known = {holder for level in levels for holder in level}
        levels.append(list(dict.fromkeys(holder for holder in above if holder not in known)))
    for level in reversed(levels[1:]):
        yield from level


def _makers(cls: Holder, around: Surroundings) -> Iterator[Holder]:
    for usage in around.usages(cls):
        name = _name_around(usage.scope)
        module = around.imported(usage.scope.source) if name else None
        found = getattr(module, name, None)
        if isinstance(found, FunctionType):
            if not _DOES_MORE.search(source_of(found)):
                yield found
        elif isinstance(found, type) and issubclass(found, nn.Module):
            yield found


def _name_around(scope: Scope | None) -> str:
    """The name of the class or function at the top of a file in which a scope stands; "" for none."""
    while scope is not None and not (scope.parent is not None and scope.parent.parent is None):
        scope = scope.parent
    return str(getattr(scope.node, "name", "")) if scope is not None else ""


# --- taking it out --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """The first call of the component in a run of a model. rows: how many samples the run had. length: of its data,
    None where that is the model's own."""

    path: str
    arguments: Mapping[str, Any]
    rows: int
    length: int | None

    @property
    def steps(self) -> int:
        """How many steps its first vectors (B, T, d) have; of others as many as are asked for."""
        found = (x for x in self.arguments.values() if isinstance(x, Tensor) and x.is_floating_point() and x.ndim == 3)
        return next((min(x.shape[:2], key=lambda size: size == self.rows) for x in found), _STEPS)


def _taken_from(whole: WholeModel, cls: type[nn.Module], why: str) -> WholeModel:
    call = _longest_call(whole, cls)

    def take(module: nn.Module) -> nn.Module:
        """The component in a model that has run once."""
        with quiet_evaluation(module):
            replace(whole, module=module, known={}).run(whole.example(length=call.length))
        return module.get_submodule(call.path)

    evidence = Fact("taken from", f"{whole.made.name}, {call.path}", why.removeprefix("UNRESOLVED: "))
    facts = [*whole.made.facts, evidence]
    part = whole.made.part_of(cls, facts, take)
    module = take(whole.twin(torch.float32).module)
    calling = first_that_runs(module, _callings(call, module))
    return in_double(WholeModel(part, module, calling, "", [*facts, *calling.facts]))


def _longest_call(whole: WholeModel, cls: type[nn.Module]) -> _Call:
    """The first call, in a run with longer data where it got fewer than a few steps: a model of sound keeps one step of
    four, and of two nothing is seen of what attends. Raises Unresolved where the run calls none."""
    call = _first_call(whole, cls, None)
    longer = _LONGER if whole.free_length else ()
    for length in longer if call.steps < _STEPS else ():
        with suppress(Exception):  # it takes so many at most
            call = _first_call(whole, cls, length)
    return call


def _first_call(whole: WholeModel, cls: type[nn.Module], length: int | None) -> _Call:
    """Raises Unresolved where the run calls none."""
    calls: list[_Call] = []
    data = whole.example(length=length)
    rows = len(next(iter(data.values())))

    def seen(path: str, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not calls:
            bound = inspect.signature(part.forward).bind(*args, **kwargs)
            calls.append(_Call(path, dict(bound.arguments), rows, length))

    parts = [(path, part) for path, part in whole.module.named_modules() if type(part) is cls]
    hooks = [part.register_forward_pre_hook(partial(seen, path), with_kwargs=True) for path, part in parts]
    try:
        with quiet_evaluation(whole.module):
            whole.run(data)
    finally:
        for hook in hooks:
            hook.remove()
    if not calls:
        raise Unresolved(f"{whole.made.name} does not call {cls.__name__}")
    return calls[0]


def _callings(call: _Call, module: nn.Module) -> Iterator[PartCalling]:
    """Ways to call it with the main argument of the call as data, and the others as they were; with another length, if
    it takes that."""
    tensors = {name: x for name, x in call.arguments.items() if isinstance(x, Tensor)}
    name, main = next((name, x) for name, x in tensors.items() if x.is_floating_point() and x.ndim > 1)
    batch_first = len(main) == call.rows or main.shape[1] != call.rows
    axis = 0 if batch_first else 1
    fixed = {
        other: partial(_as_recorded, value, main.shape[axis], axis)
        for other, value in call.arguments.items()
        if other != name
    }
    own = tuple(main.transpose(0, axis).shape[1:])
    free = len(own) == 2 and len(tensors) == 1
    for shape in ((None, own[-1]), own) if free else (own,):
        yield PartCalling((Input("x", name, shape=shape),), fixed=fixed, batch_first=batch_first)


def _as_recorded(value: Any, rows: int, axis: int, inputs: Mapping[str, Tensor]) -> Any:
    """An argument as it was; of what had a row for each row of the main one, the first for each row that it has now: a
    row that is called alone gets what it gets among others."""
    data = inputs["x"]
    if not isinstance(value, Tensor):
        return value if isinstance(value, int | float | str | bool | tuple | None) else copy.deepcopy(value)
    value = value.to(data.dtype) if value.is_floating_point() else value
    if value.ndim > axis and value.shape[axis] == rows:
        return value.index_select(axis, torch.zeros(len(data), dtype=torch.int64))
    return value
