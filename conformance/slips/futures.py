"""Slips of what hides the future, that the text of a file shows by itself: a mask that a function makes the other way
round than the attention of the file reads it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import Found, Slip, assigned, called, functions, unparse, walk

_MAKES = re.compile(r"\w*(causal|subsequent|look_?ahead|future|autoregressive)\w*", re.IGNORECASE)
_OTHERS = re.compile(r"scaled_dot_product_attention|MultiheadAttention|nn\.Transformer|-inf|attn_mask")
"""Where torch reads masks, which has conventions of its own, and where masks are added."""
_TURNS = re.compile(r"== 0\b|== False|~|\b1(\.0)? - |logical_not|< 1\b|!= 1\b|\.eq\(0\)|not_equal")


def future_shown(tree: ast.AST) -> Found:
    """Where a function makes a causal mask with ones for what is hidden, and all attention of the file hides where a
    mask is nought, or the other way round."""
    read = set(_reads(tree))
    text = unparse(tree)
    if len(read) != 1 or _OTHERS.search(re.sub(r"float\(['\"]-inf['\"]\)|-\w*\.inf\b", "", text)):
        return
    hides_nought = read.pop()
    for function in (one for one in functions(tree) if _MAKES.fullmatch(one.name)):
        for given, place in _made(function):
            triangles = re.findall(r"\b(triu|tril)\(", given)
            if len(triangles) == 1 and ((triangles[0] == "triu") != bool(_TURNS.search(given))) == hides_nought:
                yield given, place


def _reads(tree: ast.AST) -> Iterator[bool]:
    """Of each attention whether it hides where its mask is nought; both, where a mask is turned on the way to it."""
    makers = {one for function in functions(tree) if _MAKES.fullmatch(function.name) for one in walk(function)}
    for node in walk(tree):
        if node in makers:
            continue
        for to, given in assigned(node):
            if re.search(r"mask", unparse(to)) and _TURNS.search(unparse(given)):
                yield from (True, False)
        asked = unparse(node.args[0]) if called(node).startswith("masked_fill") and node.args else ""  # type: ignore[attr-defined]
        if "mask" in asked.lower():
            yield _TURNS.search(asked) is not None


def _made(function: ast.FunctionDef) -> Iterator[tuple[str, ast.AST]]:
    """What a function gives, with names replaced by what they were given; nothing where one is given twice."""
    pairs = [pair for node in walk(function) for pair in assigned(node)]
    given: dict[str, list[ast.expr]] = {}
    for to, value in pairs:
        given.setdefault(unparse(to), []).append(value)
    for node in (one for one in walk(function) if isinstance(one, ast.Return) and one.value is not None):
        text = unparse(node.value)
        for name, values in given.items():
            if re.search(rf"\b{re.escape(name)}\b", text):
                if len(values) > 1:
                    return
                text = re.sub(rf"\b{re.escape(name)}\b", f"({unparse(values[0])})".replace("\\", r"\\"), text)
        yield text, node


SHOWN = Slip(
    rule=future_shown,
    asked="the mask that a function makes, and the attention that reads it",
    expected="the future is hidden",
    got="the past is hidden, and the future is shown",
    sentence="A causal mask is made the other way round than attention reads it: words see only what comes after them.",
    mend="torch.tril(torch.ones(size, size)) where 0 is hidden, torch.triu(..., diagonal=1) where 1 is",
    nothing="no causal mask was seen that is made the other way round than it is read",
)
