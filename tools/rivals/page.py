"""The tables of docs/rivals.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from tools.rivals.cases import CLASSES, ORIGINAL
from tools.rivals.methods import METHODS, PACKAGES, RIVALS, SUITE
from tools.rivals.results import KILLED, OUTCOMES, Judged, Result, judge_all

NEAR = 5
"""A line so many lines off still leads to the edit."""


def section(results: Sequence[Result], command: str) -> str:
    """Everything between the marks of the page."""
    mutants = judge_all(results)
    defects = [one for one in mutants if one.result.sort == "defect"]
    methods = [method for method in METHODS if any(r.method == method for r in results)]
    originals = {r.model for r in results if r.sort == ORIGINAL}
    counts = Counter(sort for _, _, sort in {(j.result.model, j.result.mutant, j.result.sort) for j in mutants})
    said = ", ".join([f"{len(originals)} models", *(f"{counts[sort]} {sort}s" for sort in CLASSES)])
    parts = [f"    {command}", f"{said}.", _caught(methods, defects), _false(methods, results, mutants)]
    parts += [_models(methods, defects), _against(defects), _false_words(results, mutants)]
    return "\n\n".join(parts)


def _name(method: str) -> str:
    return f"{method} {PACKAGES[method][1]}" if method in PACKAGES else method


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def _caught(methods: Sequence[str], defects: Sequence[Judged]) -> str:
    rows: list[list[object]] = []
    for method in methods:
        own = [one for one in defects if one.result.method == method]
        counts = Counter(one.outcome for one in own)
        times = [one.result.said.seconds for one in own if one.result.said.seconds]
        seconds = f"{median(times):.0f}" if times else ""
        rows.append([_name(method), _share(counts[KILLED], len(own)), *(counts[o] for o in OUTCOMES[1:]), seconds])
    return _table(["method", "defects caught", *OUTCOMES[1:], "seconds a file, median"], rows)


def _false(methods: Sequence[str], results: Sequence[Result], mutants: Sequence[Judged]) -> str:
    """False words: of an original what fails or breaks; of the others what holds for the original."""
    rows: list[list[object]] = []
    for method in methods:
        originals = [r for r in results if r.method == method and r.sort == ORIGINAL]
        tested = [r for r in originals if not r.said.raised]
        row: list[object] = [_name(method), f"{len(tested)} of {len(originals)}"]
        row += [_share(sum(bool(r.broken) for r in tested), len(tested)), sum(len(r.broken) for r in tested)]
        for sort in ("equivalent", "convention"):
            own = [one for one in mutants if one.result.method == method and one.result.sort == sort]
            row.append(_share(sum(bool(one.new) for one in own), len(own)))
        rows.append(row)
    head = ["method", "correct models it can judge", "with a false word", "false words"]
    return _table([*head, "equivalents blamed", "conventions blamed"], rows)


def _models(methods: Sequence[str], defects: Sequence[Judged]) -> str:
    rows = []
    for model in sorted({one.result.model for one in defects}):
        row = [model]
        for method in methods:
            own = [one for one in defects if (one.result.model, one.result.method) == (model, method)]
            row.append(f"{sum(one.outcome == KILLED for one in own)} of {len(own)}" if own else "")
        rows.append(row)
    return _table(["defects caught in", *map(_name, methods)], rows)


def _against(defects: Sequence[Judged]) -> str:
    """The mistakes that a rival finds and the suite misses, one by one; and how many that all rivals miss it finds."""
    found: dict[tuple[str, str], dict[str, Judged]] = {}
    for one in defects:
        found.setdefault((one.result.model, one.result.mutant), {})[one.result.method] = one
    lost, alone, caught = [], 0, 0
    for (model, mutant), by in sorted(found.items()):
        ours = by.get(SUITE)
        if ours is None or not set(by) & set(RIVALS):
            continue
        finders = [method for method in RIVALS if method in by and by[method].outcome == KILLED]
        if finders and ours.outcome != KILLED:
            lost.append(f"| {model} {mutant} | {ours.result.what} | {ours.outcome} | {', '.join(finders)} |")
        if not finders:
            alone += 1
            caught += ours.outcome == KILLED
    if not lost and not alone:
        return _lines(defects)
    lines = [f"Of the defects that all rivals miss, the suite finds {_share(caught, alone)}. {_lines(defects)}"]
    lines.append(f"Defects that a rival finds and the suite does not: {len(lost) or 'none'}.")
    if lost:
        lines += ["", "| mutant | what it is | the suite | found by |", "|---|---|---|---|", *lost]
    return "\n".join(lines)


def _lines(defects: Sequence[Judged]) -> str:
    """How near the lines that the suite names are to the edit."""
    ours = [one.result for one in defects if one.result.method == SUITE and one.outcome == KILLED]
    far = [min((abs(line - one.line) for line in one.said.at), default=NEAR + 1) for one in ours]
    exact, near = sum(not steps for steps in far), sum(steps <= NEAR for steps in far)
    return f"It names the line of the edit for {_share(exact, len(far))}, one at most {NEAR} lines off for {near}."


def _false_words(results: Sequence[Result], mutants: Sequence[Judged]) -> str:
    """The suite's own false words, one by one."""
    words = [
        (f"{r.model}", name, text)
        for r in results
        if r.method == SUITE and r.sort == ORIGINAL
        for name, text in r.broken.items()
    ]
    words += [
        (f"{one.result.model} {one.result.mutant} ({one.result.sort})", name, text)
        for one in mutants
        if one.result.method == SUITE and one.result.sort != "defect"
        for name, text in one.new.items()
    ]
    if not words:
        return "The suite says nothing false."
    rows = [f"| {where} | {name} | {text.replace('|', '/')} |" for where, name, text in words]
    return "\n".join(["False words of the suite:", "", "| of | claim | it says |", "|---|---|---|", *rows])
