"""Config files that name the classes that they configure: Lightning's ``class_path`` with ``init_args``, and Hydra's
``_target_`` among the arguments."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from conformance.adapters.whole.configs import may_construct
from conformance.adapters.whole.constructing import Evaluator
from conformance.adapters.whole.sizes import Unknown
from conformance.adapters.whole.usage import Surroundings


def arguments_in_files(cls: Any, around: Surroundings) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file, arguments) of every section of the config files that says how to make a class."""
    for file, section in around.settings:
        path, arguments = _described(section)
        if path and path.rpartition(".")[2] == getattr(cls, "__name__", ""):
            yield file, arguments


def built(evaluator: Evaluator, value: Any) -> Any:
    """The value with an instance in the place of each section that names a class of the user's. Raises Unknown."""
    if isinstance(value, list):
        return [built(evaluator, item) for item in value]
    if not isinstance(value, dict):
        return value
    path, arguments = _described(value)
    words = {key: built(evaluator, item) for key, item in arguments.items()}
    return evaluator.call(_class_at(path, evaluator.around), [], words) if path else words


def _described(section: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(path of a class, its arguments); ("", the section) where it names none."""
    if "class_path" in section:
        return str(section["class_path"]), section.get("init_args") or {}
    rest = {key: value for key, value in section.items() if key != "_target_"}
    return str(section.get("_target_", "")), rest


def _class_at(path: str, around: Surroundings) -> type:
    """The class of the user's files or of torch at a dotted path. Raises Unknown."""
    place, _, name = path.rpartition(".")
    if place.startswith("torch.nn"):
        module: ModuleType | None = importlib.import_module(place)
    else:
        file = around.module_file(place, around.own)
        module = around.imported(file, place) if file is not None else None  # not another module of that name
    found = getattr(module, name, None)
    if isinstance(found, type) and may_construct(found):
        return found
    raise Unknown(path)
