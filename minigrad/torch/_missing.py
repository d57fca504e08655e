"""What a module of the stand-in says about a name that it does not have."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def missing(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """A module's `__getattr__`: raises AttributeError that names torch's function, and names that are like it."""

    def __getattr__(name: str) -> Any:
        where = module.removeprefix("minigrad.")
        if name.startswith("__"):
            raise AttributeError(f"module {where!r} has no attribute {name!r}")
        near = difflib.get_close_matches(name, offered(names), 3)
        instead = f"; it has {', '.join(near)}" if near else ""
        raise AttributeError(f"minigrad's stand-in for torch has no {where}.{name}{instead}")

    return __getattr__


def offered(names: Mapping[str, Any]) -> list[str]:
    """torch's names among a module's."""
    return sorted(name for name, value in names.items() if _offered(name, value))


def _offered(name: str, value: Any) -> bool:
    """Is it torch's name, and not one that the module's own code imports?"""
    if name.startswith("_") or name == "annotations":
        return False
    if isinstance(value, ModuleType):
        return value.__name__.startswith("minigrad.torch.")
    return getattr(value, "__module__", "") not in ("typing", "collections.abc", __name__)


def refuse(function: str, *given: tuple[str, Any, Any]) -> None:
    """Raise NotImplementedError for an option (name, value, the one value that is supported) with another value."""
    for name, value, supported in given:
        if value is not supported and value != supported:
            raise NotImplementedError(
                f"minigrad's stand-in for torch has no {function}({name}={value!r}): only {name}={supported!r}"
            )
