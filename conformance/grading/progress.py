"""How far grading is, on the terminal: done, failed, the rate, the time that remains (`shown`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from conformance.grading.run import Progress


@contextmanager
def shown(total: int, console: Console | None = None) -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error for the time of the block; what it gives is told of each submission that is done."""
    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}", markup=False),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console or Console(stderr=True)) as bar:
        task = bar.add_task("grading", total=total, told="starting")
        counts = {"broken": 0, "refused": 0, "known": 0}

        def notice(progress: Progress) -> None:
            counts["broken"] += bool(progress.broken)
            counts["refused"] += progress.refused
            counts["known"] += progress.known
            one = bar.tasks[0]
            rate = f", {one.speed * 60:.0f} a minute" if one.speed else ""
            told = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none broken"
            bar.update(task, advance=1, told=f"{told}{rate}; {progress.id}")

        yield notice
