"""The process that has imported torch, numpy and the suite once, and forks for each submission: `main`.

It runs nothing foreign and no operation of torch, so that it has one thread and a fork of it is whole. A task is a
line of JSON on its standard input, what came of it a line on its standard output. Where a system cannot fork, a fresh
process takes the child's place.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback

BEYOND = ("torch.fx.experimental.symbolic_shapes",)
"""With sympy, 0.3 s: for submissions that start a backward pass from a gradient, which few do."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from conformance.forking import SUITE, TORCH, preload
    from conformance.grading.trial import outcome

    preload((*SUITE, *TORCH, *BEYOND))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        began = time.perf_counter()
        try:
            values = outcome(task)
        except Exception:  # ours, not the submission's: whoever waits for the answer must be told
            values = {"trouble": traceback.format_exc()}
        print(json.dumps({**values, "seconds": time.perf_counter() - began}, default=str), file=answers, flush=True)
