"""What a script's text says of objectives that are to grow: whether the loss falls with them, and whether the smaller
of a clipped and a plain one is taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.formulas import bound, log_of_divergence
from conformance.watch.lines import Source
from conformance.watch.signs import signs_in_loss
from conformance.watch.stated import sources


class Bounded(NamedTuple):
    """One of the product of a ratio and an advantage, and the clipped one. is_smaller: whether the smaller one of them
    is taken, as an objective to grow. grows: whether the loss grows with it, None where that is not seen; added: where
    it is added to the loss."""

    text: str
    is_smaller: bool
    grows: bool | None
    place: str
    added: str


def bounded(run: Any) -> Iterator[Bounded]:
    """Where one of a product with a ratio and a product with the clipped ratio is taken."""
    for source in sources(run):
        for node in source.nodes:
            name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
            if name not in ("min", "minimum", "max", "maximum") or len(node.args) != 2:  # type: ignore[attr-defined]
                continue
            sides = [_whole(source, one) for one in node.args]  # type: ignore[attr-defined]
            if not all(isinstance(one, (ast.BinOp, ast.UnaryOp)) for one in sides):
                continue
            if sum(any(_is_clipped(source, n) for n in ast.walk(one)) for one in sides) != 1:
                continue
            signs = {_turned(one) for one in sides}
            if len(signs) != 1 or not all(_has_factors(one) for one in sides):
                continue
            sign = signs.pop()
            grows, added = _grows(source, node, sign)  # type: ignore[arg-type]
            smaller = (name in ("min", "minimum")) is (sign > 0)
            yield Bounded(ast.unparse(node), smaller, grows, source.place(node), added)


def _grows(source: Source, node: ast.expr, sign: int) -> tuple[bool | None, str]:
    """Whether the loss grows with what this is, but for a sign, and where it is added to the loss."""
    found = signs_in_loss(source, node)
    signs = {one for one, _ in found}
    place = min((one for _, one in found), default="") or source.place(node)
    return (signs == {sign} if len(signs) == 1 else None), place


def _whole(source: Source, node: ast.expr) -> ast.expr:
    """What a name stands for, with the minus before it."""
    node = bound(source, node)
    if isinstance(node, ast.UnaryOp):
        return ast.UnaryOp(node.op, bound(source, node.operand))
    return node


def _has_factors(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult)


def _turned(node: ast.expr) -> int:
    """-1 where a product has one minus."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_turned(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _turned(node.left) * _turned(node.right)
    return 1


def _is_clipped(source: Source, node: ast.AST) -> bool:
    """Whether this is a ratio clipped to 1 - e and 1 + e."""
    node = bound(source, node) if isinstance(node, ast.Name) else node
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in ("clamp", "clip"):
        return False
    given = [ast.unparse(one) for one in (*node.args, *(k.value for k in node.keywords))]
    return any(re.match(r"1(\.0)? - ", one) for one in given) and any(re.match(r"1(\.0)? \+ ", one) for one in given)


class Divergence(NamedTuple):
    """What a divergence from the standard Gaussian is minus a half of. grows: whether the loss grows with it; None
    where that is not seen."""

    grows: bool | None
    place: str


def divergences(run: Any) -> Iterator[Divergence]:
    """Where 1 + l - m^2 - exp(l), which is below zero, goes into a loss."""
    for source in sources(run):
        for node in source.nodes:
            inner = source.around.get(node)
            if log_of_divergence(node) and not (isinstance(inner, ast.BinOp) and log_of_divergence(inner)):
                yield Divergence(*_grows(source, node, 1))  # type: ignore[arg-type]
