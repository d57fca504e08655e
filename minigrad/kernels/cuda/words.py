"""What every word of an expression (`minigrad.ops.expression`) is in the language of kernels, by kind of its operands.

Operands arrive as float32 or float64 (half types widened), integers, or truth values. A word that refuses some values
takes {fault}, where it notes them (`faults`). No kernel is imported here, so that everybody can ask which ops
are served. The functions are those of `expressions`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minigrad.ops.expression import ANY, NUMBERS, Value, conditions, lines

if TYPE_CHECKING:
    from minigrad.ops.registry import Op

HALVES = ("float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
FAULT = "{fault}"
FLOATING = ANY | NUMBERS | {
    "divide": "{0} / {1}",
    "power": "math.pow({0}, {1})",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "floor_divide": "floor_divide({0}, {1})",
    "remainder": "remainder({0}, {1})",
    "isnan": "{0} != {0}",
    "isinf": "math.fabs({0}) == INFINITY",
    "isfinite": "math.fabs({0}) < INFINITY",
    "absolute": "math.fabs({0})",
    "sign": "sign({0})",
    "floor": "math.floor({0})",
    "ceil": "math.ceil({0})",
    "exp": "math.exp({0})",
    "expm1": "math.expm1({0})",
    "log": "math.log({0})",
    "log1p": "math.log1p({0})",
    "log2": "math.log2({0})",
    "log10": "math.log10({0})",
    "sqrt": "math.sqrt({0})",
    "sin": "math.sin({0})",
    "cos": "math.cos({0})",
    "tanh": "math.tanh({0})",
    "erf": "math.erf({0})",
    "bernoulli": "bernoulli({0}, {1}, {{fault}})",
}  # fmt: skip
FLOAT32 = FLOATING | {"rint": "round_float32({0})"}
FLOAT64 = FLOATING | {"rint": "round_float64({0})"}
INTEGER = ANY | NUMBERS | {
    "maximum": "max({0}, {1})",
    "minimum": "min({0}, {1})",
    "floor_divide": "integer_floor_divide({0}, {1}, {{fault}})",
    "remainder": "integer_remainder({0}, {1}, {{fault}})",
    "power": "integer_pow({0}, {1}, {{fault}})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "invert": "~{0}",
    "absolute": "abs({0})",
    "sign": "1 if {0} > 0 else (-1 if {0} < 0 else 0)",
    "floor": "{0}",
    "ceil": "{0}",
    "rint": "{0}",
    "isnan": "False",
    "isinf": "False",
    "isfinite": "True",
}  # fmt: skip
BOOLEAN = ANY | {
    "add": "{0} or {1}",
    "multiply": "{0} and {1}",
    "maximum": "{0} or {1}",
    "minimum": "{0} and {1}",
    "bitwise_and": "{0} and {1}",
    "bitwise_or": "{0} or {1}",
    "bitwise_xor": "{0} != {1}",
    "invert": "not {0}",
    "isnan": "False",
    "isinf": "False",
    "isfinite": "True",
}


def widened(dtype: str) -> str:
    """The dtype in which a kernel computes."""
    return "float32" if dtype in HALVES else dtype


def text(word: str, dtype: str, names: Sequence[str] = ()) -> str | None:
    """A word of operands of this dtype, or None where there is none."""
    return {"float32": FLOAT32, "float64": FLOAT64, "bool": BOOLEAN}.get(dtype, INTEGER).get(word)


def number(value: Any, dtype: str) -> str | None:
    """A constant of an expression beside operands of this dtype; None where it would change the dtype."""
    if dtype in ("float32", "float64"):
        return ("ZERO", "ONE")[value] if value in (0, 1) else f"{dtype}({value!r})"
    return repr(value) if dtype in INTEGERS and isinstance(value, int) else None


def cast(source: str, target: str) -> str:
    """The conversion from a dtype to another."""
    if target == "bool":
        return "truth({0})" if source != "bool" else "{0}"
    if source == "bool" and target.startswith("float"):
        return f"{target}(1) if {{0}} else {target}(0)"
    return f"{target}({{0}})" if source != "bool" else "1 if {0} else 0"


@functools.cache
def serve(op: Op, dtype: str) -> bool:
    """Can a kernel compute an elementwise op whose first input has this dtype? Attributes are floating numbers."""
    tree = op.tree
    assert tree is not None
    chosen_by = conditions(tree)
    if 0 in chosen_by:
        return dtype == "bool"
    given = [Value("x", "bool" if place in chosen_by else widened(dtype)) for place in range(len(op.inputs))]
    given += [Value("x", "float64" if dtype == "float64" else "float32")] * len(op.attributes)
    return lines(tree, given, "y", text, number) is not None
