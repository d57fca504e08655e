"""The base of dispatch modes, which see every operation of a run, with its arguments and the user's line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Watching(TorchDispatchMode):
    """A dispatch mode that torch's compiler may look into: telling it not to would import it, which takes 2 s."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], at: int, name: str, default: Any) -> Any:
    """What a call got for a parameter, by its place or by its name."""
    return kwargs.get(name, args[at] if len(args) > at else default)


ENGINES = ("torch", "minigrad")
"""Packages whose lines are nobody's model."""


def is_of_an_engine(frame: FrameType) -> bool:
    """Whether a frame runs code of one of the packages that models are built with."""
    return frame.f_globals.get("__name__", "").partition(".")[0] in ENGINES


def user_line() -> str:
    """file:line of the innermost frame that is neither ours nor of an engine."""
    frame = sys._getframe(1)
    strangers = ("/torch/", "/conformance/adapters/", "/conformance/checks/", "<")
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(part in name for part in strangers) and not is_of_an_engine(frame):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
