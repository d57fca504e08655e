"""Points for a submission, with reasons and a text for its author: `Rubric`, `Score`.

    title = "Exercise 3: attention"
    points = 20                                      # of the whole; 100 when it is not said
    required = "attention-weights-sum-to-one"        # a selection of claims, as --claims takes it
    most_without = 0.5                               # the share that is left when a required claim is not kept (0)
    forbidden = ["torch.nn.MultiheadAttention"]      # raise when they are called
    suspicion = "note"                               # what reads the suite gets 0 points, or ("note") a remark

    [[part]]
    name = "Masks"
    claims = "masks"
    weight = 2                                       # beside the other parts; 1 when it is not said
    complete = true                                  # claims about what is not there count as not kept

A part gives the share of its claims that are kept. Claims about components that the submission does not have do not
count, unless the part is `complete`; a part of which nothing was tested gives 0.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.catalogue import Catalogue, CatalogueError, load
from conformance.grading.submissions import GradingError
from conformance.verdict import HELD, Verdict

LOST = frozenset({Verdict.FAIL, Verdict.ERROR, Verdict.BLOCKED})
"""The verdicts of a tested claim that is not kept."""

SHOWN = 8
"""How many mistakes the text for the author tells in full."""


@dataclass(frozen=True)
class Part:
    """Some claims that count together. weight: beside the other parts."""

    name: str
    claims: frozenset[str]
    weight: float = 1.0
    complete: bool = False


@dataclass(frozen=True)
class Rubric:
    """What counts, and how much. Without parts all claims are one part."""

    title: str
    points: float
    parts: tuple[Part, ...]
    required: frozenset[str] = frozenset()
    most_without: float = 0.0
    forbidden: tuple[str, ...] = ()
    is_suspicion_fatal: bool = True

    @property
    def claims(self) -> str:
        """All claims that it speaks of, as a selection."""
        return ",".join(sorted(self.required.union(*(part.claims for part in self.parts))))

    def score(self, results: Iterable[Mapping[str, Any]], refused: str = "", suspicions: Sequence[str] = ()) -> Score:
        """What a submission reaches. results: rows of the store, with claim, verdict and evidence."""
        rows = merged(results)
        if refused and not rows:
            return Score(0.0, self.points, (f"it could not be tested: {refused}",), ())
        share, reasons, whole = 0.0, [], sum(part.weight for part in self.parts)
        for part in self.parts:
            value, why = _share(part, rows)
            share += part.weight / whole * value
            reasons.append(
                f"{part.name}: {self.points * part.weight / whole * value:.2f} of "
                f"{self.points * part.weight / whole:.2f} ({why})"
            )
        missing = sorted(slug for slug in self.required if slug not in rows or rows[slug]["verdict"] not in HELD)
        if missing and share > self.most_without:
            share = self.most_without
            reasons.append(f"required and not kept: {', '.join(missing)}; at most {self.most_without:.0%} without")
        if suspicions:
            share = 0.0 if self.is_suspicion_fatal else share
            reasons += [*(f"the code: {one}" for one in suspicions)]
        mistakes = tuple(row for row in rows.values() if row["verdict"] in (Verdict.FAIL, Verdict.ERROR))
        return Score(share, self.points, tuple(reasons), mistakes)


@dataclass(frozen=True)
class Score:
    """value: the share of the points, from 0 to 1. reasons: a sentence for each part and each cut. mistakes: the rows
    of the claims that are broken, each with its evidence."""

    value: float
    points: float
    reasons: tuple[str, ...]
    mistakes: tuple[Mapping[str, Any], ...]

    def text(self, id: str, title: str = "") -> str:
        """What the author is told: the points, why, and each mistake with the line and what was seen."""
        lines = [f"{id}: {self.value * self.points:.2f} of {self.points:g} points" + (f" ({title})" if title else "")]
        lines += [f"  {reason}" for reason in self.reasons]
        for row in self.mistakes[:SHOWN]:
            lines += ["", *_told(row)]
        if more := len(self.mistakes) - SHOWN:
            lines += ["", f"... and {more} more"] if more > 0 else []
        return "\n".join(lines)


def _told(row: Mapping[str, Any]) -> list[str]:
    wrong = row["diagnosis"] or row["what"] or row["message"]
    lines = [f"  {row['claim']}: {wrong}"]
    lines += [f"    at        {row['place']}"] if row["place"] else []
    lines += [f"    expected  {row['expected']}", f"    got       {row['got']}"] if row["expected"] else []
    lines += [f"    mend      {row['mend']}"] if row["mend"] else []
    claim = load().claims.get(row["claim"])
    return lines + ([f"    claim     {' '.join(claim.says.split())}"] if claim else [])


def merged(results: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """One row a claim: of a file with several parts the one that is broken, else one that is kept."""
    rows: dict[str, Mapping[str, Any]] = {}
    for row in results:
        known = rows.get(row["claim"])
        if known is None or _rank(row) < _rank(known):
            rows[row["claim"]] = row
    return rows


def _rank(row: Mapping[str, Any]) -> int:
    order = (Verdict.FAIL, Verdict.ERROR, Verdict.BLOCKED, Verdict.PASS, Verdict.NOTE, Verdict.VACUOUS)
    return order.index(row["verdict"]) if row["verdict"] in order else len(order)


def _share(part: Part, rows: Mapping[str, Mapping[str, Any]]) -> tuple[float, str]:
    verdicts = [rows[slug]["verdict"] for slug in sorted(part.claims) if slug in rows]
    kept = sum(verdict in HELD for verdict in verdicts)
    lost = sum(verdict in LOST for verdict in verdicts)
    counted = len(part.claims) if part.complete else kept + lost
    if not kept + lost:
        return 0.0, "nothing of it was tested"
    return kept / counted, f"{kept} of {counted} claims kept"


def texts(value: str) -> list[str]:
    """The sentences of a column of the store."""
    found: list[str] = json.loads(value)
    return found


def default(points: float = 1.0) -> Rubric:
    """All tested claims as one part."""
    return Rubric("", points, (Part("all claims", frozenset(claim.slug for claim in load().tested())),))


def read(path: Path) -> Rubric:
    """A rubric file. Raises GradingError, with the file and what is wrong in it."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GradingError(f"{path} cannot be read as a rubric: {error}") from error
    try:
        return _rubric(values, load())
    except (GradingError, CatalogueError) as error:
        raise GradingError(f"{path}: {error}") from error


