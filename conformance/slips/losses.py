"""Slips of losses, that the text of a file shows by itself: softmaxes under a cross-entropy, and a focal loss that
minds what is easy."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import (
    Found,
    Slip,
    all_given,
    assigned,
    called,
    functions,
    inside,
    last_given,
    unparse,
    walk,
)

# --- focal losses ---------------------------------------------------------------------------------

_LIKELY = re.compile(r"p_?t|probs?(_t)?|p|pt_?\w*|p_(true|target|correct)", re.IGNORECASE)


def focal_by_the_likely(tree: ast.AST) -> Found:
    """Where a focal loss weighs by a power of the probability of the label, and not of what is missing to one."""
    focal = [
        one for one in walk(tree) if isinstance(one, ast.ClassDef | ast.FunctionDef) and "focal" in one.name.lower()
    ]
    for one in focal:
        given = {unparse(to): value for node in walk(one) for to, value in assigned(node)}
        for node in walk(one):
            if (
                not isinstance(node, ast.BinOp)
                or not isinstance(node.op, ast.Pow)
                or "gamma" not in unparse(node.right)
            ):
                continue
            likely = isinstance(node.left, ast.Name) and _LIKELY.fullmatch(node.left.id)
            made = unparse(given.get(unparse(node.left), node.left))
            if likely and not re.search(r"1(\.0)? -|where|log_?p\w*$|neg|miss", made):
                yield unparse(node), node


# --- cross-entropies ------------------------------------------------------------------------------


_CROSS_ENTROPY = re.compile(r"(torch\.)?(F|nn\.functional)\.cross_entropy")


def shares_for_scores(tree: ast.AST) -> Found:
    """Where a cross-entropy is given a softmax, as it is or by a name that got it last: it takes another one of it."""
    for function in (tree, *functions(tree)):
        given_at = all_given(function)
        for node in inside(function):
            is_loss = isinstance(node, ast.Call) and _CROSS_ENTROPY.fullmatch(unparse(node.func))
            scores = node.args[0] if is_loss and node.args else None  # type: ignore[attr-defined]
            if isinstance(scores, ast.Name):
                scores = last_given(scores.id, node.lineno, given_at)  # type: ignore[attr-defined]
            if scores is not None and called(scores) == "softmax":
                yield unparse(node), node


LOGITS = Slip(
    rule=shares_for_scores,
    asked="what a cross-entropy is given",
    expected="logits",
    got="a softmax of them",
    sentence="The cross-entropy takes a softmax of its own: that of a softmax is nearly even, and teaches little.",
    mend="hand it the logits",
    nothing="no cross-entropy was seen that is given a softmax",
)
FOCAL = Slip(
    rule=focal_by_the_likely,
    asked="the weight of a focal loss",
    expected="a power of 1 - p: of what is missing to one",
    got="a power of p",
    sentence="The focal loss weighs by a power of p: easy rows count most, and hard ones hardly.",
    mend="(1 - p_t) ** gamma",
    nothing="no focal loss was seen that minds what is easy",
)
