"""Count how many statements of the documents the claims cover, and lint the catalogue.

A row is one statement of a document. It is cited when a claim names it among its sources, and covered when it is
testable and such a claim has a check (run on implementations) or a verification (run once).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection

from conformance.catalogue import Catalogue, lint, load
from conformance.cli.tables import show_table

HELP = "count the statements that claims cover, and lint the catalogue"
EXAMPLES = """  conformance coverage              tables by document and by topic
  conformance coverage --uncovered  also list the testable rows that no claim covers yet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--uncovered", action="store_true", help="list the testable rows that no claim covers")


def run(arguments: argparse.Namespace) -> int:
    import conformance.checks  # noqa: F401 (registers them)
    from conformance.check import CHECKS
    from conformance.verifications import VERIFICATIONS

    catalogue = load()
    covered = covered_rows(catalogue, {*CHECKS, *VERIFICATIONS})
    show_table(["document", "title", "rows", "cited", "testable", "covered", "claims"], by_document(catalogue, covered))
    show_table(
        ["topic", "claims", "errata", "untestable", "checks", "verifications"],
        by_topic(catalogue, CHECKS, VERIFICATIONS),
    )
    testable = [row for row in catalogue.rows() if row not in catalogue.untestable()]
    print(f"{len(covered)} of {len(testable)} testable statements covered ({len(catalogue.rows())} statements in all)")
    if arguments.uncovered:
        print("not covered:", *(row for row in testable if row not in covered))
    problems = lint(catalogue, CHECKS, VERIFICATIONS)
    for problem in problems:
        print(f"catalogue: {problem}", file=sys.stderr)
    return 1 if problems else 0


def covered_rows(catalogue: Catalogue, proven: Collection[str]) -> set[str]:
    """The testable rows that a claim with a check or a verification cites."""
    cited = {row for claim in catalogue.claims.values() if claim.slug in proven for row in claim.sources}
    return cited.intersection(catalogue.rows()) - catalogue.untestable()


def by_document(catalogue: Catalogue, covered: Collection[str]) -> list[list[str | int]]:
    """A row a document and one for all: number, title, rows, cited, testable, covered, claims that cite it."""
    cited = {row for claim in catalogue.claims.values() for row in claim.sources}
    lines: list[list[str | int]] = []
    for document in catalogue.documents.values():
        ids = set(document.ids())
        lines.append(
            [
                document.number,
                document.title,
                document.rows,
                len(ids & cited),
                document.rows - len(document.untestable),
                len(ids.intersection(covered)),
                sum(not ids.isdisjoint(claim.sources) for claim in catalogue.claims.values()),
            ]
        )
    totals = [sum(int(line[i]) for line in lines) for i in range(2, 6)]
    return [*lines, ["all", "", *totals, len(catalogue.claims)]]


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
