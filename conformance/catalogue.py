"""The catalogue of claims: what the documents say, where, our verdict on it, and its loader and linter.

`claims/<topic>.toml` holds the claims of a topic, one `[[claim]]` table each; `claims/documents.toml` the five
documents and the numbered rows of statements that claims cite. `load` refuses what is malformed (an unknown field,
a value of the wrong type, a slug used twice); `lint` lists what is inconsistent between claims, documents, checks
and verifications.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

CLAIMS_FOLDER = Path(__file__).parent / "claims"
DOCUMENTS_FILE = "documents.toml"

SUBJECTS = ("implementation", "document")
VERDICTS = ("true", "erratum", "convention", "untestable")
KINDS = (
    "identity", "equivalence", "property", "semantics", "shape", "gradient", "value", "code", "statistics",
    "scaling", "comparison", "history", "opinion",
)  # fmt: skip

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ROW = re.compile(r"\d{3}-\d{3}")
_PLACE = re.compile(r"(?P<document>\d{3}) (?P<section>.*\S )?L\d+(-\d+)?(, ?L?\d+(-\d+)?)*")


class CatalogueError(ValueError):
    """A catalogue file is malformed, or a claim was asked for that does not exist."""


@dataclass(frozen=True)
class Claim:
    """One statement of the documents.

    slug: its stable name. says: the statement in English. subject: "implementation" (a check tests it on every
    implementation) or "document" (a verification shows it once). where: places such as "000 2.2.3 L205-210".
    sources: the rows that it covers. depends: the claims whose failure explains a failure of this one.
    correction: what is right, for an erratum. why: why it is untestable. merged_because: why rows that
    `documents.toml` does not join are one claim. shared_because: why a row is cited by another claim too.
    """

    slug: str
    says: str
    topic: str
    subject: str
    kind: str
    verdict: str
    where: tuple[str, ...]
    sources: tuple[str, ...]
    depends: tuple[str, ...] = ()
    correction: str = ""
    why: str = ""
    merged_because: str = ""
    shared_because: str = ""

    @property
    def is_tested(self) -> bool:
        """Whether it is an item of a run against an implementation."""
        return self.subject == "implementation" and self.verdict != "untestable"


@dataclass(frozen=True)
class Document:
    """One document: its number ("000"), title, the sha256 of its file, and how many statements it makes."""

    number: str
    title: str
    sha256: str
    rows: int
    untestable: tuple[str, ...]

    def ids(self) -> Iterator[str]:
        """The ids of its rows, in document order."""
        return (f"{self.number}-{i:03d}" for i in range(1, self.rows + 1))


@dataclass(frozen=True)
class Catalogue:
    """Claims by slug, in file order; documents by number; `group_of` maps a row to its `same_as` group."""

    claims: Mapping[str, Claim]
    documents: Mapping[str, Document]
    same_as: tuple[tuple[str, ...], ...] = ()
    group_of: Mapping[str, int] = field(default_factory=dict)

    def tested(self) -> list[Claim]:
        """The claims that a run checks against an implementation."""
        return [claim for claim in self.claims.values() if claim.is_tested]

    def untestable(self) -> set[str]:
        return {row for document in self.documents.values() for row in document.untestable}

    def rows(self) -> list[str]:
        return [row for document in self.documents.values() for row in document.ids()]

    def ancestors(self, slug: str) -> list[str]:
        """The claims that `slug` depends on, directly or not, nearest first. Unknown ones are left out."""
        found: dict[str, None] = {}
        pending = list(self.claims[slug].depends)
        while pending:
            ancestor = pending.pop(0)
            if ancestor in self.claims and ancestor not in found and ancestor != slug:
                found[ancestor] = None
                pending.extend(self.claims[ancestor].depends)
        return list(found)

    def select(self, selection: str) -> list[Claim]:
        """The claims that a comma-separated selection names, in file order.

        A term is a slug, a pattern of slugs (`*causal*`), a topic, a document ("002"), or a row ("002-017").
        Raises CatalogueError on a term that names nothing.
        """
        chosen: set[str] = set()
        for term in filter(None, (part.strip() for part in selection.split(","))):
            matches = {claim.slug for claim in self.claims.values() if _matches(claim, term)}
            if not matches:
                raise CatalogueError(self._no_such(term))
            chosen |= matches
        if not chosen:
            raise CatalogueError(f"the selection {selection!r} names no claim; give slugs, patterns or topics")
        return [claim for claim in self.claims.values() if claim.slug in chosen]

    def _no_such(self, term: str) -> str:
        topics = {claim.topic for claim in self.claims.values()}
        known = sorted({*self.claims, *topics, *self.documents})
        near = difflib.get_close_matches(term, known, n=3) or [slug for slug in self.claims if term in slug][:3]
        hint = f"did you mean {' or '.join(near)}?" if near else "`conformance list` shows them all."
        return f"there is no claim, topic, document or row {term!r}; {hint}"


def _matches(claim: Claim, term: str) -> bool:
    return (
        claim.slug == term
        or claim.topic == term
        or (any(mark in term for mark in "*?[") and fnmatchcase(claim.slug, term))
        or term in claim.sources
        or any(place.split(" ", 1)[0] == term for place in claim.where)
    )


# --- loading --------------------------------------------------------------------------------------


def load(folder: Path = CLAIMS_FOLDER) -> Catalogue:
    """Read every TOML file of `folder`. Raises CatalogueError, naming file and claim, when one is malformed."""
    claims: dict[str, Claim] = {}
    for path in sorted(folder.glob("*.toml")):
        if path.name == DOCUMENTS_FILE:
            continue
        for claim in _claims_of(path):
            if claim.slug in claims:
                raise CatalogueError(f"{path.name}: the slug {claim.slug!r} is used twice; slugs must be unique")
            claims[claim.slug] = claim
    table = _read(folder / DOCUMENTS_FILE)
    unknown = set(table) - {"document", "same_as"}
    if unknown:
        raise CatalogueError(f"{DOCUMENTS_FILE}: unknown table {', '.join(sorted(unknown))}")
    documents = [_typed(Document, row, DOCUMENTS_FILE) for row in table.get("document", [])]
    groups = tuple(tuple(group) for group in table.get("same_as", []))
    return Catalogue(
        claims,
        {document.number: document for document in documents},
        groups,
        {row: i for i, group in enumerate(groups) for row in group},
    )


def _claims_of(path: Path) -> list[Claim]:
    table = _read(path)
    unknown = set(table) - {"claim"}
    if unknown:
        raise CatalogueError(f"{path.name}: unknown table {', '.join(sorted(unknown))}; only [[claim]] may stand here")
    claims = []
    for number, row in enumerate(table.get("claim", []), start=1):
        place = f"{path.name}, claim {row.get('slug', f'number {number}')!r}"
        claim = _typed(Claim, row, place)
        problems = list(_malformed(claim))
        if problems:
            raise CatalogueError(f"{place}: {problems[0]}")
        claims.append(claim)
    return claims


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogueError(f"{path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"{path.name} is not valid TOML: {error}") from error


def _typed(cls: type, row: Mapping[str, Any], place: str) -> Any:
    """An instance of a dataclass of str, int and tuple-of-str fields, made from a TOML table."""
    known = {f.name: f for f in fields(cls)}
    unknown = sorted(set(row) - set(known))
    if unknown:
        raise CatalogueError(f"{place}: unknown field {', '.join(unknown)}; the fields are {', '.join(known)}")
    missing = [name for name, f in known.items() if name not in row and f.default is MISSING]
    if missing:
        raise CatalogueError(f"{place}: the field {', '.join(missing)} is missing")
    values: dict[str, Any] = {}
    for name, value in row.items():
        wanted = known[name].type
        if wanted == "tuple[str, ...]":
            if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
                raise CatalogueError(f"{place}: {name} must be a list of strings, not {value!r}")
            values[name] = tuple(value)
        elif not isinstance(value, {"str": str, "int": int}[str(wanted)]):
            raise CatalogueError(f"{place}: {name} must be of type {wanted}, not {value!r}")
        else:
            values[name] = value
    return cls(**values)


def _malformed(claim: Claim) -> Iterator[str]:
    """What is wrong with a claim by itself."""
    if not _SLUG.fullmatch(claim.slug):
        yield "a slug is lower-case words joined by hyphens"
    for name, allowed in (("subject", SUBJECTS), ("kind", KINDS), ("verdict", VERDICTS)):
        if getattr(claim, name) not in allowed:
            yield f"{name} is {getattr(claim, name)!r}; it must be one of {', '.join(allowed)}"
    for name in ("says", "topic"):
        if not getattr(claim, name).strip():
            yield f"{name} is empty"
    for place in claim.where:
        if not _PLACE.fullmatch(place):
            yield f'where {place!r} does not read like "000 2.2.3 L205-210" (document, section, lines)'
    for row in claim.sources:
        if not _ROW.fullmatch(row):
            yield f'source {row!r} does not read like "000-017"'
    for name in ("where", "sources", "depends"):
        if len(set(getattr(claim, name))) != len(getattr(claim, name)):
            yield f"{name} names something twice"
    if (claim.verdict == "erratum") != bool(claim.correction.strip()):
        yield "an erratum, and nothing else, has a correction"
    if (claim.verdict == "untestable") != bool(claim.why.strip()):
        yield "an untestable claim, and nothing else, has a why"


# --- linting --------------------------------------------------------------------------------------


def lint(catalogue: Catalogue, checks: Collection[str], verifications: Collection[str]) -> list[str]:
    """Every inconsistency between claims, documents, checks and verifications, one sentence each."""
    return [
        *_lint_documents(catalogue),
        *_lint_rows(catalogue),
        *_lint_dependencies(catalogue),
        *_lint_proofs(catalogue, checks, verifications),
    ]


def _lint_documents(catalogue: Catalogue) -> Iterator[str]:
    for document in catalogue.documents.values():
        if not re.fullmatch(r"[0-9a-f]{64}", document.sha256):
            yield f"document {document.number}: its sha256 is not 64 hexadecimal digits"
        for row in sorted(set(document.untestable) - set(document.ids())):
            yield f"document {document.number}: the untestable row {row} does not exist"
    known, seen = set(catalogue.rows()), set()
    for group in catalogue.same_as:
        for row in group:
            if row not in known:
                yield f"same_as names the row {row}, which does not exist"
            if row in seen:
                yield f"same_as names the row {row} in two groups"
            seen.add(row)


def _lint_rows(catalogue: Catalogue) -> Iterator[str]:
    known = set(catalogue.rows())
    citing: dict[str, list[Claim]] = defaultdict(list)
    for claim in catalogue.claims.values():
        if not claim.sources:
            yield f"{claim.slug}: it cites no row in sources"
        for row in claim.sources:
            citing[row].append(claim)
            if row not in known:
                yield f"{claim.slug}: the source {row} does not exist"
        documents = {row.split("-")[0] for row in claim.sources}
        for place in claim.where:
            if place.split()[0] not in documents:
                yield f"{claim.slug}: where names {place!r}, but no source is of that document"
        groups = {catalogue.group_of.get(row, row) for row in claim.sources}
        if len(groups) > 1 and not claim.merged_because:
            yield f"{claim.slug}: its rows state {len(groups)} facts by same_as; say in merged_because why they are one"
    for row, claims in citing.items():
        silent = [claim.slug for claim in claims if not claim.shared_because]
        if len(silent) > 1:
            yield f"the row {row} is cited by {', '.join(silent)}; all but one must say why in shared_because"


def _lint_dependencies(catalogue: Catalogue) -> Iterator[str]:
    for claim in catalogue.claims.values():
        for ancestor in claim.depends:
            if ancestor not in catalogue.claims:
                yield f"{claim.slug}: it depends on {ancestor}, which does not exist"
    cycle = _cycle({claim.slug: claim.depends for claim in catalogue.claims.values()})
    if cycle:
        yield f"claims depend on each other in a circle: {' -> '.join(cycle)}"


def _cycle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """One circle of the dependency graph, or an empty list."""
    finished: set[str] = set()
    for start in edges:
        path: list[str] = []
        pending = [(start, iter(edges.get(start, ())))]
        if start in finished:
            continue
        path.append(start)
        while pending:
            node, rest = pending[-1]
            following = next(rest, None)
            if following is None:
                finished.add(node)
                pending.pop()
                path.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            elif following not in finished and following in edges:
                path.append(following)
                pending.append((following, iter(edges[following])))
    return []


def _lint_proofs(catalogue: Catalogue, checks: Collection[str], verifications: Collection[str]) -> Iterator[str]:
    for claim in catalogue.claims.values():
        if claim.is_tested and claim.slug not in checks:
            yield f"{claim.slug}: it is a claim about implementations without a check"
        if claim.subject == "document" and claim.verdict != "untestable" and claim.slug not in verifications:
            yield f"{claim.slug}: it is a claim about the documents without a verification"
        if claim.verdict == "erratum" and claim.slug not in verifications:
            yield f"{claim.slug}: it is an erratum without a verification that witnesses it"
        if claim.verdict == "untestable" and (claim.slug in checks or claim.slug in verifications):
            yield f"{claim.slug}: it is called untestable and has a check or a verification"
        if claim.subject == "document" and claim.slug in checks:
            yield f"{claim.slug}: it is a claim about the documents and has a check"
    for kind, names in (("check", checks), ("verification", verifications)):
        for slug in sorted(set(names) - set(catalogue.claims)):
            yield f"the {kind} of {slug!r} tests no claim: the catalogue has no such slug"
