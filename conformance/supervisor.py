"""The parent of the processes that host an implementation: queues claims, limits time, survives what they do.

A claim is one question to a child (`conformance.dialogue`). When the child hangs, crashes, is killed, runs out of
memory, or sends what is no answer to the question, the claim gets the verdict ERROR, and a fresh child takes the rest.
How a child's process comes to be is `conformance.hosting`'s matter.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from conformance import hosting, keeper, systems
from conformance.adapters import SpecificationError, parse
from conformance.adapters.specification import imports_torch
from conformance.adapters.stated import Stated
from conformance.dialogue import Asker, Refused, Unfit, harmless
from conformance.verdict import ABSENT, HELD, JUDGED, Result, Verdict

Value = TypeVar("Value")

LOAD_SECONDS = 60.0
"""How much processor time importing and constructing an implementation may take."""

CLAIM_SECONDS = {"quick": 60.0, "default": 60.0, "deep": 300.0}
"""How much processor time one claim may take, by budget; includes compiling kernels on first use (10 s at most)."""

ASLEEP = 4.0
"""How many times the limit of its processor time a step may take by the clock."""

GRACE, START_SECONDS = 5.0, 60.0
"""A child ends itself when its time is over; after this much more it is killed. The first answer also waits for Python
and our own imports."""

CLAIMS_PER_CHILD = 8
"""A further child is started only for at least this many waiting claims: each loads the implementation."""

MAX_TIMEOUTS, MAX_DEATHS = 3, 20
"""After so many claims that took too long, or that ended their process in any way, the rest are not run: an
implementation that always hangs must not take an hour to say so."""


class Died(Exception):
    """The child ended instead of answering. The message says how, in words."""

    def __init__(self, how: str, timed_out: bool = False) -> None:
        super().__init__(how)
        self.timed_out = timed_out


class Child:
    """One host process and its pipes. `started` is its answer to its first question: "load", or "subjects".

    start: makes the process, from the file for its standard error and the sandbox's folder ("" for none); where none is
    given, `conformance.hosting` does. patience: how many times longer than on an idle machine a step may take by the
    clock.
    """

    def __init__(
        self,
        impl: str,
        load_seconds: float,
        folders: Sequence[Path] = (),
        question: str = "load",
        is_shut_in: bool = False,
        start: Callable[[IO[bytes], str], hosting.HostProcess] | None = None,
        patience: float = 1.0,
        **more: Mapping[str, str],
    ) -> None:
        self.scratch = tempfile.mkdtemp(prefix="conformance-") if is_shut_in else ""
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._patience = patience
        self._closing = threading.Lock()  # a worker buries it, and the run may end at the same moment
        if start is None:
            start = partial(hosting.host_process, with_torch=imports_torch(impl, folders))
        try:
            self.process = start(self.log, self.scratch)
        except BaseException:
            self._remove_files()
            raise
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._asker = Asker(self.process.stdin, self.process.stdout)
        try:
            values = {"impl": impl, "folders": list(map(str, folders)), **more}
            read = texts("name", "kind") if question == "load" else texts()
            self.started = self.ask(question, values, read, load_seconds, START_SECONDS)
        except Refused as refusal:
            self.close()
            raise SpecificationError(str(refusal)) from refusal
        except Died as death:
            self.close()
            raise SpecificationError(f"--impl {impl}: importing and constructing it {death}") from death
        except BaseException:
            self.close()
            raise

    def ask(
        self,
        kind: str,
        values: Mapping[str, Any],
        read: Callable[[dict[str, Any]], Value],
        seconds: float,
        grace: float | None = None,
    ) -> Value:
        """Ask a question; the answer is what `read` makes of its values (see `Asker.ask`).

        It may take `seconds` of processor time, or ASLEEP times that by the clock (times the patience) and `grace`
        (GRACE) for the child to end. Raises Refused, and Died when there is no answer, or none that fits.
        """
        start = self.log.seek(0, os.SEEK_END)
        clock, grace = ASLEEP * seconds * self._patience, GRACE if grace is None else grace
        try:
            return self._asker.ask(kind, values, read, seconds=seconds, clock=clock, grace=grace)
        except Unfit as error:
            raise Died(str(error)) from error
        except TimeoutError as error:
            raise Died(f"took longer than {ASLEEP * seconds:g} s", timed_out=True) from error
        except EOFError as error:
            raise self._death(start, seconds) from error

    def _death(self, start: int, seconds: float) -> Died:
        """How the process ended that closed its pipe; `start` is where the question begins in its log."""
        try:
            code = self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return Died("closed the pipe of answers")
        self.log.seek(start)
        return _death(code, harmless(self.log.read().decode(errors="replace")), seconds)

    def _kill(self) -> None:
        """Ask its keeper to end all that is left (see `conformance.keeper`). Where there is none, or it does not end,
        kill what has not left the group."""
        if keeper.is_possible():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.terminate()
                self.process.wait(GRACE)
        systems.end(self.process)
        self.process.wait()

    def close(self) -> None:
        """End the process and whatever it started. Any thread may, and a second time does nothing more."""
        with self._closing:
            self._kill()
            for pipe in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            self._remove_files()

    def _remove_files(self) -> None:
        self.log.close()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


def texts(*names: str) -> Callable[[dict[str, Any]], dict[str, str]]:
    """Reads an answer whose values are texts of these names (of any, where none are given), and nothing else."""

    def read(answer: dict[str, Any]) -> dict[str, str]:
        if set(answer) != set(names or answer) or not all(isinstance(value, str) for value in answer.values()):
            what = f"the text {' and '.join(names)}" if names else "texts"
            raise ValueError(f"it must hold {what}, and nothing else")
        return dict(answer)

    return read


def judgement(answer: dict[str, Any], claim: str) -> Result:
    """The result that answers the question of a claim. Raises ValueError, with a sentence, when it is none."""
    result = Result.from_json(answer)
    if result.claim != claim:
        raise ValueError(f"it is about the claim {result.claim!r:.80}")
    if result.verdict not in JUDGED:
        raise ValueError(f"a check cannot come to the verdict {result.verdict}")
    return result


def judgements(answer: dict[str, Any], claims: Sequence[str]) -> list[Result]:
    """The results that answer the question of several claims: of the first ones, of which the last alone may be of a
    claim that does not hold. Raises ValueError, with a sentence, when they are none."""
    answers = answer.get("results")
    if set(answer) != {"results"} or not isinstance(answers, list) or not 0 < len(answers) <= len(claims):
        raise ValueError(f"it must hold 1 to {len(claims)} results, and nothing else")
    if not all(isinstance(one, dict) for one in answers):
        raise ValueError("a result must be an object")
    found = [judgement(one, claim) for one, claim in zip(answers, claims, strict=False)]
    if any(one.verdict not in HELD | ABSENT for one in found[:-1]):
        raise ValueError("results follow one of a claim that does not hold")
    return found


def _death(code: int, log: str, seconds: float) -> Died:
    """How a process ended, from its exit code and what it wrote to standard error."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if code == systems.OUT_OF_TIME:
        return Died(f"used more than {seconds:g} s of processor time{_where(log)}", timed_out=True)
    if any(line.startswith("Timeout (") for line in lines):
        return Died(f"took longer than {ASLEEP * seconds:g} s{_where(log)}", timed_out=True)
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return Died(f"killed its process ({name}{hint}){_where(log)}")
    if code == keeper.EXCEEDED and lines:
        return Died(f"took more than it may: {lines[-1]}")
    said = f"; it last said: {lines[-1]}" if lines else ""
    return Died(f"ended its process with exit code {code}{said}")


