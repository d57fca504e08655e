"""What a slip is, and what rules share that read a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

Found = Iterator[tuple[str, ast.AST]]
Rule = Callable[[ast.AST], Found]


@dataclass(frozen=True)
class Slip:
    """A rule, and what is said of it. asked: what it is about; expected, got: of that; sentence: what is wrong;
    nothing: what is said where it tells nothing.
    is_of_all: the rule reads all files of a script as one, since one file shows it with what another one names."""

    rule: Rule
    asked: str
    expected: str
    got: str
    sentence: str
    mend: str
    nothing: str
    is_of_all: bool = False


FALLS = re.compile(
    r"loss|ppl|perplexity|nll|error|pinball|distance|(?<![a-z])(err|mae|mse|rmse|mape|wer|cer|bpb|bpc|crps)(?![a-z])",
    re.IGNORECASE,
)
RISES = re.compile(
    r"acc|score|f1|bleu|rouge|auc|precision|recall|mrr|ndcg|exact|hits?_?(at|rate)|(?<![a-z])ap(?![a-z])", re.IGNORECASE
)
"""Names of measures that get smaller, and of those that get larger, where a model learns."""

VALIDATES = "val|valid|validation|dev"
JUDGES = f"{VALIDATES}|test|held_?out"
"""What names of data say that choose a model, and of data that judge one: alternatives within a pattern.
"eval" is neither for sure: what is evaluated may be a part of what is learned."""


END = re.compile(r"^(\w+_)?(eos|eot|end_?of_?\w+)(_?(id|idx|token|token_id|index))?$", re.IGNORECASE)
PAD = re.compile(r"^(\w+_)?pad(ding)?(_?(id|idx|token|token_id|index))?$", re.IGNORECASE)
"""Names of the token that ends a text, and of the one that fills rows up."""

LEARNED = re.compile(r"(\w+_)?(train|learn)(ing|ed)?(_\w+)?", re.IGNORECASE)
JUDGING = re.compile(rf"(\w+_)?({JUDGES}|eval)(_\w+)?", re.IGNORECASE)
"""Names of data that are learned from, and of data that judge, whatever stands behind them."""

TRAINS = re.compile(r"(self\.)?_?(train|trn|tr|fit)(_?(set|ds|data|dataset|windows|part|split|samples))?", re.I)
"""Names of the training part itself."""

OF_GROUPS = re.compile(
    r"(patient|customer|client|person|speaker|author|lot|incident|session|thread|conversation|dialog(ue)?|household"
    r"|recording|donor|participant|student|driver|pump|machine|device|recipe|song|tune|video|case|document|doc|ticket)"
    r"(_?(id|no|nr|name|number))?",
    re.IGNORECASE,
)
"""Names of what several rows may belong to."""

SPLITS = re.compile(r"split|part|fold|divide|load|read|data", re.IGNORECASE)
"""What functions are called that make parts."""


_REMEMBERED = 16_384
"""Of so many nodes it is remembered what is in them: all rules read the same trees, and no rule changes one."""


@lru_cache(_REMEMBERED)
def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node and all in it, as `ast.walk` gives them."""
    return tuple(ast.walk(node))


@lru_cache(_REMEMBERED)
def unparse(node: ast.AST) -> str:
    """The text of a node, as `ast.unparse` gives it."""
    return ast.unparse(node)


def assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """What an assignment, of one name or of several at once, gives to what; empty for anything else."""
    found: list[tuple[ast.expr, ast.expr]] = []
    for target in node.targets if isinstance(node, ast.Assign) else ():
        value = node.value  # type: ignore[attr-defined]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            found += zip(target.elts, value.elts, strict=True)
        else:
            found.append((target, value))
    return found


def blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements in a function or file, without those of the functions in it."""
    for _, value in ast.iter_fields(function):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
            for statement in value:
                if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    yield from blocks(statement)


@lru_cache(_REMEMBERED)
def functions(tree: ast.AST) -> tuple[ast.FunctionDef, ...]:
    return tuple(node for node in walk(tree) if isinstance(node, ast.FunctionDef))


@lru_cache(_REMEMBERED)
def calls(tree: ast.AST) -> tuple[ast.Call, ...]:
    return tuple(node for node in walk(tree) if isinstance(node, ast.Call))


def called(node: ast.AST) -> str:
    """The name of what is called, without its owner: "softmax" of ``F.softmax(x)``; "" for what is no call."""
    return unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


@lru_cache(_REMEMBERED)
def inside(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node and all in it, but what other functions hold."""
    held = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    parts = (inside(child) for child in ast.iter_child_nodes(node) if not isinstance(child, held))
    return (node, *(one for part in parts for one in part))


def over_epochs(loop: ast.AST) -> bool:
    return isinstance(loop, ast.For) and "epoch" in f"{unparse(loop.target)} {unparse(loop.iter)}"


def named(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What the names of a function are given, also by ``rank += 1``."""
    for node in walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


def reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load) for one in walk(node))


def last_given(name: str, line: int, given_at: list[tuple[int, ast.expr, ast.expr]]) -> ast.expr | None:
    """What a name got last before a line. given_at: what is given to what, with the line."""
    before = [
        (at, given)
        for at, to, given in given_at
        if at < line and any(isinstance(one, ast.Name) and one.id == name for one in walk(to))
    ]
    return max(before, key=lambda one: one[0], default=(0, None))[1]


def all_given(function: ast.AST) -> list[tuple[int, ast.expr, ast.expr]]:
    """What the statements of a function or file give to what, with their lines; not those of the functions in it."""
    return [(node.lineno, to, given) for block in blocks(function) for node in block for to, given in assigned(node)]
