"""Slips of the borders between the parts of the data, that the text of a script shows by itself: ranges that touch,
conditions that overlap, rows that are drawn without their group or grouped each by itself, and a whole that is learned
from where its parts have names."""

from __future__ import annotations

import ast
import re
from itertools import product

from conformance.slips.slip import (
    JUDGING,
    LEARNED,
    OF_GROUPS,
    Found,
    Slip,
    all_given,
    called,
    calls,
    functions,
    unparse,
    walk,
)


def parts_that_overlap(tree: ast.AST) -> Found:
    """Where the training part reaches into one that judges: by ranges, ``range(0, end + 1)`` beside ``range(end, n)``,
    or by conditions, ``b < last`` beside ``a >= end and b < last``."""
    for function in (tree, *functions(tree)):
        given = [(unparse(to), value) for _, to, value in all_given(function)]
        learned = [value for name, value in given if LEARNED.fullmatch(name)]
        judging = [value for name, value in given if JUDGING.fullmatch(name)]
        for ours, theirs in product(learned, judging):
            ranges = _range_of(ours), _range_of(theirs)
            if ranges[0] and ranges[1] and ranges[0][1] == f"{ranges[1][0]} + 1":
                yield f"range({', '.join(ranges[0])}) and range({', '.join(ranges[1])})", ours
            (over, lower, upper), (other, from_, until) = _bounds_of(ours), _bounds_of(theirs)
            if over and over == other and upper and not lower and from_ and upper == until and from_ != upper:
                yield unparse(ours), ours


def _range_of(given: ast.expr) -> tuple[str, str] | None:
    """Where the only range in an expression begins and ends; None where there is none, or more."""
    found = [call for call in calls(given) if called(call) == "range" and len(call.args) > 1]
    return (unparse(found[0].args[0]), unparse(found[0].args[1])) if len(found) == 1 else None


def _bounds_of(given: ast.expr) -> tuple[str, str, str]:
    """Over what a list goes, and the border above and the one below which it takes rows; "" for none."""
    if not isinstance(given, ast.ListComp) or len(given.generators) != 1:
        return "", "", ""
    lower = upper = ""
    for test in (one for asked in given.generators[0].ifs for one in walk(asked)):
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            if isinstance(test.ops[0], ast.Lt | ast.LtE):
                upper = unparse(test.comparators[0])
            elif isinstance(test.ops[0], ast.Gt | ast.GtE):
                lower = unparse(test.comparators[0])
    return unparse(given.generators[0].iter), lower, upper


_IDS = re.compile(r"[psug]id|subject(_?id)?|user(_?id)?", re.IGNORECASE)


def drawn_without_their_group(tree: ast.AST) -> Found:
    """Where the groups of rows are listed and only counted, and the rows themselves are shuffled for the parts."""
    for function in functions(tree):
        names = {one.id for one in walk(function) if isinstance(one, ast.Name)}
        if not any(re.search(r"test|dev|val", one) for one in (*names, *_words(function))):
            continue
        shuffled = {unparse(call.args[0]): call for call in calls(function) if called(call) == "shuffle" and call.args}
        for _, to, given in all_given(function):
            rows = _grouped(given)
            if not isinstance(to, ast.Name) or rows not in shuffled:
                continue
            read = [one for one in walk(function) if isinstance(one, ast.Name) and one.id == to.id]
            counted = [one for call in calls(function) if called(call) == "len" for one in call.args]
            if all(one in counted for one in read if isinstance(one.ctx, ast.Load)):
                yield f"{unparse(shuffled[rows])}, though {to.id} = {unparse(given)}", shuffled[rows]


