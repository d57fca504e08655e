"""The process that has imported torch, numpy and the suite once, and forks for each submission: `main`.

It runs nothing foreign and no operation of torch, so that it has one thread and a fork of it is whole. A task is a line
of JSON on its standard input, what came of it a line on its standard output. The forked child is a host as every run of
the suite has one (`conformance.host`), with the same questions, limits and pipes. Where a system cannot fork, a fresh
process takes the child's place.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import IO, Any

PRELOADED = (
    *("numpy", "hypothesis", "hypothesis.strategies", "hypothesis.internal.conjecture.engine", "torch", "torch.nn"),
    "torch.fx.experimental.symbolic_shapes",  # what the first backward pass of a process imports, with sympy: 0.3 s
    *(
        "conformance.checks",
        "conformance.host",
        "conformance.catalogue",
        "conformance.lookalike",
        "conformance.mutants",
    ),
    *("conformance.adapters.reference", "conformance.adapters.whole.implementation"),
    *("conformance.adapters.functions.implementation", "conformance.roots", "conformance.grading.trial"),
)
"""What submissions and checks need; imported before the first fork, where it is installed."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    from conformance.grading.trial import outcome

    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it looks at
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        began = time.perf_counter()
        try:
            values = outcome(task)
        except Exception:  # ours, not the submission's: whoever waits for the answer must be told
            values = {"trouble": traceback.format_exc()}
        print(json.dumps({**values, "seconds": time.perf_counter() - began}, default=str), file=answers, flush=True)


class Forked:
    """A fork of this process that hosts a submission; it has what a `subprocess.Popen` has.

    log: takes what it writes to standard error. scratch: the sandbox's folder; "" for no sandbox. folder: where it
    runs; around it lies nothing else, so that it may read there. before: called in the fork before anything of the
    submission is loaded.
    """

    def __init__(self, log: IO[bytes], scratch: str, folder: str, before: Callable[[], None]) -> None:
        self.pid: int
        if sys.platform == "win32":
            raise OSError("Windows cannot fork")
        questions, answers = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _host(questions[0], answers[1], log.fileno(), scratch, folder, before)
        os.close(questions[0])
        os.close(answers[1])
        self.stdin: IO[bytes] | None = os.fdopen(questions[1], "wb")
        self.stdout: IO[bytes] | None = os.fdopen(answers[0], "rb")
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if sys.platform == "win32":
            raise OSError("Windows cannot fork")
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("fork", timeout or 0.0)
            else:
                time.sleep(0.001)
        return self.returncode

    def terminate(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)


def _host(questions: int, answers: int, log: int, scratch: str, folder: str, before: Callable[[], None]) -> None:
    """Be the host of a submission, and end. Nothing that the parent has open is left: its answers cannot be forged."""
    if sys.platform == "win32":
        raise OSError("Windows cannot fork")
    code = 1
    try:
        os.setsid()
        for place, descriptor in enumerate((questions, answers, log)):
            os.dup2(descriptor, place)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(folder)
        before()
        from conformance.host import main as answer_questions

        answer_questions(scratch, [os.path.dirname(folder)])  # around it, where relative imports are found
        code = 0
    except SystemExit as ending:
        print(ending.code or "", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def forbid(names: Sequence[str]) -> None:
    """Make the named functions and classes of libraries raise where they are called: the task says to write them.

    A name that is not there is left out: another version of a library may lack it.
    """
    for name in names:
        module, _, last = name.rpartition(".")
        with contextlib.suppress(ImportError, AttributeError):
            holder = importlib.import_module(module)
            found = getattr(holder, last)
            if isinstance(found, type):
                found.__init__ = _refusal(name)  # type: ignore[misc]
            else:
                setattr(holder, last, _refusal(name))


def _refusal(name: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(f"the task forbids {name}: write it yourself")

    return refuse
