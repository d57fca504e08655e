"""What the user's own files show: calls of a class or function in its file, the files around it, its repository's
tests and programs, its notebooks, its README's blocks of Python, and the settings in its config files. All of it is
read as syntax.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import json
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.adapters.loading import repository_root, writing_no_bytecode
from conformance.adapters.whole.syntax import Scope, Source, read, read_notebook

MAX_FILES = 400
"""So many files of a repository are looked at, the nearest first."""
_MOST_READ = 40
"""So many files, the nearest, are read for the values of settings."""
_MOST_SETTINGS = 40
"""So many config files are read, those in upper folders first."""
_LOOKED_UP = r"\b{name}\b(?:\.\w+\(\))*\s*(?:[=!]=|\]|\b(?:in|not|is)\b)|\.get\(\s*[\w.]*\b{name}\b"
"""How a comparison of a name, and its look-up in a table, begin: only files with such a line are parsed for them."""
_PASSED_OVER = re.compile(r"^(\.|__pycache__$|node_modules$|build$|dist$|venv$|env$|site-packages$)|\.egg-info$")
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:python|py|python3|pycon)?[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.I
)


@dataclass(frozen=True)
class Usage:
    """One call in the user's files, where it stands, and in which scope."""

    call: ast.Call
    scope: Scope

    @property
    def place(self) -> str:
        return self.scope.source.place(self.call)

    def __str__(self) -> str:
        text = " ".join(ast.unparse(self.call).split())
        return f"{self.place} {text if len(text) < 90 else text[:87] + '...'}"


@lru_cache(maxsize=4)
def surroundings(module: ModuleType) -> Surroundings:
    """The files around a module, read once for all that is made of it."""
    return Surroundings(module)


