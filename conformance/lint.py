"""What is inconsistent between the claims of a catalogue, the documents, the checks and the verifications (`lint`).

What is wrong with one claim by itself is refused by the loader (`conformance.catalogue`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from conformance.catalogue import Catalogue, Claim


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
        if not claim.sources and claim.is_of_documents:
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
        if (claim.is_tested or claim.is_watched) and claim.slug not in checks:
            yield f"{claim.slug}: it is a claim about implementations or training runs without a check"
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
