"""What forward gives, taken apart by name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from textwrap import dedent
from typing import Any

from torch import Tensor, nn


def named_tensors(result: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a result, by their names or numbers; of lists inside it none."""
    if isinstance(result, Mapping):
        items = list(result.items())
    elif hasattr(result, "_asdict"):
        items = list(result._asdict().items())
    elif isinstance(result, list | tuple):
        items = list(enumerate(result))
    else:
        items = list(getattr(result, "__dict__", {}).items())
    return [(str(name), value) for name, value in items if isinstance(value, Tensor)]


def named_by(part: nn.Module, result: Any) -> list[tuple[str, Tensor]]:
    """The tensors of what a part gave; those of a tuple by what its forward calls them where it returns it."""
    names = _returned(type(part).forward) if isinstance(result, tuple) and not hasattr(result, "_asdict") else ()
    if len(names) != len(result if names else ()):
        names = ()
    return [(names[int(name)] if names else name, value) for name, value in named_tensors(result)]


@cache
def _returned(forward: Callable[..., Any]) -> tuple[str, ...]:
    """What the last tuple that a forward returns is made of, by name; "" for what has none."""
    try:
        tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(forward))))
    except (OSError, TypeError, SyntaxError):
        return ()
    found = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    ]
    return tuple(getattr(one, "id", getattr(one, "attr", "")) for one in found[-1].elts) if found else ()
