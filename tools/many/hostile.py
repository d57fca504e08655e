"""What a fork bomb, one that takes all memory, a sleeper and a flooder cost the others of a class: `table`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conformance.grading.hosts import WarmHost, used_by
from conformance.grading.run import Options, in_order
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


def table(folder: Path, workers: int, options: Options) -> str:
    """The table of docs/grading-figures.md, and by how much the four delay the others of a hundred."""
    found = costs(folder, options)
    lines = ["| | processor time | what became of it |", "|---|---:|---|"]
    for name, cost in found.items():
        lines.append(f"| {name} | {cost.processor:.2f} s | {cost.refused.rpartition(': ')[2] or 'tested'} |")
    harm = sum(found[name].processor for name in HARM)
    others = OTHERS * found[RIGHT].processor
    lines.append(f"\nFour of them among {OTHERS} others: {harm:.1f} s beside {others:.1f} s, {harm / others:.1%}")
    return "\n".join(lines)
