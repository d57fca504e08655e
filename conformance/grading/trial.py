"""One submission on trial: a child is asked claim after claim, and what it says is the outcome (`outcome`).

This runs in the warm process, which supervises one child at a time. Children that die or hang are replaced, as in any
run (`conformance.supervisor`), within limits of time for the whole submission.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from conformance.adapters import SpecificationError, parse
from conformance.catalogue import load
from conformance.dialogue import Refused
from conformance.grading.forked import Forked, forbid
from conformance.roots import fold
from conformance.supervisor import Child, Died, judgement
from conformance.verdict import SHOWN_IN_FULL, Result, Verdict, judged

MAX_DEATHS = 5
"""After so many claims that ended the process, the rest are not run."""


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
    """How much processor time a submission has left; told by the children's, as the system counts it."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, self._used()
        self.started = time.monotonic()

    @staticmethod
    def _used() -> float:
        times = os.times()
        return times.children_user + times.children_system

    @property
    def left(self) -> float:
        """Seconds: by the processor, or by the clock (three times as many) for what sleeps."""
        slept = self.seconds - (time.monotonic() - self.started) / 3
        return max(min(self.seconds - (self._used() - self.began), slept), 0.0)


def _parts(task: Mapping[str, Any], clock: _Clock) -> dict[str, str]:
    """The specifications to be tested, by short name; "" where the task names one thing."""
    if not parse(task["impl"]).is_whole_file:
        return {"": task["impl"]}
    with _child(task, task["impl"], clock, "subjects") as child:
        return {name.rpartition(":")[2]: impl for name, impl in child.started.items()}


def _part(task: Mapping[str, Any], name: str, impl: str, clock: _Clock) -> dict[str, Any]:
    results, kind, refused = _results(task, impl, clock)
    folded = fold(results, load())
    return {"name": name, "kind": kind, "refused": refused, "results": [one.to_json() for one in folded.values()]}


def _results(task: Mapping[str, Any], impl: str, clock: _Clock) -> tuple[dict[str, Result], str, str]:
    """The results by claim, what kind of model it is, and why it cannot be loaded."""
    results: dict[str, Result] = {}
    waiting, deaths, gave_up, kind = list(reversed(task["claims"])), 0, "", ""
    while waiting:
        try:
            with _child(task, impl, clock, "load") as child:
                kind = child.started["kind"]
                while waiting:
                    claim = waiting.pop()
                    try:
                        results[claim] = _asked(task, child, claim, clock)
                    except Died as death:
                        results[claim] = Result(claim, Verdict.ERROR, message=f"the implementation {death}")
                        deaths += 1
                        gave_up = _gave_up(death, deaths)
                        break
                    if task["until_broken"] and results[claim].verdict in SHOWN_IN_FULL:
                        return results, kind, ""
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


def _asked(task: Mapping[str, Any], child: Child, claim: str, clock: _Clock) -> Result:
    values = {"claim": claim, "budget": task["budget"], "seed": task["seed"]}
    if not clock.left:
        return Result(claim, Verdict.ERROR, message=f"not run: the submission used more than {clock.seconds:g} s")
    try:
        result = child.ask("claim", values, lambda answer: judgement(answer, claim), max(clock.left / 4, 0.5))
    except Refused as refusal:
        result = Result(claim, Verdict.ERROR, message=str(refusal))
    return replace(judged(result, load().claims[claim]), graph=())


@contextmanager
def _child(task: Mapping[str, Any], impl: str, clock: _Clock, question: str) -> Iterator[Child]:
    """A child that answered its first question. Raises SpecificationError."""
    start = None
    if hasattr(os, "fork"):
        before = functools.partial(forbid, task["forbidden"])
        start = functools.partial(Forked, folder=task["folder"], before=before)
    more: dict[str, dict[str, str]] = {"stated": {}} if question == "load" else {}
    seconds = max(clock.left / 4, 0.5)
    child = Child(impl, seconds, (), question, bool(task["sandbox"]), start, **more)
    try:
        yield child
    finally:
        child.close()
