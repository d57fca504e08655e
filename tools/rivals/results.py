"""The results: a JSON line for each method on each file, and what it means for a mutant beside its original."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.rivals.cases import ORIGINAL, Case
from tools.rivals.methods import Said

KILLED, UNEXPLAINED = "killed", "no diagnosis"
NOTED, RAISED, UNTESTED, MISSED = "note only", "raised or hung", "untested", "missed"
OUTCOMES = (KILLED, UNEXPLAINED, NOTED, RAISED, UNTESTED, MISSED)


@dataclass(frozen=True)
class Result:
    """What a method said of a file. sort: the mutant's class, or "original"."""

    model: str
    mutant: str
    method: str
    digest: str
    sort: str
    line: int
    what: str
    said: Said

    @classmethod
    def of(cls, case: Case, method: str, said: Said) -> Result:
        return cls(case.model, case.mutant, method, case.digest, case.sort, case.line, case.what, said)

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.model, self.mutant, self.method)

    @property
    def broken(self) -> dict[str, str]:
        """What failed or broke: of an original false words."""
        return self.said.failed | self.said.unexplained | self.said.errors


@dataclass(frozen=True)
class Judged:
    """A result on a mutant beside the same method's on the original. new: what fails or breaks, and did not there."""

    result: Result
    outcome: str
    new: Mapping[str, str]


def judged(result: Result, original: Result) -> Judged:
    """Killed: something fails, with a diagnosis, that the original does not fail. Else the first of what fails without
    one, what breaks or was raised, what was untested, and what was noted."""
    said, before = result.said, original.said
    new = {name: words for name, words in result.broken.items() if name not in original.broken}
    noted = {name: words for name, words in said.noted.items() if before.noted.get(name) != words}
    if new.keys() & said.failed:
        outcome = KILLED
    elif new.keys() & said.unexplained:
        outcome = UNEXPLAINED
    elif new or (said.raised and not before.raised):
        outcome = RAISED
    elif said.untested or said.raised:
        outcome = UNTESTED
    else:
        outcome = NOTED if noted else MISSED
    return Judged(result, outcome, new)


def judge_all(results: Iterable[Result]) -> list[Judged]:
    """The mutants of which the original has a result too."""
    found = {result.key: result for result in results}
    return [
        judged(result, found[result.model, "", result.method])
        for result in found.values()
        if result.sort != ORIGINAL and (result.model, "", result.method) in found
    ]


def read(path: Path) -> list[Result]:
    """The results of a file; none where there is no file. Raises ValueError in one sentence."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    try:
        return [Result(**{**row, "said": Said(**row["said"])}) for row in map(json.loads, lines)]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} holds no results of this program ({error}); name another file") from error


def write(path: Path, results: Sequence[Result]) -> None:
    """Replace the file at once: whoever reads it finds whole lines, also after an interrupt."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text("".join(f"{json.dumps(asdict(result))}\n" for result in results), encoding="utf-8")
    partial.replace(path)
