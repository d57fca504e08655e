"""The catalogue of claims: what the documents and other sources say, where, our verdict on it, and its loader.

`claims/<topic>.toml` holds the claims of a topic, one `[[claim]]` table each; `claims/documents.toml` the five
documents and the numbered rows of statements that claims cite. A claim may also come from elsewhere: a paper, a
library's documentation, an issue. `read` refuses what is malformed (an unknown field, a value of the wrong type, a
slug used twice); `conformance.lint` finds what is inconsistent.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

CLAIMS_FOLDER = Path(__file__).parent / "claims"
DOCUMENTS_FILE = "documents.toml"

SUBJECTS = ("implementation", "training", "document")
ORIGINS = ("document", "paper", "documentation", "practice", "issue")
VERDICTS = ("true", "erratum", "convention", "untestable")
KINDS = (
    "identity", "equivalence", "property", "semantics", "shape", "gradient", "value", "code", "statistics",
    "scaling", "comparison", "history", "opinion",
)  # fmt: skip

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ROW = re.compile(r"\d{3}-\d{3}")
_PLACE = re.compile(r"(?P<document>\d{3}) (?P<section>.*\S )?L(?P<lines>\d+(-\d+)?(, ?L?\d+(-\d+)?)*)")
_VERSION = re.compile(r"\d+(\.\d+)*")
_MODEL = re.compile(r"[a-z]+(_[a-z]+)*")


class CatalogueError(ValueError):
    """A catalogue file is malformed, or a claim was asked for that does not exist."""


@dataclass(frozen=True)
class Claim:
    """One statement, and where it comes from.

    slug: its stable name. says: the statement in English. subject: "implementation" (a check tests it on every
    implementation), "training" (a check tests it on a training run, as `conformance watch` records it) or "document" (a
    verification shows it once). origin: "document" for the five documents, then
    where holds places such as "000 2.2.3 L205-210" and sources the rows that it covers; or "paper", "documentation",
    "practice" or "issue", then source says in words which. depends: the claims whose failure explains a failure of
    this one. correction: what is right, for an erratum. why: why it is untestable. merged_because: why rows that
    `documents.toml` does not join are one claim. shared_because: why a row is cited by another claim too. since: the
    version that brought it. core_of: the kinds of models that are not tested where this claim is not.
    """

    slug: str
    says: str
    topic: str
    subject: str
    kind: str
    verdict: str
    where: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    correction: str = ""
    why: str = ""
    merged_because: str = ""
    shared_because: str = ""
    origin: str = "document"
    source: tuple[str, ...] = ()
    since: str = "0.1.0"
    core_of: tuple[str, ...] = ()

    @property
    def is_tested(self) -> bool:
        """Whether it is an item of a run against an implementation."""
        return self.subject == "implementation" and self.verdict != "untestable"

    @property
    def is_watched(self) -> bool:
        """Whether it is tested on training runs."""
        return self.subject == "training" and self.verdict != "untestable"

    @property
    def is_of_documents(self) -> bool:
        """Whether the five documents say it, so that it counts for their coverage."""
        return self.origin == "document"


@dataclass(frozen=True)
class Document:
    """One document: its number ("000"), its title and what that means in English, the sha256 of its file, and how many
    statements it makes."""

    number: str
    title: str
    english: str
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

    def watched(self) -> list[Claim]:
        """The claims that `conformance watch` checks on a training run."""
        return [claim for claim in self.claims.values() if claim.is_watched]

    def untestable(self) -> set[str]:
        return {row for document in self.documents.values() for row in document.untestable}

    def cited(self, claim: Claim) -> list[str]:
        """Where a claim comes from, in words a reader can follow: document, section and lines, or the other source."""
        return [*(self._place(place) for place in claim.where), *claim.source]

    def _place(self, place: str) -> str:
        match = _PLACE.fullmatch(place)
        if match is None or match["document"] not in self.documents:
            return place
        title = f"{self.documents[match['document']].english} (document {match['document']})"
        word = "line" if match["lines"].isdigit() else "lines"
        return ", ".join(filter(None, [title, (match["section"] or "").strip(), f"{word} {match['lines']}"]))

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

        A term is a slug, a pattern of slugs (`*causal*`), a topic, a document ("002"), a row ("002-017"), or an origin
        ("paper").
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
        or claim.origin == term
        or term in claim.sources
        or any(place.split(" ", 1)[0] == term for place in claim.where)
    )


def is_newer(claim: Claim, version: str) -> bool:
    """Whether a claim came after a version such as "0.2.0". Raises CatalogueError when that is no version."""
    if not _VERSION.fullmatch(version):
        raise CatalogueError(f"{version!r} is no version; give numbers joined by dots, such as 0.2.0")
    return _parts(claim.since) > _parts(version)


def _parts(version: str) -> tuple[int, ...]:
    """ "0.2.0" -> (0, 2): versions that differ by zeros at the end are equal."""
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", version).split("."))


# --- loading --------------------------------------------------------------------------------------


@cache
def load() -> Catalogue:
    """This package's catalogue, read once: it does not change while a process runs."""
    return read(CLAIMS_FOLDER)


def read(folder: Path) -> Catalogue:
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
        if name == "source" and isinstance(value, str):
            values[name] = (value,)
        elif wanted == "tuple[str, ...]":
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
    for name, allowed in (("subject", SUBJECTS), ("kind", KINDS), ("verdict", VERDICTS), ("origin", ORIGINS)):
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
    if not claim.is_of_documents:
        yield from _malformed_elsewhere(claim)
    if not all(source.strip() for source in claim.source):
        yield "source holds an empty text"
    if not _VERSION.fullmatch(claim.since):
        yield f"since is {claim.since!r}; it must be a version such as 0.2.0"
    for model in claim.core_of:
        if not _MODEL.fullmatch(model):
            yield f'core_of {model!r} does not read like "language_model"'
    if claim.core_of and not claim.is_tested:
        yield "only a claim that is tested on implementations can be the core of one"
    for name in ("where", "sources", "source", "depends", "core_of"):
        if len(set(getattr(claim, name))) != len(getattr(claim, name)):
            yield f"{name} names something twice"
    if (claim.verdict == "erratum") != bool(claim.correction.strip()):
        yield "an erratum, and nothing else, has a correction"
    if (claim.verdict == "untestable") != bool(claim.why.strip()):
        yield "an untestable claim, and nothing else, has a why"


def _malformed_elsewhere(claim: Claim) -> Iterator[str]:
    """What is wrong with a claim that is not of the five documents."""
    if not claim.source:
        yield f"its origin is {claim.origin!r}, so source must say in words where it stands"
    if claim.where or claim.sources:
        yield f"its origin is {claim.origin!r}, so it has no where and no sources: these are of the documents"
    if claim.subject == "document":
        yield "a claim about the documents can only come from them"
