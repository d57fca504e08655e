"""Run the Python listings of documents as subjects: `python -m tools.listings FOLDER [--markdown FILE]`.

FOLDER holds the tutorials as text files. Their fenced Python listings are cut out; the imports, class and function
definitions of each are written to a temporary file, after those of the listings before it (which listings use), and
every nn.Module class runs as `--impl file.py:Class`. Printed is a row for each class, and the smallest failing example
of each claim that it breaks. Nothing of the documents is kept.
Which defects the ledgers of the documents list is in `tools/listings.toml`; other ones, or fewer, are an error.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import conformance.checks  # noqa: F401  (registers the checks)
from conformance import catalogue
from conformance.adapters import SpecificationError
from conformance.adapters.inference.facts import roles_in
from conformance.check import CHECKS
from conformance.roots import fold
from conformance.supervisor import Supervisor
from conformance.verdict import BROKEN, Result, Verdict

_FENCE = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


KNOWN = Path(__file__).with_suffix(".toml")

Key = tuple[str, int, str]
"""A class: its document, the line of its listing, its name."""


@dataclass(frozen=True)
class Listing:
    """One listing of a document: `source` has its definitions after those of the listings before it."""

    document: str
    line: int
    source: str
    classes: tuple[str, ...]


@dataclass
class Row:
    """One class and what came of it: claims kept, claims broken, and how many failures follow from those.

    roles is empty when none could be inferred; then `note` says why, and `tested_in` names the class of the same
    listing that it is a part of, if there is one.
    """

    document: str
    line: int
    name: str
    roles: tuple[str, ...] = ()
    note: str = ""
    tested_in: str = ""
    passed: int = 0
    broken: list[Result] = field(default_factory=list)
    follow: int = 0

    @property
    def key(self) -> Key:
        return self.document, self.line, self.name

    @property
    def verdict(self) -> str:
        if not self.roles:
            return f"in {self.tested_in}" if self.tested_in else "no role"
        return "FAIL" if self.broken else "PASS"


def cut(path: Path) -> Iterator[tuple[int, list[ast.stmt], list[ast.stmt]]]:
    """(line, definitions of the listings before, own statements) of each listing that is Python (not a sketch)."""
    text = path.read_text(encoding="utf-8")
    before: list[ast.stmt] = []
    for match in _FENCE.finditer(text):
        try:
            body = ast.parse(match[1]).body
        except SyntaxError:
            continue
        yield text.count("\n", 0, match.start()) + 1, before, body
        before = before + definitions(body)


def definitions(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    return [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef))]


def listings(path: Path, document: str) -> Iterator[Listing]:
    """The listings of a text that define nn.Module classes."""
    for line, before, body in cut(path):
        kept = definitions(body)
        modules = tuple(node.name for node in kept if isinstance(node, ast.ClassDef) and _is_module(node))
        if modules:
            source = "\n\n".join(ast.unparse(node) for node in before + kept)
            yield Listing(document, line, source + "\n", modules)


def _is_module(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("Module") for base in node.bases)


def number_of(path: Path) -> str:
    """The number of the document whose text the file holds, or the file's name."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known = {document.sha256: document.number for document in catalogue.load().documents.values()}
    return known.get(digest, path.stem)


def run(listing: Listing, folder: Path, budget: str) -> list[Row]:
    """A row for each class of a listing, each in its own process."""
    rows, parts = [], {}
    file = folder / f"listing_{listing.document}_{listing.line}.py"
    file.write_text(listing.source, encoding="utf-8")
    for name in listing.classes:
        row = Row(listing.document, listing.line, name)
        try:
            with Supervisor(f"{file}:{name}", budget=budget, children=1) as supervisor:
                first = next(iter(CHECKS))
                supervisor.submit([first])
                told = supervisor.result(first).notes
                row.roles = roles_in(told)
                claims = [claim for claim, check in CHECKS.items() if {*row.roles} & {*check.roles}]
                supervisor.submit(claims)
                results = {claim: supervisor.result(claim) for claim in claims}
        except SpecificationError as error:
            row.note = str(error).split(": ", 2)[-1]
        else:
            row.note = next((note.strip() for note in told if " fits" in note), "")
            parts |= {part: name for part in listing.classes if any(f"({part})" in note for note in told)}
            row.passed = sum(result.verdict is Verdict.PASS for result in results.values())
            folded = fold(results, catalogue.load())
            row.broken = [result for result in folded.values() if result.verdict in BROKEN]
            row.follow = sum(result.verdict is Verdict.BLOCKED for result in folded.values())
        rows.append(row)
    for row in rows:
        row.tested_in = parts.get(row.name, "")
    return rows