def _words(function: ast.FunctionDef) -> list[str]:
    return [one.value for one in walk(function) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _grouped(given: ast.expr) -> str:
    """The list of rows whose groups an expression gives, each once; "" where it gives something else."""
    for one in walk(given):
        if isinstance(one, ast.SetComp) and len(one.generators) == 1:
            key = one.elt
            name = key.attr if isinstance(key, ast.Attribute) else ""
            if isinstance(key, ast.Subscript) and isinstance(key.slice, ast.Constant):
                name = str(key.slice.value)
            if OF_GROUPS.fullmatch(name) or _IDS.fullmatch(name):
                return unparse(one.generators[0].iter)
    return ""


def grouped_by_each_row(tree: ast.AST) -> Found:
    """Where rows are split by groups, and the key that is handed over numbers the rows: ``{"id": len(rows), ...}``."""
    numbers: set[str] = set()
    for call in (
        one for one in calls(tree) if called(one) == "append" and one.args and isinstance(one.args[0], ast.Dict)
    ):
        row, owner = call.args[0], unparse(call.func).rpartition(".")[0]
        for key, value in zip(row.keys, row.values, strict=True):  # type: ignore[attr-defined]
            if isinstance(key, ast.Constant) and unparse(value) == f"len({owner})":
                numbers.add(str(key.value))
    for call in calls(tree) if numbers else ():
        keys = [one.value for one in call.args if isinstance(one, ast.Constant)]
        if re.search(r"group", called(call), re.IGNORECASE) and numbers & {*map(str, keys)}:
            yield unparse(call), call


_LEARNS = re.compile(r"train|fit|run|tun|learn|dpo|sft|ppo", re.IGNORECASE)


def whole_behind_its_parts(tree: ast.AST) -> Found:
    """Where a list was cut into parts by name, and a call behind it is handed rows of the list itself beside a part
    that judges."""
    for function in functions(tree):
        for node in (one for one in walk(function) if isinstance(one, ast.Assign)):
            line, to, given = node.lineno, node.targets[0], node.value
            names = [unparse(one) for one in to.elts] if isinstance(to, ast.Tuple) else []
            cuts = given.elts if isinstance(given, ast.Tuple) else []
            owners = {unparse(one.value) for one in cuts if isinstance(one, ast.Subscript)}
            learned = any(map(LEARNED.fullmatch, names))
            if len(cuts) < 2 or len(owners) != 1 or not learned or not any(map(JUDGING.fullmatch, names)):
                continue
            whole = re.compile(rf"\b{re.escape(owners.pop())}\[:")
            learning = (one for one in calls(function) if one.lineno > line and _LEARNS.search(called(one)))
            for call in (one for one in learning if len(one.args) > 1):
                texts = [unparse(one) for one in call.args]
                judges = any(JUDGING.fullmatch(word) for text in texts for word in re.findall(r"\w+", text))
                if judges and any(map(whole.search, texts)):
                    yield unparse(call), call


OVERLAP = Slip(
    rule=parts_that_overlap,
    asked="where the training part ends, and where the next one begins",
    expected="they have no row in common",
    got="the training part reaches into the next one",
    sentence="The training part reaches into the part that judges: what is learnt is judged by.",
    mend="end the training part where the next one begins",
    nothing="no training part was seen that reaches into the next one",
)
WITHOUT_THEIR_GROUP = Slip(
    rule=drawn_without_their_group,
    asked="what is shuffled before the parts are made",
    expected="the groups of the rows",
    got="the rows",
    sentence="The groups of the rows are listed and only counted, and the rows are shuffled: rows of one group are in "
    "several parts.",
    mend="shuffle the groups, and take the rows of each part's groups",
    nothing="no rows were seen that are drawn without their group",
)
EACH_ROW_A_GROUP = Slip(
    rule=grouped_by_each_row,
    asked="by which key rows are grouped for the parts",
    expected="one that several rows share",
    got="the number of each row",
    sentence="Rows are split by groups, and the key is the number of each row: rows that belong together are in "
    "several parts.",
    mend="hand over the key that rows of one group share",
    nothing="no rows were seen that are grouped each by itself",
)
WHOLE_BEHIND_PARTS = Slip(
    rule=whole_behind_its_parts,
    asked="what is learned from, where the parts have names",
    expected="the training part",
    got="the first rows of the whole list",
    sentence="Rows of the whole list are learned from, though its parts have names: they are those of the parts that "
    "judge.",
    mend="take them of the training part",
    nothing="no rows of a whole were seen that are learned from beside its parts",
)
