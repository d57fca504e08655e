"""Run every verification, and print the errata: what a document says, what is right, and the witness that shows it.

A verification tests a claim about the documents themselves, once: arithmetic, memory figures, printed numbers. An
erratum is a statement that does not hold as written.
"""

from __future__ import annotations

import argparse
import textwrap
import time
from collections.abc import Callable

from conformance.catalogue import Claim, load
from conformance.evidence import Evidence, shown

HELP = "verify the claims about the documents, and print the errata"
EXAMPLES = """  conformance errata                every erratum with its witness; failures of other verifications
  conformance errata masks          those of a topic
  conformance errata 003 --all      every verified claim of document 003, errata or not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "select", nargs="?", help="slugs, patterns, topics, documents (002), rows (002-017) or origins (paper)"
    )
    parser.add_argument("--all", action="store_true", help="also print the verified claims that are right")


def run(arguments: argparse.Namespace) -> int:
    from conformance.verifications import VERIFICATIONS

    catalogue = load()
    claims = catalogue.select(arguments.select) if arguments.select else list(catalogue.claims.values())
    started, failed, errata, verified = time.perf_counter(), 0, 0, 0
    for claim in claims:
        if claim.slug not in VERIFICATIONS:
            continue
        verified += 1
        ok, lines = verdict_of(claim, VERIFICATIONS[claim.slug])
        failed += not ok
        errata += claim.verdict == "erratum"
        if arguments.all or not ok or claim.verdict == "erratum":
            print("\n".join(lines), end="\n\n")
    seconds = time.perf_counter() - started
    print(f"{verified} claims verified, {errata} of them errata, {failed} failed, in {seconds:.1f} s")
    return 1 if failed else 0


def verdict_of(claim: Claim, verification: Callable[[], Evidence]) -> tuple[bool, list[str]]:
    """Run a verification: whether it holds, and the lines that show it."""
    from conformance.verifications import witnessed

    evidence = witnessed(verification)
    expected, got = evidence.sides()
    lines = [f"{'ok    ' if evidence.ok else 'FAILED'} {claim.slug} [{'; '.join((*claim.where, *claim.source))}]"]
    lines += _wrapped("written" if claim.verdict == "erratum" else "claim", claim.says)
    if claim.correction:
        lines += _wrapped("correct", claim.correction)
    if "written" in evidence.details:
        seen = f"written {shown(evidence.details['written'])}, actual {shown(evidence.details['actual'])}"
        lines += _wrapped("seen", seen)
    sides = f"{got}, as expected" if evidence.ok and expected == got else f"expected {expected}, got {got}"
    lines += _wrapped("witness", f"{evidence.what}: {sides}")
    return evidence.ok, lines


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=f"  {label:9}", subsequent_indent=" " * 11)
