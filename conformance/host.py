"""The process that hosts the implementation under test and its checks: `Host` answers the suite's questions.

A kind of question is a method of `Host`: its arguments are the question's values, what it returns is the answer's. The
lines and pipes are `conformance.dialogue`'s.

A question carries its limits: `seconds` of processor time, which a busy machine does not use up, and of the `clock`,
for a step that sleeps. One that takes longer writes where it stands to standard error and ends the process.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance import keeper, sandbox
from conformance.dialogue import Answerer, Question
from conformance.limits import DEFAULT, Limits, limit, limit_address_space, limit_processes, limit_processor_time
from conformance.systems import in_forks, limited_time, tell_where_time_ended

AT_A_TIME = 0.5
"""Seconds by the clock after which a question about several claims is answered with what is known: the limit of a
question is that of one claim."""


def main(scratch: str = "", readable: Sequence[str] | None = None, limits: Limits = DEFAULT) -> None:
    """Answer questions until the suite closes its pipe; in the sandbox, where `scratch` names its scratch folder.

    readable: what can be read in the sandbox (see `sandbox.enter`). limits: what it may use of the machine.
    """
    keeper.keep(limits)
    refusal = _shut_in(scratch, readable, limits)
    questions = Answerer()
    if refusal:
        for question in itertools.islice(questions, 1):
            questions.refuse(question, refusal)
        return
    tell_where_time_ended()
    in_forks(lambda: limit_processor_time(_seconds[0]))
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    # Ours first: a subject's folder may hold modules with the names of ours, or of what ours import.
    import hypothesis  # noqa: F401

    import conformance.checks  # noqa: F401
    from conformance.adapters import SpecificationError

    host = Host(limits)
    kinds: dict[str, Callable[..., Mapping[str, Any]]] = {
        "load": host.load,
        "subjects": host.subjects,
        "adapter": host.adapter,
        "claim": host.claim,
        "claims": host.claims,
    }
    for question in questions:
        try:
            with _limited_time(question):
                values = kinds[question.kind](**question.values)
        except SpecificationError as error:
            questions.refuse(question, str(error))
        else:
            questions.answer(question, values)


def _shut_in(scratch: str, readable: Sequence[str] | None, limits: Limits) -> str:
    """Set the limits before anything foreign is loaded. Returns why the sandbox cannot be entered, where it cannot."""
    if not scratch:
        limit(limits)
        limit_processes(4 * limits.processes)  # with the user's other programs; the keeper counts more exactly
        return ""
    try:
        sandbox.enter(scratch, limits, readable=readable)
    except (sandbox.SandboxError, OSError) as error:
        return f"--claims-sandbox: {error}"
    return ""


class Host:
    """One implementation, and the answers about it. A method that cannot answer raises SpecificationError, with a
    sentence for the user."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._impl, self._implementation = "", None
        self._told: set[str] = set()
        self._drawn = False

    def load(self, impl: str, folders: Sequence[str], stated: Mapping[str, str] | None = None) -> dict[str, str]:
        """The first question: import and construct the implementation, of which the user states some things.

        Answers with its `name`, and with its `kind` when it says what kind of model it is (else "").
        """
        from conformance.adapters import parse, resolve
        from conformance.adapters.stated import Stated

        if not parse(impl).is_built_in:
            _forget_own_folder()
        self._impl, self._implementation = impl, resolve(impl, folders, Stated(**(stated or {})))
        if not _uses_cuda(impl):
            limit_address_space(self._limits.memory)
        name, kind = getattr(self._implementation, "name", impl), getattr(self._implementation, "kind", None)
        return {"name": str(name), "kind": str(kind or "")}

    def subjects(self, impl: str, folders: Sequence[str]) -> dict[str, str]:
        """What a whole file or package holds to be tested: short name -> the specification of each."""
        from conformance.adapters import subjects

        _forget_own_folder()
        return subjects(impl, folders)

    def adapter(self, path: str) -> dict[str, str]:
        """The `source` of the inferred adapter, to be written to `path`."""
        from conformance.adapters import SpecificationError, parse

        if parse(self._impl).is_built_in or "torch" not in sys.modules:
            raise SpecificationError(f"--claims-adapter-out: {self._impl} is no nn.Module, and needs no adapter")
        from conformance.adapters.inference.written import source

        return {"source": source(self._implementation, self._impl, Path(path))}

    def claim(self, claim: str, budget: str, seed: int, is_explained: bool = False) -> dict[str, Any]:
        """The fields of the claim's `Result`. is_explained: see `conformance.runner.run_check`."""
        from conformance.check import CHECKS
        from conformance.runner import run_check
        from conformance.verdict import Result, Verdict

        if claim in CHECKS:
            result = run_check(CHECKS[claim], self._implementation, budget, seed, is_explained=is_explained)
        else:
            result = Result(claim, Verdict.ERROR, message="the catalogue has this claim, but no check tests it")
        news = {"notes": self._news("notes"), "untested": self._news("untested"), "graph": self._graph()}
        return {**result.brief(), **{name: told for name, told in news.items() if told}}

    def claims(self, claims: Sequence[str], explained: Sequence[str], budget: str, seed: int) -> dict[str, Any]:
        """The results of the first of several claims: up to one that does not hold, which explains others, and for
        AT_A_TIME seconds.

        explained: those of them that a broken claim explains.
        """
        from conformance.verdict import ABSENT, HELD

        results, until = [], time.monotonic() + AT_A_TIME
        for claim in claims:
            results.append(self.claim(claim, budget, seed, claim in explained))
            if results[-1]["verdict"] not in HELD | ABSENT or time.monotonic() > until:
                break
        return {"results": results}

    def _news(self, of: str) -> list[str]:
        """What the implementation says for the first time in its list `of` sentences."""
        new = [line for line in map(str, getattr(self._implementation, of, ())) if line not in self._told]
        self._told.update(new)
        return new

    def _graph(self) -> list[Any]:
        """The implementation's graph, the first time that it has one."""
        found = [] if self._drawn else list(getattr(self._implementation, "graph", ()))
        self._drawn = self._drawn or bool(found)
        return found


_seconds = [0.0]
"""The limit of the question that is being answered: processes that the implementation forks have it, too."""


@contextmanager
def _limited_time(question: Question) -> Iterator[None]:
    """End this process when the block takes longer than the question allows. A process that the implementation forked,
    and that comes back from the block, has nothing to answer, and ends."""
    own = os.getpid()
    _seconds[0] = question.seconds
    with limited_time(question.seconds, question.clock):
        try:
            yield
        finally:
            if os.getpid() != own:
                os._exit(0)


def _forget_own_folder() -> None:
    """Take the folder that holds this package off the path: next to it lie `minigrad` and `transformer`, which a
    subject's own modules may be called, too. What is already imported stays."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not own.endswith("-packages"):
        sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own]


def _uses_cuda(impl: str) -> bool:
    torch = sys.modules.get("torch")
    return impl == "minigrad:cuda" or bool(getattr(getattr(torch, "version", None), "cuda", None))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
