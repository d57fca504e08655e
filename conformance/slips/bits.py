"""Slips of perplexities and bits that the text of a file shows by itself: another base than the loss has, a logarithm
of 2 that multiplies or is missing, and tokens that are counted as bytes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from conformance.slips.slip import Found, Slip, all_given, assigned, functions, unparse, walk

_PERPLEXITY = re.compile(r"(\w+[._])?(ppl|perplexity|perplexities)(_\w+)?", re.IGNORECASE)


_IN_BITS = re.compile(r"bit|bp[bcw]|log2|log\(2", re.IGNORECASE)


def powers_of_two(tree: ast.AST) -> Found:
    """Where a perplexity is two to the power of a loss: those of torch are of natural logarithms."""
    if "torch" not in unparse(tree):
        return
    in_bits = {unparse(to) for node in walk(tree) for to, given in assigned(node) if _is_in_bits(given)}
    for name, value in _named_values(tree):
        power = _of_two(value, in_bits) if _PERPLEXITY.fullmatch(name) else None
        if power is not None:
            yield f"{name}: {unparse(power)}", value


def _is_in_bits(value: ast.expr) -> bool:
    return _IN_BITS.search(unparse(value)) is not None


def _of_two(value: ast.expr, in_bits: set[str]) -> ast.expr | None:
    """``2 ** loss``, also in a function of it such as ``round``, where the loss is in no bits; None otherwise."""
    for node in (one for one in walk(value) if isinstance(one, ast.BinOp | ast.Call)):
        base, power = _power(node)
        if isinstance(base, ast.Constant) and base.value == 2 and not _is_in_bits(power):
            names = {unparse(one) for one in walk(power) if isinstance(one, ast.Name | ast.Attribute)}
            if names and not names & in_bits:
                return node
    return None


def _power(node: ast.BinOp | ast.Call) -> tuple[ast.expr, ast.expr]:
    """The base and the exponent of a power; two ellipses for anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return node.left, node.right
    name = unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    given = node.args if isinstance(node, ast.Call) else []
    if name == "pow" and len(given) == 2:
        return given[0], given[1]
    return (ast.Constant(2), given[0]) if name == "exp2" and given else (ast.Constant(...), ast.Constant(...))


def _named_values(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What a file gives a name to: by an assignment, a keyword, a key, the name of a function, the words before it."""
    for node in walk(tree):
        for to, given in assigned(node):
            yield unparse(to), given
        if isinstance(node, ast.Call):
            yield from ((word.arg or "", word.value) for word in node.keywords)
        elif isinstance(node, ast.Dict):
            keys = ((key, value) for key, value in zip(node.keys, node.values, strict=True))
            yield from ((str(key.value), value) for key, value in keys if isinstance(key, ast.Constant))
        elif isinstance(node, ast.FunctionDef):
            returns = (one.value for one in walk(node) if isinstance(one, ast.Return) and one.value is not None)
            yield from ((node.name, value) for value in returns)
        elif isinstance(node, ast.JoinedStr):
            for before, shown in pairwise(node.values):
                if isinstance(before, ast.Constant) and isinstance(shown, ast.FormattedValue):
                    said = re.search(r"(\w+)\W*$", str(before.value))
                    yield (said.group(1) if said else ""), shown.value


_BITS = re.compile(r"(\w+[._])?(bits(_per_\w+)?|bp[bcdt])(_\w+)?", re.IGNORECASE)


_OF_TWO = re.compile(r"(math|np|numpy|torch)?\.?log\((2|2\.0|torch\.tensor\(2\.0?\))\)|0\.693\d*|LN_?2", re.IGNORECASE)


def bits_multiplied(tree: ast.AST) -> Found:
    """Where nats become bits by a product with the logarithm of 2."""
    for name, value in _named_values(tree):
        if not _BITS.fullmatch(name):
            continue
        for node in walk(value):
            is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
            if is_product and any(_OF_TWO.fullmatch(unparse(side)) for side in (node.left, node.right)):  # type: ignore[attr-defined]
                yield f"{name}: {unparse(node)}", node


_LOGARITHM = re.compile(r"log\(2|log2|LN_?2|0\.693|1\.44", re.IGNORECASE)


def nats_called_bits(tree: ast.AST) -> Found:
    """Where a function that is named after bits gives a sum of losses by a number, and neither it nor what calls it
    knows a logarithm of 2."""
    lines = unparse(tree).splitlines()
    for function in functions(tree):
        text = unparse(function)
        if not re.search(r"(^|_)(bits?|bp[bcd])(_|$)", function.name.lower()) or not _OF_LOSSES.search(text):
            continue
        callers = (line for line in lines if f"{function.name}(" in line)
        if _LOGARITHM.search(text) or any(map(_LOGARITHM.search, callers)):
            continue
        for node in walk(function):
            if (
                isinstance(node, ast.Return)
                and isinstance(node.value, ast.BinOp)
                and isinstance(node.value.op, ast.Div)
            ):
                yield f"{function.name}: {unparse(node.value)}", node


_OF_LOSSES = re.compile(r"\bnats?\b|nll|loss|cross_entropy")


_OF_BYTES = re.compile(r"(n|num|total|count)_?(of_)?bytes|bytes_(count|total|seen)", re.IGNORECASE)
_PIECES = re.compile(r"bpe|merges|piece|sentencepiece|tiktoken", re.IGNORECASE)


def tokens_called_bytes(tree: ast.AST) -> Found:
    """Where what is called a number of bytes is one of labels, in a file whose tokens are pieces of several bytes."""
    if not any(_PIECES.search(one.name) for one in walk(tree) if isinstance(one, ast.ClassDef | ast.FunctionDef)):
        return
    for function in functions(tree):
        for _, to, given in all_given(function):
            text = unparse(given)
            counts = re.search(r"!= -|\.ne\(|\.numel\(\)|ignore", text)
            if _OF_BYTES.fullmatch(unparse(to)) and counts and not re.search(r"encode|byte|buffer", text):
                yield f"{unparse(to)} = {text}", given


PERPLEXITIES = Slip(
    rule=powers_of_two,
    asked="the base of a perplexity",
    expected="e, as that of the loss",
    got="2",
    sentence="The loss is one of natural logarithms, and the perplexity takes it for one of base 2: it is too low.",
    mend="math.exp(loss)",
    nothing="no perplexity was seen that is a power of two",
)
BITS = Slip(
    rule=bits_multiplied,
    asked="how nats become bits",
    expected="divided by the logarithm of 2",
    got="multiplied by it",
    sentence="Nats are multiplied by the logarithm of 2: the bits are less than half of what they are.",
    mend="bits = nats / math.log(2)",
    nothing="no bits were seen that are a product with the logarithm of 2",
)
NATS = Slip(
    rule=nats_called_bits,
    asked="the unit of a figure that is named after bits",
    expected="bits: nats by the logarithm of 2",
    got="nats",
    sentence="A sum of losses is called bits as it is: the losses are in nats, and the figure is too small by a third.",
    mend="nats / count / math.log(2)",
    nothing="no nats were seen that are called bits",
)
TOKENS_FOR_BYTES = Slip(
    rule=tokens_called_bytes,
    asked="by what bits are divided for bits a byte",
    expected="by the bytes of the text",
    got="by the tokens, each of several bytes",
    sentence="Bits are divided by the number of tokens and called bits a byte: longer pieces look worse.",
    mend="sum(len(text.encode()) for text in texts)",
    nothing="no number of bytes was seen that counts tokens",
)
