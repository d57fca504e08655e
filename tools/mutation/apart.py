"""Tests in a process that can harm nothing: what a mutant removes, kills or fills ends with it.

The process has namespaces of its own (Linux, as administrator). Files are as they are outside, but what is written is
forgotten, and outside of the tree and of temporary folders nothing can be written at all. It sees and signals only
processes that it started, at most `PROCESSES` (from Linux 6.14), and all of them end with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tools.mutation.trials import start

PROCESSES, MEMORY = 1000, 16 * 2**30
LOADING = 120.0
"""Seconds that pass at most before a test begins, and between two."""

OURS = ("minigrad", "conformance", "transformer", "tools", "tests")
EVENTS, LOG = "events.jsonl", "log.txt"

_NEW_MOUNTS, _NEW_IPC, _NEW_PIDS = 0x00020000, 0x08000000, 0x20000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _DETACH = 1, 32, 4096, 16384, 1 << 18, 2
_END_WITH_PARENT = 1


@dataclass(frozen=True)
class Job:
    """Tests to run in a tree: `wanted` of `files` in this order, or all of them.

    layers: the folders of which the tree is made, the first one on top. kept: the folders in which what is written
    stays. edit: a file of the tree and its text. seconds: the time after which no other test begins.
    """

    tree: Path
    out: Path
    files: tuple[str, ...]
    wanted: tuple[str, ...] = ()
    layers: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()
    edit: tuple[str, str] | None = None
    seconds: float = 60.0
    first_failure: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Ran:
    """What became of a job. tests: name -> (outcome, seconds). exit: pytest's, None where the process died; endless:
    the test in which it was ended; over: whether its time was over before all tests were run."""

    tests: dict[str, tuple[str, float]] = field(default_factory=dict)
    exit: int | None = None
    endless: str | None = None
    over: bool = False


def run(job: Job, expected: Mapping[str, float], patience: float = 30.0) -> Ran:
    """Run a job and wait for it. A test that takes 20 times as long as expected, and more than `patience`, is ended.

    Raises OSError where this system has no namespaces, or gives none to this user.
    """
    events = job.out / EVENTS
    events.write_text("")
    process, connection = start(_inside, job)
    last, size, ran = time.monotonic(), 0, Ran()
    while process.is_alive():
        process.join(0.05)
        if events.stat().st_size != size:
            last, size = time.monotonic(), events.stat().st_size
        current = _read(events, Ran())
        allowed = patience + 20 * expected.get(current, 1.0) if current else LOADING
        if time.monotonic() - last > allowed:
            process.kill()
            ran.endless = current or "loading"
    process.join()
    with suppress(EOFError):  # it had nothing to say
        raise OSError(connection.recv())
    _read(events, ran)
    return ran


def _read(events: Path, ran: Ran) -> str:
    """Add what the events say; the test that has begun and not ended."""
    current = ""
    for line in events.read_text(encoding="utf-8").splitlines():
        try:
            kind, *values = json.loads(line)
        except ValueError:  # it died while it wrote
            continue
        if kind == "begin":
            current = values[0]
        elif kind == "end":
            name, outcome, seconds = values
            ran.tests[name] = (outcome, seconds)
            current = ""
        elif kind == "over":
            ran.over = True
        else:
            ran.exit = values[0]
    return current


# --- in the process ---------------------------------------------------------------------------------


def _inside(job: Job, connection: Connection) -> None:
    try:
        _enter(job)
        first = os.fork()
        if first:
            while not os.waitpid(first, os.WNOHANG)[0]:
                if connection.poll(0.05):  # the other side is gone
                    os.kill(first, signal.SIGKILL)
            return
        _libc().prctl(_END_WITH_PARENT, signal.SIGKILL)
        _mount("proc", "/proc", "proc")
        if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 14):  # before, the whole machine would have it
            Path("/proc/sys/kernel/pid_max").write_text(str(PROCESSES))
    except OSError as error:
        connection.send(f"no process of its own for tests: {error}; this needs Linux and an administrator")
        return
    child = os.fork()
    if not child:
        _test(job)
    while os.wait()[0] != child:  # the first process inherits what others leave
        pass
    os._exit(0)


def _test(job: Job) -> None:
    os.setsid()
    nowhere, log = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(job.out / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
    )
    for at, file in enumerate((nowhere, log, log)):
        os.dup2(file, at)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(job.tree)
    for name in list(sys.modules):
        if name.partition(".")[0] in OURS:
            del sys.modules[name]
    os.environ.update(PYTHONPATH=str(job.tree), **job.environment)
    sys.path[:] = [str(job.tree), *sys.path[1:]]
    sys.argv = ["pytest"]
    code = 70
    try:
        import pytest

        # "plain": pytest would compile our packages itself, which are a plugin of its, and meet no probe
        flags = ["-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=short"]
        flags += ["-x"] if job.first_failure else []
        code = int(pytest.main([*flags, *job.files], plugins=[_Plugin(job)]))
    finally:
        _tell(job, "exit", code)
        os._exit(0)


def _tell(job: Job, *event: Any) -> None:
    with (job.out / EVENTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


class _Plugin:
    """Chooses tests, puts them in order, writes down what becomes of them, and ends when their time is over."""

    def __init__(self, job: Job) -> None:
        self.job, self.begun = job, time.monotonic()
        self.seconds, self.outcome = 0.0, "passed"

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.job.wanted:
            order = {name: at for at, name in enumerate(self.job.wanted)}
            items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
        else:  # one case of each test before the second of any: there may be no time for all
            seen: Counter[str] = Counter()
            ranks = {}
            for item in items:
                function = item.nodeid.partition("[")[0]
                seen[function] += 1
                ranks[item] = seen[function]
            items.sort(key=ranks.__getitem__)
        self.begun = time.monotonic()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        sys.__dict__.get("own_mutants_seen", set()).clear()
        self.seconds, self.outcome = 0.0, "passed"
        _tell(self.job, "begin", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds += report.duration
        if report.outcome != "passed" and self.outcome != "failed":
            self.outcome = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        _tell(self.job, "end", nodeid, self.outcome, round(self.seconds, 4))

    def pytest_runtest_protocol(self, item: Any) -> None:
        if time.monotonic() - self.begun > self.job.seconds and not item.session.shouldstop:
            _tell(self.job, "over")
            item.session.shouldstop = "its time is over"


def _enter(job: Job) -> None:
    """New namespaces, a tree that forgets, and everything else read-only. Raises OSError."""
    if not sys.platform.startswith("linux"):
        raise OSError("this system has no namespaces")
    _checked(_libc().unshare(_NEW_MOUNTS | _NEW_PIDS | _NEW_IPC))
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    kept = [(path, os.open(path, os.O_PATH)) for path in (job.out, *job.kept)]
    layers = ":".join(str(path) for path in job.layers or (job.tree,))
    for place, kind in _mounted():
        if kind not in ("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2"):
            _mount(None, place, None, _REMOUNT | _BIND | _READ_ONLY)
    _mount("tmpfs", "/dev/shm", "tmpfs")
    _mount("tmpfs", "/mnt", "tmpfs")
    for number, (lower, place) in enumerate((("/tmp", "/tmp"), (layers, str(job.tree)))):
        above, work = f"/mnt/{number}", f"/mnt/work{number}"
        os.mkdir(above)
        os.mkdir(work)
        _mount("overlay", place, "overlay", 0, f"lowerdir={lower},upperdir={above},workdir={work}")
    os.chmod("/tmp", 0o1777)
    _checked(_libc().umount2(b"/mnt", _DETACH))
    for path, file in kept:
        _mount(f"/proc/self/fd/{file}", str(path), None, _BIND)
        _mount(None, str(path), None, _REMOUNT | _BIND)
        os.close(file)
    if job.edit is not None:
        name, text = job.edit
        (job.tree / name).write_text(text, encoding="utf-8")


def _mounted() -> Sequence[tuple[str, str]]:
    rows = Path("/proc/self/mounts").read_text().splitlines()
    return list(dict.fromkeys((row.split()[1], row.split()[2]) for row in rows))


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _mount(source: str | None, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    words = (None if word is None else word.encode() for word in (source, target, kind))
    _checked(_libc().mount(*words, ctypes.c_ulong(flags), options.encode()))
