"""Slips of losses, that the text of a file shows by itself: softmaxes under a cross-entropy, a focal loss that minds
what is easy, z-terms that are not squared, divergences that are given shares in the place of their logs, and padding
that is told and not left out."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import (
    Found,
    Slip,
    all_given,
    assigned,
    called,
    calls,
    functions,
    inside,
    last_given,
    reads,
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
            of_both = re.fullmatch(r"(\w+) \* (\w+) \+ \(1(\.0)? - \1\) \* \(1(\.0)? - \2\)", made)  # p of the label
            if likely and (of_both or not re.search(r"1(\.0)? -|where|log_?p\w*$|neg|miss", made)):
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


_Z_TERM = re.compile(r"(\w+_)?z_?(loss|term|reg|penalty|l)(es)?(_\w+)?", re.IGNORECASE)
_SQUARES = re.compile(r"square|\bpow\(|\*\* ?2|mse|norm\(|\b(\w+) \* \1\b|abs")


def z_not_squared(tree: ast.AST) -> Found:
    """Where a term that is called after z is the log of the sum of all exponentials, and no square of it."""
    for function in functions(tree):
        given = {to.id: value for _, to, value in all_given(function) if isinstance(to, ast.Name)}
        logs = [name for name, value in given.items() if "logsumexp" in unparse(value)]
        for name, value in given.items():
            text = unparse(value)
            is_log = "logsumexp" in text or any(reads(value, one) for one in logs)
            sums = re.search(r"\.(sum|mean)\(|torch\.(sum|mean)\(", text)
            if _Z_TERM.fullmatch(name) and name not in logs and is_log and sums and not _SQUARES.search(text):
                inner = [given[one] for one in given if one != name and reads(value, one)]
                if not any(_SQUARES.search(unparse(one)) for one in inner):
                    yield f"{name} = {text}", value


def shares_for_logs(tree: ast.AST) -> Found:
    """Where a divergence gets shares in the place of their logs, or the log of a softmax is taken of shares: mixtures
    that are no scores any more."""
    for function in functions(tree):
        given = [(to.id, value) for _, to, value in all_given(function) if isinstance(to, ast.Name)]
        times = {name: sum(one == name for one, _ in given) for name, _ in given}
        shares: set[str] = set()
        for name, value in given:
            shares |= {name} if times[name] == 1 and _is_share(value, shares) else set()
        for call in (one for one in calls(function) if one.args):
            first = call.args[0]
            if called(call) == "kl_div" and _is_share(first, shares):
                yield unparse(call), call
            mixes = isinstance(first, ast.Name) and first.id in shares and called(dict(given)[first.id]) != "softmax"
            if called(call) == "log_softmax" and mixes:
                yield unparse(call), call


def _is_share(value: ast.expr, shares: set[str]) -> bool:
    """Whether an expression is a softmax, or what is mixed of some."""
    if isinstance(value, ast.Name):
        return value.id in shares
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Add):
        return _is_share(value.left, shares) or _is_share(value.right, shares)
    if isinstance(value, ast.Call) and called(value).rstrip("_") in ("scatter_add", "index_add", "clamp", "clamp_min"):
        return isinstance(value.func, ast.Attribute) and _is_share(value.func.value, shares)
    return called(value) == "softmax"


_OF_PADDING = re.compile(r"(\.ne\(|!= )(self\.|cfg\.)?\w*(pad|ignore|-100)\w*", re.IGNORECASE)


def padding_told_in_vain(tree: ast.AST) -> Found:
    """Where a loss finds out which labels are padding, and never reads it."""
    for function in functions(tree):
        is_loss = re.search(r"loss|nll|xent|(^|_)ce(_|$)", function.name, re.IGNORECASE)
        if not is_loss or "ignore_index" in unparse(function):
            continue
        for _, to, given in all_given(function):
            if isinstance(to, ast.Name) and _OF_PADDING.search(unparse(given)) and not reads(function, to.id):
                yield f"{to.id} = {unparse(given)}", given


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
Z_AS_IT_IS = Slip(
    rule=z_not_squared,
    asked="the z-term of a loss",
    expected="the mean square of the log of the sum of all exponentials",
    got="that log as it is",
    sentence="The z-term is the log of the sum itself and no square of it: it falls without end, and pushes all logits "
    "down in place of holding the sum near one.",
    mend="z_term = (log_z ** 2).mean()",
    nothing="no z-term was seen that is not squared",
)
SHARES_FOR_LOGS = Slip(
    rule=shares_for_logs,
    asked="of what a log is taken, or what stands for one",
    expected="logs of shares",
    got="shares, as a softmax gives them",
    sentence="Shares stand where their logs should, or a softmax is taken of shares once more: what comes out is no "
    "log of what was meant, and nearly all of it is alike.",
    mend="log_softmax(scores), and log(shares)",
    nothing="no shares were seen in the place of their logs",
)
IN_VAIN = Slip(
    rule=padding_told_in_vain,
    asked="what a loss does with the labels that it finds to be padding",
    expected="it leaves them out",
    got="nothing: it never reads which they are",
    sentence="A loss finds out which labels are padding and never reads it: padding is taught, too.",
    mend="(loss * real).sum() / real.sum()",
    nothing="no loss was seen that finds padding and teaches it",
)
