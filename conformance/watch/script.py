"""Runs a script as `python train.py` would, and watches it: `watched`; or a function of this process: `called`."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from conformance.watch.ending import finish
from conformance.watch.launching import Script
from conformance.watch.libraries import tap_all
from conformance.watch.record import Run
from conformance.watch.watcher import Ended, Watcher, is_the_users


def watched(
    script: Script,
    steps: int | None = 20,
    seconds: float | None = None,
    until: str = "",
    keeps_moments: bool = False,
    least: int | None = None,
) -> Run:
    """Run a script until it ends, or was watched for so many optimizer steps or seconds, or until an epoch or an
    evaluation was, as `Watcher` says.

    What it raises becomes the run's `ended`, and its traceback goes to standard error.
    """
    before = frozenset(sys.modules)
    with _as_main(script), Watcher(steps, until, keeps_moments, least) as watcher:
        tap_all(watcher)
        watcher.run.options = bool(script.arguments)
        try:
            with _deadline(watcher, seconds):
                if script.is_module:
                    runpy.run_module(script.name, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(script.name, run_name="__main__")
        except Ended:
            pass
        except SystemExit as error:
            if error.code not in (None, 0):
                watcher.run.ended = f"the script ended itself with exit code {error.code}"
        except KeyboardInterrupt:
            watcher.run.ended = "it was interrupted"
        except BaseException as error:
            watcher.close()
            traceback.print_exc()
            watcher.run.ended = f"the script raised {type(error).__name__}: {error}"
        watcher.run.files = _imported(before, sys.path[0] or os.getcwd())
        finish(watcher)
        return watcher.run


def _imported(before: Collection[str], folder: str) -> list[str]:
    """The files below a folder that modules were imported from since then: what a script keeps in files of its own."""
    new = [module for name, module in [*sys.modules.items()] if name not in before]
    files = {file for module in new if (file := getattr(module, "__file__", None)) and is_the_users(file)}
    return sorted(file for file in files if Path(folder).resolve() in Path(file).resolve().parents)


def called(call: Callable[[], None], steps: int, seconds: float) -> Run:
    """What a call of this process trains, watched for so many optimizer steps or seconds of processor time. What is
    outside of the call is no part of what is watched."""
    with Watcher(steps) as watcher, contextlib.suppress(Ended), _deadline(watcher, seconds, of_processor=True):
        tap_all(watcher)
        call()
    return watcher.run


@contextlib.contextmanager
def _as_main(script: Script) -> Iterator[None]:
    """The arguments, the path and the main module that the script would have by itself; then as they were."""
    arguments, path, main = sys.argv, list(sys.path), sys.modules.get("__main__")
    sys.argv = [script.name, *script.arguments]
    sys.path.insert(0, "" if script.is_module else str(Path(script.name).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path
        if main is not None:
            sys.modules["__main__"] = main


@contextlib.contextmanager
def _deadline(watcher: Watcher, seconds: float | None, of_processor: bool = False) -> Iterator[None]:
    """Raise Ended in the script after so many seconds, where this is the main thread of a system with such a clock."""
    if not seconds or sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        watcher.end(f"{seconds:g} s were over")

    clock, alarm = (signal.ITIMER_PROF, signal.SIGPROF) if of_processor else (signal.ITIMER_REAL, signal.SIGALRM)
    before = signal.signal(alarm, over)
    signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        signal.setitimer(clock, 0)
        signal.signal(alarm, before)
