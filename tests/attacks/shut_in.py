"""A program that enters the sandbox and tries what its input lists: {"scratch", "given", "tries"} -> {name: outcome}.

An outcome is "" where the source ran to its end, else what it raised. Run by test_sandbox.
"""

from __future__ import annotations

import asyncio  # noqa: F401 (sources use it)
import contextlib
import ctypes
import json
import mmap  # noqa: F401
import os
import resource  # noqa: F401
import signal
import socket  # noqa: F401
import stat  # noqa: F401
import struct  # noqa: F401
import subprocess
import sys
import tempfile  # noqa: F401
import threading
import time
import urllib.request  # noqa: F401

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def call(number, *arguments):
    check(libc.syscall(number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)))


def run(command):
    if code := subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        raise OSError(f"{command[0]} ended with {code}")


def in_child(function):
    child = os.fork()
    if not child:
        try:
            function()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise OSError("the child failed")


def in_thread(function):
    errors = []

    def body():
        try:
            function()
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def many_processes(count):
    children = []
    try:
        for _ in range(count):
            child = os.fork()
            if not child:
                signal.pause()
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def many_threads(count):
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(count)]
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise OSError(str(error)) from error
    finally:
        done.set()
        for thread in started:
            thread.join()


def main():
    from conformance import sandbox
    from conformance.limits import Limits

    asked = json.load(sys.stdin)
    outcomes = {}
    sandbox.enter(
        asked["scratch"],
        Limits(memory=2**30, processes=32, files=256, file_size=2**24),
        readable=asked["readable"],
    )
    os.chdir(asked["scratch"])
    space = {**globals(), **asked["given"]}
    for name, source in asked["tries"].items():
        before = set(os.listdir("/proc/self/fd"))
        try:
            exec(source, space)
            outcomes[name] = ""
        except Exception as error:
            kind = "refused" if isinstance(error, (OSError, ValueError)) else type(error).__name__
            outcomes[name] = f"{kind}: {error}"
        for descriptor in set(os.listdir("/proc/self/fd")) - before:
            with contextlib.suppress(OSError):
                os.close(int(descriptor))
    time.sleep(0)
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
