"""Mutations of our own code, drawn by lot, and probes that tell which tests run them.

A probe is a call in the place of what a mutation changes: the first time in a test it writes down its number and the
test. Probes stand in compiled files only (`__pycache__`), so that sources are read as they are, and every Python that
imports a probed module meets them, child processes too. Test and process are known by PYTEST_CURRENT_TEST, which pytest
sets and children inherit.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import marshal
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.operators import Edit, Mutation, applied, own_edits

PACKAGES = ("minigrad", "conformance", "transformer")

LEFT_OUT = ("conformance/mutants/", "minigrad/kernels/cuda/", "minigrad/simt/")
"""Subjects that are wrong on purpose; and what only the tests of the GPU run, which need packages of their own."""

COMPILED = ("kernel", "inline", "intrinsic")
"""Decorators whose functions become machine code, in which no probe can stand: theirs stands before the definition."""

HITS = "OWN_MUTANTS_HITS"
"""The environment's name of the file to which probes write."""

_PROBE = f"""
def __ran__(number):
    import os, sys
    seen = sys.__dict__.setdefault("own_mutants_seen", set())
    if number not in seen:
        seen.add(number)
        try:
            file = os.open(os.environ["{HITS}"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
            os.write(file, (str(number) + " " + test + chr(10)).encode("utf-8", "backslashreplace"))
            os.close(file)
        except (OSError, KeyError):
            pass
"""


@dataclass(frozen=True)
class Drawn:
    """One mutation of one line of `file`, which is named from the root of the repository."""

    file: str
    mutation: Mutation
    edit: Edit

    @property
    def key(self) -> tuple[str, int, str, str]:
        return self.file, self.mutation.line, self.mutation.before, self.mutation.after


def files(root: Path) -> list[str]:
    """The files of our packages, in order."""
    found = (path.relative_to(root).as_posix() for package in PACKAGES for path in (root / package).rglob("*.py"))
    return sorted(name for name in found if not name.startswith(LEFT_OUT))


def draw(
    root: Path, count: int, seed: int, told: Callable[[str], object] = lambda name: None
) -> tuple[list[Drawn], dict[str, ast.Module]]:
    """So many mutations, and the trees of their files: a line is drawn, and then one of its mutations. More of the same
    seed begin with these; they stay when other lines change. `told` hears the name of every file that is read."""
    edits: dict[str, tuple[str, list[Edit]]] = {}  # the lot of a line -> its file and what can be done to it
    trees, sources = {}, {}
    for name in files(root):
        told(name)
        sources[name] = (root / name).read_text(encoding="utf-8")
        trees[name] = ast.parse(sources[name])
        lots: dict[int, str] = {}
        equal: Counter[str] = Counter()
        for number, text in enumerate(sources[name].splitlines(), 1):
            equal[text] += 1
            lots[number] = hashlib.sha256(repr((seed, name, text, equal[text])).encode()).hexdigest()
        for edit in own_edits(trees[name]):
            edits.setdefault(lots[edit[1].lineno], (name, []))[1].append(edit)
    found: list[Drawn] = []
    for lot in sorted(edits):
        name, own = edits[lot]
        for edit in random.Random(lot).sample(own, len(own)) if len(found) < count else ():
            mutation = applied(sources[name], edit)
            if mutation is not None:
                found.append(Drawn(name, mutation, edit))
                break
    used = {one.file for one in found}
    return found, {name: tree for name, tree in trees.items() if name in used}


def write_probes(found: Sequence[Drawn], trees: Mapping[str, ast.Module], root: Path, layer: Path) -> None:
    """Compiled files with probes for all files of `trees`, under `layer` as they would lie in `root`; Python believes
    that they are compiled from the sources there. Changes the trees."""
    for name, tree in trees.items():
        marks = {id(one.edit[1]): number for number, one in enumerate(found) if one.file == name}
        source = root / name
        code = compile(probed(tree, marks), str(source), "exec", dont_inherit=True)
        state = source.stat()
        head = importlib.util.MAGIC_NUMBER + bytes(4)
        for number in (int(state.st_mtime), state.st_size):
            head += (number & 0xFFFFFFFF).to_bytes(4, "little")
        to = layer / Path(importlib.util.cache_from_source(str(source))).relative_to(root)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(head + marshal.dumps(code))


def probed(tree: ast.Module, marks: Mapping[int, int]) -> ast.Module:
    """A tree with a probe at every node whose id is marked; marks: id -> the number that the probe writes."""
    _Probes(marks).visit(tree)
    at = 0
    while at < len(tree.body) and (_is_text(tree.body[at]) or _is_future(tree.body[at])):
        at += 1
    give = f"'__ran__' in __import__('builtins').__dict__ or exec({_PROBE!r}, __import__('builtins').__dict__)"
    tree.body[at:at] = ast.parse(give).body
    return ast.fix_missing_locations(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _call(numbers: Iterable[int]) -> list[ast.stmt]:
    return [ast.parse(f"__ran__({number})").body[0] for number in numbers]


class _Probes(ast.NodeTransformer):
    def __init__(self, marks: Mapping[int, int]) -> None:
        self.marks = marks

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, ast.FunctionDef) and any(_name(each) in COMPILED for each in node.decorator_list):
            return [*_call(self.marks[id(each)] for each in ast.walk(node) if id(each) in self.marks), node]
        number = self.marks.get(id(node))
        made = self.generic_visit(node)
        if number is None:
            return made
        if isinstance(made, ast.stmt):
            return [*_call([number]), made]
        assert isinstance(made, ast.expr)
        call = ast.parse(f"__ran__({number})", mode="eval").body
        return ast.copy_location(ast.BoolOp(ast.Or(), [call, made]), made)


def _name(decorator: ast.expr) -> str:
    return decorator.id if isinstance(decorator, ast.Name) else ""
