"""The known-failures file: claims that an implementation is known to break, each with a reason.

    [[known]]
    claim = "attention-is-scaled-by-sqrt-d-k"
    reason = "our attention is scaled by 1 / d_k on purpose"

It is strict: a listed claim that passes, or that is not provided, is an error, so that the file cannot go stale.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from conformance.catalogue import Catalogue
from conformance.verdict import BROKEN, HELD, Result, Verdict


class KnownFailuresError(ValueError):
    """The known-failures file cannot be used."""


def load_known(path: Path, catalogue: Catalogue) -> dict[str, str]:
    """claim -> reason. Raises KnownFailuresError when the file is missing, malformed, or names no such claim."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KnownFailuresError(f"the known-failures file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KnownFailuresError(f"the known-failures file {path} is not valid TOML: {error}") from error
    rows = table.get("known")
    if set(table) != {"known"} or not isinstance(rows, list):
        raise KnownFailuresError(f"the known-failures file {path} must hold [[known]] tables and nothing else")
    known: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or set(row) != {"claim", "reason"} or not all(_is_text(v) for v in row.values()):
            raise KnownFailuresError(
                f"the known-failures file {path}: entry {number} must have a claim and a reason, nothing else"
            )
        slug = row["claim"]
        if slug not in catalogue.claims or not catalogue.claims[slug].is_tested:
            raise KnownFailuresError(
                f"the known-failures file {path}: entry {number} names {slug!r}, which is no claim about "
                "implementations; `conformance list` shows them all"
            )
        if slug in known:
            raise KnownFailuresError(f"the known-failures file {path} lists {slug!r} twice")
        known[slug] = row["reason"]
    return known


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def expect(result: Result, known: Mapping[str, str]) -> Result:
    """The result in the light of the known failures."""
    reason = known.get(result.claim)
    if reason is None:
        return result
    if result.verdict in BROKEN:
        return replace(result, verdict=Verdict.KNOWN_FAILURE, message=result.message or reason)
    stale = f"the known-failures file lists it ({reason}), and it is {result.verdict}: remove the entry"
    verdict = Verdict.UNEXPECTED_PASS if result.verdict in HELD else result.verdict
    return replace(result, verdict=verdict, message=stale)


def is_stale(result: Result, known: Mapping[str, str]) -> bool:
    """Whether the file lists a claim that did not fail."""
    return result.claim in known and result.verdict is not Verdict.KNOWN_FAILURE
