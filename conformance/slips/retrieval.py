"""Slips of what is searched and of how a search is taught, that the text of a file shows by itself: scores of which
some are divided by a temperature, candidates that are compared with themselves, also by a queue, a test that searches
among fewer, and a mean rank in the place of a mean reciprocal rank."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import JUDGES, Found, Slip, assigned, called, calls, functions, inside, reads, unparse, walk

# --- scores of one softmax ------------------------------------------------------------------------

_TEMPERATURE = re.compile(r"/ \(?(\w+\.)*(temperature|temp|tau|TAU|TEMP)\b|\* \(?(\w+\.)*(inv_temp|logit_scale)", re.I)


def scaled_in_part(tree: ast.AST) -> Found:
    """Where scores are put side by side, and only some of them are divided by a temperature, here or where their names
    were given them. The others are products of vectors, too, and no constants."""
    for function in functions(tree):
        scaled = {unparse(to) for node in walk(function) for to, given in assigned(node) if _is_scaled(given)}
        if any(_TEMPERATURE.search(unparse(one)) for one in calls(function) if called(one) == "cross_entropy"):
            continue
        for node in calls(function):
            parts = node.args[0].elts if called(node) in ("cat", "concat") and _is_list(node) else []  # type: ignore[attr-defined]
            alike = [_is_scaled(one) or unparse(one) in scaled for one in parts]
            plain = [one for one, is_scaled in zip(parts, alike, strict=True) if not is_scaled]
            if any(alike) and plain and all(_is_product_of(one, function) for one in plain):
                yield unparse(node), node


def _is_list(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.List | ast.Tuple)


def _is_scaled(node: ast.AST) -> bool:
    return _TEMPERATURE.search(unparse(node)) is not None


def _is_product_of(node: ast.expr, function: ast.FunctionDef) -> bool:
    """Whether it is a product of vectors, or a name that was given one."""
    given = [value for one in walk(function) for to, value in assigned(one) if unparse(to) == unparse(node)]
    return any(" @ " in unparse(one) or "einsum" in unparse(one) for one in [node, *given])


# --- candidates of one's own ----------------------------------------------------------------------


def compared_with_themselves(tree: ast.AST) -> Found:
    """Where candidates are left out that are among the candidates: the ids that are compared with are put together of
    those that are compared, ``cat([ids, ...])``."""
    for function in functions(tree):
        for node in calls(function):
            asked = node.args[0] if called(node).rstrip("_") == "masked_fill" and node.args else None
            if not isinstance(asked, ast.Compare) or not isinstance(asked.ops[0], ast.Eq) or "inf" not in unparse(node):
                continue
            one, other = (
                re.sub(r"\[.*\]|\.unsqueeze\(.*\)", "", unparse(x)) for x in (asked.left, asked.comparators[0])
            )
            made = [given for part in walk(function) for to, given in assigned(part) if unparse(to) == other]
            joined = [x for given in made for x in calls(given) if called(x) in ("cat", "concat")]
            if any(reads(x, one) for x in joined):
                yield unparse(asked), node


# --- pools ----------------------------------------------------------------------------------------

_JUDGES = re.compile(rf"(?<![a-z])({JUDGES})(?![a-z])", re.IGNORECASE)


def searched_among_fewer(tree: ast.AST) -> Found:
    """Where a function searches for those of the validation among these and others, and for those of the test among
    the test alone."""
    wide: dict[str, set[int]] = {}
    for node in calls(tree):
        for at, given in enumerate(node.args):
            joined = isinstance(given, ast.BinOp) and isinstance(given.op, ast.BitOr | ast.Add)
            if joined and _JUDGES.search(unparse(given)) and "train" in unparse(given).lower():
                wide.setdefault(unparse(node.func), set()).add(at)
    for node in calls(tree):
        for at in wide.get(unparse(node.func), ()):
            alone = node.args[at] if at < len(node.args) else None
            if isinstance(alone, ast.Name) and "test" in alone.id.lower():
                yield unparse(node), node


# --- mean reciprocal ranks ------------------------------------------------------------------------

_OF_RANKS = re.compile(r"(\w+\.)*\w*ranks?\w*(\.(float|double)\(\)|\.astype\(\w+\))?\.mean\(\)", re.IGNORECASE)
_MEANS = ("mean", "fmean", "average")


def reciprocal_of_a_mean(tree: ast.AST) -> Found:
    """Where one is divided by a mean of ranks: the reciprocals are to be meant."""
    for node in walk(tree):
        if (
            not isinstance(node, ast.BinOp)
            or not isinstance(node.op, ast.Div)
            or unparse(node.left) not in ("1", "1.0")
        ):
            continue
        by = node.right
        is_call = isinstance(by, ast.Call) and called(by) in _MEANS and len(by.args) == 1
        of_call = is_call and re.fullmatch(r"\w*ranks?", unparse(by.args[0]), re.IGNORECASE)  # type: ignore[attr-defined]
        if _OF_RANKS.fullmatch(unparse(by)) or of_call:
            yield unparse(node), node


_ENQUEUES = re.compile(r"_*(dequeue_and_)?enqueue\w*|update_(the_)?(queue|bank|memory)s?|push_to_\w+", re.IGNORECASE)
_QUEUES = re.compile(r"self\.\w*(queue|bank|memory)\w*", re.IGNORECASE)
_COUNTS = re.compile(r"(ptr|pointer|len|size|full|fill|count|pos)\w*$", re.IGNORECASE)
_COMPARES = re.compile(r"cross_entropy|logsumexp|softmax|nce", re.IGNORECASE)


def queued_before_compared(tree: ast.AST) -> Found:
    """Where a batch is put into a queue of negatives, and the same function then compares with the queue what it put
    there."""
    for function in functions(tree):
        own = [node for node in inside(function) if isinstance(node, ast.Call)]
        puts = [one for one in own if _ENQUEUES.fullmatch(called(one)) and unparse(one.func).startswith("self.")]
        if not puts or _ENQUEUES.fullmatch(function.name):
            continue
        first = min(puts, key=lambda one: one.lineno)
        later = [node for node in inside(function) if getattr(node, "lineno", 0) > first.lineno]
        queues = [unparse(one) for one in later if isinstance(one, ast.Attribute)]
        reads_queue = any(_QUEUES.fullmatch(text) and not _COUNTS.search(text) for text in queues)
        before = {unparse(one) for one in inside(function) if getattr(one, "lineno", first.lineno) < first.lineno}
        again = any(
            reads(node, argument.id) for node in later for argument in first.args if isinstance(argument, ast.Name)
        )
        compares = any(_COMPARES.search(called(one)) for one in later if isinstance(one, ast.Call))
        known = any(_QUEUES.fullmatch(text) and not _COUNTS.search(text) for text in before)
        if reads_queue and again and compares and not known:
            yield unparse(first), first


IN_PART = Slip(
    rule=scaled_in_part,
    asked="scores that stand in one softmax",
    expected="all divided by the temperature",
    got="only some of them",
    sentence="Only some of the scores of one softmax are divided by the temperature: the others hardly count.",
    mend="torch.cat([positive, negatives], 1) / temperature",
    nothing="no scores were seen of which some are divided by a temperature",
)
THEMSELVES = Slip(
    rule=compared_with_themselves,
    asked="the candidates that are left out",
    expected="those that are the own one of the row",
    got="those that are themselves",
    sentence="Candidates are compared with themselves: each leaves itself out, and a row's own one stays a negative.",
    mend="own_ids[:, None] == candidate_ids[None, :]",
    nothing="no candidates were seen that are compared with themselves",
)
FEWER = Slip(
    rule=searched_among_fewer,
    asked="what the test searches among",
    expected="as much as the validation does",
    got="the test part alone",
    sentence="The test searches among its own part alone, the validation among more: its figure is of an easier task.",
    mend="search among the same: test | train",
    nothing="no test was seen that searches among fewer than the validation",
)
RECIPROCALS = Slip(
    rule=reciprocal_of_a_mean,
    asked="a mean reciprocal rank",
    expected="the mean of the reciprocals",
    got="the reciprocal of the mean",
    sentence="One is divided by the mean rank: that is no mean reciprocal rank, and single bad ranks decide it.",
    mend="(1 / ranks).mean()",
    nothing="no mean reciprocal rank was seen that is the reciprocal of a mean",
)
QUEUED_FIRST = Slip(
    rule=queued_before_compared,
    asked="when a batch is put into the queue of negatives",
    expected="behind its loss",
    got="before its loss, which then has each positive among the negatives",
    sentence="A batch is put into the queue before it is compared with the queue: each row's own partner stands among "
    "its negatives, too.",
    mend="compare first, and put the batch into the queue behind that",
    nothing="no batch was seen that is put into a queue before it is compared with it",
)
