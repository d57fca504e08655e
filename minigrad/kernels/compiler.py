"""Machine code for many kernels at once: loaded from the cache, else compiled, by several processes where that pays.

numba compiles one kernel at a time in a process, in 0.1 to 4 s. Workers are new processes (a fork would copy locks that
other threads hold) that import numba, compile what they are sent and send back object files; a line on the terminal
says what is being compiled.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

from minigrad.kernels import store, threads
from minigrad.kernels.numba import jit
from minigrad.kernels.numba.abi import Types
from minigrad.kernels.numba.build import build

Job = tuple[jit.Kernel, Types]

MOST = 8  # workers: each holds some 200 MB
SHARE = 3  # kernels from which a worker pays: it takes 0.7 s to start
_SERVE = "import sys; sys.path[:] = {path!r}; from minigrad.kernels.compiler import serve; serve()"


def compile_all(jobs: Sequence[Job]) -> None:
    """Give every kernel its machine code for these types."""
    missing: list[Job] = []
    for kernel, types in dict.fromkeys(jobs):
        if types not in kernel.codes:
            objects = store.read(_name(kernel, types))
            if objects is None:
                missing.append((kernel, types))
            else:
                kernel.codes[types] = jit.Code(types, objects)
    if missing:
        with _progress(len(missing)) as tell:
            _compile(missing, tell)


def _name(kernel: jit.Kernel, types: Types) -> str:
    source = kernel.text or _text_of(kernel.py_func.__code__.co_filename)
    return store.name_of("kernel", source, kernel.__module__, kernel.__name__, repr(types))


@cache
def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _compile(jobs: Sequence[Job], tell: Tell) -> None:
    """Compile all jobs: in workers, and here what is left."""
    groups = _groups(jobs)
    count = min(threads.available(), MOST, len(jobs) // SHARE, len(groups))
    if os.environ.get(store.SWITCH, "0").strip("0"):  # numba compiles nothing in this process, and cannot be told to
        count = max(count, 1)
    elif count == 1:
        count = 0
    if count and sys.executable:
        given_back: deque[list[Job]] = deque()
        helpers = [
            threading.Thread(target=_delegate, args=(groups, given_back, tell), daemon=True) for _ in range(count)
        ]
        for helper in helpers:
            helper.start()
        for helper in helpers:
            helper.join()
        groups.extend(given_back)
    for kernel, types in (job for group in groups for job in group):
        with tell(kernel):
            _keep(kernel, types, build(kernel, types))


def _groups(jobs: Sequence[Job]) -> deque[list[Job]]:
    """Kernels of one file share helpers, so one process compiles them. What takes long comes first, or one worker would
    be left with it when the others have nothing to do any more."""
    files: dict[str, list[Job]] = {}
    for kernel, types in jobs:
        files.setdefault(kernel.__module__, []).append((kernel, types))
    return deque(sorted(files.values(), key=lambda group: -sum(len(job[0].py_func.__code__.co_code) for job in group)))


def _keep(kernel: jit.Kernel, types: Types, objects: store.Objects | None) -> None:
    if objects is not None:
        store.write(_name(kernel, types), objects)
    kernel.codes[types] = None if objects is None else jit.Code(types, objects)


# --- workers ----------------------------------------------------------------------------------------


def _delegate(groups: deque[list[Job]], given_back: deque[list[Job]], tell: Tell) -> None:
    """Have a worker do jobs until none is left; what it cannot do is given back."""
    command = [sys.executable, "-c", _SERVE.format(path=sys.path)]
    environment = {name: value for name, value in os.environ.items() if name != store.SWITCH}
    try:
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    except OSError:
        return
    with worker, suppress(IndexError):  # no group is left
        while worker.poll() is None:
            for kernel, types in groups.popleft():
                with tell(kernel):
                    objects = _ask(worker, (store.name_of(), kernel.__module__, kernel.__name__, kernel.text, types))
                if objects is None:
                    given_back.append([(kernel, types)])
                else:
                    _keep(kernel, types, objects)


def _ask(worker: subprocess.Popen[bytes], job: tuple[str, str, str, str, Types]) -> store.Objects | None:
    """The answer of a worker: None where it failed, or is gone."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        pickle.dump(job, worker.stdin)
        worker.stdin.flush()
        answer: store.Objects | None = pickle.load(worker.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        worker.kill()
        worker.wait()
        return None
    return answer


def serve() -> None:
    """A worker's life: compile what comes in until the other side closes the pipe."""
    gc.disable()  # a tenth of the time, and little of what a compiler makes could be freed
    sys.modules["scipy"] = None  # type: ignore[assignment]  # numba would import it, and needs it for nothing here
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not come between two answers
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            _serve_one(jobs, answers)


def _serve_one(jobs: IO[bytes], answers: IO[bytes]) -> None:
    sources, module, name, text, types = pickle.load(jobs)
    try:
        if sources != store.name_of():
            raise RuntimeError("files have changed since the other side read them")
        found = jit.generated(text) if text else import_module(module)
        objects = build(getattr(found, name), types)
    except Exception:  # the other side will try by itself, and see what is wrong
        objects = None
    pickle.dump(objects, answers)
    answers.flush()


# --- progress ---------------------------------------------------------------------------------------

Tell = Callable[[jit.Kernel], AbstractContextManager[None]]


@contextmanager
def _progress(total: int) -> Iterator[Tell]:
    """What shows for the duration of a block that a kernel is being compiled: nothing on a stderr that is no terminal,
    unless MINIGRAD_PROGRESS asks for it."""
    asked = bool(os.environ.get("MINIGRAD_PROGRESS"))
    if not (asked or sys.stderr.isatty()):
        yield lambda kernel: nullcontext()
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    column = TextColumn(
        "minigrad compiles kernels, once: {task.completed} of {task.total} done, now {task.description}"
    )
    console = Console(stderr=True, force_terminal=asked or None)
    with Progress(column, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as progress:
        task, names = progress.add_task("", total=total), list[str]()

        @contextmanager
        def tell(kernel: jit.Kernel) -> Iterator[None]:
            name = kernel.__name__ if kernel.text else f"{kernel.__module__.rsplit('.', 1)[-1]}.{kernel.__name__}"
            names.append(name)
            progress.update(task, description=" and ".join(names))
            yield
            names.remove(name)
            progress.update(task, advance=1, description=" and ".join(names))

        yield tell
