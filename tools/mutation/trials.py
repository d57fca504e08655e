"""Trials: what the checks make of the unmutated file, and of each mutant, in a process of its own.

The file is mutated where Python compiles it, so that nothing is written and packages, relative imports and our own
modules work alike. A mutant meets the checks that run its line in the unmutated file and pass there, those that have
killed most first, until one kills it. An nn.Module is inferred once, unmutated, and its mutants meet the adapter that
was written then: a mask turned around must not pass as a convention of its own.
"""

from __future__ import annotations

import importlib.machinery
import math
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tools.mutation.operators import Mutation

KILLED, BROKEN, STUCK, SURVIVED, UNREACHED = "killed", "does not run", "endless", "survived", "not reached"

MEMORY = 2 * 2**30
"""Bytes that a mutant may allocate beyond what is there when it starts."""

ASLEEP = 20.0
"""How many times the limit of its processor time a mutant may take by the clock."""

_PRELOAD = ("numpy", "hypothesis", "torch")
"""What every mutant needs and no subject is part of; imported once."""


@dataclass(frozen=True)
class Target:
    """The file under mutation, and the `--impl` specification whose subjects run it."""

    file: str
    impl: str


@dataclass
class Baseline:
    """The unmutated file: for each check that passes, which lines of it run; the lines run while it is loaded; how
    much processor time everything took; and the target to mutate: the adapter where one was inferred, as `notes` say.
    """

    target: Target
    reached: dict[str, frozenset[int]] = field(default_factory=dict)
    loading: frozenset[int] = frozenset()
    seconds: float = 0.0
    failing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def checks(self, mutation: Mutation) -> list[str]:
        """The checks that run the mutation's lines; all of them when those lines run on loading."""
        lines = range(mutation.line, mutation.last_line + 1)
        if self.loading.intersection(lines):
            return list(self.reached)
        return [claim for claim, reached in self.reached.items() if reached.intersection(lines)]


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: its outcome, and the claim whose check decided (or the error that did)."""

    mutation: Mutation
    outcome: str
    by: str = ""

    @property
    def dead(self) -> bool:
        return self.outcome in (KILLED, BROKEN, STUCK)


def baseline(target: Target, folder: Path) -> Baseline:
    """Run every check on the unmutated file, through the adapter that is written to `folder` if it is inferred.

    Raises ValueError, with the reason, when it cannot be loaded.
    """
    adapter = folder / "adapter.py"
    notes = _sent(_run_inference, target, adapter)
    if adapter.is_file():
        target = Target(target.file, f"{adapter}:Adapter")
    found: Baseline = _sent(_run_baseline, target)
    found.notes = notes
    return found


def _sent(function: Any, target: Target, *arguments: Any) -> Any:
    """What `function` sends from a process of its own. Raises ValueError when that is an error, or nothing."""
    process, connection = start(function, target, *arguments)
    try:
        found = connection.recv()
    except EOFError:
        found = ValueError("its process died")
    finally:
        process.join()
    if isinstance(found, ValueError):
        raise ValueError(f"{target.impl} cannot be measured: {found}")
    return found


def trials(mutants: Sequence[Mutation], base: Baseline, processes: int) -> Iterator[Trial]:
    """The trial of each mutant as it ends, in any order.

    A mutant is endless by the processor time that it uses, whatever else the machine does; one that sleeps by the
    clock.
    """
    limit = 15.0 + 4.0 * base.seconds
    kills: Counter[str] = Counter()
    waiting = list(reversed(mutants))
    running: dict[Connection, tuple[Any, Mutation, float]] = {}
    while waiting or running:
        while waiting and len(running) < processes:
            mutation = waiting.pop()
            checks = sorted(base.checks(mutation), key=lambda claim: -kills[claim])
            if not checks:
                yield Trial(mutation, UNREACHED)
                continue
            process, connection = start(_run_mutant, base.target, mutation.source, checks, limit)
            running[connection] = (process, mutation, time.monotonic() + ASLEEP * limit)
        for connection in wait(list(running), timeout=0.5):
            assert isinstance(connection, Connection)
            process, mutation, _ = running.pop(connection)
            try:
                outcome, by = connection.recv()
            except EOFError:
                process.join()
                endless = process.exitcode == -signal.SIGXCPU
                outcome, by = (STUCK, f"used more than {limit:.0f} s") if endless else (BROKEN, "it ended its process")
            process.join()
            kills[by] += outcome == KILLED
            yield Trial(mutation, outcome, by)
        for connection, (process, mutation, deadline) in list(running.items()):
            if time.monotonic() > deadline:
                del running[connection]
                process.kill()
                process.join()
                yield Trial(mutation, STUCK, f"took longer than {ASLEEP * limit:.0f} s")


def start(function: Any, *arguments: Any) -> tuple[Any, Connection]:
    """A process that calls function(*arguments, connection), and our end of the connection. What every mutant needs is
    loaded in it already."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOAD))
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(*arguments, theirs))
    process.start()
    theirs.close()
    return process, ours


