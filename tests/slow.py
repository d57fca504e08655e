"""Parameters of which only some belong to the tests that run each time; the others run in a step of CI of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], is_quick: Callable[[Any], bool]) -> list[Any]:
    """The values for `parametrize`, all marked slow but those that are said to be quick."""
    return [value if is_quick(value) else _slow(value) for value in values]


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """The values for `parametrize`, all marked slow but the first and each `count`-th after it."""
    return [value if number % count == 0 else _slow(value) for number, value in enumerate(values)]


def _slow(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
