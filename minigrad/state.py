"""What is in force in this thread: who interprets ops, the gradient mode, the module scope, the phase."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from types import CodeType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

if TYPE_CHECKING:
    from minigrad.interpreter import Interpreter
    from minigrad.node import Node

P = ParamSpec("P")
R = TypeVar("R")

Scope = tuple[tuple[str, str], ...]  # (attribute name in the parent, class) from the outermost module inwards


class State(threading.local):
    """What is in force in this thread. What is not set in a thread is what stands here."""

    interpreter: Interpreter  # `minigrad.dispatch` puts the eager one here, for all threads
    grad_enabled: bool = True
    scope: Scope = ()
    backward_of: Node | None = None  # the node whose VJP is running
    quiet: bool = False  # numpy's floating-point warnings are off (see `silently`)
    backward_watch: Any = None  # sees every step of backward passes (see minigrad.study.step)
    kernel_mode: str = ""  # when kernels run (see `minigrad.kernels.use`); "": as in all threads
    decomposing: str = ""  # the composite whose decomposition is running: it has to be repeatable


state = State()
SCOPED: set[CodeType] = set()  # functions that push an entry onto `state.scope` while they run


@contextmanager
def eagerly() -> Iterator[None]:
    """Ops inside are computed at once, whatever interpreter is in force outside."""
    before, state.interpreter = state.interpreter, State.interpreter
    try:
        yield
    finally:
        state.interpreter = before


def _handling() -> tuple[ContextVar[Any] | None, Any]:
    """The context variable where numpy keeps what np.errstate sets, and its value inside np.errstate(all="ignore").

    (None, None) for a numpy that keeps it elsewhere.
    """
    before = copy_context()
    with np.errstate(all="ignore"):
        inside = copy_context()
    changed = [(variable, value) for variable, value in inside.items() if before.get(variable) is not value]
    return changed[0] if len(changed) == 1 else (None, None)


_HANDLING, _SILENCE = _handling()


def silently(function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call `function` with numpy's floating-point warnings off: infinities and NaN are values here.

    Setting numpy's variable costs 0.3 us, np.errstate 1.1. Set back is what was there, and not by a token, which an
    interrupt between the call that makes it and the one that uses it would lose.
    """
    if state.quiet:
        return function(*arguments, **keywords)
    if _HANDLING is None:
        with np.errstate(all="ignore"):
            return function(*arguments, **keywords)
    before = _HANDLING.get()
    try:
        _HANDLING.set(_SILENCE)
        state.quiet = True
        return function(*arguments, **keywords)
    finally:
        state.quiet = False
        _HANDLING.set(before)


@contextmanager
def scope(name: str, kind: str) -> Iterator[None]:
    """Nodes made inside carry (name, kind) as the innermost entry of their scope, as those of a module do."""
    outer = state.scope
    state.scope = (*outer, (name, kind))
    try:
        yield
    finally:
        state.scope = outer