# --- in the process of a mutant ---------------------------------------------------------------------


def _run_inference(target: Target, adapter: Path, connection: Connection) -> None:
    """Send what was inferred, a line each, and write it as an adapter; an empty list where nothing was."""
    _be_quiet()
    try:
        implementation, _ = _load(target)
    except Exception as error:
        connection.send(ValueError(str(error)))
        return
    notes = [str(note) for note in getattr(implementation, "notes", ())]
    if notes:
        from conformance.adapters.inference.written import source

        adapter.write_text(source(implementation, target.impl, adapter), encoding="utf-8")
    connection.send(notes)


def _run_baseline(target: Target, connection: Connection) -> None:
    _be_quiet()
    started = time.process_time()
    result = Baseline(target)
    with _Lines(target.file) as lines:
        try:
            implementation, checks = _load(target)
        except Exception as error:
            connection.send(ValueError(str(error)))
            return
        loading = lines.taken()
        from conformance.kills import SURVIVED as PASSES
        from conformance.kills import outcome

        for claim in checks:
            said = outcome(claim, implementation)
            if said == PASSES:
                result.reached[claim] = lines.taken()
            elif said != "not provided":
                result.failing.append(claim)
            lines.taken()
    result.loading = loading
    result.seconds = time.process_time() - started
    connection.send(result)


def _run_mutant(target: Target, source: str, claims: Sequence[str], seconds: float, connection: Connection) -> None:
    _be_quiet()
    _compile_instead(target.file, source)
    _limit(seconds)
    from conformance.kills import ERROR, outcome
    from conformance.kills import KILLED as CAUGHT
    from conformance.kills import SURVIVED as PASSES

    try:
        implementation, _ = _load(target)
    except (Exception, SystemExit) as error:
        connection.send((BROKEN, f"{type(error).__name__}: {error}"))
        return
    passes = False
    for claim in claims:
        said = outcome(claim, implementation)
        if said in (CAUGHT, ERROR):
            connection.send((KILLED if said == CAUGHT else BROKEN, claim))
            return
        passes |= said == PASSES
    connection.send((SURVIVED, "") if passes else (BROKEN, "it no longer fits its role: no check can be tried"))


def _be_quiet() -> None:
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _load(target: Target) -> tuple[Any, list[str]]:
    """The implementation, and the claims of the checks whose roles it may have."""
    import conformance.checks  # noqa: F401 (registers them)
    from conformance.adapters import resolve
    from conformance.check import CHECKS

    implementation = resolve(target.impl)
    roles = set(getattr(implementation, "roles", ()))
    return implementation, [claim for claim, check in CHECKS.items() if not roles or roles & set(check.roles)]


def _compile_instead(file: str, source: str) -> None:
    """Let Python compile `source` where it would load `file`, and forget it if it is already loaded."""
    for name, module in list(sys.modules.items()):
        if _is_file(getattr(module, "__file__", None), file):
            del sys.modules[name]
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if _is_file(self.path, file):
            code: CodeType = compile(source, self.path, "exec")
            return code
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _is_file(path: str | None, file: str) -> bool:
    return path is not None and os.path.realpath(path) == file


def _limit(seconds: float) -> None:
    """Limit memory, and the processor time from here on."""
    try:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        end = math.ceil(used.ru_utime + used.ru_stime + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (end, end + 1))
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):  # no such limit on this system: the time limit remains
        return


class _Lines:
    """Which lines of a file run; `taken` gives those since it was last asked."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: set[int] = set()
        self.known: dict[str, bool] = {}

    def __enter__(self) -> _Lines:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(None)

    def taken(self) -> frozenset[int]:
        lines, self.lines = frozenset(self.lines), set()
        return lines

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self.known:
            self.known[name] = _is_file(name, self.file)
        return self._line if self.known[name] else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines.add(frame.f_lineno)
        return self._line
