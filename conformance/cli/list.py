"""Show claims: their slugs, subjects, verdicts, places in the documents and statements."""

from __future__ import annotations

import argparse

from conformance.catalogue import load
from conformance.cli.tables import show_table

HELP = "show claims"
EXAMPLES = """  conformance list                     every claim
  conformance list masks               the claims of a topic
  conformance list '*causal*,002-017'  by pattern of slugs, and by row of a document
  conformance list 004 --rows          the claims that document 004 makes, with the rows that they cover
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("select", nargs="?", help="slugs, patterns, topics, documents (002) or rows (002-017)")
    parser.add_argument("--rows", action="store_true", help="also show the rows that each claim covers")


def run(arguments: argparse.Namespace) -> int:
    catalogue = load()
    claims = catalogue.select(arguments.select) if arguments.select else list(catalogue.claims.values())
    show_table(
        ["claim", "subject", "verdict", "where", "says"],
        [
            [
                claim.slug,
                claim.subject,
                claim.verdict,
                "\n".join([*claim.where, *([" ".join(claim.sources)] if arguments.rows else [])]),
                claim.says,
            ]
            for claim in claims
        ],
    )
    print(f"{len(claims)} claims, {sum(claim.is_tested for claim in claims)} of them tested on implementations")
    return 0