class Surroundings:
    """The files around an imported module of the user's."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.path = Path(getattr(module, "__file__", None) or "<typed in>").resolve()  # in a notebook there is no file
        self.root = repository_root(self.path) or self.path.parent

        self.uses: dict[tuple[Any, str], Any] = {}
        """What classes and functions do with their parameters, as `uses` finds it out: (class, parameter) -> Use."""

    @cached_property
    def own(self) -> Source:
        return read(self.path, self.module) or Source(self.path, "", self.module)

    @cached_property
    def sources(self) -> list[Source]:
        """Every source, the nearest first: the file, its folder, the repository, notebooks, blocks of README files."""
        found = [self.own]
        paths = [path for path in self._files(".py") if path != self.path]
        paths.sort(key=lambda path: (path.parent != self.path.parent, len(path.parts), str(path)))
        imported = _imported(paths)
        found += [source for path in paths if (source := read(path, imported.get(path))) is not None]
        found += filter(None, map(read_notebook, self._files(".ipynb")))
        for folder in dict.fromkeys((self.path.parent, self.root)):
            for path in sorted(folder.glob("[Rr][Ee][Aa][Dd][Mm][Ee]*.*")):
                found += _blocks(path)
        return found

    def usages(self, made_by: Any) -> list[Usage]:
        """The calls of a class or function, in the order of `sources`."""
        return self._usages(made_by.__name__, made_by.__module__ == self.module.__name__)

    def _usages(self, name: str, is_here: bool) -> list[Usage]:
        called = re.compile(rf"\b{re.escape(name)}\s*\(")
        return [
            Usage(call, scope)
            for source in self.sources
            if name in source.text
            and called.search(source.text)
            and (not is_here or source is self.own or not _defines(source, name))
            for call, scope in source.calls
            if _called(call) == name
        ]

    def usages_of_scope(self, scope: Scope) -> list[Usage]:
        """The calls of a function, or of the class whose method it is, by its syntax."""
        node = scope.parent.node if scope.parent is not None and scope.parent.is_class else scope.node
        name = getattr(node, "name", "")
        own = [Usage(call, inner) for call, inner in scope.source.calls if _called(call) == name]
        return own or (self._usages(name, True) if name and scope.source is self.own else [])

    def source_of(self, module: ModuleType) -> Source | None:
        """The source of an imported module of the user's; None for what is installed."""
        path = Path(getattr(module, "__file__", None) or "/").resolve()
        return next((source for source in self.sources if source.path == path), None)

    def scope_of(self, function: Any) -> Scope | None:
        """The scope of a function of the user's."""
        path = Path(function.__code__.co_filename).resolve()
        source = next((source for source in self.sources if source.path == path), None)
        return source.defined_at(function.__code__.co_firstlineno) if source else None

    def module_file(self, name: str, source: Source) -> Source | None:
        """The source that ``import name`` would find from a source, by its file name."""
        tail = name.replace(".", os.sep)
        places = [folder / f"{tail}.py" for folder in (source.path.parent, self.path.parent, self.root)]
        places += [place.with_suffix("") / "__init__.py" for place in places]
        return next((other for place in places for other in self.sources if other.path == place), None)

    def imported(self, source: Source, name: str = "") -> ModuleType | None:
        """The module of a source, imported where it only defines things; where it does more, a module of what it
        defines. name: as another file imports it."""
        if source.module is not None or source.path.suffix != ".py":
            return source.module
        if not all(map(_defines_only, source.tree.body)):
            return self._definitions_of(source)
        base = self.path.parents[self.module.__name__.count(".")]
        with suppress(Exception), writing_no_bytecode():
            name = name or ".".join(source.path.relative_to(base).with_suffix("").parts)
            module = importlib.import_module(name)
            if Path(module.__file__ or "").resolve() == source.path:
                return module
        return _loaded_alone(source.path)

    def _definitions_of(self, source: Source) -> ModuleType | None:
        """A module of a file's imports, definitions and constants, without the statements that do something, and
        without imports of files of the user's that do more than define."""
        name = _name_alone(source.path) + "_definitions"
        if name in sys.modules:
            return sys.modules[name]
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = str(source.path)
        defining = [one for one in source.tree.body if _defines_only(one) and not self._imports_work(one, source)]
        try:
            with writing_no_bytecode():
                exec(compile(ast.Module(defining, []), str(source.path), "exec", dont_inherit=True), vars(module))
        except (Exception, SystemExit):
            del sys.modules[name]
            return None
        return module

    def _imports_work(self, statement: ast.stmt, source: Source) -> bool:
        """Whether a statement imports a file of the user's that does more than define, and is not imported yet."""
        named: list[str] = []
        if isinstance(statement, ast.Import):
            named = [one.name for one in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            named = [statement.module or ""]
        files = (self.module_file(name, source) for name in named if name)
        return any(
            file is not None and file.module is None and not all(map(_defines_only, file.tree.body)) for file in files
        )

    def is_users(self, value: Any) -> bool:
        """Whether a class or function is the user's own, not an installed library's."""
        name = getattr(value, "__module__", "") or ""
        if name == self.module.__name__ or name.partition(".")[0] == self.module.__name__.partition(".")[0]:
            return True
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        return "site-packages" not in file and Path(file).resolve().is_relative_to(self.root) if file else False

    def compared_with(self, name: str) -> str | None:
        """A text that the files compare something of this name with (``mode == "sum"``), or look up in a table of
        theirs (``{"relu": nn.ReLU()}[act]``): an activation that bends, else the first. None without one."""
        written = re.compile(_LOOKED_UP.format(name=re.escape(name)))
        sources = (source for source in self.sources if name in source.text and written.search(source.text))
        found = (texts or self._keys_of(table) for one in sources for of, texts, table in one.compared if of == name)
        texts = next(filter(None, found), [])
        bent = [text for text in texts if re.fullmatch(r"relu|gelu|silu|swish", text, re.I)]
        return next(iter(bent or texts), None)

    def _keys_of(self, table: str) -> list[str]:
        """The keys of a table of this name, of the nearest file that has one."""
        written = re.compile(rf"\b{re.escape(table)}\s*=[\s\w=]*{{")
        sources = (one for one in self.sources if table and table in one.text and written.search(one.text))
        return next((one.tables[table] for one in sources if table in one.tables), [])

    def written_value(self, name: str) -> Any:
        """A constant that the files give to this name anywhere: a setting of a dict or of a call, a default, a field of
        a class, an option of the command line, a line of a config file. The file's own come first; None where they give
        none."""
        named = re.compile(rf"\b{re.escape(name).replace('_', '[-_]')}\b")  # an option of a command line has dashes
        written = (source.written for source in self.sources[:_MOST_READ] if named.search(source.text))
        settings = (section for _, section in self.settings)
        found = (one[name] for one in itertools.chain(written, settings) if name in one)
        return next((value for value in found if value is not None and not isinstance(value, dict)), None)

    @cached_property
    def smallest_variants(self) -> dict[str, str]:
        """Of every table in the file whose keys are names of models ({"base": dict(width=768), ...}): the name of the
        smallest one, by the sum of its numbers, for the name of each."""
        found: dict[str, str] = {}
        for node in ast.walk(self.own.tree):
            if isinstance(node, ast.Dict) and len(node.keys) > 1:
                names = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
                sums = [_sum_of_numbers(value) for value in node.values]
                if len(names) == len(sums) and all(sums):
                    smallest = names[sums.index(min(sums))]
                    found |= dict.fromkeys(names, smallest)
        return found

    @cached_property
    def settings(self) -> list[tuple[str, dict[str, Any]]]:
        """The mappings in the JSON and YAML files next to the file and in the repository's config folders, with the
        groups inside these, each with the name of its file; sections of a file before the whole."""
        near = [self.path.parent, self.root]
        groups = [folder / name for folder in near for name in ("config", "configs", "conf")]
        paths = [path for folder in near for path in sorted(folder.iterdir())]
        paths += [path for folder in groups for path in sorted(folder.rglob("*"), key=lambda p: (len(p.parts), p))]
        paths = [path for path in dict.fromkeys(paths) if path.suffix in (".json", ".yaml", ".yml")][:_MOST_SETTINGS]
        return [(path.name, section) for path in paths for section in _sections(_parsed(path))]

    def _files(self, ending: str) -> list[Path]:
        """The repository's files, its upper folders first; the file's own folder always."""
        found = sorted(self.path.parent.glob(f"*{ending}"))
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not _PASSED_OVER.search(name))
            found += [Path(folder) / name for name in sorted(names) if name.endswith(ending)]
            if len(found) > MAX_FILES:
                break
        real = (path.resolve() if path.is_symlink() else path for path in found)  # the folders are real
        return list(dict.fromkeys(real))[:MAX_FILES]


