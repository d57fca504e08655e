"""Count how many statements of the documents the claims cover, and lint the catalogue.

A row is one statement of a document. It is cited when a claim names it among its sources, and covered when it is
testable and such a claim has a check (run on implementations) or a verification (run once); a testable row that is not
covered is explained when a claim that is called untestable cites it and says why. The exit code is 1 when a row is not
cited, when a testable one is neither covered nor explained, when a check has no mutant that it must kill, or when
claims are inconsistent. (`conformance mutants` runs the checks on the mutants.)
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection

from conformance.catalogue import Catalogue, Claim, load
from conformance.cli.tables import show_table
from conformance.lint import lint

HELP = "count the statements that claims cover, and lint the catalogue"
EXAMPLES = """  conformance coverage    tables by document and by topic, and what is missing
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(arguments: argparse.Namespace) -> int:
    import conformance.checks  # noqa: F401 (registers them)
    from conformance.check import CHECKS
    from conformance.mutants import MUTANTS
    from conformance.verifications import VERIFICATIONS

    catalogue = load()
    broken = {claim for mutant in MUTANTS.values() for claim in mutant.breaks}
    covered = covered_rows(catalogue, {*CHECKS, *VERIFICATIONS})
    show_table(["document", "title", "rows", "cited", "testable", "covered", "claims"], by_document(catalogue, covered))
    show_table(
        ["topic", "claims", "errata", "untestable", "checks", "verifications"],
        by_topic(catalogue, CHECKS, VERIFICATIONS),
    )
    testable = [row for row in catalogue.rows() if row not in catalogue.untestable()]
    print(f"{len(covered)} of {len(testable)} testable statements covered ({len(catalogue.rows())} statements in all)")
    print(rows_per_claim(catalogue))
    print(from_elsewhere(catalogue))
    idle = [slug for slug in CHECKS if slug not in broken]
    print(f"{len(CHECKS)} checks and {len(MUTANTS)} mutants; {len(idle)} checks have none that they must kill")
    for claim, rows in explained(catalogue, covered).items():
        print(f"not tested: {', '.join(rows)} ({claim.slug}: {' '.join(claim.why.split())})")
    problems = [*lint(catalogue, CHECKS, VERIFICATIONS), *missing(catalogue, covered, CHECKS, broken)]
    for problem in problems:
        print(f"catalogue: {problem}", file=sys.stderr)
    return 1 if problems else 0


def covered_rows(catalogue: Catalogue, proven: Collection[str]) -> set[str]:
    """The testable rows that a claim with a check or a verification cites."""
    cited = {row for claim in catalogue.claims.values() if claim.slug in proven for row in claim.sources}
    return cited.intersection(catalogue.rows()) - catalogue.untestable()


def explained(catalogue: Catalogue, covered: Collection[str]) -> dict[Claim, list[str]]:
    """Claims that are called untestable -> the testable rows among their sources that nothing else covers."""
    settled = {*covered, *catalogue.untestable()}
    rows = {c: [r for r in c.sources if r not in settled] for c in catalogue.claims.values() if c.why}
    return {claim: left for claim, left in rows.items() if left}


def rows_per_claim(catalogue: Catalogue) -> str:
    """How many statements a claim joins, in a sentence."""
    claims = [claim for claim in catalogue.claims.values() if claim.is_of_documents]
    most = max(claims, key=lambda claim: len(claim.sources))
    mean = sum(len(claim.sources) for claim in claims) / len(claims)
    merged = sum(bool(claim.merged_because) for claim in claims)
    return (
        f"{mean:.1f} statements a claim, at most {len(most.sources)} ({most.slug}); "
        f"{merged} claims join statements that the ledgers keep apart, and say why"
    )


def from_elsewhere(catalogue: Catalogue) -> str:
    """How many claims do not come from the documents, by origin, in a sentence."""
    origins = Counter(claim.origin for claim in catalogue.claims.values() if not claim.is_of_documents)
    parts = [f"{number} {origin}" for origin, number in origins.items()]
    kinds = f" ({', '.join(parts)})" if parts else ""
    return f"{origins.total()} claims come from elsewhere{kinds}; the figures of the documents leave them out"


def missing(
    catalogue: Catalogue, covered: Collection[str], checks: Collection[str], broken: Collection[str]
) -> list[str]:
    """What coverage lacks, a sentence each. broken: the claims that some mutant breaks."""
    cited = {row for claim in catalogue.claims.values() for row in claim.sources}
    settled = {*covered, *catalogue.untestable(), *(r for rows in explained(catalogue, covered).values() for r in rows)}
    return [
        *(f"the row {row} is cited by no claim" for row in catalogue.rows() if row not in cited),
        *(
            f"the row {row} is testable, and its claims have neither a check, nor a verification, nor say why not"
            for row in catalogue.rows()
            if row in cited and row not in settled
        ),
        *(f"{slug}: its check has no mutant that it must kill" for slug in checks if slug not in broken),
    ]


def by_document(catalogue: Catalogue, covered: Collection[str]) -> list[list[str | int]]:
    """A row a document and one for all: number, title, rows, cited, testable, covered, claims that cite it."""
    cited = {row for claim in catalogue.claims.values() for row in claim.sources}
    lines: list[list[str | int]] = []
    for document in catalogue.documents.values():
        ids = set(document.ids())
        lines.append(
            [
                document.number,
                document.english,
                document.rows,
                len(ids & cited),
                document.rows - len(document.untestable),
                len(ids.intersection(covered)),
                sum(not ids.isdisjoint(claim.sources) for claim in catalogue.claims.values()),
            ]
        )
    totals = [sum(int(line[i]) for line in lines) for i in range(2, 6)]
    return [*lines, ["all", "", *totals, sum(claim.is_of_documents for claim in catalogue.claims.values())]]


def by_topic(catalogue: Catalogue, checks: Collection[str], verifications: Collection[str]) -> list[list[str | int]]:
    """A row a topic and one for all: claims, errata, untestable ones, checks, verifications."""

    def line(name: str, topics: Collection[str]) -> list[str | int]:
        claims = [claim for claim in catalogue.claims.values() if claim.topic in topics]
        return [
            name,
            len(claims),
            sum(claim.verdict == "erratum" for claim in claims),
            sum(claim.verdict == "untestable" for claim in claims),
            sum(claim.slug in checks for claim in claims),
            sum(claim.slug in verifications for claim in claims),
        ]

    topics = list(dict.fromkeys(claim.topic for claim in catalogue.claims.values()))
    return [*(line(topic, [topic]) for topic in topics), line("all", topics)]
