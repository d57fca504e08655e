"""A checkout as syntax, without running it: its modules, its functions, and who refers to whom."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

SKIPPED = {"test", "tests", "testing", "doc", "docs", "example", "examples", "scripts", "notebooks", "build"}
"""Folders that hold no model."""


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name that the syntax mentions, except in strings: variables, attributes, arguments, definitions."""
    for node in ast.walk(tree):
        for part in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, part, None), str):
                yield name


_NEED = {"torch.utils.tensorboard": "tensorboard"}
"""Modules of a package that need another one, which it does not require."""


def imported(tree: ast.Module) -> Iterator[str]:
    """The dotted modules that a file imports at its top, those in a `try` left out; relative ones begin with a dot."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * bool(statement.level) + (statement.module or "")
            yield module
            yield from (f"{module.rstrip('.')}.{name.name}" for name in statement.names)


@dataclass(frozen=True, eq=False)
class Definition:
    """A public or private class or function at the top of a file; `path` is relative to the checkout."""

    path: str
    node: ast.ClassDef | ast.FunctionDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def place(self) -> tuple[str, int]:
        return self.path, self.node.lineno

    @cached_property
    def mentions(self) -> frozenset[str]:
        return frozenset(identifiers(self.node))

    @property
    def bases(self) -> list[str]:
        """The last names of a class's bases."""
        found = getattr(self.node, "bases", [])
        return [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in found]

    @property
    def is_layer(self) -> bool:
        """Whether a class is written as one of torch's layers, such as `class X(nn.Embedding)`."""
        return any(ast.unparse(base).startswith(("nn.", "torch.nn.")) for base in getattr(self.node, "bases", []))

    def parameters(self, method: str = "") -> list[str] | None:
        """The parameters of a function, or of a method without `self`; None without that method."""
        function: ast.AST | None = self.node
        if method:
            own = [n for n in self.node.body if isinstance(n, ast.FunctionDef)]
            function = next((n for n in own if n.name == method), None)
        if not isinstance(function, ast.FunctionDef):
            return None
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        return names[bool(method) :]


@dataclass
class Checkout:
    """A repository's Python files, parsed. Files that Python cannot parse, and tests, are left out."""

    root: Path
    files: dict[str, ast.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(path for path in self.root.rglob("*.py") if path.is_file()):
            inside = path.relative_to(self.root)
            folders = [part.lower() for part in inside.parts[:-1]]
            if any(part in SKIPPED or part.startswith(".") for part in folders):
                continue
            if path.name in ("setup.py", "conftest.py") or re.search(r"^test_|_test\.py$", path.name):
                continue
            try:
                self.files[inside.as_posix()] = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):
                continue

    @cached_property
    def definitions(self) -> list[Definition]:
        """All classes and functions at the top of files, in the order of the files."""
        return [
            Definition(path, node)
            for path, tree in self.files.items()
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        ]

    @cached_property
    def modules(self) -> list[Definition]:
        """The classes that are torch modules: a base of theirs is `nn.X`, a `Module`, or such a class."""
        known = {"Module", "LightningModule"}
        classes = [d for d in self.definitions if isinstance(d.node, ast.ClassDef)]
        while True:
            found = [d for d in classes if d.is_layer or known & set(d.bases)]
            names = known | {d.name for d in found}
            if names == known:
                return found
            known = names

    def resolve(self, name: str, path: str) -> Definition | None:
        """The module class that a name means in a file: one of that file, of a file that it imports, or the only."""
        named = [d for d in self.modules if d.name == name]
        here = [d for d in named if d.path == path]
        stems = {module.rpartition(".")[2] for module in imported(self.files[path])}
        near = [d for d in named if Path(d.path).stem in stems]
        for candidates in (here, near, named):
            if len(candidates) == 1:
                return candidates[0]
        return None

    @cached_property
    def references(self) -> dict[Definition, list[Definition]]:
        """Definition -> the module classes that it refers to, itself left out."""
        names = {d.name for d in self.modules}
        table = {}
        for definition in self.definitions:
            found = (self.resolve(name, definition.path) for name in sorted(definition.mentions & names))
            table[definition] = [d for d in found if d is not None and d is not definition]
        return table

    def reach(self, definition: Definition) -> list[Definition]:
        """The definition and all module classes that it refers to, directly or not."""
        seen, waiting = [definition], [definition]
        while waiting:
            for d in self.references[waiting.pop()]:
                if d not in seen:
                    seen.append(d)
                    waiting.append(d)
        return seen

    def forward_of(self, definition: Definition) -> list[str] | None:
        """The parameters of a class's `forward`, which may be that of a base in this checkout."""
        own = definition.parameters("forward")
        if own is not None:
            return own
        bases = [self.resolve(name, definition.path) for name in definition.bases]
        return next((f for b in bases if b and b is not definition and (f := self.forward_of(b)) is not None), None)

    def packages(self, path: str) -> set[str]:
        """The first names of the packages, neither Python's nor the checkout's, that importing a file imports."""
        own = {Path(p).stem for p in self.files} | {part for p in self.files for part in Path(p).parts[:-1]}
        found, seen, waiting = set(), {path}, [path]
        while waiting:
            current = waiting.pop()
            above = [p for folder in Path(current).parents if (p := (folder / "__init__.py").as_posix()) in self.files]
            waiting += [p for p in above if p not in seen]
            seen.update(above)
            for module in imported(self.files[current]):
                first = module.lstrip(".").partition(".")[0]
                if module.startswith(".") or first in own:
                    tail = module.lstrip(".").replace(".", "/")
                    hits = [p for p in self.files if p.endswith((f"{tail}.py", f"{tail}/__init__.py"))] if tail else []
                    waiting += [p for p in hits if p not in seen]
                    seen.update(hits)
                elif first not in sys.stdlib_module_names:
                    found |= {
                        first,
                        *(needed for inner, needed in _NEED.items() if f"{module}.".startswith(f"{inner}.")),
                    }
        return found
