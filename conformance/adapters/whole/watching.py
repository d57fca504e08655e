"""The base of dispatch modes, which see every operation of a run, with its arguments and the user's line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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


def user_line(*engines: str) -> str:
    """file:line of the innermost frame that is neither torch's nor ours, nor of a file in one of these folders."""
    frame = sys._getframe(1)
    strangers = (*engines, "/torch/", "/conformance/adapters/", "/conformance/checks/", "<")
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(part in name for part in strangers):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
