"""What is wrong with the helpers among some functions."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from conformance.adapters.helpers import (  # noqa: F401  (they register their kinds)
    answering,
    augmenting,
    boxes,
    classifying,
    collating,
    decoding,
    distilling,
    ends_of_labels,
    hidden_spans,
    holding_out,
    images,
    infilling,
    losses,
    masked_softmax,
    metrics,
    norms,
    overlaps,
    pooling,
    position_tables,
    ranking,
    recommending,
    routing,
    scheduling,
    shifted_losses,
    tagging,
    target_masks,
    texts,
    weighting,
    windows,
)
from conformance.adapters.helpers.acting import acts
from conformance.adapters.helpers.handed import names_of
from conformance.adapters.helpers.mending import Edit, mended
from conformance.adapters.helpers.trial import HELPERS, Found, Helper, Trouble
from conformance.places import line_of, short


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a function: the claim, the trouble, the line of the function, and the edit that mends it."""

    claim: str
    function: str
    trouble: Trouble
    place: str
    edit: Edit | None


@dataclass
class Examined:
    """tested: the claims that some function of the file was held to, with the functions. wrong: what breaks one."""

    tested: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[Wrong] = field(default_factory=list)
    attributes: None = None
    """No claim applies because there are helpers: each speaks of the functions of its own kind."""

    def add(self, trained: Iterable[Found]) -> None:
        """What is found of functions that train."""
        for one in trained:
            self.tested.setdefault(one.claim, []).append(one.function)
            if one.trouble is not None:
                edit = Edit(0, one.mend)
                self.wrong.append(Wrong(one.claim, one.function, one.trouble, one.place, edit))


def examine(functions: list[Callable[..., Any]]) -> Examined:
    """Hold each function to the kinds of helpers that its name and parameters fit."""
    found = Examined()
    for function in functions:
        names = names_of(function)
        for kind in HELPERS:
            if not kind.fits(*names) or acts(function):
                continue
            try:
                troubles = _troubles(kind, function)
            except Exception:  # it is no helper of this kind, or wants what nothing here shows
                continue
            found.tested.setdefault(kind.claim, []).append(function.__name__)
            for trouble in troubles[:1]:
                edit = _said(function, trouble)
                if edit is None and trouble.certain:
                    edit = mended(function, lambda f, k=kind: not _troubles(k, f))  # type: ignore[misc]
                found.wrong.append(Wrong(kind.claim, function.__name__, trouble, _place(function, edit), edit))
    return found


def _said(function: Callable[..., Any], trouble: Trouble) -> Edit | None:
    """What a trial says itself of the line and the mend."""
    with suppress(OSError, TypeError):
        lines, start = inspect.getsourcelines(_plain(function))
        for pattern in trouble.at:
            for at, line in enumerate(lines):
                if re.search(pattern, line.partition("#")[0]):
                    return Edit(start + at, trouble.mend)
    return None


def _troubles(kind: Helper, function: Callable[..., Any]) -> list[Trouble]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(kind.trial(kind.subject(function)))


def _place(function: Callable[..., Any], edit: Edit | None) -> str:
    if edit is None:
        return line_of(_plain(function))
    return f"{short(_plain(function).__code__.co_filename)}:{edit.line}"


def _plain(function: Callable[..., Any]) -> Any:
    """The function behind decorators, of a method, too."""
    return inspect.unwrap(getattr(function, "__func__", function))
