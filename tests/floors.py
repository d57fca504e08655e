"""The imports of a package as its text has them: who imports whom, when, and in which circles. Nothing is imported."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """name: what is imported, with its whole path. late: inside a function. typed: only a type checker sees it."""

    name: str
    late: bool
    typed: bool


def imports(tree: ast.AST, late: bool = False, typed: bool = False) -> Iterator[Import]:
    """Those of a tree. Only statements are looked through: there are few of them beside the expressions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, late, typed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the whole path"
            yield from (Import(f"{node.module}.{alias.name}", late, typed) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(ast.Module(node.body, []), late, True)
            yield from imports(ast.Module(node.orelse, []), late, typed)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(node, late or is_function, typed)


class Package:
    """The modules of a package. They are named without the package in front; the package itself has its own name."""

    def __init__(self, root: Path) -> None:
        self.root, self.name = root, root.name

    @cached_property
    def files(self) -> dict[str, Path]:
        found = {}
        for path in self.root.rglob("*.py"):
            parts = path.relative_to(self.root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or self.name] = path
        return found

    def trees(self) -> Iterator[tuple[str, ast.Module]]:
        """One after the other: all of them together are millions of objects for the collector of garbage."""
        for module, path in self.files.items():
            yield module, ast.parse(path.read_text(encoding="utf-8"))

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        return {module: list(imports(tree)) for module, tree in self.trees()}

    def module_of(self, name: str) -> str | None:
        """The module of ours that an import of `name` runs: itself, or the one that defines it."""
        parts = name.split(".")
        if parts[0] != self.name:
            return None
        for end in range(len(parts), 1, -1):
            if (found := ".".join(parts[1:end])) in self.files:
                return found
        return self.name

    def arrows(self, typed: bool) -> dict[str, set[str]]:
        """Module -> those that it imports, with the packages that they lie in and it does not. typed: count imports,
        too, that only a type checker sees."""
        found: dict[str, set[str]] = {}
        for module, imported in self.imports.items():
            found[module] = set()
            for one in imported:
                target = self.module_of(one.name)
                if target is not None and (typed or not one.typed):
                    packages = {target[: dot.start()] for dot in re.finditer(r"\.", target)}
                    around = {package for package in packages if f"{module}.".startswith(f"{package}.")}
                    found[module] |= {target, *packages} - around - {module}
        return found


def in_circles(arrows: Mapping[str, Iterable[str]]) -> set[str]:
    """The modules from which arrows lead around to themselves, and those on the way between two such circles."""
    left = {module: set(targets) for module, targets in arrows.items()}
    while True:
        aimed_at = {target for targets in left.values() for target in targets}
        kept = {module for module, targets in left.items() if targets and module in aimed_at}
        if kept == set(left):
            return kept
        left = {module: left[module] & kept for module in kept}


def unexplained(package: Package, reasons: Mapping[str, tuple[str, str]], without: str = "") -> list[str]:
    """Imports inside functions that `reasons` (pattern of modules -> (patterns of what they import, why)) does not
    have, and what stands there and is not needed. without: a pattern of modules that are not looked at."""
    used, found = set(), []
    for module, imported in package.imports.items():
        for one in imported:
            if not one.late or fnmatchcase(module, without):
                continue
            pattern = reason_for(module, reasons)
            wanted = reasons[pattern][0].split() if pattern is not None else []
            fitting = [name for name in wanted if fnmatchcase(one.name, name) or one.name.startswith(f"{name}.")]
            if not fitting:
                found.append(f"{package.name}.{module} imports {one.name} inside a function: say why")
            used |= {(pattern, name) for name in fitting}
    listed = {(pattern, name) for pattern, (names, _) in reasons.items() for name in names.split()}
    return found + [f"{pattern}: no function imports {name} any more" for pattern, name in sorted(listed - used)]


def reason_for(module: str, table: Mapping[str, object]) -> str | None:
    """The first pattern of a table that fits a module."""
    return next((pattern for pattern in table if fnmatchcase(module, pattern)), None)
