"""What a verification is, and how one is registered (`verify`) and carried out (`witnessed`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.evidence import Evidence, all_of, close

VERIFICATIONS: dict[str, Callable[[], Evidence]] = {}


def verify(claim: str) -> Callable[[Callable[[], Evidence]], Callable[[], Evidence]]:
    """Register a function as the verification of `claim`."""

    def register(function: Callable[[], Evidence]) -> Callable[[], Evidence]:
        if claim in VERIFICATIONS:
            raise ValueError(f"claim {claim!r} has two verifications")
        VERIFICATIONS[claim] = function
        return function

    return register


def witnessed(verification: Callable[[], Evidence]) -> Evidence:
    """A verification's evidence; evidence against it when it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return verification()
        except Exception as error:
            return Evidence(False, "the verification raised", "evidence", f"{type(error).__name__}: {error}")


def rounds_to(what: str, got: Any, printed: Any, digits: int) -> Evidence:
    """The computed number, rounded to `digits` decimals, is the printed one."""
    return close(what, got, printed, 0.5 * 10.0**-digits * (1 + 1e-9), f"printed to {digits} decimals")


def erratum(what: str, written: Any, actual: Any, *corrections: Evidence, by: float = 0.0) -> Evidence:
    """The witness of an erratum: `written` and `actual` are more than `by` apart, and every correction holds.

    Both sides are in the evidence: the corrections' expected and got, and `written` and `actual` as details.
    """
    stated, found = np.asarray(written, dtype=float), np.asarray(actual, dtype=float)
    gap = float(np.abs(stated - found).max(initial=0.0)) if stated.shape == found.shape else float("inf")
    if not gap > by:
        return Evidence(False, f"{what}: as written it holds", f"more than {by} from {written}", actual, gap, by)
    held = all_of(*corrections)
    details = {"written": _plain(written), "actual": _plain(actual), **held.details}
    return replace(held, what=f"{what}: {held.what}", details=details)


def _plain(value: Any) -> Any:
    """A numpy scalar as a Python number: it reads better."""
    return value.item() if isinstance(value, np.generic) else value
