"""The text of an `--impl`, taken apart without importing anything (`parse`)."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MINIGRAD_MODES = ("kernels", "reference", "compiled", "cuda")
BUILT_IN = ("minigrad", "torch", "reference")
ALL = "*"
"""As a name: what a file holds that is no model, functions and classes, with the model that they work with."""


class SpecificationError(Exception):
    """An `--impl` specification names nothing usable. The message is one sentence that says what to do."""


@dataclass(frozen=True)
class Specification:
    """A parsed `--impl`: a built-in `target` with its `name` as mode, or a file or module and a class `name`.

    role: what an nn.Module is to be tested as; empty when it shall be inferred.
    """

    text: str
    target: str
    name: str
    is_file: bool = False
    role: str = ""

    @property
    def is_built_in(self) -> bool:
        return not self.is_file and self.target in BUILT_IN

    @property
    def is_whole_file(self) -> bool:
        """Whether it names a file or package, and nothing in it: everything in it is meant (`subjects`)."""
        return self.is_file and not self.name


def parse(text: str) -> Specification:
    """Split a specification without importing anything. Raises SpecificationError."""
    target, colon, name = text.partition(":")
    if target in BUILT_IN:
        modes = MINIGRAD_MODES if target == "minigrad" else ()
        if colon and name not in modes:
            offered = ", ".join([target, *(f"{target}:{mode}" for mode in modes)])
            raise SpecificationError(f"--impl {text}: {target} has no mode {name!r}; choose one of {offered}")
        return Specification(text, target, name)
    if file := re.match(r"(.*?\.py)(?::(.*))?$", text, re.DOTALL):
        target, name = file[1], file[2] or ""
    is_file = target.endswith(".py") or (not colon and Path(target).expanduser().joinpath("__init__.py").is_file())
    name, role = _with_role(name)
    if name and name != ALL and not _is_one_expression(name):
        raise SpecificationError(
            f'--impl {text}: {name} is no name and no expression; write it as in "{target}:Class(n_layer=2)"'
        )
    if is_file:
        path = Path(target).expanduser()
        path = path / "__init__.py" if path.is_dir() else path
        if not path.is_file():
            raise SpecificationError(f"--impl {text}: there is no file {path}; give path/to/file.py:Class")
        return Specification(text, str(path.resolve()), name, is_file=True, role=role)
    if not name or not all(part.isidentifier() for part in target.split(".")):
        raise SpecificationError(
            f"--impl {text}: give one of {', '.join(BUILT_IN)}, or path/to/file.py:Class, or package.module:Class"
        )
    return Specification(text, target, name, role=role)


def _with_role(name: str) -> tuple[str, str]:
    """ "Class@role" apart; a matrix product in an expression is no role."""
    before, _, role = name.rpartition("@")
    return (before, role) if before and (role.isidentifier() or not role) else (name, "")


def _is_one_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def is_expression(name: str) -> bool:
    """Whether the name in a specification is more than a (dotted) name."""
    return not all(part.isidentifier() for part in name.split("."))


def imports_torch(text: str, folders: Iterable[str | os.PathLike[str]] = ()) -> bool:
    """Whether it is certain, from the text of its own file, that an implementation has imported PyTorch when it is
    loaded. folders: where its module is looked for, besides the current one."""
    try:
        spec = parse(text)
    except SpecificationError:
        return False
    return spec.target == "torch" or any(map(_imports_torch, _sources(spec, folders)))


def _sources(spec: Specification, folders: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The files that are imported whenever the implementation is."""
    if not spec.is_file:
        for folder in ("", *folders):
            module = Path(folder, *spec.target.split("."))
            yield from (module.with_suffix(".py"), module / "__init__.py")
    elif spec.target.endswith("__init__.py") and spec.is_whole_file:
        yield from Path(spec.target).parent.glob("*.py")
    else:
        yield Path(spec.target)


def _imports_torch(path: Path) -> bool:
    """Whether a statement of the file itself does: one under a condition, or in a function, might not be reached."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            statements = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names: list[str] = []
    for statement in statements:
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names.append(statement.module or "")
    return any(name.partition(".")[0] == "torch" for name in names)
