"""The models and mutants of a folder: NAME/model.py, NAME/mutants.json and NAME/mutants/*.py.

mutants.json: {"entry": a class or function of model.py, "kind": "language_model", "mutants": {name: {"class": "defect",
"line": 12, "what": "in words"}}}. A defect is a mistake; a convention is another usual choice; an equivalent changes
nothing. Beside the entry may stand "make", an expression such as "GPT(Config(n_layer=2))": the rivals get the model
that it makes, the suite only the entry. Whatever else lies in NAME, such as a config, is part of each.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

CLASSES = ("defect", "convention", "equivalent")
ORIGINAL = "original"
SUBJECT = "RIVALS_SUBJECT"
"""The variable of the environment that names the file to a rival that pytest starts: FILE.py:NAME kind."""
_OURS = ("mutants", "mutants.json", "__pycache__")


class CaseError(ValueError):
    """A folder does not hold models and mutants as this module says; the message is one sentence."""


@dataclass(frozen=True)
class Case:
    """One file: a model as it is (of the class "original", without a name), or a mutant of it."""

    model: str
    mutant: str
    folder: Path
    file: Path
    entry: str
    make: str
    kind: str
    sort: str = ORIGINAL
    line: int = 0
    what: str = ""

    @property
    def digest(self) -> str:
        """Of the text of the file: results of another text are no results of this case."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()[:16]

    @contextmanager
    def alone(self) -> Iterator[Path]:
        """Its model.py in a copy of the folder that knows nothing of the original and of other mutants."""
        with TemporaryDirectory() as place:
            copy = Path(place) / self.model
            shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns(*_OURS))
            shutil.copyfile(self.file, copy / "model.py")
            yield copy / "model.py"


def cases_in(folder: Path, only: str = "") -> list[Case]:
    """The cases of all models, or of one, each original before its mutants. Raises CaseError."""
    names = sorted(place.name for place in folder.iterdir() if (place / "mutants.json").is_file())
    if only and only not in names:
        raise CaseError(f"{folder} holds no model {only} with a mutants.json; it holds {', '.join(names) or 'none'}")
    if not names:
        raise CaseError(f"{folder} holds no model: give a folder with NAME/model.py and NAME/mutants.json")
    return [case for name in names if only in ("", name) for case in _cases(folder / name)]


def _cases(place: Path) -> Iterator[Case]:
    table = place / "mutants.json"
    try:
        told = json.loads(table.read_text(encoding="utf-8"))
        entry, kind, mutants = str(told["entry"]), str(told["kind"]), dict(told["mutants"])
        make = str(told.get("make", entry))
    except (ValueError, KeyError, TypeError) as error:
        raise CaseError(f'{table} is no JSON object with "entry", "kind" and "mutants": {error}') from error
    model = place / "model.py"
    if not model.is_file():
        raise CaseError(f"{place} has a mutants.json and no model.py")
    yield Case(place.name, "", place, model, entry, make, kind)
    for name, row in mutants.items():
        file = place / "mutants" / f"{name}.py"
        if not file.is_file():
            raise CaseError(f"{table} names the mutant {name}, and there is no {file}")
        if row.get("class") not in CLASSES:
            raise CaseError(
                f'{table}: the "class" of {name} is {row.get("class")!r}; it is one of {", ".join(CLASSES)}'
            )
        if not isinstance(row.get("line"), int) or not isinstance(row.get("what"), str):
            raise CaseError(f'{table}: {name} needs a "line" (a number) and a "what" (in words)')
        yield Case(place.name, name, place, file, entry, make, kind, row["class"], row["line"], row["what"])
