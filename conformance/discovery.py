"""Imports every module of a package, so that what they register is there: a new topic is a new file, nothing else."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import the modules of `package` (its `__name__` and `__path__`), in alphabetical order."""
    for module in sorted(info.name for info in pkgutil.iter_modules(path)):
        importlib.import_module(f"{package}.{module}")
