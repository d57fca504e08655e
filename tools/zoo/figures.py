"""The results of a part as a table in Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from tools.zoo.table import KINDS, Repository
from tools.zoo.trial import Outcome

COLUMNS = ("entries", "run", "reached", "refused", "FAIL + ERROR", "known of these", "median s", "95 % s", "beside")
"""known: explained by the table. beside: what it imports cannot be had here."""


def read(path: Path, repositories: Sequence[Repository]) -> list[Outcome]:
    """The outcomes in a file of JSON lines, of the entries that these repositories have; none without a file."""
    entries = {(r.name, r.commit, e.impl, e.kind): e for r in repositories for e in r.entries}
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = []
    for outcome in (Outcome(**json.loads(line)) for line in lines):
        entry = entries.get((outcome.repository, outcome.commit, outcome.impl, outcome.kind))
        if entry is not None:
            outcome.known = [claim for claim in outcome.broken if claim in entry.defects]
            found.append(outcome)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    ran = [o for o in outcomes if not o.missing]
    reached = sum(o.reached for o in ran)
    seconds = [o.seconds for o in ran] or [0.0]
    cells = [
        name,
        str(len(ran)),
        f"{reached} ({100 * reached / len(ran):.0f} %)" if ran else "0",
        str(sum(o.why == "the suite refused it" for o in ran)),
        str(sum(len(o.broken) for o in ran)),
        str(sum(len(o.known) for o in ran)),
        f"{median(seconds):.1f}",
        f"{percentile(seconds, 0.95):.1f}",
        str(len(outcomes) - len(ran)),
    ]
    return "| " + " | ".join(cells) + " |"


def table(part: str, outcomes: Sequence[Outcome]) -> str:
    """A row for all entries, for whole models, and for each kind."""
    lines = [
        f"### {part.capitalize()}: {len({o.repository for o in outcomes})} repositories",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" + "|---:" * (len(COLUMNS) - 1) + "|",
        row("all", outcomes),
        row("whole models", [o for o in outcomes if o.whole]),
    ]
    lines += [row(kind, chosen) for kind in KINDS if (chosen := [o for o in outcomes if o.kind == kind])]
    return "\n".join(lines)


def reasons(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Why entries were not reached, the most frequent reason first."""
    counted = Counter(o.why.partition(":")[0] for o in outcomes if o.why and not o.missing)
    yield from (f"- {n}: {why}" for why, n in counted.most_common())


def failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Each FAIL and ERROR that the table does not explain."""
    for o in outcomes:
        if unknown := [claim for claim in o.broken if claim not in o.known]:
            yield f"- {o.repository}, `{o.impl}`: {', '.join(f'`{claim}`' for claim in unknown)}"


def page(part: str, outcomes: Sequence[Outcome]) -> str:
    """All of this of a part."""
    return "\n".join([table(part, outcomes), "", *reasons(outcomes), "", *failures(outcomes)])
