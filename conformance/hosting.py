"""The processes that host implementations: `host_process` starts one.

On Linux it is a fork of a server that has imported PyTorch and the suite once (`conformance.forking`), and that starts
with the first host and ends with this process. Elsewhere, and where the server cannot serve, it is a new Python
(`fresh_process`). To the suite both look the same: as a `subprocess.Popen` does.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Protocol

from conformance import keeper
from conformance.forking import Settings
from conformance.systems import is_readable

START_SECONDS = 300.0
"""How long a server may take for its imports, by the clock of a busy machine; then hosts do without it."""

KEEPER_SECONDS = 2.0
"""How long a keeper may take to end what it keeps, when the server was killed; it looks twenty times a second."""

_ROOT = str(Path(__file__).parents[1])
_START = "import sys; sys.path.insert(0, {root!r}); import conformance; sys.path.append(sys.path.pop(0)); {call}"

_READ_AT_START = ("PYTHON", "LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")
"""How the variables begin that Python and its libraries read only when they start."""


class HostProcess(Protocol):
    """What the suite needs of a host: a `subprocess.Popen` has it, and so has a fork."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...


def host_process(log: IO[bytes], scratch: str, with_torch: bool = False) -> HostProcess:
    """A process that hosts an implementation, in the sandbox where `scratch` names a folder.

    log: takes its standard error. with_torch: whether it has imported PyTorch, where it is a fork. A function takes
    tensors where PyTorch is imported, so this is for an implementation that imports it in any case.
    """
    server = _server(with_torch) if keeper.is_possible() else None
    if server is not None:
        with contextlib.suppress(OSError):
            return Fork(server, log, scratch)
        server.is_usable = False
    return fresh_process(log, scratch)


def fresh_process(log: IO[bytes], scratch: str) -> HostProcess:
    """A new Python that hosts an implementation, in the sandbox where `scratch` names a folder."""
    return subprocess.Popen(
        _python(f"from conformance.host import main; main({scratch!r})"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(),
        start_new_session=True,
    )


class Server:
    """A process that forks hosts, in a session of its own: Ctrl-C, which ends the run, does not reach it."""

    def __init__(self, with_torch: bool) -> None:
        self.is_usable = True
        self.requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                _python(f"from conformance.forking import main; main({with_torch})"),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
            )

    def close(self) -> None:
        """End it at once, also in the middle of its imports. The keepers of hosts that are left end them."""
        self.is_usable = False
        self.requests.close()
        self._process.kill()
        self._process.wait()


class Fork:
    """A host that is a fork of a server. Raises OSError where the server does not give one."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    _lines: IO[bytes]
    _news: socket.socket

    def __init__(self, server: Server, log: IO[bytes], scratch: str) -> None:
        if sys.platform == "win32":
            raise OSError("Windows cannot fork")
        self.returncode: int | None = None
        self._asking = threading.Lock()  # a worker waits for its end, and the run may end at the same moment
        (read, ours), (theirs, write) = os.pipe(), os.pipe()
        questions, answers = os.fdopen(ours, "wb"), os.fdopen(theirs, "rb")
        self.stdin, self.stdout = questions, answers
        self._news, told = socket.socketpair()
        self._lines = self._news.makefile("rb")
        try:
            try:
                socket.send_fds(server.requests, [b"."], [read, write, log.fileno(), told.fileno()])
            finally:
                os.close(read)
                os.close(write)
                told.close()
            self._news.settimeout(START_SECONDS)
            self._news.sendall(json.dumps(asdict(Settings(scratch, os.getcwd(), _environment()))).encode())
            self._news.shutdown(socket.SHUT_WR)
            if not (line := self._lines.readline()):
                raise ConnectionError("the server ended")
            self.pid = int(line)
        except BaseException:  # Ctrl-C among them: a host whose pipes are closed ends
            for one in (questions, answers, self._lines, self._news):
                one.close()
            raise

    def poll(self) -> int | None:
        """How it ended: its exit code, or minus the signal that killed it; None where it runs."""
        if sys.platform == "win32":
            raise OSError("Windows cannot fork")
        with self._asking:
            if self.returncode is None and is_readable(self._lines, 0.0):
                line = self._lines.readline()
                if not line:
                    _wait_for_keeper(self.pid)
                self.returncode = int(line or -signal.SIGKILL)
                self._lines.close()
                self._news.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (code := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("host", timeout or 0.0)
            with contextlib.suppress(ValueError):  # another thread has just seen the end, and closed this
                is_readable(self._lines, min(left, 60.0))
        return code

    def terminate(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


_servers: dict[tuple[object, ...], Server] = {}
_starting = threading.Lock()


def _server(with_torch: bool) -> Server | None:
    """The server, with the variables that count when it starts; None where it failed. An ordinary run has one."""
    at_start = {name: value for name, value in _environment().items() if name.startswith(_READ_AT_START)}
    folder = os.getcwd() if "PYTHONPATH" in at_start else ""  # which may name folders from here
    key = (os.getpid(), with_torch, folder, *sorted(at_start.items()))
    with _starting:
        if key not in _servers:
            if not _servers:
                atexit.register(close)
            _servers[key] = Server(with_torch)
        return _servers[key] if _servers[key].is_usable else None


def close() -> None:
    """End this process's servers."""
    with _starting:
        for (owner, *_), server in _servers.items():
            if owner == os.getpid() and server.is_usable:
                server.close()
        _servers.clear()


def _python(call: str) -> list[str]:
    """The command of a new Python that finds the suite behind all else, and calls something of it."""
    return [sys.executable, "-P", "-c", _START.format(root=_ROOT, call=call)]


def _environment() -> dict[str, str]:
    settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    settings["HYPOTHESIS_NO_PLUGINS"] = "1"  # they import whole libraries, and the suite draws numbers only
    return {**settings, **os.environ, "PYTHONHASHSEED": "0"}


def _wait_for_keeper(process: int) -> None:
    """Wait until a host's keeper is gone, which ends the host when the server is gone."""
    deadline = time.monotonic() + KEEPER_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.kill(process, 0)
            time.sleep(0.01)
