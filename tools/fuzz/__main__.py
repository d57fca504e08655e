"""`python -m tools.fuzz`: random programs of 5 to 60 steps, on torch and on minigrad, eager, traced and compiled.

Steps are ops, views of one memory, changes in place (of parts, too), captured parameters; of each program the results,
gradients and second gradients are compared. What differs is shrunk and printed; what minigrad refuses and torch runs is
counted by its sentence. Ctrl-C ends it after the program that runs. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

import torch

from tools.fuzz.compare import Difference, Refusal, check
from tools.fuzz.programs import drawn


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--programs", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (default 0); the next has the next")
    parser.add_argument("--minutes", type=float, help="stop after so many, whatever is left")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    refused: Counter[str] = Counter()
    differences, done, begun = 0, 0, time.monotonic()
    stopped: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: stopped.append(number))
    for seed in range(options.seed, options.seed + options.programs):
        if stopped or (options.minutes and time.monotonic() - begun > 60 * options.minutes):
            break
        found = check(drawn(seed))
        done += 1
        if isinstance(found, Difference):
            differences += 1
            print(f"{found.way}: {found.what}\n{found.program}\n", flush=True)
        elif isinstance(found, Refusal):
            refused[f"{found.way}: {found.sentence[:110]}"] += 1
    signal.signal(signal.SIGINT, before)
    for sentence, count in refused.most_common():
        print(f"refused {count}x, {sentence}")
    print(f"{done} programs from seed {options.seed} on: {differences} different, {refused.total()} refused")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
