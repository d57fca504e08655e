"""What an elementwise op does with one element, as a tree: its reference, called with symbols instead of arrays.

    lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    add(maximum(x, 0), log1p(exp(negative(absolute(x)))))

The words of a tree are numpy's elementwise functions, `where`, and those of `word`. What each word is in the language
of kernels, the generators know: `minigrad.compiler.fusion` for the CPU, `minigrad.kernels.cuda.words` for the device.
What Python itself has an operator for is the same in both (`ANY`, `NUMBERS`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

BOOLEAN_RESULT = frozenset(
    ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf", "isfinite")
)

ANY = {  # of operands of every dtype
    "where": "{1} if {0} else {2}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
}
NUMBERS = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "negative": "-{0}",
    "square": "{0} * {0}",
}


class Symbol(NDArrayOperatorsMixin):
    """A value that is written down instead of computed: a word and its operands; an input has its place as word."""

    __slots__ = ("operands", "word")

    def __init__(self, word: str | int, operands: tuple[Any, ...] = ()) -> None:
        self.word, self.operands = word, operands

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **keywords: Any) -> Any:
        return NotImplemented if method != "__call__" or keywords else Symbol(ufunc.__name__, operands)

    def __array_function__(self, function: Any, types: Any, operands: Any, keywords: Any) -> Any:
        return NotImplemented if function is not np.where or keywords else Symbol("where", operands)

    def __bool__(self) -> bool:
        raise TypeError("it branches on a value: choose with np.where")


def word(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that numpy lacks, as a word of its own: given symbols it is written down under its name."""

    @functools.wraps(function)
    def call(*operands: Any) -> Any:
        if any(isinstance(operand, Symbol) for operand in operands):
            return Symbol(function.__name__.strip("_"), operands)
        return function(*operands)

    return call


def written(op: str, function: Callable[..., Any], inputs: Sequence[str], attributes: Sequence[str]) -> Symbol:
    """The tree of `function`; attributes are numbered behind the inputs. Raises TypeError where there is none."""
    symbols = [Symbol(place) for place in range(len(inputs) + len(attributes))]
    try:
        tree = function(*symbols[: len(inputs)], **dict(zip(attributes, symbols[len(inputs) :], strict=True)))
        if isinstance(tree, Symbol):
            return tree
        problem = f"it returns a {type(tree).__name__}"
    except (TypeError, AttributeError) as error:
        problem = str(error)
    raise TypeError(
        f"op {op!r}: its reference is no expression of single elements ({problem}): use operators and numpy's "
        "elementwise functions, or give such an `expression` beside it"
    )


def conditions(tree: Symbol) -> set[int]:
    """The inputs that only choose: the first operand of a `where`."""
    first = tree.operands[0].word if tree.word == "where" and isinstance(tree.operands[0], Symbol) else None
    found = {first} if isinstance(first, int) else set()
    return found.union(*[conditions(part) for part in tree.operands if isinstance(part, Symbol)])


def ufunc_of(tree: Symbol | None, inputs: int) -> np.ufunc | None:
    """The function of numpy that a tree is, of all inputs in their order; None where it is more than one."""
    places = [part.word if isinstance(part, Symbol) else None for part in tree.operands] if tree is not None else []
    found = getattr(np, str(tree.word), None) if tree is not None and places == [*range(inputs)] else None
    return found if isinstance(found, np.ufunc) else None


def count(tree: Symbol) -> int:
    """How many words a tree has."""
    own = 0 if isinstance(tree.word, int) else 1
    return own + sum(count(part) for part in tree.operands if isinstance(part, Symbol))


def substituted(tree: Symbol, operands: Sequence[Any]) -> Any:
    """A tree with other trees, or numbers, in place of its inputs."""
    if isinstance(tree.word, int):
        return operands[tree.word]
    parts = [substituted(part, operands) if isinstance(part, Symbol) else part for part in tree.operands]
    return Symbol(tree.word, tuple(parts))


