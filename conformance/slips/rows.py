"""Slips of single rows, that the text of a script shows by itself: rows that are changed where they are kept, tensors
that are looked for in a set, rows of one target that are dealt out to several parts, rows that are promised to differ,
and a training part that leaves out only one of the parts that judge."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import (
    LEARNED,
    Found,
    Slip,
    assigned,
    blocks,
    called,
    calls,
    functions,
    inside,
    unparse,
    walk,
)

# --- rows that are changed where they are kept ----------------------------------------------------

_TENSORS = re.compile(r"torch|np\.|randn|noise")


def kept_rows_changed(tree: ast.AST) -> Found:
    """Where `__getitem__` takes a row as it is kept, ``x = self.x[i]``, and changes it in place: each epoch changes it
    once more."""
    for function in (one for one in functions(tree) if one.name == "__getitem__" and len(one.args.args) == 2):
        index = function.args.args[1].arg
        kept: dict[str, ast.AST] = {}
        for node in sorted((one for one in inside(function) if isinstance(one, ast.stmt)), key=lambda one: one.lineno):
            for to, given in assigned(node):
                if isinstance(to, ast.Name):
                    kept.pop(to.id, None)
                    if re.fullmatch(rf"self\.\w+\[{index}\]", unparse(given)):
                        kept[to.id] = node
            changed = _changed_by(node)
            if changed in kept:
                yield unparse(kept[changed]), kept.pop(changed)


def _changed_by(node: ast.stmt) -> str:
    """The name whose tensor a statement changes in place; "" for none. Numbers and texts are never changed so."""
    if isinstance(node, ast.AugAssign):
        of_tensors = _TENSORS.search(unparse(node.value)) is not None
        if isinstance(node.target, ast.Name):
            return node.target.id if of_tensors else ""
        return unparse(node.target.value) if isinstance(node.target, ast.Subscript) and of_tensors else ""
    for to, _ in assigned(node):
        if isinstance(to, ast.Subscript) and isinstance(to.value, ast.Name):
            return to.value.id
    call = node.value if isinstance(node, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and re.fullmatch(r"[a-z]\w*[a-z]_", call.func.attr)
    ):
        return unparse(call.func.value)
    return ""


# --- tensors in sets ------------------------------------------------------------------------------


def tensors_in_sets(tree: ast.AST) -> Found:
    """Where a set is made of rows that are tensors: each is equal to itself alone, and no other is found in it."""
    held = {
        unparse(to).rpartition(".")[2]
        for node in walk(tree)
        for to, given in assigned(node)
        if isinstance(given, ast.ListComp) and called(given.elt) in ("tensor", "LongTensor", "as_tensor")
    }
    for node in calls(tree):
        if called(node) == "set" and len(node.args) == 1 and unparse(node.args[0]).rpartition(".")[2] in held:
            yield unparse(node), node


# --- rows of one target ---------------------------------------------------------------------------


def dealt_out_by_rows(tree: ast.AST) -> Found:
    """Where each item is made several rows of one target, and these are then shuffled and cut into parts."""
    several = {function.name for function in functions(tree) if _shares_a_target(function)}
    for function in functions(tree):
        made: dict[str, ast.AST] = {}
        shuffled: set[str] = set()
        cuts: dict[str, set[str]] = {}
        for node in (one for block in blocks(function) for one in block):
            for call in calls(node) if isinstance(node, ast.Expr) else ():
                shuffled |= {unparse(one) for one in call.args if called(call) == "shuffle"}
            for to, given in assigned(node):
                if called(given) in several:
                    made[unparse(to)] = node
                elif isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Slice):
                    cuts.setdefault(unparse(given.value), set()).add(unparse(to))
        for name, place in made.items():
            if name in shuffled and len(cuts.get(name, ())) > 1:
                yield unparse(place), place


def _shares_a_target(function: ast.FunctionDef) -> bool:
    """Whether it gives ``[(form, target(item)) for item in items for form in forms(item)]``."""
    for node in (one.value for one in walk(function) if isinstance(one, ast.Return)):
        if not isinstance(node, ast.ListComp) or len(node.generators) != 2 or not isinstance(node.elt, ast.Tuple):
            continue
        outer, inner = (unparse(one.target) for one in node.generators)
        names = [{one.id for one in walk(part) if isinstance(one, ast.Name)} for part in node.elt.elts]
        if any(inner in one for one in names) and any(outer in one and inner not in one for one in names):
            return True
    return False


# --- rows that are promised to differ -------------------------------------------------------------

_PROMISES = re.compile(r"\b(distinct|unique|deduplicated|without (duplicates|repeats)|no (duplicates|repeats))\b", re.I)
_KEEPS_APART = re.compile(r"set\(|\bin \w|unique|dict|\{|sample\(|permutation|duplicate", re.IGNORECASE)


def repeats_in_spite(tree: ast.AST) -> Found:
    """Where a function says that what it makes is distinct, collects it in a list, and looks for no repeats."""
    for function in functions(tree):
        said = ast.get_docstring(function) or ""
        body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
        text = re.sub(r"\bfor \w+ in \w+", "", "\n".join(map(unparse, body)))
        promised = _PROMISES.search(said.splitlines()[0]) if said else None
        collects = [one for one in calls(function) if called(one) == "append" and not _KEEPS_APART.search(unparse(one))]
        if promised and collects and not _KEEPS_APART.search(text):
            yield f"{promised[0]}, and {unparse(collects[0])}", collects[0]


# --- what the training part leaves out ------------------------------------------------------------


def only_one_left_out(tree: ast.AST) -> Found:
    """Where two parts are those whose key is in one set and in another one, and the training part those whose key is
    not in the first: it holds the second."""
    for function in (tree, *functions(tree)):
        held: dict[str, set[str]] = {}
        out: list[tuple[str, set[str], ast.AST]] = []
        for node in (one for block in blocks(function) for one in block):
            for to, given in assigned(node):
                if not isinstance(given, ast.ListComp) or len(given.generators) != 1:
                    continue
                over = unparse(given.generators[0].iter)
                tests = [one for one in given.generators[0].ifs if isinstance(one, ast.Compare) and len(one.ops) == 1]
                if len(tests) != 1 or len(given.generators[0].ifs) != 1:
                    continue
                key = f"{unparse(tests[0].left)} of {over}"
                names = {one.id for one in walk(tests[0].comparators[0]) if isinstance(one, ast.Name)}
                if isinstance(tests[0].ops[0], ast.In):
                    held.setdefault(key, set()).update(names)
                elif isinstance(tests[0].ops[0], ast.NotIn) and LEARNED.fullmatch(unparse(to)):
                    out.append((key, names, node))
        for key, names, place in out:
            if names & held.get(key, set()) and held[key] - names:
                yield unparse(place), place


CHANGED_IN_PLACE = Slip(
    rule=kept_rows_changed,
    asked="a row that a data set gives and changes",
    expected="a copy of what is kept",
    got="what is kept",
    sentence="A row is changed where it is kept: each epoch changes it once more, and the data drift away.",
    mend="x = self.x[i].clone()",
    nothing="no row was seen that is changed where it is kept",
)
SETS_OF_TENSORS = Slip(
    rule=tensors_in_sets,
    asked="a set of rows that are tensors",
    expected="texts, numbers or tuples",
    got="tensors, each of which is equal to itself alone",
    sentence="Tensors are looked for in a set: each is found by itself alone, so that nothing is found.",
    mend="set(tuple(row.tolist()) for row in rows), or the texts",
    nothing="no set of tensors was seen",
)
DEALT_OUT = Slip(
    rule=dealt_out_by_rows,
    asked="rows that are made of one item",
    expected="all in one part",
    got="shuffled, and cut into parts",
    sentence="Several rows with one target are made of each item, and dealt out to all parts: the test was learned.",
    mend="split the items, then make the rows of each part",
    nothing="no rows of one item were seen that are dealt out to several parts",
)
REPEATED = Slip(
    rule=repeats_in_spite,
    asked="rows that are said to be distinct",
    expected="a set, or a look whether it is there",
    got="a list of whatever is drawn",
    sentence="Rows are said to be distinct and are not kept so: the same ones may be learned and judged.",
    mend="seen = set()",
    nothing="no rows were seen that are said to be distinct and are not kept so",
)
ONE_LEFT_OUT = Slip(
    rule=only_one_left_out,
    asked="what the training part leaves out",
    expected="all keys of the parts that judge",
    got="those of one part",
    sentence="The training part leaves out one of the parts that judge, and holds the other.",
    mend="not in val_keys | test_keys",
    nothing="no training part was seen that leaves out only one of several",
)
