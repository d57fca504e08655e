"""Slips of measures that the text of a file shows by itself: two counts or two rates that are one expression, and
answers that were given the words before them, scored as if they had been written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations

from conformance.slips.slip import Found, Slip, assigned, called, calls, functions

# --- two names of one number ----------------------------------------------------------------------

_PAIRS = (
    (r"(.*_)?(fp|false_?pos(?:itives?)?)(_.*)?", r"(.*_)?(fn|false_?neg(?:atives?)?)(_.*)?"),
    (r"(.*_)?(p|prec(?:ision)?)(_.*)?", r"(.*_)?(r|rec(?:all)?)(_.*)?"),
)
"""Names of what is counted, or divided, in two ways."""


def one_number_twice(tree: ast.AST) -> Found:
    """Where false positives and false negatives, or a precision and a recall, are one expression."""
    for function in functions(tree):
        named = [(to.id, given) for node in ast.walk(function) for to, given in _single(node)]
        for (name, given), (other, also) in combinations(named, 2):
            same = ast.dump(given) == ast.dump(also) and _counts(given)
            if same and any(_are(name, other, pair) or _are(other, name, pair) for pair in _PAIRS):
                yield f"{name} and {other}: {ast.unparse(given)}", also


def _single(node: ast.AST) -> Iterator[tuple[ast.Name, ast.expr]]:
    return ((to, given) for to, given in assigned(node) if isinstance(to, ast.Name))


def _are(name: str, other: str, pair: tuple[str, str]) -> bool:
    """Whether they are called so, and what stands around that is the same: fp_all and fn_all."""
    one, two = (re.fullmatch(pattern, said, re.IGNORECASE) for pattern, said in zip(pair, (name, other), strict=True))
    return bool(one and two and one.group(1, 3) == two.group(1, 3))


def _counts(given: ast.expr) -> bool:
    """Whether it is computed from names, and no first value: ``0``, ``zeros(n)``."""
    computes = any(isinstance(one, ast.BinOp | ast.Compare) for one in ast.walk(given))
    return computes and any(isinstance(one, ast.Name) for one in ast.walk(given))


# --- answers whose beginning was given ------------------------------------------------------------

_OF_WRITING = re.compile(
    r"\w*(bleu|rouge|chrf|meteor|edit_?dist|levenshtein|editops)\w*|(\w+_)?(wer|cer|edits)(_\w+)?", re.I
)
"""Measures of what a model writes, which count words that are not in their place."""
_WRITES = re.compile(r"\w*(greedy|beam|generate|translate|transcribe|summar|sample|write|decode_one|respond)\w*", re.I)
_TARGETS = re.compile(
    r"(\w+[._])?(tgt|trg|target|y|dec|decoder|labels?|summary|out)\w*(\[:, ?:-1\]|_in\w*|_inp\w*)?", re.I
)
_CUT = re.compile(r"\[:, ?:-1\]|\[:-1\]|_in(put)?(_ids|s)?$|_inp$", re.I)
"""A target without its last word: what a decoder reads in training."""


def given_beginnings_scored(tree: ast.AST) -> Found:
    """Where the best words of a decoder that has read the target are scored by a measure of what is written."""
    for function in functions(tree):
        if not any(_OF_WRITING.fullmatch(called(one)) for one in calls(function)):
            continue
        if any(_WRITES.fullmatch(called(one)) for one in calls(function)):
            continue
        pairs = [pair for node in ast.walk(function) for pair in assigned(node)]
        scores = {name for to, given in pairs if _reads_a_target(given) for name in _names(to)[:1]}
        for node in calls(function):
            of = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
            best = called(node) in ("argmax", "topk") or (called(node) == "max" and _has_an_axis(node))
            if best and of is not None and (_reads_a_target(of) or _first(of) in scores):
                yield ast.unparse(node), node


def _names(to: ast.expr) -> list[str]:
    return [one.id for one in ast.walk(to) if isinstance(one, ast.Name)]


def _first(of: ast.expr) -> str:
    """The name that an expression begins with: ``logits`` of ``logits[0].softmax(-1)``."""
    while isinstance(of, ast.Attribute | ast.Subscript | ast.Call):
        of = of.func if isinstance(of, ast.Call) else of.value
    return of.id if isinstance(of, ast.Name) else ""


def _has_an_axis(node: ast.Call) -> bool:
    return any(word.arg in ("dim", "axis") for word in node.keywords) or bool(node.args)


def _reads_a_target(given: ast.expr) -> bool:
    """``model(src, tgt[:, :-1])``, also where more is done with it: a source and a target without its last word."""
    for call in (one for one in ast.walk(given) if isinstance(one, ast.Call)):
        rest = [ast.unparse(one) for one in call.args[1:]]
        rest += [ast.unparse(word.value) for word in call.keywords]
        of_model = re.search(r"model|net|transformer|seq2seq", ast.unparse(call.func), re.IGNORECASE)
        if of_model and any(_TARGETS.fullmatch(one) and _CUT.search(one) for one in rest):
            return True
    return False


TWICE = Slip(
    rule=one_number_twice,
    asked="two counts, or two rates, that differ",
    expected="two expressions",
    got="one expression under two names",
    sentence="Both are one expression: what is missed and what is found wrongly count as the same.",
    mend="fp = ((pred == c) & (gold != c)).sum(), fn = ((pred != c) & (gold == c)).sum()",
    nothing="no two counts of mistakes were seen that are one expression",
)
BEGINNINGS = Slip(
    rule=given_beginnings_scored,
    asked="what a measure of writing is given",
    expected="what the model writes by itself",
    got="its best words behind the words of the target",
    sentence="The decoder has read the target: behind a wrong word it is put right again, and the measure is far too "
    "good.",
    mend="score model.generate(source), which goes on from its own words",
    nothing="no measure of writing was seen that is given answers behind the words of the target",
)
