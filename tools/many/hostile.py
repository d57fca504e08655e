"""What a fork bomb, one that takes all memory, a sleeper and a flooder cost the others of a class: `table`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from conformance.grading.hosts import WarmHost, close_all, used_by
from conformance.grading.local import LocalExecutor
from conformance.grading.run import Options, Progress, grade, in_order
from conformance.grading.store import Store
from conformance.grading.submissions import found as submissions_in
from tools.hand_ins import SEPARATE

HARM = {
    "a fork bomb": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "takes all memory": "held = []\nwhile True:\n    held.append(bytearray(2**26))\n",
    "a sleeper": "import time\ntime.sleep(10_000)\n",
    "a flooder": "while True:\n    print('x' * 10_000)\n",
}
"""What stands behind a right class, and runs when it is imported."""

OTHERS = 96
RIGHT = "one of the others"


@dataclass(frozen=True)
class Cost:
    """processor: seconds of the worker and all below it. refused: why it was not tested; empty where it was."""

    processor: float
    refused: str


def costs(folder: Path, options: Options, times: int = 3) -> dict[str, Cost]:
    """What each takes a worker, and what one of the others takes (the mean of some)."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Cost] = {}
    host = WarmHost()
    try:
        claims = in_order(options.slugs(), {})
        for name, harm in {RIGHT: "", **HARM}.items():
            (folder / "subject.py").write_text(f"{SEPARATE}\n{harm}", encoding="utf-8")
            many = 1 if harm else times
            before = used_by(host.pid)
            task = {
                **{"budget": options.budget, "seed": options.seed, "seconds": options.seconds, "claims": claims},
                **{"until_broken": False, "forbidden": (), "sandbox": options.sandbox},
                **{"impl": "subject.py:MultiHeadAttention", "folder": str(folder.resolve())},
            }
            for _ in range(many):
                outcome = host.outcome(task)
            refused = outcome["refused"] or "; ".join(part["refused"] for part in outcome["parts"])
            found[name] = Cost((used_by(host.pid) - before) / many, refused)
    finally:
        host.close()
    return found


def others_done(folder: Path, workers: int, options: Options, others: int, harm: bool) -> float:
    """Seconds by the clock until the last of the right ones was graded, in a folder that is made; workers that have
    started already. harm: whether those that do harm are among them, spread evenly."""
    folder.mkdir(parents=True)
    texts = {f"{number:03d}": f"# {number}\n{SEPARATE}\n" for number in range(others)}
    if harm:
        places = range(others // 8, others, others // 4)
        texts |= {f"{at:03d}x": f"{SEPARATE}\n{text}" for at, text in zip(places, HARM.values(), strict=False)}
    lines = ["id,impl"]
    for name, text in sorted(texts.items()):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        lines.append(f"{name},{name}.py:MultiHeadAttention")
    for name, kept in (("first.csv", lines[:2]), ("list.csv", lines)):
        (folder / name).write_text("\n".join(kept) + "\n", encoding="utf-8")
    store, last = Store(folder / "grades.sqlite"), 0.0

    def notice(progress: Progress) -> None:
        nonlocal last
        if not progress.refused:
            last = time.monotonic()

    with LocalExecutor(workers) as executor:
        grade(submissions_in(str(folder / "first.csv")), store, options, executor=executor, fresh=True)
        began = time.monotonic()
        grade(submissions_in(str(folder / "list.csv")), store, options, executor=executor, fresh=True, notice=notice)
    store.close()
    close_all()
    return last - began


def table(folder: Path, workers: int, options: Options) -> str:
    """The table of docs/grading-figures.md, and by how much the four delay the others of a hundred."""
    found = costs(folder / "alone", options)
    lines = ["| | processor time | what became of it |", "|---|---:|---|"]
    for name, cost in found.items():
        lines.append(f"| {name} | {cost.processor:.2f} s | {cost.refused.rpartition(': ')[2] or 'tested'} |")
    harm = sum(found[name].processor for name in HARM)
    others = OTHERS * found[RIGHT].processor
    lines.append(f"\nFour of them among {OTHERS} others: {harm:.1f} s beside {others:.1f} s, {harm / others:.1%}")
    without, beside = (
        others_done(folder / name, workers, options, OTHERS, name == "harmed") for name in ("right", "harmed")
    )
    lines.append(
        f"By the clock, {workers} workers: the others are done in {without:.1f} s without the four, in {beside:.1f} s "
        f"with them, {beside / without - 1:+.1%}"
    )
    return "\n".join(lines)
