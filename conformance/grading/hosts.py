"""The suite's end of the warm processes (`conformance.grading.warm`): `WarmHost`, and `borrowed` for any thread.

A process serves one submission at a time. Idle ones wait to be borrowed again; all end with the process that they
belong to, because their standard input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from conformance.systems import is_readable

_ROOT = str(Path(__file__).parents[2])
_START = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); import conformance; sys.path.append(sys.path.pop(0)); "
    "from conformance.grading.warm import main; main()"
)

IDLE_SECONDS = 2.0
"""A submission whose processes used no processor for so long by the clock sleeps: another may run meanwhile."""


class LostHost(RuntimeError):
    """A warm process ended, though it runs nothing foreign: killed from outside, or by want of memory."""


class WarmHost:
    """One warm process. Use it from one thread at a time."""

    def __init__(self) -> None:
        settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        settings["HYPOTHESIS_NO_PLUGINS"] = "1"
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **settings, "PYTHONHASHSEED": "0"},
        )
        self._received = b""
        self._answer(lambda: None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def outcome(self, task: Mapping[str, Any], give_way: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """What came of a task (see `conformance.grading.trial`). give_way: called once when the submission sleeps.

        Raises LostHost when the process ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None
        return self._answer(give_way)

    def _answer(self, give_way: Callable[[], None]) -> dict[str, Any]:
        assert self._process.stdout is not None
        used, since, gave_way = used_by(self.pid), time.monotonic(), False  # since: when it was last seen to work
        while b"\n" not in self._received:
            if is_readable(self._process.stdout, 0.5):
                block = os.read(self._process.stdout.fileno(), 1 << 20)
                if not block:
                    raise self._lost()
                self._received += block
            elif (now := used_by(self.pid)) - used > 0.05 or _is_waiting_for_a_core(self.pid):
                used, since = now, time.monotonic()
            elif time.monotonic() - since > IDLE_SECONDS and not gave_way:
                gave_way = True
                give_way()
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "trouble" in answer:
            raise RuntimeError(f"the warm process failed:\n{answer['trouble']}")
        return answer

    def _lost(self) -> LostHost:
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
        return LostHost(f"a warm process ended with exit code {code}{': ' + said[0] if said else ''}")

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def used_by(process: int) -> float:
    """Seconds of processor time of a process and all below it; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0.0
    ticks = sum(sum(map(int, fields[11:15])) for fields in _family(process))  # its own, and that of children that ended
    return ticks / os.sysconf("SC_CLK_TCK")


def _is_waiting_for_a_core(process: int) -> bool:
    """Whether a process or one below it would go on if it had a core: on a busy machine that is not sleep."""
    return any(fields[0] == "R" for fields in _family(process))


def _family(process: int) -> Iterator[list[str]]:
    """What the system says of a process and of each below it: the fields of /proc/PID/stat from the state on."""
    waiting = [process] if sys.platform != "win32" else []
    while waiting:
        one = waiting.pop()
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            tasks = os.listdir(f"/proc/{one}/task")
            children = [Path(f"/proc/{one}/task/{task}/children").read_text() for task in tasks]
        except OSError:
            continue
        yield fields
        waiting += [int(child) for text in children for child in text.split()]


_idle: queue.SimpleQueue[WarmHost] = queue.SimpleQueue()


@contextmanager
def borrowed() -> Iterator[WarmHost]:
    """A warm process for the time of the block: one that waits, or a new one. Any thread may ask."""
    try:
        host = _idle.get_nowait()
    except queue.Empty:
        host = WarmHost()
    try:
        yield host
    except BaseException:
        host.close()
        raise
    _idle.put(host)


def close_all() -> None:
    """End the processes that wait."""
    while True:
        try:
            _idle.get_nowait().close()
        except queue.Empty:
            return
