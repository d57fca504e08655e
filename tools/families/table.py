"""The page: a line for each row, and each claim that could not be asked, with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from conformance.verdict import Verdict
from tools.families.answers import Answers

HEAD = "| class | kind | claims | both keep | noted on both | of one only | of neither | differ | largest difference |"


def table(found: Sequence[Answers]) -> str:
    """Markdown."""
    asked = [answer for one in found for answer in one.each]
    total = sum(len(answer.skipped) == 0 for answer in asked)
    differ = sum(len(one.disagreeing) for one in found)
    apart, neither = (sum(len(answer.skipped) == sides for answer in asked) for sides in (1, 2))
    head = (
        f"{len(found)} models, {len(asked)} questions: both sides answer {total}, and {differ} answers differ; one "
        f"side answers {apart}, and {neither} are about what the model does not have."
    )
    lines = [head, "", HEAD, "|---|---" + "|---:" * 7 + "|", *map(_line, found), ""]
    lines += ["### Asked of one side only", "", *_of_one(found), ""]
    lines += ["### Asked of neither", "", *_of_neither(found), ""]
    lines += ["### Noted on both", "", *_notes(found)]
    return "\n".join(lines)


def _line(one: Answers) -> str:
    counts = [
        len(one.each),
        sum(answer.verdicts == (Verdict.PASS, Verdict.PASS) for answer in one.each),
        sum(answer.verdicts == (Verdict.NOTE, Verdict.NOTE) for answer in one.each),
        *(sum(len(answer.skipped) == sides for answer in one.each) for sides in (1, 2)),
        len(one.disagreeing),
    ]
    cells = [f"`{one.row.architecture}`", one.row.kind.replace("_", " "), *map(str, counts), f"{one.difference:.1g}"]
    return f"| {' | '.join(cells)} |"


def _of_one(found: Sequence[Answers]) -> Iterable[str]:
    """The claims that one side could not be asked, which, why, and of how many models."""
    models: dict[tuple[str, str, str], int] = defaultdict(int)
    for one in found:
        for answer in one.each:
            if len(answer.skipped) == 1:
                who = "minigrad" if answer.ours in answer.skipped else "transformers"
                models[answer.claim, who, answer.skipped[0].message] += 1
    return ["| claim | not asked of | because | models |", "|---|---|---|---:|"] + [
        f"| `{claim}` | {who} | {why} | {count} |" for (claim, who, why), count in sorted(models.items())
    ]


def _of_neither(found: Sequence[Answers]) -> Iterable[str]:
    """Why neither side could be asked: the claims of each reason, and how many questions."""
    claims: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in found:
        for answer in one.each:
            if len(answer.skipped) == 2:
                why = " / ".join(dict.fromkeys(result.message for result in answer.skipped))
                claims[why][answer.claim] += 1
    return ["| because | questions | claims |", "|---|---:|---|"] + [
        f"| {why} | {sum(asked.values())} | {', '.join(f'`{claim}`' for claim in sorted(asked))} |"
        for why, asked in sorted(claims.items())
    ]


def _notes(found: Sequence[Answers]) -> Iterable[str]:
    models: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in found:
        for answer in one.each:
            if answer.verdicts == (Verdict.NOTE, Verdict.NOTE):
                models[answer.claim, f"{answer.ours.what}: {answer.ours.got}"].append(one.row.architecture)
    return ["| claim | fact | models |", "|---|---|---|"] + [
        f"| `{claim}` | {fact} | {', '.join(f'`{name}`' for name in names)} |"
        for (claim, fact), names in sorted(models.items())
    ]
