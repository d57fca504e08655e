"""Hosts of implementations as forks of one process that has imported what they need: in milliseconds, not in a second.

Each process of the tests has one such server. It runs nothing but imports, so that it has one thread, and a fork of it
is as fresh as a new Python. What a host does from there on is the suite's own (`conformance.host`); grading starts its
hosts in the same way (`conformance.grading.warm`).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from functools import cache
from multiprocessing import connection, forkserver, reduction
from pathlib import Path

from conformance.grading.warm import PRELOADED

ROOT = Path(__file__).parents[1]


@cache
def server():
    """The context of the server's forks, and the folders of modules that a new Python has."""
    command = [sys.executable, "-P", "-c", "import json, sys; print(json.dumps(sys.path))"]
    path = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    seed = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"  # a host's, too
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONHASHSEED")
        os.environ.update({"PYTHONHASHSEED": seed} if seed is not None else {})
    return context, [*path, str(ROOT)]


class Host:
    """A host that is a fork, with what the suite asks of a `subprocess.Popen`. Its arguments are `fresh_process`'s."""

    def __init__(self, log, scratch):
        context, path = server()
        questions, answers = os.pipe(), os.pipe()
        pipes = map(_Passed, (questions[0], answers[1], log.fileno()))
        self._process = context.Process(
            target=_host, args=(*pipes, scratch, os.getcwd(), dict(os.environ), path), daemon=False
        )
        self._asking = threading.Lock()
        self._process.start()
        os.close(questions[0])
        os.close(answers[1])
        self.pid = self._process.pid
        self.stdin, self.stdout = os.fdopen(questions[1], "wb"), os.fdopen(answers[0], "rb")

    def poll(self):
        with self._asking:
            return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout=None):
        if self.poll() is None and not connection.wait([self._process.sentinel], timeout):
            raise subprocess.TimeoutExpired("fork", timeout)
        return self.poll()

    def terminate(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class _Passed:
    """A descriptor that goes to the fork, where it is a number."""

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def __reduce__(self):
        return _received, (reduction.DupFd(self.descriptor),)


def _received(descriptor):
    return descriptor.detach()


def _host(questions, answers, log, scratch, folder, environment, path):
    code = 1
    try:
        os.setsid()
        for place, descriptor in enumerate((questions, answers, log)):
            os.dup2(descriptor, place)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (multiprocessing had another in its place)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        from conformance.host import main

        main(scratch)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)