def _imported(paths: Iterable[Path]) -> dict[Path, ModuleType]:
    """Of these files those that are imported modules. Only files of these names are looked up, and of packages those
    in folders of these names: a process with torch has thousands of modules."""
    names = {_file_name(str(path)) for path in paths}
    if not names:
        return {}
    files = [(str(getattr(module, "__file__", None) or ""), module) for module in list(sys.modules.values())]
    return {Path(file).resolve(): module for file, module in files if _file_name(file) in names}


def _file_name(path: str) -> str:
    """The last part of a path; of a package with its folder."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.basename(folder), name) if name == "__init__.py" else name


def _loaded_alone(path: Path) -> ModuleType | None:
    """The module of a file whose name another module has. None where it cannot be imported outside of its package."""
    name = _name_alone(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with writing_no_bytecode():
            spec.loader.exec_module(module)
    except Exception:
        del sys.modules[name]
        return None
    return module


def _name_alone(path: Path) -> str:
    """A name of its own for the module of a file: two files may be called utils.py."""
    return f"subject_{path.stem}_{zlib.crc32(str(path).encode()):08x}"


def _sum_of_numbers(value: ast.expr) -> int:
    """The sum of the whole numbers written in a dict, a list or a call; 0 in anything else."""
    if not isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.Call)):
        return 0
    return sum(n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and type(n.value) is int)


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _defines(source: Source, name: str) -> bool:
    binding = source.top.binding(name, None)
    return binding is not None and binding.kind == "def"


_GIVES_A_THING = re.compile(
    r"((logging|log)\.getLogger|getLogger|(typing\.)?(TypeVar|NewType|NamedTuple)|(collections\.)?namedtuple"
    r"|(torch\.)?device|torch\.cuda\.is_available|(pathlib\.)?Path|set|frozenset|dict|list|tuple|range|len|int|float)"
)
"""Calls that give a thing and change nothing."""


def _defines_only(node: ast.stmt) -> bool:
    """Whether a statement at the top of a file is an import, a definition or a constant, or is left out when it is
    imported."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
        return all(_GIVES_A_THING.fullmatch(ast.unparse(call.func)) for call in calls)
    return (
        isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test))
    )


def _blocks(path: Path) -> Iterator[Source]:
    """The Python blocks of a README, each a source of its own."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for block in _FENCE.finditer(text):
        lines = [re.sub(r"^(>>>|\.\.\.) ?", "", line) for line in block[1].splitlines()]
        yield Source(path, "\n".join(lines), None, text.count("\n", 0, block.start(1)))


def _parsed(path: Path) -> Any:
    """What a JSON or YAML file holds; None where it cannot be read (YAML needs PyYAML)."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return json.loads(text)
        import yaml  # type: ignore[import-untyped, unused-ignore]

        class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
            """1e-6 is a number, as in YAML 1.2; PyYAML reads a word."""

        Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
        return yaml.load(text, Loader)
    except Exception:
        return None


def _sections(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for inner in value.values():
            yield from _sections(inner)
        yield value
