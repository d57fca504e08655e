"""What the names of a script say: which of its data are for training, and which judge."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from conformance.slips.slip import JUDGES
from conformance.watch.lines import Source

_TRAIN = re.compile(r"(^|_)(train\w*|trn|tr|fit\w*)(_|$)", re.IGNORECASE)
JUDGING = re.compile(rf"(^|_)({JUDGES})\d*(_|$)", re.IGNORECASE)
EITHER_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
TOOLS = re.compile(
    r"model|net$|crit|loss|device|cuda|cpu|optim|sched|fn$|func|encoder|decoder|self|args|cfg|config|token|vocab|collat"
    r"|epoch|step|seed|logger|writer|torch|transform|train$|True|False",
    re.IGNORECASE,
)
"""Names of what an evaluation is given beside its data."""


def names_training(name: str) -> bool:
    """Whether a name says the training data, and no other part."""
    apart = EITHER_CASE.sub("_", name)
    return _TRAIN.search(apart) is not None and JUDGING.search(apart) is None


def names_judging(name: str) -> bool:
    """Whether a name says data that judge, as validation and test data do, and no other part."""
    apart = EITHER_CASE.sub("_", name)
    return JUDGING.search(apart) is not None and _TRAIN.search(apart) is None


class Bound(NamedTuple):
    """A name, what is bound to it, and in which statement."""

    name: str
    value: ast.expr
    statement: ast.stmt


def bindings(source: Source) -> Iterator[Bound]:
    """What assignments bind to plain names, one by one."""
    for node in source.nodes:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            value = node.value  # type: ignore[attr-defined]
            if isinstance(target, ast.Name):
                yield Bound(target.id, value, node)  # type: ignore[arg-type]
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for one, its in zip(target.elts, value.elts, strict=False):
                    if isinstance(one, ast.Name):
                        yield Bound(one.id, its, node)  # type: ignore[arg-type]


def are_beside(source: Source, first: Bound, second: Bound) -> bool:
    """Whether two statements stand in one block."""
    around = source.around[first.statement]
    blocks = [getattr(around, name, []) for name in ("body", "orelse", "finalbody")]
    return any(first.statement in block and second.statement in block for block in blocks if isinstance(block, list))
