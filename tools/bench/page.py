"""The results pages, such as docs/speed.md: a run of a program replaces the section between two marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.files import write_text
from tools.bench.timing import Result

START, END = "<!-- results: begin -->", "<!-- results: end -->"


def section(results: Sequence[Result], machine: Mapping[str, Any], command: str) -> str:
    """Machine, command and table in Markdown."""
    lines = [
        "| | |",
        "|---|---|",
        *(f"| {key.replace('_', ' ')} | {value} |" for key, value in machine.items()),
        "",
        f"    {command}",
        "",
        "| job | against | ratio | ours, ms | theirs, ms | spread | verdict | of sgemm peak | of copy speed | notes |",
        "|---|---|---:|---:|---:|---:|---|---:|---:|---|",
        *(_row(result) for result in results),
    ]
    return "\n".join(lines)


def _row(r: Result) -> str:
    flops, bandwidth = ("" if share is None else f"{share:.0%}" for share in (r.flops_share, r.bandwidth_share))
    return (
        f"| {r.job} | {r.against} | {r.ratio:.2f} | {r.ours_ms:.2f} | {r.theirs_ms:.2f} | {r.spread:.0%} | {r.verdict} "
        f"| {flops} | {bandwidth} | {r.notes} |"
    )


def read(page: Path) -> str:
    """The section of results. Raises ValueError where the page has no marks."""
    return _parts(page)[1]


def write(page: Path, text: str) -> None:
    """Replace the section of results. Raises ValueError where the page has no marks."""
    before, _, after = _parts(page)
    write_text(page, f"{before}{START}\n\n{text}\n\n{END}{after}")


def _parts(page: Path) -> tuple[str, str, str]:
    """What stands before, between and after the marks."""
    before, found, rest = page.read_text(encoding="utf-8").partition(START)
    inside, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"{page} has no section of results: put {START} and {END} around where they belong")
    return before, inside, after
