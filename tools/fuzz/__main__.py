"""`python -m tools.fuzz`: random programs of 5 to 60 steps, on torch and on minigrad, eager, traced and compiled.

Steps are ops, views of one memory, changes in place (of parts, too), captured parameters; of each program the results,
gradients and second gradients are compared. What differs is shrunk and printed; what minigrad refuses and torch runs is
counted by its sentence. Ctrl-C ends it after the program that runs; with `--progress FILE` the next call goes on there,
and counts what all of them have found. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from conformance.files import write_text
from tools.fuzz.compare import Difference, Refusal, check
from tools.fuzz.programs import drawn


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--programs", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0); the next has the next")
    parser.add_argument("--minutes", type=float, help="stop after so many, whatever is left")
    parser.add_argument("--progress", type=Path, metavar="FILE", help="go on where FILE says, and keep it up to date")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        found = _found_so_far(options.progress, options.seed)
    except (OSError, ValueError) as error:
        parser.error(f"--progress: {error}")
    begun = time.monotonic()
    stopped: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: stopped.append(number))
    while found["done"] < options.programs and not stopped:
        if options.minutes and time.monotonic() - begun > 60 * options.minutes:
            break
        result = check(drawn(options.seed + found["done"]))
        found["done"] += 1
        if isinstance(result, Difference):
            found["different"] += 1
            print(f"{result.way}: {result.what}\n{result.program}\n", flush=True)
        elif isinstance(result, Refusal):
            sentence = f"{result.way}: {result.sentence[:110]}"
            found["refused"][sentence] = found["refused"].get(sentence, 0) + 1
        if options.progress and (found["done"] % 20 == 0 or isinstance(result, Difference)):
            write_text(options.progress, json.dumps(found))
    if options.progress:
        write_text(options.progress, json.dumps(found))
    signal.signal(signal.SIGINT, before)
    refused = Counter(found["refused"])
    for sentence, count in refused.most_common():
        print(f"refused {count}x, {sentence}")
    done, different = found["done"], found["different"]
    print(f"{done} programs from seed {options.seed} on: {different} different, {refused.total()} refused")
    return int(found["different"] > 0)


def _found_so_far(progress: Path | None, seed: int) -> dict[str, Any]:
    """What earlier calls have written to `progress`, or nothing yet. Raises OSError, ValueError for another's file."""
    if progress is None or not progress.exists():
        return {"seed": seed, "done": 0, "different": 0, "refused": {}}
    found = json.loads(progress.read_text("utf-8"))
    if not isinstance(found, dict) or set(found) != {"seed", "done", "different", "refused"}:
        raise ValueError(f"{progress} is not a file that this command has written")
    if found["seed"] != seed:
        raise ValueError(f"{progress} counts programs from seed {found['seed']} on, not from {seed}: give another file")
    return found


if __name__ == "__main__":
    sys.exit(main())
