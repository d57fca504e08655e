"""The libraries whose training is watched: PyTorch and minigrad, each when the script imports it.

A library is one object: it puts the taps, ends the record, and says when it only traces. None has to be installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from typing import Any

from conformance.watch.watcher import Library, Watcher

LIBRARIES = {"torch": "conformance.watch.on_torch", "minigrad": "conformance.watch.on_minigrad"}
"""Name of the package -> the module that taps it."""


def tap_all(watcher: Watcher) -> None:
    """Put the taps of each library that is imported, and of the others as soon as the script imports them."""
    for name in LIBRARIES:
        if name in sys.modules:
            _tap(watcher, name)
        else:
            arrival = _Arrival(name, partial(_tap, watcher, name))
            sys.meta_path.insert(0, arrival)
            watcher.on_close(arrival.forget)


def _tap(watcher: Watcher, name: str) -> None:
    if not watcher.is_over:
        library: Library = import_module(LIBRARIES[name]).LIBRARY
        watcher.libraries.append(library)
        library.tap(watcher)


class _Arrival(MetaPathFinder):
    """Calls `then` once a package was imported by somebody."""

    def __init__(self, package: str, then: Callable[[], None]) -> None:
        self._package, self._then = package, then

    def forget(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._package:
            return None
        self.forget()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: Any) -> None:
                execute(module)
                self._then()

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
