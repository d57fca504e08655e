"""The table of repositories (`tools/zoo.toml`): which commit, which part, which entries."""

from __future__ import annotations

import hashlib
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "zoo.toml"

PARTS = ("tuning", "trial", "sealed")
KINDS = (
    "language_model",
    "sequence_to_sequence",
    "encoder",
    "masked_language_model",
    "classifier",
    "component",
    "function",
)
"""What an entry is meant to be. All but the last two are whole models."""


@dataclass(frozen=True)
class Entry:
    """A class, a function or an expression of a file.

    takes: which of "mask" and "cache" its forward has parameters for. defects: claim -> the mistake that it has, as is
    publicly known or was judged by reading it, so that a FAIL of that claim is right.
    """

    path: str
    entry: str
    kind: str
    takes: tuple[str, ...] = ()
    defects: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def impl(self) -> str:
        return f"{self.path}:{self.entry}"

    @property
    def whole(self) -> bool:
        return self.kind not in ("component", "function")


@dataclass(frozen=True)
class Repository:
    """A row of the table. seen: somebody has read it to change the suite, so that it can judge it no more."""

    name: str
    commit: str
    entries: tuple[Entry, ...]
    seen: bool = False

    @property
    def part(self) -> str:
        return "tuning" if self.seen else part_of(self.name)

    def folder(self, sources: Path) -> Path:
        return sources / folder_name(self.name)


def part_of(name: str) -> str:
    """The part of a repository that nobody has seen, by the hash of its name in lower case: 5 : 2 : 3."""
    digit = digest(name.lower()) % 10
    return "tuning" if digit < 5 else "trial" if digit < 7 else "sealed"


def digest(text: str) -> int:
    """A number that looks random and never changes."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def folder_name(name: str) -> str:
    """`owner/name` as the name of a folder."""
    return name.replace("/", "+")


def commit_of(folder: Path) -> str:
    """The commit that a checkout stands at. Raises ValueError when it is none."""
    asked = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    top = folder / ".git"
    if asked.returncode or not top.exists():
        raise ValueError(f"{folder} is no git checkout; clone the repository there at the commit of the table")
    return asked.stdout.strip()


def load(path: Path = TABLE) -> tuple[list[Repository], list[str]]:
    """(repositories, the packages that pip installs for their imports)."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return [_repository(row) for row in table["repository"]], table.get("packages", [])


def _repository(row: Mapping[str, Any]) -> Repository:
    entries = tuple(Entry(**{**entry, "takes": tuple(entry.get("takes", ()))}) for entry in row["entries"])
    return Repository(row["name"], row["commit"], entries, row.get("seen", False))


def text(repository: Repository) -> str:
    """A row as TOML."""
    lines = ["[[repository]]", f'name = "{repository.name}"', f'commit = "{repository.commit}"']
    lines += ["seen = true"] * repository.seen
    lines += ["entries = [", *(f"    {_inline(entry)}," for entry in repository.entries), "]"]
    return "\n".join(lines)


def _inline(entry: Entry) -> str:
    shown = {"path": entry.path, "entry": entry.entry, "kind": entry.kind}
    cells = [f"{key} = {_quoted(value)}" for key, value in shown.items()]
    if entry.takes:
        cells.append(f"takes = [{', '.join(map(_quoted, entry.takes))}]")
    if entry.defects:
        told = ", ".join(f"{claim} = {_quoted(why)}" for claim, why in entry.defects.items())
        cells.append(f"defects = {{ {told} }}")
    return f"{{ {', '.join(cells)} }}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def counted(repositories: Sequence[Repository]) -> dict[str, tuple[int, int]]:
    """Part -> (repositories, entries)."""
    return {
        part: (len(chosen), sum(len(r.entries) for r in chosen))
        for part in PARTS
        for chosen in [[r for r in repositories if r.part == part]]
    }
