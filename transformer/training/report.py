"""What a training run tells: a bar on the terminal, a log of JSON lines, a picture of the loss."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from minigrad.files import write_atomically
from transformer.training.plot import curves, smoothed

LOG, PLOT = "log.jsonl", "loss.svg"
FEWEST = 20
"""Points of a curve that is drawn smoothed, too."""
Record = dict[str, Any]


class _Figures(ProgressColumn):
    """Loss and tokens a second."""

    def render(self, task: Task) -> Text:
        loss, speed = task.fields.get("loss"), task.fields.get("tokens_per_s")
        return Text("" if loss is None else f"loss {loss:.4f}  {speed:,.0f} tokens/s")


class Report:
    """Shows and logs the records of a run; without a folder it only shows.

    On a terminal that is a progress bar, elsewhere a line for each record. Every record has "step".
    """

    def __init__(self, total: int, folder: Path | None = None, console: Console | None = None) -> None:
        self.total, self.folder = total, folder
        self.console = console or Console(stderr=True)
        self.progress = Progress(
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            _Figures(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("train", total=total)

    @contextlib.contextmanager
    def running(self, step: int) -> Iterator[None]:
        """The bar stands from here, `step` steps being done, to the end of the block. Later records are forgotten."""
        if self.folder is not None:
            kept = [json.dumps(record) + "\n" for record in read_log(self.folder) if record["step"] <= step]
            write_atomically(self.folder / LOG, [line.encode() for line in kept])
        with self.progress:
            self.progress.reset(self.task, completed=step, total=self.total)
            yield

    def advance(self, step: int, loss: float, tokens_per_s: float) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=step, loss=loss, tokens_per_s=tokens_per_s)

    def record(self, record: Record) -> None:
        """Log a record, and print it where there is no bar or where it is an evaluation."""
        if self.folder is not None:
            with open(self.folder / LOG, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        if not self.console.is_terminal or "loss" not in record:
            shown = "  ".join(
                f"{name} {value:,.5g}" if name != "step" else f"step {value}" for name, value in record.items()
            )
            self.console.print(shown, highlight=False)


def read_log(folder: Path) -> list[Record]:
    """The records of a run's log; what is none (a last line that a killed process left unfinished) is passed over."""
    try:
        lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and "step" in record and all(type(v) in (int, float) for v in record.values()):
                records.append(record)
    return records


def plot(folder: Path, title: str) -> None:
    """Draw the log's losses into folder/loss.svg; nothing where nothing was logged."""
    records = read_log(folder)
    series = {
        name: [(record["step"], record[key]) for record in records if key in record]
        for name, key in (("training", "loss"), ("held out", "held_out_loss"))
    }
    if len(series["training"]) >= FEWEST:
        series["training, smoothed"] = smoothed(series["training"])
    series = {name: points for name, points in series.items() if points}
    if series:
        pale = ["training"] if "training, smoothed" in series else []
        write_atomically(folder / PLOT, [curves(series, title, pale=pale).encode()])