@dataclass(frozen=True)
class Defect:
    """What the ledgers say of one class: their rows, and the claims that it must break."""

    rows: tuple[str, ...] = ()
    claims: frozenset[str] = frozenset()


def known_defects(path: Path = KNOWN) -> dict[Key, Defect]:
    found = tomllib.loads(path.read_text(encoding="utf-8"))["defect"]
    return {(d["document"], d["line"], d["class"]): Defect(tuple(d["rows"]), frozenset(d["claims"])) for d in found}


def surprises(rows: Sequence[Row], known: Mapping[Key, Defect]) -> Iterator[str]:
    """Where the rows of the documents show other defects than the ledgers list."""
    for row in rows:
        broken, defect = {result.claim for result in row.broken}, known.get(row.key, Defect())
        place = f"{row.document}:{row.line} {row.name}"
        for claim in sorted(broken - defect.claims):
            yield f"{place}: it breaks {claim}, of which the ledgers say nothing"
        for claim in sorted(defect.claims - broken):
            yield f"{place}: it keeps {claim}, which the ledgers say it breaks ({', '.join(defect.rows)})"


def table(rows: Sequence[Row], known: Mapping[Key, Defect]) -> str:
    """The rows as a Markdown table: no word of the documents but the names of their classes."""
    names = ("document", "listing at line", "class", "roles", "verdict", "claims kept", "claims broken", "ledger rows")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in rows:
        broken = ", ".join(result.claim for result in row.broken) or "-"
        broken += f" (and {row.follow} that follow)" if row.follow else ""
        listed = ", ".join(known.get(row.key, Defect()).rows) or "-"
        cells = (row.document, row.line, row.name, ", ".join(row.roles) or "-", row.verdict, row.passed, broken, listed)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def details(rows: Sequence[Row]) -> Iterator[str]:
    """What could not be inferred, and the smallest example of each failure."""
    for row in rows:
        if row.note:
            yield f"{row.document}:{row.line} {row.name}: {row.note}"
        for result in row.broken:
            yield f"{row.document}:{row.line} {row.name}: {result.verdict} {result.claim}"
            if result.verdict is Verdict.ERROR:
                yield f"    {result.message} {result.place}"
            else:
                yield f"    {result.what}: expected {result.expected}, got {result.got}"
            yield f"    smallest example: {', '.join(f'{k} = {v}' for k, v in result.example.items())}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when a listing of the documents has other defects than its ledger says; 2 when there is none."""
    parser = argparse.ArgumentParser(prog="python -m tools.listings", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the documents as text files")
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    parser.add_argument("--budget", default="default", choices=("quick", "default", "deep"))
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"there is no folder {options.folder}")
    found = [
        listing
        for path in sorted(options.folder.iterdir())
        if path.suffix in (".txt", ".md")
        for listing in listings(path, number_of(path))
    ]
    if not found:
        parser.error(f"{options.folder} holds no .txt or .md file with a ```python listing that defines an nn.Module")
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for listing in found for row in run(listing, Path(folder), options.budget)]
    known = known_defects()
    text = table(rows, known)
    print(text)
    print(*details(rows), sep="\n")
    if options.markdown:
        options.markdown.write_text(_page(text), encoding="utf-8")
    documents = {document for document, _, _ in known}
    wrong = list(surprises([row for row in rows if row.document in documents], known))
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


HEAD = """# The documents' listings, tested

The five documents show PyTorch code. This page says which of their classes keep the claims, and which claims the
others break. It is for readers of the documents who want to use their code.

The suite tested every `nn.Module` class of the Python listings as it is. A whole model was tested in its own role and
in the roles of its components.

*Ledger rows* are the mistakes that were found in a class by reading it
([`tools/listings.toml`](../tools/listings.toml) lists them). A class must break the claims that belong to these rows,
and no others.

*And 8 that follow* means that eight more claims fail because of the ones that are named. *In GPTModel* means that the
class was tested as a part of that model only.
"""
TAIL = """
To make this table again, where FOLDER holds the documents as text:

```text
python -m tools.listings FOLDER --markdown docs/listings.md
```

The program fails when a class breaks other claims than its ledger rows say.
"""


def _page(rows: str) -> str:
    return f"{HEAD}\n{rows}\n{TAIL}"


if __name__ == "__main__":
    sys.exit(main())
