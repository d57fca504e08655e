"""The known-failures file: claims that an implementation is known to break, until when, and why.

    [[known]]
    claim = "attention-is-scaled-by-sqrt-d-k"
    subject = "mypkg.model:*"        # --impl, or a pattern of it: the entry excuses nothing else
    reason = "our attention is scaled by 1 / d_k on purpose"
    expires = 2027-06-30             # the last day that it counts

It is strict, so that the file cannot go stale: a listed claim that passes, or that is not provided, is an error, and
so is one that fails after its entry expired.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.catalogue import Catalogue
from conformance.verdict import BROKEN, HELD, Result, Verdict


class KnownFailuresError(ValueError):
    """The known-failures file cannot be used."""


@dataclass(frozen=True)
class Known:
    """One entry. subject: the implementation that it excuses, as --impl names it, or a pattern such as "model.py:*".
    expires: the last day on which it does."""

    claim: str
    subject: str
    reason: str
    expires: datetime.date


_FIELDS = {"claim": str, "subject": str, "reason": str, "expires": datetime.date}


def load_known(path: Path, catalogue: Catalogue, implementation: str) -> dict[str, Known]:
    """The entries that speak about `implementation`, by claim.

    Raises KnownFailuresError when the file is missing, malformed, or names no such claim.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KnownFailuresError(f"the known-failures file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KnownFailuresError(f"the known-failures file {path} is not valid TOML: {error}") from error
    rows = table.get("known")
    if set(table) != {"known"} or not isinstance(rows, list):
        raise KnownFailuresError(f"the known-failures file {path} must hold [[known]] tables and nothing else")
    known: dict[str, Known] = {}
    for number, row in enumerate(rows, start=1):
        place = f"the known-failures file {path}: entry {number}"
        entry = _entry(row, place)
        if entry.claim not in catalogue.claims or not catalogue.claims[entry.claim].is_tested:
            raise KnownFailuresError(
                f"{place} names {entry.claim!r}, which is no claim about implementations; `conformance list` "
                "shows them all"
            )
        if not fnmatchcase(implementation, entry.subject):
            continue
        if entry.claim in known:
            raise KnownFailuresError(f"{place} lists {entry.claim!r} twice for {implementation}")
        known[entry.claim] = entry
    return known


def _entry(row: Any, place: str) -> Known:
    """An entry from its table. Raises KnownFailuresError."""
    if not isinstance(row, dict) or set(row) != set(_FIELDS):
        raise KnownFailuresError(f"{place} must have {', '.join(_FIELDS)}, and nothing else")
    for name, wanted in _FIELDS.items():
        if type(row[name]) is not wanted or (wanted is str and not row[name].strip()):
            need = "a text that is not empty" if wanted is str else "a date without quotes, such as 2027-06-30"
            raise KnownFailuresError(f"{place}: {name} must be {need}, not {row[name]!r}")
    return Known(**row)


def expect(result: Result, known: Mapping[str, Known], today: datetime.date | None = None) -> Result:
    """The result in the light of the known failures, on the day of `today` (the present one)."""
    entry = known.get(result.claim)
    if entry is None:
        return result
    if result.verdict in BROKEN:
        if (today or datetime.date.today()) > entry.expires:
            excuse = f"its entry in the known-failures file ({entry.reason})"
            late = f"{excuse} expired on {entry.expires}: mend it, or renew it"
            return replace(result, message=f"{result.message}; {late}" if result.message else late)
        return replace(result, verdict=Verdict.KNOWN_FAILURE, message=result.message or entry.reason)
    stale = f"the known-failures file lists it ({entry.reason}), and it is {result.verdict}: remove the entry"
    verdict = Verdict.UNEXPECTED_PASS if result.verdict in HELD else result.verdict
    return replace(result, verdict=verdict, message=stale)


def is_stale(result: Result, known: Mapping[str, Known]) -> bool:
    """Whether the file lists a claim that did not fail."""
    return result.claim in known and result.verdict not in BROKEN and result.verdict is not Verdict.KNOWN_FAILURE
