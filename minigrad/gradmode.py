"""Recording for gradients, on or off in this thread: context managers that are decorators, too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from minigrad.state import state

P = ParamSpec("P")
R = TypeVar("R")


class _GradMode:
    """Gradient recording on or off, as a context manager or a decorator."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.before: list[bool] = []

    def __enter__(self) -> None:
        self.before.append(state.grad_enabled)
        state.grad_enabled = self.enabled

    def __exit__(self, *_: Any) -> None:
        state.grad_enabled = self.before.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> R:
            before = state.grad_enabled
            try:
                state.grad_enabled = self.enabled
                return function(*args, **keywords)
            finally:
                state.grad_enabled = before

        return call


def no_grad() -> _GradMode:
    """Nothing inside is recorded for gradients."""
    return _GradMode(False)


def enable_grad() -> _GradMode:
    """Recording, also inside `no_grad`."""
    return _GradMode(True)


def set_grad_enabled(mode: bool) -> _GradMode:
    return _GradMode(bool(mode))


def is_grad_enabled() -> bool:
    return state.grad_enabled