_INFIX = {  # a word as an operator, and how tightly it binds
    "add": ("+", 3), "subtract": ("-", 3), "divide": ("/", 4), "power": ("**", 6),
    "equal": ("==", 0), "not_equal": ("!=", 0), "less": ("<", 0), "less_equal": ("<=", 0), "greater": (">", 0),
    "greater_equal": (">=", 0), "bitwise_and": ("&", 2), "bitwise_or": ("|", 1),
}  # fmt: skip
_PRODUCT, _NEGATIVE, _POWER, _TIGHTEST = 4, 5, 6, 7


def shown(tree: Any, names: Sequence[str]) -> str:
    """A tree as a line of Python, with these names for its inputs."""
    return _shown(tree, names)[0]


def _shown(node: Any, names: Sequence[str]) -> tuple[str, int]:
    """The text, and how tightly its outermost operator binds."""
    if not isinstance(node, Symbol):
        number = float(node)
        return (str(int(number)) if number.is_integer() else repr(number)), _TIGHTEST if number >= 0 else _NEGATIVE
    if isinstance(node.word, int):
        return names[node.word], _TIGHTEST
    if node.word == "multiply":
        return _product(node, names)
    parts = [_shown(part, names) for part in node.operands]
    if node.word == "negative":
        return f"-{_within(parts[0], _NEGATIVE)}", _NEGATIVE
    if node.word in _INFIX:
        sign, tight = _INFIX[node.word]
        return f"{_within(parts[0], tight)} {sign} {_within(parts[1], tight + 1)}", tight
    if node.word == "square":
        return f"{_within(parts[0], _TIGHTEST)}**2", _POWER
    word = {"absolute": "abs"}.get(node.word, node.word)
    return f"{word}({', '.join(text for text, _ in parts)})", _TIGHTEST


def _product(node: Any, names: Sequence[str]) -> tuple[str, int]:
    """Factors from left to right; the same one again is a power."""
    factors: list[tuple[str, int]] = []
    while isinstance(node, Symbol) and node.word == "multiply":
        node, last = node.operands
        factors.insert(0, _shown(last, names))
    factors.insert(0, _shown(node, names))
    shown: list[str] = []
    for factor, group in itertools.groupby(factors):
        times = len(list(group))
        power = f"{_within(factor, _TIGHTEST)}**{times}"
        shown.append(power if times > 1 else _within(factor, _PRODUCT + bool(shown)))
    return " * ".join(shown), _PRODUCT if len(shown) > 1 else _POWER


def _within(part: tuple[str, int], tight: int) -> str:
    return part[0] if part[1] >= tight else f"({part[0]})"


class Value(NamedTuple):
    """What a value is called in a kernel, and its dtype there."""

    name: str
    dtype: str


def lines(
    tree: Symbol,
    given: Sequence[Value],
    name: str,
    text: Callable[[str, str, Sequence[str]], str | None],
    number: Callable[[Any, str], str | None],
) -> tuple[list[str], str] | None:
    """A kernel's lines that compute `tree` of the values `given` as `name`, a word each, and the result's dtype.

    text(word, dtype of its operands, their names) is that word with {0}, {1}... for the operands, number(value, dtype)
    a constant's text. The result is None where one of them is, or where operands of several dtypes meet.
    """
    made: list[str] = []

    def value(node: Symbol) -> Value | None:
        if isinstance(node.word, int):
            return given[node.word]
        operands = [value(part) if isinstance(part, Symbol) else part for part in node.operands]
        compared = operands[1:] if node.word == "where" else operands
        dtypes = {operand.dtype for operand in compared if isinstance(operand, Value)}
        if None in operands or len(dtypes) != 1:
            return None
        (dtype,) = dtypes
        names = [operand.name if isinstance(operand, Value) else number(operand, dtype) for operand in operands]
        template = text(node.word, dtype, [name for name in names if name is not None])
        if template is None or None in names:
            return None
        target = name if node is tree else f"{name}_{len(made)}"
        made.append(f"{target} = {template.format(*names)}")
        return Value(target, "bool" if node.word in BOOLEAN_RESULT else dtype)

    result = value(tree)
    if result is None:
        return None
    return made or [f"{name} = {result.name}"], result.dtype
