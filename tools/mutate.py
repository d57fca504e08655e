"""Mutate an implementation systematically and measure the checks: `python -m tools.mutate FILE.py:Class`.

Small edits (operators, constants, axes, masks, indices, arguments, statements), one at a time, in the class and in
what it uses of its file; each mutant runs in a process of its own against the checks that reach its line. Listed are
the survivors with their diff, and with a reason where `--explained` gives one.

    python -m tools.mutate path/to/attention.py:MultiHeadAttention   any nn.Module
    python -m tools.mutate conformance/adapters/reference/norms.py   a file of ours
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.mutation import trials as t
from tools.mutation.operators import Mutation, mutations

ROOT = Path(__file__).parents[1]
SERVES = {
    "conformance/adapters/reference": "reference",
    "conformance/reference": "torch",  # the formulas that checks compare with: true code must expose their mutants
    "conformance/adapters/torch.py": "torch",
    "transformer": "minigrad",
    "minigrad": "minigrad",
}
"""Our own folders -> the implementation through which they are mutated."""

EXPLAINED = ROOT / "tools" / "mutation" / "explained.toml"


def target_of(text: str, impl: str) -> tuple[t.Target, str]:
    """The file and its implementation from FILE.py[:Class] or package.module:Class, and the class; or ValueError."""
    place, _, name = text.rpartition(":") if ":" in text else (text, "", "")
    path = Path(place)
    if not place.endswith(".py"):
        spec = importlib.util.find_spec(place)
        if spec is None or spec.origin is None:
            raise ValueError(f"there is no module {place}; give FILE.py:Class or package.module:Class")
        path = Path(spec.origin)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; give FILE.py:Class or package.module:Class")
    file = path.resolve()
    if not impl:
        inside = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
        impl = next((own for folder, own in SERVES.items() if inside.startswith(folder)), "")
    if not impl:
        if not name:
            raise ValueError(f"say which class of {path} to mutate, as {text}:Class")
        impl = f"{file}:{name}" if place.endswith(".py") else text
    return t.Target(str(file), impl), name.partition("@")[0]


def explanations(path: Path) -> dict[tuple[str, str], str]:
    """(before, after) -> why this mutant is the same program, or broken in a way that no claim is about."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []) if path.is_file() else []
    return {(row["before"], row["after"]): row["why"] for row in rows}


def measure(mutants: Sequence[Mutation], base: t.Baseline, processes: int, console: Console) -> list[t.Trial]:
    """The trials of all mutants, with a bar of progress."""
    found: list[t.Trial] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("mutants", total=len(mutants))
        for trial in t.trials(mutants, base, processes):
            found.append(trial)
            alive = sum(trial.outcome == t.SURVIVED for trial in found)
            progress.update(task, advance=1, description=f"mutants, {alive} alive")
    return sorted(found, key=lambda trial: (trial.mutation.line, trial.mutation.after))


def table(found: Sequence[t.Trial], reasons: dict[tuple[str, str], str]) -> str:
    """Kills by operator as a Markdown table; its last row is the sum."""
    outcomes = (t.KILLED, t.BROKEN, t.STUCK)
    lines = ["| operator | mutants | killed by a claim | does not run | endless | explained | survived | not reached |"]
    lines.append("|---|" + "---:|" * 7)
    names = sorted({trial.mutation.operator for trial in found})
    for name in [*names, "**all**"]:
        rows = [trial for trial in found if name in (trial.mutation.operator, "**all**")]
        counts = Counter(trial.outcome for trial in rows)
        explained = sum(_reason(trial, reasons) != "" for trial in rows)
        values = [len(rows), *(counts[outcome] for outcome in outcomes), explained]
        values += [counts[t.SURVIVED] - explained, counts[t.UNREACHED]]
        lines.append(f"| {name} | " + " | ".join(map(str, values)) + " |")
    return "\n".join(lines)


def _reason(trial: t.Trial, reasons: dict[tuple[str, str], str]) -> str:
    if trial.outcome != t.SURVIVED:
        return ""
    return reasons.get((trial.mutation.before, trial.mutation.after), "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every mutant that checks reach is killed or explained, 1 if some survive, 2 if misused."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", help="FILE.py:Class, package.module:Class, or a file of this repository")
    parser.add_argument(
        "--impl", default="", help="the implementation whose subjects run the file (default: the class)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants, drawn with a fixed seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--explained", type=Path, default=EXPLAINED, help="TOML file of survivors with their reasons")
    parser.add_argument("--markdown", type=Path, help="write the table and the survivors to this file, too")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            target, name = target_of(options.target, options.impl)
            mutants = mutations(Path(target.file).read_text(encoding="utf-8"), name)
            base = t.baseline(target, Path(folder))
        except ValueError as error:
            print(f"mutate: {error}", file=sys.stderr)
            return 2
        if options.sample and options.sample < len(mutants):
            mutants = random.Random(0).sample(mutants, options.sample)
        for note in base.notes:
            console.print(note, markup=False, highlight=False)
        console.print(f"{len(base.reached)} checks pass on it, {len(base.failing)} fail: {', '.join(base.failing)}")
        found = measure(mutants, base, options.processes, console)
    reasons = explanations(options.explained)
    text = report(found, reasons)
    print(text)
    print(f"in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    return 1 if any(trial.outcome == t.SURVIVED and not _reason(trial, reasons) for trial in found) else 0


def report(found: Sequence[t.Trial], reasons: dict[tuple[str, str], str]) -> str:
    """The table, the rates, and every survivor with its diff and its reason if there is one (Markdown)."""
    survivors = [trial for trial in found if trial.outcome == t.SURVIVED]
    reached = [trial for trial in found if trial.outcome != t.UNREACHED]
    explained = [trial for trial in survivors if _reason(trial, reasons)]
    dead = sum(trial.dead for trial in found)
    lines = [table(found, reasons), ""]
    lines.append(
        f"{dead} of {len(reached)} mutants that checks reach are killed: {dead / max(len(reached), 1):.1%}; of those "
        f"that are not explained, {dead / max(len(reached) - len(explained), 1):.1%}."
    )
    for title, rows in (
        ("Survivors", [trial for trial in survivors if trial not in explained]),
        ("Survivors, explained", explained),
    ):
        if rows:
            lines += ["", f"{title}:", ""]
        for trial in rows:
            why = _reason(trial, reasons)
            lines += ["```diff", f"- {trial.mutation.before}", f"+ {trial.mutation.after}", "```"]
            lines.append(f"Line {trial.mutation.line}, {trial.mutation.operator}." + (f" {why}" if why else ""))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
