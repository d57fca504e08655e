"""The results page: `docs/speed.md` holds a section between two marks that a run of the benchmark replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def write(page: Path, text: str) -> None:
    """Replace the section of results. Raises ValueError where the page has no marks."""
    whole = page.read_text(encoding="utf-8")
    before, found, rest = whole.partition(START)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"{page} has no section of results: put {START} and {END} around where they belong")
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")
