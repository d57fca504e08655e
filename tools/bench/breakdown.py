"""Where our time goes: every call of a plan timed alone, added up by kind of op."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict

from minigrad.compiler.plan import Plan
from minigrad.kernels.native import assemble

ROUNDS = 15


def by_op(plan: Plan) -> list[tuple[str, int, float]]:
    """(op, calls, milliseconds a replay), longest first; medians of several replays, one call at a time.

    A call alone pays 1 us that it does not pay inside a segment, and its data may have left the cache.
    """
    single = [assemble([call])[0] for call in plan.calls]
    taken: list[list[float]] = [[] for _ in single]
    for _ in range(ROUNDS):
        for place, (function, arguments) in enumerate(single):
            start = time.perf_counter()
            function(*arguments)
            taken[place].append((time.perf_counter() - start) * 1e3)
    total: dict[str, float] = defaultdict(float)
    calls = Counter[str]()
    for op, times in zip(plan.origins, taken, strict=True):
        total[op] += statistics.median(times)
        calls[op] += 1
    return [(op, calls[op], ms) for op, ms in sorted(total.items(), key=lambda item: -item[1])]
