"""The files that a submission uses, as one archive that travels to a worker: `packed`, `Archive`.

Of a submission that is a folder these are all files in it. Of a single file they are the files that it imports, and
theirs, and the files whose names stand in the code as texts; never the files of other submissions.
"""

from __future__ import annotations

import ast
import hashlib
import io
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from conformance.adapters.loading import ROOT_MARKS
from conformance.grading.submissions import GradingError, Submission

LARGEST = 64 * 2**20
"""Bytes that all files of a submission may have together."""

_LEFT_OUT = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True)
class Archive:
    """impl: the expression that points at the submission from the archive's top. data: a zip file, always the same for
    the same files. digest: of the names and the contents. is_complete: whether all that the submission uses is in it.
    """

    impl: str
    data: bytes
    digest: str
    is_complete: bool = True

    def unpack(self, folder: Path) -> None:
        """Write the files into a folder. Raises GradingError for a name that leads out of it."""
        with zipfile.ZipFile(io.BytesIO(self.data)) as file:
            for name in file.namelist():
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts:
                    raise GradingError(f"the archive holds the name {name}, which leads out of its folder")
            file.extractall(folder)


def packed(submission: Submission, others: Collection[Path] = ()) -> Archive:
    """The archive of a submission. others: files that must not be in it. Raises GradingError."""
    file = submission.file
    if file is None:  # a module that the worker has installed, or a built-in implementation
        return Archive(submission.impl, _zipped({}), "", is_complete=submission.impl.partition(":")[0] in _BUILT_IN)
    if not file.exists():
        raise GradingError(f"{submission.id}: there is no file {file}; give path/to/file.py:Class")
    base = submission.base.resolve()
    base = base if file.is_relative_to(base) else file.parent
    owned = submission.folder
    files = set(_all_files(owned.resolve()) if owned else _used(file, base, frozenset(others) - {file}))
    contents: dict[str, bytes] = {}
    for path in sorted(files):
        try:
            contents[path.relative_to(base).as_posix()] = path.read_bytes()
        except OSError as error:
            raise GradingError(f"{submission.id}: {path} cannot be read: {error.strerror}") from error
    if (size := sum(map(len, contents.values()))) > LARGEST:
        raise GradingError(f"{submission.id}: its files take {size:,} bytes, and {LARGEST:,} are the most")
    digest = hashlib.sha256()
    for name, data in contents.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    impl = file.relative_to(base).as_posix() + (f":{submission.name}" if submission.name else "")
    return Archive(impl, _zipped(contents), digest.hexdigest())


def of_source(source: str, name: str = "") -> Archive:
    """The archive of one file of Python, given as text. name: what is tested in it."""
    data = source.encode()
    impl = f"submission.py:{name}" if name else "submission.py"
    return Archive(impl, _zipped({"submission.py": data}), hashlib.sha256(data).hexdigest())


_BUILT_IN = {"minigrad", "torch", "reference"}


def _zipped(contents: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in contents.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def _all_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts
        if path.is_file() and not path.is_symlink() and not any(p[0] == "." or p in _LEFT_OUT for p in inside):
            yield path


def _used(file: Path, base: Path, others: frozenset[Path]) -> Iterator[Path]:
    """A file, and what it uses of what lies under `base`."""
    waiting, seen = [file], {file}
    while waiting:
        path = waiting.pop()
        yield path
        for one in _mentioned(path, base):
            if one not in seen and one not in others and one.is_file():
                seen.add(one)
                waiting.append(one)
    for mark in ROOT_MARKS:  # what tells the suite from where absolute imports are found
        if (base / mark).is_file() and base / mark not in seen:
            yield base / mark


def _mentioned(path: Path, base: Path) -> Iterator[Path]:
    """The files that a file of Python imports, or names in a text. What cannot be parsed mentions none."""
    if path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    around = [folder for folder in path.parents if folder.is_relative_to(base)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(alias.name.split("."), around)
        elif isinstance(node, ast.ImportFrom):
            folders = [path.parents[node.level - 1]] if node.level and node.level <= len(path.parents) else around
            folders = [folder for folder in folders if folder.is_relative_to(base)]
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _modules([*parts, alias.name], folders)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 200:
            yield from _named(node.value, around)


def _modules(parts: list[str], folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        for count in range(len(parts) + 1):
            place = folder.joinpath(*parts[:count])
            yield place / "__init__.py"
            yield place.with_suffix(".py")


def _named(text: str, folders: list[Path]) -> Iterator[Path]:
    if "\0" in text or "\n" in text or "." not in text:
        return
    for folder in folders:
        path = (folder / text).resolve()
        if path.is_relative_to(folder.resolve()):
            yield path
