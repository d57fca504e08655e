"""Of what a norm takes the mean, read as syntax: of its numbers, as LayerNorm does, or of their squares only."""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent

from torch import nn


def means_squares_only(cls: type[nn.Module]) -> bool:
    """Whether the forward of a class, read as syntax, takes means of squares and of nothing else, and no variance."""
    try:
        tree = ast.parse(dedent(inspect.getsource(cls.forward)))
    except (OSError, TypeError, SyntaxError):
        return False
    nodes = list(ast.walk(tree))
    squares = {t.id for n in nodes if isinstance(n, ast.Assign) and _is_square(n.value, set()) for t in _names(n)}
    means = [n for n in nodes if isinstance(n, ast.Call) and _last(n.func) in ("mean", "var", "std", "var_mean")]
    return bool(means) and all(_is_square(_averaged(n), squares) and _last(n.func) == "mean" for n in means)


def _averaged(call: ast.Call) -> ast.expr:
    """What a mean is taken of: ``x.mean(-1)``, ``torch.mean(x, -1)``."""
    held = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    of_torch = isinstance(held, ast.Name) and held.id == "torch" and call.args
    return call.args[0] if of_torch else held


def _is_square(node: ast.expr, squares: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in squares
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return ast.dump(node.left) == ast.dump(node.right)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Pow) and ast.unparse(node.right) in ("2", "2.0")
    if not isinstance(node, ast.Call):
        return False
    if _last(node.func) == "pow":
        return ast.unparse(node.args[-1]) in ("2", "2.0") if node.args else False
    return _last(node.func) == "square"


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names(node: ast.Assign) -> list[ast.Name]:
    return [target for target in node.targets if isinstance(target, ast.Name)]
