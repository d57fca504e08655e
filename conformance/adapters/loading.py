"""Importing what `--impl` names, a file or a module, from the folders from which its author imports.

A file tells a part of them: its own place, the dots of its imports, the marks of its repository. What its author sets
elsewhere, such as PYTHONPATH in a shell script, is found out by what is missing.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "requirements.txt")


def repository_root(path: Path) -> Path | None:
    """The nearest folder around a file that looks like the root of a repository; None where there is none."""
    return next((folder for folder in path.resolve().parents if any((folder / m).exists() for m in ROOT_MARKS)), None)


_PASSED_OVER = re.compile(r"^(\.|__pycache__$|node_modules$|build$|dist$|venv$|env$|site-packages$)|\.egg-info$")
_MOST_FOLDERS = 2000
_ATTEMPTS = 4


def load_file(path: Path) -> ModuleType:
    """Import a file. Where an import finds nothing, or a namesake without the name that is asked for, and one folder of
    the repository has it, the file is imported again with that folder first."""
    first: list[Path] = []
    for _ in range(_ATTEMPTS):
        try:
            return _load_once(path, first)
        except ImportError as error:
            folder = _folder_that_has(error, path)
            if folder is None or folder in first:
                raise
            first.insert(0, folder)
            _forget_namesake(error.name or "")
    return _load_once(path, first)


def _folder_that_has(error: ImportError, path: Path) -> Path | None:
    """The one folder of a file's repository that holds the module, or the namesake that defines what is imported."""
    root, (name, _, inner) = repository_root(path), (error.name or "").partition(".")
    asked = re.match(r"cannot import name '(\w+)'", str(error))
    if root is None or not name or (asked is None and not isinstance(error, ModuleNotFoundError)):
        return None
    found: list[Path] = []
    for count, (folder, folders, files) in enumerate(os.walk(root)):
        folders[:] = sorted(one for one in folders if not _PASSED_OVER.search(one))
        if count > _MOST_FOLDERS:
            return None
        if f"{name}.py" in files:
            found.append(Path(folder, f"{name}.py"))
        if name in folders and Path(folder, name, "__init__.py").is_file():
            found.append(Path(folder, name, "__init__.py"))
    if asked is not None:
        defines = re.compile(rf"^(?:def|class) {asked[1]}\b|^{asked[1]}\s*[:=]", re.MULTILINE)
        found = [one for one in found if defines.search(one.read_text(encoding="utf-8", errors="replace"))]
    if inner:
        within = inner.replace(".", os.sep)
        found = [one for one in found if (one.parent / f"{within}.py").is_file() or (one.parent / within).is_dir()]
        found = [one for one in found if one.name == "__init__.py"]
    places = {one.parents[1] if one.name == "__init__.py" else one.parent for one in found}
    return places.pop() if len(places) == 1 else None


def _forget_namesake(name: str) -> None:
    """A module that lacked what was asked for is none that the file means, and its own modules are not either."""
    top = name.partition(".")[0]
    for one in [one for one in sys.modules if one == top or one.startswith(f"{top}.")]:
        del sys.modules[one]


def _load_once(path: Path, first: Sequence[Path]) -> ModuleType:
    """Import a file as Python would from its own folder; a file inside packages, as the package's module.

    A folder from which it imports with dots is a package, with an __init__.py or without, and so is one that has the
    file's own name, if the file imports from it. Absolute imports are found from any folder between the file and the
    root of its repository, and from the repository's src. first: folders that come before these.
    """
    root, parts = path.parent, [path.stem] if path.stem != "__init__" else []
    imports = _imports_of(path)
    namesake = _folders_up_to_its_namesake(path, imports)
    dots = max([namesake, *(node.level for node in imports if isinstance(node, ast.ImportFrom))])
    while (root / "__init__.py").is_file() or (len(parts) <= dots and root.name.isidentifier()):
        parts.insert(0, root.name)
        root = root.parent
    repository = repository_root(path)
    around = [repository, repository / "src", *path.parents[: path.parents.index(repository)]] if repository else []
    # The package's root first: models/models.py must not hide its package.
    folders = [folder for folder in (*first, root, path.parent, *around) if not (namesake and folder == path.parent)]
    with _importing(*folders):
        package = getattr(sys.modules.get(parts[0]), "__path__", None)
        if path.parent != root and (parts[0] not in sys.modules or str(root / parts[0]) in (package or ())):
            return importlib.import_module(".".join(parts))
        name = path.stem if path.stem not in sys.modules and path.stem.isidentifier() else f"subject_{path.stem}"
        module_spec = importlib.util.spec_from_file_location(name, path)
        assert module_spec is not None
        assert module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[name] = module
        try:
            module_spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module


def _folders_up_to_its_namesake(path: Path, imports: Sequence[ast.Import | ast.ImportFrom]) -> int:
    """How many folders up the one is from which a file imports and that has the file's name, or that of another file in
    the file's folder (model/model.py beside model/attention.py, which imports model.rope); 0 for none."""
    names = [node.module or "" for node in imports if isinstance(node, ast.ImportFrom) and not node.level]
    names += [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
    asked = {name.partition(".")[0] for name in names if "." in name}
    folders = [(up, folder.name) for up, folder in enumerate(path.parents, 1) if folder.name in asked]
    return next((up for up, name in folders if name == path.stem or (path.parent / f"{name}.py").is_file()), 0)


def _imports_of(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file; none where it cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def load_module(name: str, folders: Sequence[str]) -> ModuleType:
    with _importing(Path.cwd(), *map(Path, folders)):
        return importlib.import_module(name)


@contextmanager
def _importing(*folders: Path) -> Iterator[None]:
    """The folders come first while a subject is imported, last afterwards (for its imports inside functions); no
    option of our command line is taken for the subject's."""
    names = list(dict.fromkeys(str(folder) for folder in folders))
    sys.path[:0] = names
    arguments, sys.argv = sys.argv, sys.argv[:1]  # a file that parses its options when imported gets its defaults
    try:
        with writing_no_bytecode():
            yield
    finally:
        sys.argv = arguments
        del sys.path[: len(names)]
        sys.path.extend(names)


@contextmanager
def writing_no_bytecode() -> Iterator[None]:
    """No compiled file is written beside a subject. Python would believe it when the subject is written anew, as a
    program may do, in the same second and with as many bytes."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
