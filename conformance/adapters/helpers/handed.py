"""What a function is for where its name does not say it: a loader of batches is given it as `collate_fn`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from types import MethodType, ModuleType
from typing import Any

from conformance.adapters.whole.usage import surroundings

COLLATES = "collate_fn"
_HANDED = r"\bcollate_fn\s*=\s*(?:lambda\b[^:\n]*:\s*|(?:\w+\.)*partial\(\s*)?(?:\w+\.)*{name}\b"


def names_of(code: Callable[..., Any] | type) -> tuple[str, ...]:
    """The name of a function or class, and "collate_fn" where a file around it hands it to a loader as that. A method
    `__call__` is handed over as an object of its class."""
    name = handed = getattr(code, "__name__", "")
    if isinstance(code, MethodType) and inspect.unwrap(code.__func__).__name__ == "__call__":
        handed = type(code.__self__).__name__
    return (name, COLLATES) if handed and _is_handed(handed, getattr(code, "__module__", "")) else (name,)


def _is_handed(name: str, module: str) -> bool:
    found = sys.modules.get(module)
    if found is None or not getattr(found, "__file__", None):
        return False
    handed = re.compile(_HANDED.format(name=re.escape(name)))
    return any(handed.search(text) for text in _loading(found))


@cache
def _loading(module: ModuleType) -> tuple[str, ...]:
    """The texts around a module that hand anything to a loader."""
    return tuple(source.text for source in surroundings(module).sources if COLLATES in source.text)
