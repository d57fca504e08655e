"""The process that has imported torch, numpy and the suite once, and forks for each submission: `main`.

It runs nothing foreign and no operation of torch, so that it has one thread and a fork of it is whole. A task is a
line of JSON on its standard input, what came of it a line on its standard output. Where a system cannot fork, a fresh
process takes the child's place.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import time
import traceback

PRELOADED = (
    *("numpy", "hypothesis", "hypothesis.strategies", "hypothesis.internal.conjecture.engine", "torch", "torch.nn"),
    "torch.fx.experimental.symbolic_shapes",  # what the first backward pass of a process imports, with sympy: 0.3 s
    *(
        "conformance.checks",
        "conformance.host",
        "conformance.catalogue",
        "conformance.lookalike",
        "conformance.mutants",
    ),
    *("conformance.adapters.reference", "conformance.adapters.whole.implementation"),
    *("conformance.adapters.functions.implementation", "conformance.roots", "conformance.grading.trial"),
)
"""What submissions and checks need; imported before the first fork, where it is installed."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    from conformance.grading.trial import outcome

    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it looks at
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        began = time.perf_counter()
        try:
            values = outcome(task)
        except Exception:  # ours, not the submission's: whoever waits for the answer must be told
            values = {"trouble": traceback.format_exc()}
        print(json.dumps({**values, "seconds": time.perf_counter() - began}, default=str), file=answers, flush=True)