_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("title", "required", "suspicion", "name", "claims"), (str,)),
    **dict.fromkeys(("points", "most_without", "weight"), (int, float)),
    **dict.fromkeys(("forbidden", "part"), (list,)),
    "complete": (bool,),
}
_OF_RUBRIC = ("title", "points", "required", "most_without", "forbidden", "suspicion", "part")
_OF_PART = ("name", "claims", "weight", "complete")


def _rubric(values: Mapping[str, Any], catalogue: Catalogue) -> Rubric:
    _check(values, _OF_RUBRIC, "the rubric")
    parts = []
    for part in values.get("part", []):
        if not isinstance(part, dict):
            raise GradingError(f"a part must be a table [[part]], not {json.dumps(part)}")
        _check(part, _OF_PART, f"the part {part.get('name', '')!r}")
        if "claims" not in part or "name" not in part:
            raise GradingError("each [[part]] needs a name and claims")
        if part.get("weight", 1) <= 0:
            raise GradingError(f"the weight of the part {part['name']!r} must be above 0")
        slugs = _slugs(catalogue, part["claims"])
        parts.append(Part(part["name"], slugs, float(part.get("weight", 1)), part.get("complete", False)))
    if (suspicion := values.get("suspicion", "zero")) not in ("zero", "note"):
        raise GradingError(f'suspicion is {suspicion!r}; write "zero" or "note"')
    if not 0 <= values.get("most_without", 0.0) <= 1:
        raise GradingError(f"most_without is {values['most_without']}; it is a share, from 0 to 1")
    if values.get("points", 100) <= 0:
        raise GradingError(f"points is {values['points']}; it must be above 0")
    if wrong := [name for name in values.get("forbidden", []) if not isinstance(name, str) or "." not in name]:
        raise GradingError(f'forbidden holds {wrong[0]!r}; write a whole name, as "torch.nn.MultiheadAttention"')
    return Rubric(
        values.get("title", ""),
        float(values.get("points", 100)),
        tuple(parts) or default().parts,
        _slugs(catalogue, values["required"]) if "required" in values else frozenset(),
        float(values.get("most_without", 0.0)),
        tuple(values.get("forbidden", ())),
        suspicion == "zero",
    )


def _check(values: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    for name, value in values.items():
        if name not in names:
            raise GradingError(f"{where} has no setting {name!r}; the settings are {', '.join(names)}")
        if not isinstance(value, _KINDS[name]) or (isinstance(value, bool) and name != "complete"):
            raise GradingError(f"{where}: {name} is {value!r}, and must be {_KINDS[name][-1].__name__}")


def _slugs(catalogue: Catalogue, selection: str) -> frozenset[str]:
    slugs = frozenset(claim.slug for claim in catalogue.select(selection) if claim.is_tested)
    if not slugs:
        raise GradingError(f"{selection} selects only claims about the documents, which test no implementation")
    return slugs
