"""What is to be graded: `Submission`, and how a folder, a glob, a list or standard input names many of them.

A list is TOML (`[[submission]]` tables), CSV with a line of headings, or JSON lines. Its columns are `id`, `impl` (a
pointing expression, as --impl takes it), `role` and `group`; only `impl` must be there.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIELDS = ("id", "impl", "role", "group")
LISTS = (".toml", ".csv", ".jsonl")


class GradingError(ValueError):
    """What was asked for cannot be graded. The message is one sentence that says what to do."""


@dataclass(frozen=True)
class Submission:
    """One implementation to be graded.

    id: its name in the results. impl: its pointing expression; a file in it is found from `base`, and may import what
    lies in `base`. role: what it is to be tested as; empty when that shall be inferred. group: to compare with others.
    folder: where given, all files in it are the submission's.
    """

    id: str
    impl: str
    role: str = ""
    group: str = ""
    base: Path = Path()
    folder: Path | None = None

    @property
    def file(self) -> Path | None:
        """The file or package that its expression names; None where it names a module."""
        found = re.match(r"(.*?\.py)(?::.*)?$", self.impl, re.DOTALL)
        path = self.base / Path(found[1] if found else self.impl).expanduser()
        return path.resolve() if found or (":" not in self.impl and path.is_dir()) else None

    @property
    def name(self) -> str:
        """What the expression names in its file, with the role; empty where everything in the file is meant."""
        found = re.match(r".*?\.py(?::(.*))?$", self.impl, re.DOTALL)
        name = (found[1] or "") if found else ""
        return f"{name}@{self.role}" if name and self.role and "@" not in name else name


def found(what: str, text: str = "", name: str = "") -> list[Submission]:
    """The submissions that the command line names, in order of their ids.

    what: a folder (each file and each folder in it is one), a file, a glob, a list (.toml, .csv, .jsonl), or "-" for a
    list in `text`. name: the file, or `file.py:Class`, or `:Class`, to be tested of each folder or file. Raises
    GradingError.
    """
    path = Path(what)
    if what == "-":
        rows, base = _rows(text, _form_of(text), "standard input"), Path.cwd()
        submissions = [_listed(row, base, "standard input", at) for at, row in enumerate(rows, 1)]
    elif path.suffix in LISTS and path.is_file():
        rows = _rows(_read(path), path.suffix, str(path))
        submissions = [_listed(row, path.parent.resolve(), str(path), at) for at, row in enumerate(rows, 1)]
    else:
        submissions = [_pointed(one, name) for one in _paths(path, what)]
    if not submissions:
        raise GradingError(f"{what} names nothing to be graded; give a folder of files, a glob, or a list of them")
    twice = [one for one, count in Counter(s.id for s in submissions).items() if count > 1]
    if twice:
        raise GradingError(f"{what}: two submissions have the id {twice[0]!r}; give each a different id")
    return sorted(submissions, key=lambda submission: submission.id)


def _paths(path: Path, what: str) -> list[Path]:
    if path.is_dir():
        inside = [one for one in path.iterdir() if one.name[0] not in "._" and (one.is_dir() or one.suffix == ".py")]
        return [one for one in inside if one.is_file() or any(one.rglob("*.py"))]
    if glob.has_magic(what):
        return [Path(one) for one in glob.glob(what, recursive=True)]
    if path.exists():
        return [path]
    raise GradingError(f"there is no file or folder {what}; give a folder of files, a glob, or a list (.toml, .csv)")


def _pointed(path: Path, name: str) -> Submission:
    """The submission that a file or a folder is."""
    path = path.resolve()
    file, _, inside = name.partition(":")
    tail = f":{inside}" if inside else ""
    if path.is_file():
        return Submission(path.stem, path.name + tail, base=path.parent)
    if file:
        return Submission(path.name, file + tail, base=path, folder=path)
    if (path / "__init__.py").is_file():
        return Submission(path.name, f"{path.name}/__init__.py{tail}", base=path.parent, folder=path)
    files = sorted(one for one in path.glob("*.py") if one.name[0] != "_")
    if len(files) != 1:
        raise GradingError(
            f"the folder {path} holds {len(files)} files of Python; say which is tested, as --file model.py"
        )
    return Submission(path.name, files[0].name + tail, base=path, folder=path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GradingError(f"{path} cannot be read: {error}") from error


def _form_of(text: str) -> str:
    """The form of a list whose name says nothing."""
    first = text.lstrip()[:1]
    return ".jsonl" if first == "{" else ".toml" if first in "[#" else ".csv"


def _rows(text: str, form: str, where: str) -> list[Mapping[str, Any]]:
    try:
        if form == ".toml":
            rows = tomllib.loads(text).get("submission", [])
        elif form == ".csv":
            rows = list(csv.DictReader(io.StringIO(text)))
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, csv.Error) as error:
        raise GradingError(f"{where} is no valid list ({form[1:]}): {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise GradingError(f"{where}: each entry must have names and values, as [[submission]] with impl = ... does")
    return rows


def _listed(row: Mapping[str, Any], base: Path, where: str, at: int) -> Submission:
    values = {key: value for key, value in row.items() if value not in (None, "")}
    if unknown := [str(key) for key in values if key not in FIELDS]:
        raise GradingError(
            f"{where}, entry {at}: there is no column {unknown[0]!r}; the columns are {', '.join(FIELDS)}"
        )
    if wrong := [key for key, value in values.items() if not isinstance(value, str)]:
        raise GradingError(f"{where}, entry {at}: {wrong[0]} must be a text, not {values[wrong[0]]!r}")
    if "impl" not in values:
        raise GradingError(f"{where}, entry {at}: it has no impl; write the file and the class, as model.py:GPT")
    return Submission(**{"id": values["impl"], **values}, base=base)
