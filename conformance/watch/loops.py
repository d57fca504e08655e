"""The loops in which a script does something, as its text shows them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from conformance.watch.events import Schedule
from conformance.watch.lines import At, source_of


def loops_around(stack: Sequence[At]) -> list[ast.For | ast.While]:
    """The loops that a call stands in, innermost first: those of its function, and of its callers."""
    found: list[ast.For | ast.While] = []
    for at in stack:
        call, source = at.call(), source_of(at.code.co_filename)
        if call is not None and source is not None:
            own = source.function(call)
            found += [
                n for n in source.outward(call) if isinstance(n, (ast.For, ast.While)) and source.function(n) is own
            ]
    return found


def counts_epochs(run: Any, schedule: Schedule) -> bool:
    """Whether the period of a schedule is the number of turns of its outermost loop, though it is stepped in an inner
    one: both are written alike, or are one number."""
    around = loops_around(schedule.stack)
    planned = run.planned.get(schedule.scheduler, ())
    call = planned[0].call() if planned else None
    if len(around) < 2 or call is None:
        return False
    outer = around[-1]
    turns = outer.iter if isinstance(outer, ast.For) else None
    if not (isinstance(turns, ast.Call) and ast.unparse(turns.func).endswith("range") and len(turns.args) == 1):
        return False
    given = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "T_max")]
    wanted, said = ast.unparse(turns.args[0]), [ast.unparse(one) for one in given]
    is_less = any(one.startswith(f"{wanted} - ") for one in said)  # epochs - warmup_epochs
    return wanted in said or is_less or wanted == str(schedule.period)
