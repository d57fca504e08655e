"""One submission on trial: a child is asked claim after claim, and what it says is the outcome (`outcome`).

This runs in the warm process, which supervises one child at a time. Children that die or hang are replaced, as in any
run (`conformance.supervisor`), within limits of time for the whole submission.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from conformance import systems
from conformance.adapters import SpecificationError, parse
from conformance.catalogue import load
from conformance.dialogue import Refused
from conformance.grading.forked import Forked, forbid
from conformance.roots import fold
from conformance.supervisor import Child, Died, judgements
from conformance.verdict import BROKEN, SHOWN_IN_FULL, Result, Verdict, judged

MAX_DEATHS = 5
"""After so many claims that ended the process, the rest are not run."""

STEP = 2.0
"""Seconds of processor time that one step may take at least, if so many are left; else a fourth of all."""

TOGETHER = 100
"""How many claims are asked at a time. Most are about components that a submission does not have, and a question each
would take longer than their answers."""


def outcome(task: Mapping[str, Any]) -> dict[str, Any]:
    """What came of a task: `parts`, each with its name, kind and results, or why it was `refused`.

    task: impl (from `folder`), folder, claims in the order in which they shall run, budget, seed, seconds (of processor
    time for all of it), until_broken, forbidden (names that raise), sandbox (whether it is shut in).
    """
    clock = _Clock(float(task["seconds"]))
    try:
        # The fork stands in the folder; this process does too, so that it finds the same file.
        os.chdir(task["folder"])
        names = _parts(task, clock)
    except SpecificationError as error:
        return {"parts": [], "refused": str(error)}
    return {"parts": [_part(task, name, impl, clock) for name, impl in names.items()], "refused": ""}


class _Clock:
    """How much processor time a submission has left; told by the children's, as the system counts it.

    What sleeps ends by the clock, which a busy machine slows down for all: `patience` says how many times.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, self._used()
        self.started, self.patience = time.monotonic(), 1.0

    @staticmethod
    def _used() -> float:
        times = os.times()
        return times.children_user + times.children_system

    @property
    def left(self) -> float:
        """Seconds: by the processor, or by the clock (three times as many) for what sleeps."""
        self.patience = max(self.patience, systems.busyness())
        slept = self.seconds - (time.monotonic() - self.started) / 3 / self.patience
        return max(min(self.seconds - (self._used() - self.began), slept), 0.0)

    @property
    def step(self) -> float:
        """Seconds that loading, or one claim, may take. What a step leaves over does not count, so that a step that
        never ends has the same limit, and the same message, each time."""
        return max(round(min(self.left, max(self.seconds / 4, STEP)), 1), 0.1)


def _parts(task: Mapping[str, Any], clock: _Clock) -> dict[str, str]:
    """The specifications to be tested, by short name; "" where the task names one thing."""
    if not parse(task["impl"]).is_whole_file:
        return {"": task["impl"]}
    with _child(task, task["impl"], clock, "subjects") as child:
        return {name.rpartition(":")[2]: impl for name, impl in child.started.items()}


def _part(task: Mapping[str, Any], name: str, impl: str, clock: _Clock) -> dict[str, Any]:
    results, kind, refused = _results(task, impl, clock)
    folded = fold(results, load())
    return {"name": name, "kind": kind, "refused": refused, "results": [one.brief() for one in folded.values()]}


def _results(task: Mapping[str, Any], impl: str, clock: _Clock) -> tuple[dict[str, Result], str, str]:
    """The results by claim, what kind of model it is, and why it cannot be loaded."""
    results: dict[str, Result] = {}
    waiting, deaths, gave_up, kind = list(task["claims"]), 0, "", ""
    singly = 0  # so many claims are asked one at a time: among them is one that ended the process
    while waiting:
        try:
            with _child(task, impl, clock, "load") as child:
                kind = child.started["kind"]
                while waiting:
                    claims, died = waiting[: 1 if singly else TOGETHER], False
                    try:
                        answered = _asked(task, child, claims, clock, results)
                    except Died as death:
                        if len(claims) > 1:
                            singly = len(claims)
                            break
                        answered = [Result(claims[0], Verdict.ERROR, message=f"the implementation {death}")]
                        deaths, died = deaths + 1, True
                        gave_up = _gave_up(death, deaths)
                    results |= {result.claim: result for result in answered}
                    del waiting[: len(answered)]
                    singly = max(singly - len(answered), 0)
                    if task["until_broken"] and answered[-1].verdict in SHOWN_IN_FULL:
                        return results, kind, ""
                    if died:
                        break
        except SpecificationError as error:
            if not results:
                return {}, "", str(error)
            gave_up = str(error)
        if gave_up or (waiting and not clock.left):
            gave_up = gave_up or f"not run: the submission used more than {clock.seconds:g} s"
            results |= {claim: Result(claim, Verdict.ERROR, message=gave_up) for claim in waiting}
            break
    return results, kind, ""


def _gave_up(death: Died, deaths: int) -> str:
    if death.timed_out:
        return "not run: a claim before it took too long"
    return f"not run: {deaths} claims before it ended the process" if deaths >= MAX_DEATHS else ""


def _asked(
    task: Mapping[str, Any], child: Child, claims: Sequence[str], clock: _Clock, known: Mapping[str, Result]
) -> list[Result]:
    """The results of the first of the claims: one at least. known: those of the claims before. Raises Died."""
    if not clock.left:
        message = f"not run: the submission used more than {clock.seconds:g} s"
        return [Result(claims[0], Verdict.ERROR, message=message)]
    broken = {slug for slug, result in known.items() if result.verdict in BROKEN}
    explained = [claim for claim in claims if not broken.isdisjoint(load().ancestors(claim))] if broken else []
    values = {"claims": claims, "explained": explained, "budget": task["budget"], "seed": task["seed"]}
    try:
        results = child.ask("claims", values, lambda answer: judgements(answer, claims), clock.step)
    except Refused as refusal:
        if len(claims) > 1:
            return _asked(task, child, claims[:1], clock, known)
        results = [Result(claims[0], Verdict.ERROR, message=str(refusal))]
    found = [judged(result, load().claims[result.claim]) for result in results]
    return [replace(result, graph=()) if result.graph else result for result in found]


@contextmanager
def _child(task: Mapping[str, Any], impl: str, clock: _Clock, question: str) -> Iterator[Child]:
    """A child that answered its first question. Raises SpecificationError."""
    start = None
    if hasattr(os, "fork"):
        before = functools.partial(forbid, task["forbidden"])
        start = functools.partial(Forked, folder=task["folder"], before=before)
    more: dict[str, dict[str, str]] = {"stated": {}} if question == "load" else {}
    seconds = clock.step
    child = Child(impl, seconds, (), question, bool(task["sandbox"]), start, clock.patience, **more)
    try:
        yield child
    finally:
        child.close()
