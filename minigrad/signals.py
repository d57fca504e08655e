"""Updates that a signal does not tear apart: what its handler does, or raises, waits for their end.

Python runs the handlers of signals in its main thread, between any two steps of it, and what they raise comes out
there: KeyboardInterrupt, say, with half of the parameters updated. What is one call into machine code or numpy needs no
such care, and nor does another thread.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import threading
from collections.abc import Callable
from itertools import compress
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# What the module signal is made of: its own functions make enumerations of numbers, which takes 60 us for all signals.
_SIGNALS = tuple(_signal.valid_signals())


class _Gate:
    """For a while the handler of all signals that have one: it keeps those that come while it is closed, each once, and
    passes on the others."""

    def __init__(self) -> None:
        given = [*map(_signal.getsignal, _SIGNALS)]
        self.handlers = dict(compress(zip(_SIGNALS, given, strict=True), map(callable, given)))
        self.came: dict[int, FrameType | None] = {}
        self.closed = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.closed:
            self.came.setdefault(number, frame)
        else:
            self.handlers[number](number, frame)

    def open(self) -> None:
        """Give the signals their handlers back, and call them for those that came."""
        self.closed, raised = False, None
        while True:
            try:
                for number, handler in self.handlers.items():
                    _signal.signal(number, handler)
                break
            except BaseException as error:  # by a handler that is back already: the others are put back first
                raised = error
        try:
            if raised is not None:
                raise raised
        finally:
            self._call()

    def _call(self) -> None:
        """The handlers of all that came, even where one raises."""
        if self.came:
            number, frame = self.came.popitem()
            try:
                self.handlers[number](number, frame)
            finally:
                self._call()


def uninterrupted(function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call `function`; handlers of signals that come meanwhile are called behind it, and may raise there."""
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments, **keywords)
    gate = _Gate()
    try:
        for number in gate.handlers:
            _signal.signal(number, gate)
        return function(*arguments, **keywords)
    finally:
        gate.open()