def _where(log: str) -> str:
    """The innermost line of a traceback that faulthandler wrote for the main thread."""
    current = re.split("[Tt]hread 0x", log)[-1]
    for line in current.splitlines():
        if line.strip().startswith("File ") and "/lib/python" not in line and "-packages" not in line:
            return f" at {line.strip()}"
    return ""


def subjects_of(impl: str, folders: Sequence[Path] = (), is_shut_in: bool = False) -> dict[str, str]:
    """What a whole file or package holds to be tested, asked of a process that imports it and ends: short name -> the
    specification of each. Raises SpecificationError."""
    child = Child(impl, LOAD_SECONDS, [Path(folder).absolute() for folder in folders], "subjects", is_shut_in)
    child.close()
    return child.started


class Supervisor:
    """Runs claims on an implementation in up to `children` processes.

    `start` loads the implementation (SpecificationError when that fails); `submit` queues claims; `result` waits for
    one; `close` ends every process. As a context manager it starts and closes. `folders`: where the modules of
    an implementation are looked for, besides the current folder and what is installed. stated: what the user says.
    is_shut_in: whether it runs in the sandbox.
    """

    def __init__(
        self,
        impl: str,
        *,
        budget: str = "default",
        seed: int = 0,
        children: int = 2,
        claim_seconds: float | None = None,
        load_seconds: float = LOAD_SECONDS,
        folders: Sequence[Path] = (),
        stated: Stated | None = None,
        is_shut_in: bool = False,
    ) -> None:
        parse(impl)
        self.stated = stated or Stated()
        self.stated.check()
        self.folders = [Path(folder).absolute() for folder in folders]
        self.impl = impl
        self.is_shut_in = is_shut_in
        self.budget = budget
        self.seed = seed
        self.children = max(1, min(children, os.cpu_count() or 1))
        self.claim_seconds = claim_seconds if claim_seconds is not None else CLAIM_SECONDS[budget]
        self.load_seconds = load_seconds
        self.name = impl
        self.kind: str | None = None
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._futures: dict[str, Future[Result]] = {}
        self._workers: list[threading.Thread] = []
        self._living: set[Child] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._timeouts = self._deaths = 0
        self._gave_up = ""
        self._first: Child | None = None

    def __enter__(self) -> Supervisor:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Load the implementation once. Raises SpecificationError when it cannot be loaded."""
        self._first = self._new_child()
        self.name, self.kind = self._first.started["name"], self._first.started["kind"] or None

    def adapter(self, path: Path) -> str:
        """The source of the inferred adapter, to be written to `path`; after `start`, before `submit`.

        Raises SpecificationError when the implementation is none that was inferred.
        """
        assert self._first is not None
        try:
            return self._first.ask("adapter", {"path": str(path.absolute())}, texts("source"), self.claim_seconds)[
                "source"
            ]
        except Refused as refusal:
            raise SpecificationError(str(refusal)) from refusal
        except Died as death:
            raise SpecificationError(f"--claims-adapter-out: the implementation {death}") from death

    def submit(self, claims: Iterable[str]) -> None:
        """Queue claims that are not queued yet, in this order."""
        for claim in claims:
            if claim not in self._futures:
                self._futures[claim] = Future()
                self._queue.put(claim)
        wanted = min(self.children, 1 + self._queue.qsize() // CLAIMS_PER_CHILD)
        while len(self._workers) < wanted:
            worker = threading.Thread(target=self._work, daemon=True, name=f"conformance-{len(self._workers)}")
            self._workers.append(worker)
            worker.start()

    def result(self, claim: str) -> Result:
        """Wait for a claim's result, queueing it first when it is not queued."""
        self.submit([claim])
        return self._futures[claim].result()

    def close(self) -> None:
        """End every process. Claims that have no result yet stay without one."""
        self._closed = True
        with self._lock:
            children, self._living = list(self._living), set()
        for child in children:
            child.close()

    def _work(self) -> None:
        with self._lock:
            child, self._first = self._first, None
        while not self._closed:
            claim = self._queue.get()
            future = self._futures[claim]
            try:
                if self._gave_up:
                    future.set_result(Result(claim, Verdict.ERROR, message=self._gave_up))
                    continue
                if child is None:
                    child = self._new_child()
                future.set_result(self._ask(child, claim))
            except Died as death:
                self._bury(child)
                child = None
                self._count(death)
                future.set_result(Result(claim, Verdict.ERROR, message=f"the implementation {death}"))
            except (SpecificationError, Refused) as error:
                future.set_result(Result(claim, Verdict.ERROR, message=str(error)))
            except BaseException as error:
                future.set_exception(error)

    def _ask(self, child: Child, claim: str) -> Result:
        values = {"claim": claim, "budget": self.budget, "seed": self.seed}
        return child.ask("claim", values, lambda answer: judgement(answer, claim), self.claim_seconds)

    def _count(self, death: Died) -> None:
        with self._lock:
            self._deaths += 1
            self._timeouts += death.timed_out
            if self._timeouts >= MAX_TIMEOUTS:
                self._gave_up = f"not run: {self._timeouts} claims before it took too long"
            elif self._deaths >= MAX_DEATHS:
                self._gave_up = f"not run: {self._deaths} claims before it ended the process"

    def _new_child(self) -> Child:
        child = Child(
            self.impl, self.load_seconds, self.folders, is_shut_in=self.is_shut_in, stated=asdict(self.stated)
        )
        with self._lock:
            self._living.add(child)
        if self._closed:
            self._bury(child)
            raise Died("was stopped")
        return child

    def _bury(self, child: Child | None) -> None:
        if child is None:
            return
        with self._lock:
            self._living.discard(child)
        child.close()
