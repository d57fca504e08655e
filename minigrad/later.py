"""What is loaded by name, at its first use: `load("minigrad.viz:svg")`.

It keeps `import minigrad` quick, and it lets a low room use what a higher one adds: a graph its drawing, an op its fast
kernel, a device its driver. tests/minigrad/test_floors.py lists every name that is loaded so, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_loaded: dict[str, Any] = {}


def load(spec: str) -> Any:
    """What "module:name" names, or the module "module"."""
    found = _loaded.get(spec)
    if found is None:
        module, _, name = spec.partition(":")
        found = import_module(module)
        found = _loaded[spec] = getattr(found, name) if name else found
    return found


def method(spec: str, says: str) -> Callable[..., Any]:
    """A method that calls the function "module:name" on its object. says: its docstring."""

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return load(spec)(self, *arguments, **keywords)

    call.__doc__ = says
    call.__name__ = spec.partition(":")[2]
    return call
