"""What the running program calls a tensor that a trace has found outside."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from minigrad.node import PACKAGE
from minigrad.state import SCOPED, state
from minigrad.tensor import Tensor
from minigrad.tracing.nests import flatten


def name_of(tensor: Tensor, last: str) -> str:
    """The path of the module that holds `tensor` and its attribute there ("layers.0.attn.q_proj.weight"), the state of
    an optimizer ("head.weight.exp_avg"), or the variable of a function. "" if nothing does.

    Looked through are the functions that run now, up to the one of this package that is called `last`. What holds
    tensors has a method `name_held(tensor, path)`.
    """
    scope = state.scope
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        ours = code.co_filename.startswith(PACKAGE)
        if ours and code.co_name == last:
            return ""
        holder = frame.f_locals.get("self")
        if code in SCOPED:
            scope = scope[:-1]
        elif hasattr(type(holder), "name_held"):
            name: str = holder.name_held(tensor, [name for name, _ in scope if name])  # type: ignore[union-attr]
            if name:
                return name
        if not ours:
            used = {name: frame.f_globals.get(name) for name in code.co_names}
            for name, value in [*frame.f_locals.items(), *used.items()]:
                if value is tensor:
                    return name
        frame = frame.f_back
    return ""


def argument_names(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[str]:
    """A name for every tensor among the arguments: the parameter's, with the position in it where it holds several."""
    try:
        bound = inspect.signature(getattr(function, "forward", function)).bind_partial(*arguments)
        given = list(bound.arguments.items())
    except (TypeError, ValueError):  # no signature, or arguments that do not fit: the call itself will say so
        given = [(f"x{i}", argument) for i, argument in enumerate(arguments)]
    return [name for called, value in [*given, *keywords.items()] for name in _numbered(called, value)]


def _numbered(name: str, value: Any) -> list[str]:
    count = len(flatten(value)[0])
    return [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
