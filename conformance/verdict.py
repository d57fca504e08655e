"""Verdicts on claims: what one claim's run came to (`Result`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from conformance.catalogue import Claim


class Verdict(StrEnum):
    """PASS: every example kept the claim. FAIL: one broke it. ERROR: the implementation raised, hung or died.
    NOTE: it does otherwise than a convention, or a check found a fact to show; neither is a failure.
    NOT PROVIDED: it has no such component. NOT SEEN: its moment did not come in the training run that was watched.
    BLOCKED: it failed, and so did a claim that it depends on.
    VACUOUS: no example met the claim's precondition. KNOWN FAILURE: it failed as the known-failures file says.
    UNEXPECTED PASS: that file lists it, and it passed."""

    PASS = "PASS"
    FAIL = "FAIL"
    ERROR = "ERROR"
    NOTE = "NOTE"
    NOT_PROVIDED = "NOT PROVIDED"
    NOT_SEEN = "NOT SEEN"
    BLOCKED = "BLOCKED"
    VACUOUS = "VACUOUS"
    KNOWN_FAILURE = "KNOWN FAILURE"
    UNEXPECTED_PASS = "UNEXPECTED PASS"


BROKEN = frozenset({Verdict.FAIL, Verdict.ERROR})
"""The verdicts of a claim that does not hold: they fold to a broken ancestor."""

JUDGED = BROKEN | {Verdict.PASS, Verdict.NOTE, Verdict.NOT_PROVIDED, Verdict.VACUOUS}
"""The verdicts that a check comes to. The others come of looking at several claims, or at the known failures."""


ORDER = (
    *(Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS, Verdict.BLOCKED, Verdict.KNOWN_FAILURE),
    *(Verdict.NOTE, Verdict.NOT_PROVIDED, Verdict.NOT_SEEN, Verdict.PASS),
)
"""The verdicts as reports list them: what needs attention first."""

SHOWN_IN_FULL = ORDER[:4]
"""The verdicts that fail a run by themselves."""

ABSENT = frozenset({Verdict.NOT_PROVIDED, Verdict.NOT_SEEN})
"""The verdicts of a claim that was not tested, because there was nothing that it speaks of."""

HELD = frozenset({Verdict.PASS, Verdict.NOTE})
"""The verdicts that fail no run although the claim was tested."""


@dataclass(frozen=True)
class Result:
    """One claim's outcome, in words and numbers that can cross a process boundary (JSON).

    what, expected, got: the assertion that decided and its two sides, as text. error, bound, reason: how far apart
    and how far was allowed, and why; `margin` is bound / error. example: the named values of the deciding example,
    the smallest failing one if any failed. examples: how many ran. message: what happened, where there is no
    evidence. diagnosis: what is wrong, in one sentence. place: the line of the user's code, as `conformance.places`
    writes it; also: other lines that took part. mend: the change that would mend it. pictures: small matrices by name.
    roles: the components that the claim is about. attributes: conventions of those that were built, by role. notes:
    what the implementation said about itself for the first time, such as what an adapter inferred; untested: what of it
    could not be tested; graph: the boxes of its graph, likewise. root: the claim whose failure explains this one, when
    BLOCKED.
    """

    claim: str
    verdict: Verdict
    what: str = ""
    expected: str = ""
    got: str = ""
    error: float = 0.0
    bound: float = 0.0
    reason: str = ""
    example: Mapping[str, Any] = field(default_factory=dict)
    examples: int = 0
    message: str = ""
    diagnosis: str = ""
    place: str = ""
    mend: str = ""
    pictures: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    seconds: float = 0.0
    roles: Sequence[str] = ()
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    untested: Sequence[str] = ()
    graph: Sequence[Mapping[str, Any]] = ()
    root: str = ""
    also: Sequence[str] = ()

    @property
    def margin(self) -> float:
        """bound / error: above 1 the claim held, and by how much; inf when exact."""
        return float("inf") if self.error == 0 else self.bound / self.error

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON values; read back by `from_json`."""
        return {**vars(self), "verdict": self.verdict.value}

    def brief(self) -> dict[str, Any]:
        """`to_json` without the fields that are empty. Nine of ten results are of claims that are not provided."""
        return {name: value for name, value in self.to_json().items() if value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """Raises ValueError, with a sentence, when the values are not those of a result. What is left out is empty."""
        for name in ("claim", "verdict"):
            if name not in values:
                raise ValueError(f"it has no field {name!r}")
        for name, value in values.items():
            if name not in _FIELDS:
                raise ValueError(f"it has the field {name!r:.80}, which no result has")
            if not _FIELDS[name].holds(value):
                raise ValueError(f"its field {name!r} is {value!r:.80}, not {_FIELDS[name].says}")
        return cls(**{**values, "verdict": Verdict(values["verdict"])})


def judged(result: Result, claim: Claim) -> Result:
    """The result in the light of what the claim is: what does otherwise than a convention is noted."""
    if claim.verdict == "convention" and result.verdict is Verdict.FAIL:
        return replace(result, verdict=Verdict.NOTE)
    return result


class _Kind(NamedTuple):
    """What the field of a result can be: in words, and as a test of its value in JSON."""

    says: str
    holds: Callable[[Any], bool]


def _is_mapping_of(holds: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) and holds(item) for name, item in value.items())


def _is_box(value: Any) -> bool:
    """Whether it is a box of a graph, as `conformance.adapters.whole.graph.Box.to_json` makes it."""
    texts, numbers = ("path", "cls", "given", "gave", "like", "file"), ("number", "parent", "first", "last")
    lists = {"reads": int, "ends": int, "shows": str, "roles": str}
    return (
        isinstance(value, Mapping)
        and value.keys() == {*texts, *numbers, *lists}
        and all(isinstance(value[name], str) for name in texts)
        and all(isinstance(value[name], int) for name in numbers)
        and all(
            isinstance(value[name], (list, tuple)) and all(isinstance(item, of) for item in value[name])
            for name, of in lists.items()
        )
    )


_VERDICTS = frozenset(Verdict)
_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_NUMBER = _Kind("a number", lambda value: isinstance(value, (int, float)))
_VALUES = _Kind("an object", lambda value: _is_mapping_of(lambda _: True, value))
_TEXTS = _Kind("a list of texts", lambda value: isinstance(value, (list, tuple)) and all(map(_TEXT.holds, value)))
_BOXES = _Kind("a list of boxes", lambda value: isinstance(value, (list, tuple)) and all(map(_is_box, value)))
_FIELDS = {field.name: _TEXT for field in fields(Result)} | {
    "verdict": _Kind("a verdict", lambda value: isinstance(value, str) and value in _VERDICTS),
    "error": _NUMBER,
    "bound": _NUMBER,
    "seconds": _NUMBER,
    "examples": _Kind("a whole number", lambda value: isinstance(value, int)),
    "example": _VALUES,
    "attributes": _Kind("an object of objects", lambda value: _is_mapping_of(_VALUES.holds, value)),
    "notes": _TEXTS,
    "roles": _TEXTS,
    "untested": _TEXTS,
    "also": _TEXTS,
    "graph": _BOXES,
    "pictures": _VALUES,
}


def counts(results: Mapping[str, Result]) -> dict[Verdict, int]:
    """How many results have each verdict, every verdict present."""
    return {verdict: sum(r.verdict is verdict for r in results.values()) for verdict in Verdict}
