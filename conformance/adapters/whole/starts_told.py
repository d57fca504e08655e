"""Numbers that a constructor hands to ``normal_``: the second is the mean, and a deviation is told by its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.adapters.whole.class_source import tree_of
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import Place, Record

_DEVIATION = re.compile(r"(?i)(^|[._])(std|stddev|sigma|scale)(_|$)|init\w*_(range|std)|_std$|initializer_range")
_LARGEST = 0.5
"""A mean so far from zero may be meant."""


def told_as_means(record: Record) -> Iterator[Finding]:
    """Where ``nn.init.normal_(weight, 0.02)`` makes numbers around 0.02 with a deviation of 1."""
    for cls in dict.fromkeys(map(type, record.module.modules())):
        tree, file, first = tree_of(cls) or (None, "", 0)
        for call in ast.walk(tree) if tree is not None else ():
            mean = _mean_alone(call) if isinstance(call, ast.Call) else None
            if isinstance(call, ast.Call) and mean is not None and _is_a_deviation(mean):
                said = ast.unparse(mean)
                yield Finding(
                    "modules-start-by-a-deviation-and-not-a-mean",
                    f"{ast.unparse(call.func)} takes {said} as the mean: the numbers have a deviation of 1.",
                    Place(file, first + call.lineno - 1),
                    f"a deviation of {said}",
                    f"a mean of {said}",
                    f"Name it: std={said}.",
                )


def _mean_alone(call: ast.Call) -> ast.expr | None:
    """The mean that a call of normal_ or trunc_normal_ is given, where it is given nothing behind it."""
    name = ast.unparse(call.func)
    if not name.endswith("normal_") or call.keywords or name.endswith(("kaiming_normal_", "xavier_normal_")):
        return None
    of_init = name in ("normal_", "trunc_normal_") or re.search(r"\binit\.", name) is not None
    before = 1 if of_init else 0  # the tensor
    return call.args[before] if len(call.args) == before + 1 else None


def _is_a_deviation(mean: ast.expr) -> bool:
    if isinstance(mean, ast.Constant):
        return isinstance(mean.value, (int, float)) and 0 < mean.value < _LARGEST
    return isinstance(mean, (ast.Name, ast.Attribute)) and bool(_DEVIATION.search(ast.unparse(mean)))
