"""A process that has imported what hosts need, and forks a host for each request: `main`.

It runs nothing foreign and no operation of torch, so that it has one thread, and a fork of it is as good as a new
Python. It is there in milliseconds, where a new Python imports for seconds. The suite's end is `conformance.hosting`.

A request comes through the socket that is its standard input: a byte, with the descriptors of the host's three streams
and of a socket for the news of it. From that socket the host reads its `Settings`, and the suite reads two lines: which
process the host is, and how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NoReturn

SUITE = (
    *("numpy", "hypothesis", "hypothesis.strategies", "hypothesis.internal.conjecture.engine"),
    *("conformance.host", "conformance.checks", "conformance.catalogue", "conformance.lookalike"),
    *("conformance.mutants", "conformance.adapters.stated", "conformance.adapters.reference"),
)
"""What every host needs. The mutants are for what is wrong, and take a fortieth of a second."""

TORCH = (
    *("torch", "torch.nn"),
    *("conformance.adapters.whole.implementation", "conformance.adapters.functions.implementation"),
)
"""What the host of an implementation on PyTorch needs beyond."""


@dataclass(frozen=True)
class Settings:
    """What a host has of its own. folder: where it runs. scratch: the sandbox's folder; "" for no sandbox."""

    scratch: str
    folder: str
    environment: dict[str, str]


def main(with_torch: bool) -> None:
    """Fork a host for each request, until the suite closes its socket."""
    if sys.platform == "win32":
        raise OSError("Windows cannot fork")
    path = sys.path[:]
    preload((*SUITE, *TORCH) if with_torch else SUITE)
    if len(os.listdir("/proc/self/task")) > 1:  # a fork would lack the other threads: the suite does without forks
        return
    requests = socket.socket(fileno=0)
    woken, wake = socket.socketpair()
    for one in (woken, wake):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    waiting = select.poll()
    for one in (requests, woken):
        waiting.register(one, select.POLLIN)
    hosts: dict[int, socket.socket] = {}
    while True:
        for descriptor, _ in waiting.poll():
            if descriptor == woken.fileno():
                with contextlib.suppress(BlockingIOError):
                    woken.recv(1 << 12)
            else:
                message, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
                if not message:
                    return
                _serve(descriptors, path, hosts)
        _tell_ends(hosts)


def preload(names: Collection[str]) -> None:
    """Import modules for the forks to come; one that is not installed is left out."""
    gc.disable()  # nearly all that is made stays; to look for garbage costs a tenth of the imports
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy every page that it looks at
    gc.enable()


def _serve(descriptors: Sequence[int], path: Sequence[str], hosts: dict[int, socket.socket]) -> None:
    """Fork a host, and tell which process it is. Where that cannot be, the suite sees its socket closed."""
    if sys.platform == "win32":
        raise OSError("Windows cannot fork")
    *streams, told = descriptors
    news = socket.socket(fileno=told)
    try:
        process = os.fork()
    except OSError:
        process = -1
    if not process:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        become_host(streams, lambda: _answer(_settings(news), path), kept=news.fileno())
    for stream in streams:
        os.close(stream)
    if process > 0:
        hosts[process] = news
        _tell(news, process)
    else:
        news.close()


def _tell_ends(hosts: dict[int, socket.socket]) -> None:
    """Tell of each host that ended how it did: its exit code, or minus the signal that killed it."""
    if sys.platform == "win32":
        raise OSError("Windows cannot fork")
    while hosts:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        with hosts.pop(process) as news:
            _tell(news, os.waitstatus_to_exitcode(status))


def _tell(news: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the suite may be gone, or have let go of this host
        news.sendall(f"{number}\n".encode())


def _settings(news: socket.socket) -> Settings:
    with news, news.makefile("rb") as lines:
        return Settings(**json.loads(lines.read()))


def _answer(settings: Settings, path: Sequence[str]) -> None:
    """Be the host that the settings say. path: the folders of modules that a new Python has."""
    from conformance.host import main as answer_questions

    os.chdir(settings.folder)
    os.environ.clear()
    os.environ.update(settings.environment)
    sys.path[:] = path
    answer_questions(settings.scratch)


def become_host(streams: Sequence[int], work: Callable[[], None], kept: int = 2) -> NoReturn:
    """Make this process, which was just forked, a session of its own with the three standard streams; do the work, and
    end. Nothing else that the parent has open is left, so that its answers cannot be forged; but `kept`, for the work
    to close."""
    if sys.platform == "win32":
        raise OSError("Windows cannot fork")
    code = 1
    try:
        os.setsid()
        for place, descriptor in enumerate(streams):
            os.dup2(descriptor, place)
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        work()
        code = 0
    except SystemExit as ending:
        print(ending.code or "", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)
