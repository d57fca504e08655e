"""The model's graph for the report: a box for each call of a module, and which results each call reads (`graph_of`)."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from conformance.adapters.whole.record import Call, Record, Value

MOST = 200
"""A graph has at most so many boxes; of a larger one, the deepest are left out."""


@dataclass(frozen=True)
class Box:
    """One call of a module. number: its place in the order of calls; parent: the number of the call around, -1 outside.

    cls: the module's class. given, gave: shapes in words. reads: the numbers of the calls beside it whose results it
    reads; ends: those inside whose results its own result is made of. In both, -1 is what the call around was given.
    like: the path of an earlier block beside it that is built alike; what stands inside is left out then. shows: what
    the run showed in it, by the first words of the slugs of its claims.
    """

    number: int
    parent: int
    path: str
    cls: type[nn.Module]
    given: str
    gave: str
    reads: tuple[int, ...]
    ends: tuple[int, ...]
    like: str
    shows: tuple[str, ...]

    def to_json(self, roles: Mapping[type, Sequence[str]]) -> dict[str, Any]:
        """The box as values of JSON. roles: what classes play. The class is its name, and the lines where it stands:
        `file`, `first` and `last`, empty and 0 where there are none."""
        return asdict(self) | {"cls": self.cls.__name__, "roles": list(roles.get(self.cls, ())), **_lines(self.cls)}


def graph_of(record: Record, shows: Mapping[str, Iterable[Call | None]]) -> list[Box]:
    """The boxes of a run, in the order of the calls. shows: the calls in which the run showed something, by what."""
    inside: dict[int, list[Call]] = {}
    for call in record.calls:
        inside.setdefault(call.parent, []).append(call)
    like = _alike(inside)
    depth = {call.number: len(list(record.around(call))) for call in record.calls}
    kept = [call for call in record.calls if not any(around.number in like for around in _around(record, call))]
    while len(kept) > MOST:
        deepest = max(depth[call.number] for call in kept)
        kept = [call for call in kept if depth[call.number] < deepest]
    showing = {name: {call.number for call in calls if call is not None} for name, calls in shows.items()}
    return [
        Box(
            call.number,
            call.parent,
            call.path,
            type(call.module),
            _shapes(call.given),
            _shapes(call.gave),
            _sources(record, call.given, _around(record, call), [c for c in inside[call.parent] if c is not call]),
            _sources(record, call.gave, [call], inside.get(call.number, ())),
            like.get(call.number, ""),
            tuple(name for name, numbers in showing.items() if call.number in numbers),
        )
        for call in kept
    ]


def _around(record: Record, call: Call) -> list[Call]:
    """The calls around a call, without itself, the innermost first."""
    return list(record.around(call))[1:]


def _alike(inside: Mapping[int, Collection[Call]]) -> dict[int, str]:
    """Calls of modules with parts, built as an earlier call beside them -> the path of the first such one."""

    def form(call: Call) -> Any:
        return type(call.module), tuple(form(inner) for inner in inside.get(call.number, ()))

    found: dict[int, str] = {}
    for calls in inside.values():
        first: dict[Any, str] = {}
        for call in calls:
            if call.number in inside and first.setdefault(form(call), call.path) != call.path:
                found[call.number] = first[form(call)]
    return found


def _sources(
    record: Record, values: Sequence[Value], around: Sequence[Call], beside: Iterable[Call]
) -> tuple[int, ...]:
    """The calls `beside` whose results `values` are made of, without another one between; -1 where they are also made
    of what the innermost call of `around` was given, or without one, of what the run was given."""
    made = {value: call.number for call in beside for value in call.gave}
    given = set(around[0].given) if around else set()
    before = record.before(values, beyond=[*made, *given])
    outer = given & before if around else {value for value in before if value.kind == "given"}
    return tuple(sorted({made[value] for value in before if value in made} | ({-1} if outer - set(made) else set())))


def _lines(cls: type[nn.Module]) -> dict[str, Any]:
    """Where a class stands. Of torch's own classes nothing is said: their lines are nobody's mistake."""
    try:
        if cls.__module__.partition(".")[0] != "torch":
            lines, first = inspect.getsourcelines(cls)
            return {"file": inspect.getsourcefile(cls) or "", "first": first, "last": first + len(lines) - 1}
    except (OSError, TypeError):
        pass
    return {"file": "", "first": 0, "last": 0}


def _shapes(values: Sequence[Value]) -> str:
    """Shapes in words: "2x6x64, 2x6"."""
    return ", ".join(dict.fromkeys("x".join(map(str, value.shape)) or "number" for value in values))
