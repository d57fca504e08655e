"""Show claims: their slugs, subjects, verdicts, sources and statements.

A source such as "000 2.2.3 L205-210" is a document, a section of it and lines.
"""

from __future__ import annotations

import argparse

from conformance.catalogue import load
from conformance.cli.tables import show_table

HELP = "show claims"
EXAMPLES = """  conformance list                     every claim
  conformance list masks               the claims of a topic
  conformance list '*causal*,002-017'  by pattern of slugs, and by row of a document
  conformance list 004 --rows          the claims that document 004 makes, with the rows that they cover
  conformance list paper,issue         the claims that come from papers and from issues
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "select", nargs="?", help="slugs, patterns, topics, documents (002), rows (002-017) or origins (paper)"
    )
    parser.add_argument("--rows", action="store_true", help="also show the rows that each claim covers")


def run(arguments: argparse.Namespace) -> int:
    catalogue = load()
    claims = catalogue.select(arguments.select) if arguments.select else list(catalogue.claims.values())
    show_table(
        ["claim", "subject", "verdict", "source", "says"],
        [
            [
                claim.slug,
                claim.subject,
                claim.verdict,
                "\n".join([*claim.where, *claim.source, *([" ".join(claim.sources)] if arguments.rows else [])]),
                claim.says,
            ]
            for claim in claims
        ],
    )
    for number in sorted({place.split(" ", 1)[0] for claim in claims for place in claim.where}):
        print(f"{number} is {catalogue.documents[number].english} ({catalogue.documents[number].title})")
    print(f"{len(claims)} claims, {sum(claim.is_tested for claim in claims)} of them tested on implementations")
    return 0
