"""Slips of order and place: numbers of texts, two tables of names, what is nearest, ends, groups, ranks, starts,
columns of one table, first pieces of words, shuffled tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import (
    Found,
    Slip,
    all_given,
    assigned,
    blocks,
    called,
    calls,
    functions,
    named,
    reads,
    unparse,
    walk,
)

_HASHED = re.compile(r"(?<![\w.])hash\((?!\()[^()]*(\([^()]*\))?[^()]*\)\s*%")
"""A place in a table that Python's own hash of a text gives. That of a tuple may be one of numbers, which stays."""


def hashed(tree: ast.AST) -> Found:
    """Where a number comes of Python's hash of a text, which is another one in every process."""
    for node in walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _HASHED.search(unparse(node)):
            yield unparse(node), node


_MIRRORED = re.compile(r"(\w+?)_?(?:2|_to_)_?(\w+)")


_AS_IT_STANDS = re.compile(r"(?:list|tuple|dict\.fromkeys)\((.*)\)|(.*)\.keys\(\)")


_REORDERED = re.compile(r"(?:sorted|reversed|set)\((.*)\)|(.*)\[::-1\]")


def tables_in_two_orders(tree: ast.AST) -> Found:
    """Where names get numbers by one order and numbers names by another: ``enumerate(sorted(names))`` in one table,
    ``enumerate(names)`` in its mirror."""
    named = list(_tables(tree))
    tables = [(name, *found, node) for name, node in named if (found := _counted_of(node))]
    for at, (name, is_back, of, _) in enumerate(tables):
        for other, also_back, also_of, node in tables[at + 1 :]:
            of_one = _unwrapped(of, _REORDERED) == _unwrapped(also_of, _REORDERED)
            differ = _unwrapped(of) != _unwrapped(also_of) and not _is_in_order(_unwrapped(of, _REORDERED), tree)
            if is_back != also_back and of_one and differ and _are_mirrors(name, other):
                yield f"{name} of enumerate({of}), {other} of enumerate({also_of})", node


def _tables(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What is named, by an assignment or a keyword, with the last word of its name."""
    for node in walk(tree):
        for to, given in assigned(node):
            yield unparse(to).rpartition(".")[2], given
        if isinstance(node, ast.Call):
            yield from ((word.arg, word.value) for word in node.keywords if word.arg)


def _counted_of(value: ast.expr) -> tuple[bool, str] | None:
    """(whether it goes from names to numbers, what is counted) of a dict over ``enumerate(...)``."""
    if isinstance(value, ast.Call) and unparse(value.func) == "dict" and len(value.args) == 1:
        inner = value.args[0]
        return (False, _enumerated(inner)) if _enumerated(inner) else None
    if not isinstance(value, ast.DictComp) or len(value.generators) != 1 or value.generators[0].ifs:
        return None
    over = value.generators[0]
    of = _enumerated(over.iter)
    if not of or not isinstance(over.target, ast.Tuple) or len(over.target.elts) != 2:
        return None
    number, name = map(unparse, over.target.elts)
    key, held = unparse(value.key), unparse(value.value)
    return (True, of) if (key, held) == (name, number) else (False, of) if (key, held) == (number, name) else None


def _enumerated(value: ast.expr) -> str:
    if isinstance(value, ast.Call) and unparse(value.func) == "enumerate" and value.args:
        return ", ".join(unparse(one) for one in [*value.args, *value.keywords])
    return ""


def _unwrapped(of: str, by: re.Pattern[str] | None = None) -> str:
    """What is counted, without what leaves its order as it stands, or without what changes it and the first number."""
    if by is not None:
        of = re.sub(r", (start=)?\d+$", "", of)
    while found := _AS_IT_STANDS.fullmatch(of) or (by and by.fullmatch(of)):
        of = found[1] or found[2]
    return of


def _is_in_order(name: str, tree: ast.AST) -> bool:
    """Whether what is called so is sorted where it is made, or may be: then a second sorting changes nothing."""
    given = [value for node in walk(tree) for to, value in assigned(node) if unparse(to) == name]
    is_sorted = any("sort" in unparse(one) or _rises(one) for one in given)
    return is_sorted or f"{name}.sort(" in unparse(tree)


def _rises(value: ast.expr) -> bool:
    texts = [unparse(one) for one in value.elts] if isinstance(value, ast.List | ast.Tuple) else []
    return len(texts) > 1 and texts == sorted(texts)


def _are_mirrors(name: str, other: str) -> bool:
    """id2label and label2id, itos and stoi."""
    one, two = _MIRRORED.fullmatch(name), _MIRRORED.fullmatch(other)
    return {name, other} == {"itos", "stoi"} or bool(one and two and one.groups() == two.groups()[::-1])


_CHOOSES = re.compile(r"arg(min|max|sort)")


def moved_by_a_constant(tree: ast.AST) -> Found:
    """Where what is chosen by ``(x - 0.5).argmin()`` does not depend on the 0.5: of the distance from it the sign was
    left in."""
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if _CHOOSES.fullmatch(name):
            of_itself = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.BinOp)
            chosen_of = node.func.value if of_itself else node.args[0] if node.args else None  # type: ignore[attr-defined]
            if _is_moved(chosen_of):
                yield unparse(node), node
        elif name in ("min", "max", "sorted"):
            keys = [word.value for word in node.keywords if word.arg == "key"]
            if keys and isinstance(keys[0], ast.Lambda) and _is_moved(keys[0].body, keys[0].args):
                yield unparse(node), node


def _is_moved(value: ast.expr | None, own: ast.arguments | None = None) -> bool:
    """Whether it is something minus a number that is the same for all; for a lambda, whose arguments are `own`, also
    what reads none of them. A number minus something turns the order round, and may be meant."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return False
    return _is_one_number(value.right, own) and not _is_one_number(value.left, own)


def _is_one_number(side: ast.expr, own: ast.arguments | None) -> bool:
    if isinstance(side, ast.Constant):
        return isinstance(side.value, (int, float))
    if own is None:
        return False
    names = {argument.arg for argument in own.args}
    return not names & {node.id for node in walk(side) if isinstance(node, ast.Name)}


_TOKENS = re.compile(r"(\w*_)?(ids?|tokens?|toks?)", re.IGNORECASE)


_BESIDE = re.compile(r"(\w*_)?(labels?|labs?|masks?|segments?|types?|tags?)(_ids)?", re.IGNORECASE)


_SHORT = {"i": "tokens", "x": "tokens", "l": "labels", "m": "labels"}
"""Names of one letter, where both are cut in one statement."""


def cut_apart(tree: ast.AST) -> Found:
    """Where tokens keep their end, ``ids[-n:]``, and what stands beside them its beginning, ``labels[:n]``, or the
    other way round."""
    for function in (node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.Module)):
        for block in blocks(function):
            yield from _cut_apart_in(block)
    for node in walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Dict) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            parts = node.values if isinstance(node, ast.Dict) else node.elts
            cuts = [one for one in parts if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name)]
            for first, cut in enumerate(cuts):
                for beside in cuts[first + 1 :]:
                    kinds = {_kind(one.value.id, False) for one in (cut, beside)}  # type: ignore[attr-defined]
                    if _are_apart(cut, beside) and kinds == {"tokens", "labels"}:
                        yield f"{unparse(cut)} beside {unparse(beside)}", node


def _cut_apart_in(block: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    cuts = [(name, cut, statement) for statement in block for name, cut in _own_cuts(statement)]
    for first, (name, cut, statement) in enumerate(cuts):
        for other, beside, place in cuts[first + 1 :]:
            alone = statement is not place
            if _are_apart(cut, beside) and {_kind(name, alone), _kind(other, alone)} == {"tokens", "labels"}:
                yield f"{unparse(cut)} beside {unparse(beside)}", place


def _are_apart(cut: ast.Subscript, beside: ast.Subscript) -> bool:
    """Whether of two cuts one keeps so many at the end, and the other as many at the beginning."""
    return _end_of(cut) == _beginning_of(beside) != "" or _beginning_of(cut) == _end_of(beside) != ""


def _own_cuts(statement: ast.stmt) -> Iterator[tuple[str, ast.Subscript]]:
    """(name, cut) of each ``name = name[...]`` in an assignment, of one or of several at once."""
    for to, cut in assigned(statement):
        if isinstance(cut, ast.Subscript) and isinstance(cut.value, ast.Name) and isinstance(to, ast.Name):
            yield from [(to.id, cut)] if to.id == cut.value.id else []


def _kind(name: str, alone: bool) -> str:
    if not alone and name in _SHORT:
        return _SHORT[name]
    return "labels" if _BESIDE.fullmatch(name) else "tokens" if _TOKENS.fullmatch(name) else ""


def _end_of(cut: ast.Subscript) -> str:
    """``n`` of ``x[-n:]``; "" for another cut."""
    part = cut.slice
    if not isinstance(part, ast.Slice) or part.upper is not None or part.step is not None:
        return ""
    lower = part.lower
    return unparse(lower.operand) if isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub) else ""


def _beginning_of(cut: ast.Subscript) -> str:
    """``n`` of ``x[:n]``; "" for another cut."""
    part = cut.slice
    if not isinstance(part, ast.Slice) or part.lower is not None or part.step is not None or part.upper is None:
        return ""
    return unparse(part.upper)


def last_group_lost(tree: ast.AST) -> Found:
    """Where a loop hands a full group on before it adds to the next one, and nothing hands on the last one behind it:
    that always holds something."""
    for function in (node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.Module)):
        for block in blocks(function):
            for loop in (one for one in block if isinstance(one, ast.For) and not one.orelse):
                for name, place in _groups_of(loop):
                    behind = (one for one in walk(function) if getattr(one, "lineno", 0) > (loop.end_lineno or 0))
                    if not any(reads(one, name) for one in behind):
                        yield f"what {name} holds behind the loop is left out", place


def _groups_of(loop: ast.For) -> Iterator[tuple[str, ast.AST]]:
    """The lists that a loop hands on and empties under a condition, and adds to only afterwards."""
    for at, statement in enumerate(loop.body):
        if not isinstance(statement, ast.If) or statement.orelse:
            continue
        for name in _emptied_in(statement.body):
            handed_on = any(_hands_on(one, name) for one in statement.body)
            adds_before = any(_adds_to(one, name) for one in loop.body[:at])
            adds_behind = any(_adds_to(one, name) for one in loop.body[at + 1 :])
            if handed_on and adds_behind and not adds_before:
                yield name, statement


def _emptied_in(block: list[ast.stmt]) -> Iterator[str]:
    for statement in block:
        for to, given in assigned(statement):
            if isinstance(to, ast.Name) and isinstance(given, ast.List) and not given.elts:
                yield to.id


def _hands_on(statement: ast.stmt, name: str) -> bool:
    """Whether a statement yields a list, or appends it to another."""
    for node in walk(statement):
        if isinstance(node, ast.Yield) and node.value is not None and reads(node.value, name):
            return True
        is_append = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        if is_append and _base(node.func.value) != name and any(reads(one, name) for one in node.args):  # type: ignore[attr-defined]
            return True
    return False


def _adds_to(statement: ast.stmt, name: str) -> bool:
    for node in walk(statement):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_call and node.func.attr in ("append", "extend") and _base(node.func.value) == name:  # type: ignore[attr-defined]
            return True
        if isinstance(node, ast.AugAssign) and _base(node.target) == name:
            return True
    return False


def _base(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


_COUNTED = re.compile(r"(k|ks|top_?k|at|cutoff|n)", re.IGNORECASE)


def ranks_off_by_one(tree: ast.AST) -> Found:
    """Where a rank that counts from 0, the number of those that are better, is asked to be at most k; or one that
    counts from 1 to be less than k; or where one counts from 2, since the own one is counted twice."""
    for function in functions(tree):
        firsts: dict[str, int | None] = {}
        for name, value in named(function):  # one that is given twice, as rank = rank + 1, counts from nobody knows
            firsts[name] = _first_rank(value) if name not in firsts else None
        for name, counted_from in _discounted(function):
            firsts.setdefault(name, counted_from)
        for node in walk(function):
            if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.left, ast.Name):
                continue
            first, to = firsts.get(node.left.id), node.comparators[0]
            many = isinstance(to, ast.Name) and _COUNTED.fullmatch(to.id)
            off = ((0, ast.LtE), (1, ast.Lt), (2, ast.Lt), (2, ast.LtE))
            if many and (first, type(node.ops[0])) in off:
                yield unparse(node), node


def _discounted(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """Names of ranks, and from what they count by their gains: the best one's is a logarithm of two."""
    for node in calls(function):
        text = unparse(node.args[0]) if called(node) == "log2" and node.args else ""
        if found := re.fullmatch(r"(\w*rank\w*)(\.\w+\(\))? \+ ([12])(\.0?)?", text):
            yield found[1], 2 - int(found[3])


def _first_rank(value: ast.expr) -> int | None:
    """What the best one's rank is: 0 by ``(scores > own).sum(1)``, 1 by ``(scores >= own).sum(1)``, which counts it,
    too, and one more for what is added; None for anything else."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        sides = [value.left, value.right]
        ones = [one for one in sides if isinstance(one, ast.Constant) and one.value == 1]
        rest = [one for one in sides if one not in ones]
        before = _first_rank(rest[0]) if len(ones) == 1 else None
        return None if before is None else before + 1
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "sum":
            held = value.func.value
            signs = {ast.Gt: 0, ast.GtE: 1}
            return signs.get(type(held.ops[0])) if isinstance(held, ast.Compare) else None
        value = value.func.value
    return None


_OF_DEPTH = re.compile(r"(n_|num_)?(hidden_)?(layers?|blocks?)\b|depth", re.IGNORECASE)


def starts_written_over(tree: ast.AST) -> Found:
    """Where a constructor makes what adds to the residual stream start smaller, by the depth, and then lets
    ``self.apply(self._init_weights)`` give all maps new numbers."""
    for cls in (node for node in walk(tree) if isinstance(node, ast.ClassDef)):
        methods = {one.name: one for one in cls.body if isinstance(one, ast.FunctionDef)}
        body = methods["__init__"].body if "__init__" in methods else []
        scaled = next(
            (n for n, one in enumerate(body) if isinstance(one, ast.For) and _starts_by_depth(one)), len(body)
        )
        for statement in body[scaled + 1 :]:
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and unparse(call.func) == "self.apply" and len(call.args) == 1:
                given = methods.get(unparse(call.args[0]).rpartition(".")[2])
                if given is not None and re.search(r"Linear[\s\S]*init\.\w+_\(", unparse(given)):
                    yield f"{unparse(call)} behind it", body[scaled]


def _starts_by_depth(loop: ast.For) -> bool:
    calls = [unparse(one) for one in walk(loop) if isinstance(one, ast.Call)]
    return any(re.search(r"init\.\w+_$", text.partition("(")[0]) and _OF_DEPTH.search(text) for text in calls)


# --- tables of several columns --------------------------------------------------------------------


def columns_that_overlap(tree: ast.AST) -> Found:
    """Where one table has a row for each value of several columns, and the first rows of the columns are counted by
    other sizes than those that the table is made of: a column begins among the rows of the one before it."""
    for function in functions(tree):
        made = {
            to.id: unparse(given) for node in walk(function) for to, given in assigned(node) if isinstance(to, ast.Name)
        }
        tables = [one for one in calls(function) if called(one) == "Embedding" and one.args]
        sizes = {match[1] or match[2] for one in tables if (match := _SUMMED.search(unparse(one.args[0])))}
        for node in calls(function):
            match = _CUMULATED.fullmatch(unparse(node)) if called(node) in ("cumsum", "accumulate") else None
            by = (match[1] or match[2]) if match else ""
            of = next((one for one in sizes if by and one != by and re.search(rf"\b{by}\b", made.get(one, ""))), "")
            if of:
                yield f"{unparse(node)}, of a table of {of}", node


_SUMMED = re.compile(r"\b(\w+)\.sum\(|\bsum\((\w+)\)")


_CUMULATED = re.compile(
    r"(?:(?:torch|np|numpy|itertools)\.)?(?:cumsum|accumulate)\((\w+)(?:\[:-1\])?(?:, .*)?\)"
    r"|(\w+)(?:\[:-1\])?\.cumsum\(.*\)"
)


# --- what a shuffled loader gives -----------------------------------------------------------------


_JOINS = ("cat", "concat", "concatenate", "vstack", "stack")


def tables_of_shuffled_rows(tree: ast.AST) -> Found:
    """Where a function returns what a model gives for the batches of a loader that it makes itself and shuffles, and
    nothing beside it: no row knows whose it is."""
    for function in functions(tree):
        shuffled = {
            unparse(to): given
            for node in walk(function)
            for to, given in assigned(node)
            if called(given) == "DataLoader" and re.search(r"shuffle=True", unparse(given))
        }
        if not shuffled or "backward" in unparse(function):
            continue
        loops = [unparse(one.iter) for one in walk(function) if isinstance(one, ast.For)]
        for node in walk(function):
            value = node.value if isinstance(node, ast.Return) else None
            if not isinstance(value, ast.Call) or called(value) not in _JOINS or not value.args:
                continue
            made = value.args[0]
            over = [unparse(one.iter) for one in getattr(made, "generators", ())]
            for loader in shuffled.keys() & {*over, *(loops if isinstance(made, ast.Name) else ())}:
                yield unparse(shuffled[loader]), shuffled[loader]


# --- first pieces ---------------------------------------------------------------------------------

_FIRSTS = re.compile(r"(\w+_)?(starts?|firsts?|begins?|beginnings)(_\w+)?", re.IGNORECASE)


def starts_behind_their_pieces(tree: ast.AST) -> Found:
    """Where the place at which a word starts is the length of a list that its pieces were put into just before."""
    for function in functions(tree):
        for block in blocks(function):
            grown: set[str] = set()
            for statement in block:
                call = statement.value if isinstance(statement, ast.Expr) else None
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                    if isinstance(statement, ast.AugAssign):
                        grown.add(unparse(statement.target))
                    continue
                owner, given = unparse(call.func.value), unparse(call.args[0])
                if call.func.attr == "extend":
                    grown.add(owner)
                length = re.fullmatch(r"len\((\w+)\)", given)
                if call.func.attr != "append" or not _FIRSTS.fullmatch(owner) or not length or length[1] not in grown:
                    continue
                if not re.search(rf"\b{owner} = \[[^\]]+\]", unparse(function)):  # those begin with a nought
                    yield unparse(statement), statement


def slots_left_out_of_offsets(tree: ast.AST) -> Found:
    """Where a table has one row more for each column than it has classes, and the columns begin as if it had not."""
    for function in functions(tree):
        given = {to.id: value for _, to, value in all_given(function) if isinstance(to, ast.Name)}
        tables = [call for call in calls(function) if called(call) == "Embedding" and call.args]
        for table in tables:
            whole = _spelled_out(table.args[0], given)
            over = re.search(r"\+ 1 for \w+ in ([\w.]+)|sum\(([\w.]+)\) \+ len\(", whole)
            counts = (over[1] or over[2]) if over else ""
            for call in calls(function) if counts else ():
                owner = _spelled_out(call.func.value, given) if isinstance(call.func, ast.Attribute) else ""
                summed = f"{owner} {' '.join(_spelled_out(one, given) for one in call.args)}"
                if called(call) in ("cumsum", "accumulate") and counts in summed and not re.search(r"\+ 1 for", summed):
                    yield unparse(call), call


def _spelled_out(node: ast.expr, given: dict[str, ast.expr], depth: int = 3) -> str:
    """The text of an expression, with what its names were given in their place."""
    text = unparse(node)
    names = {one.id for one in walk(node) if isinstance(one, ast.Name)} & given.keys() if depth else set()
    for name in names:
        inner = _spelled_out(given[name], given, depth - 1) if given[name] is not node else name
        text = re.sub(rf"\b{re.escape(name)}\b", lambda _, inner=inner: f"({inner})", text)  # type: ignore[misc]
    return text


COLUMNS = Slip(
    rule=columns_that_overlap,
    asked="the first rows of columns that share one table",
    expected="sums of the sizes that the table is made of",
    got="sums of others",
    sentence="The first rows of the columns are counted by other sizes than the table has: columns share rows of it.",
    mend="Count the first rows by the sizes that the table is made of.",
    nothing="no columns were seen that share rows of one table",
)
HASHES = Slip(
    rule=hashed,
    asked="the number of a text in the next process",
    expected="the same",
    got="another one",
    sentence="Python's hash of a text is another one in every process: what was learned or set apart by it is lost.",
    mend="Take zlib.crc32(text.encode()), or a table of words that is saved.",
    nothing="no number was seen that comes of Python's hash",
)
NAMES = Slip(
    rule=tables_in_two_orders,
    asked="the two tables of names and numbers",
    expected="of one order",
    got="of two orders",
    sentence="One table counts the names in another order than the other: a number becomes another name than it was.",
    mend="id2label = {number: name for name, number in label2id.items()}",
    nothing="no two tables of names and numbers were seen that count in two orders",
)
DISTANCES = Slip(
    rule=moved_by_a_constant,
    asked="what is chosen",
    expected="what is nearest to the number",
    got="the least or the largest of all",
    sentence="The number that is taken off is the same for all, and changes nothing of which is chosen.",
    mend="Choose by the distance, with abs().",
    nothing="nothing was seen that is chosen by how far it is from a number, with its sign",
)
CUTS = Slip(
    rule=cut_apart,
    asked="tokens and what stands beside them",
    expected="cut at one end",
    got="each at another end",
    sentence="Of the tokens one end is cut off, and of what stands beside them the other: each is beside another now.",
    mend="Cut both in one way.",
    nothing="no tokens were seen that are cut at another end than what stands beside them",
)
GROUPS = Slip(
    rule=last_group_lost,
    asked="the groups of a loop",
    expected="all are handed on",
    got="all but the last",
    sentence="A group is handed on when the next one begins, and nothing hands on the last one: it is lost each time.",
    mend="Behind the loop: if group: groups.append(group).",
    nothing="no group was seen that a loop leaves behind",
)
RANKS = Slip(
    rule=ranks_off_by_one,
    asked="ranks that are among the first k",
    expected="k of them",
    got="one more, or one less",
    sentence="The rank is the number of those that are better: one place too many, or too few, is taken for a hit.",
    mend="rank < k where the best has rank 0, rank <= k where it has rank 1.",
    nothing="no rank was seen that is compared one place off",
)
SHUFFLED = Slip(
    rule=tables_of_shuffled_rows,
    asked="the order of what a function returns for all rows",
    expected="that of the rows",
    got="that in which a loader shuffled them",
    sentence="A table of answers is made in a shuffled order, and does not say to which row each belongs.",
    mend="DataLoader(rows, shuffle=False) where the answers are put together",
    nothing="no table of answers was seen that is made in a shuffled order",
)
PIECES = Slip(
    rule=starts_behind_their_pieces,
    asked="the place of the first piece of a word",
    expected="the length of the list before its pieces",
    got="the length behind them",
    sentence="The start of a word is noted behind its pieces: each word is read at the first piece of the next one.",
    mend="starts.append(len(ids)), then ids.extend(pieces)",
    nothing="no start of a word was seen that is noted behind its pieces",
)
STARTS = Slip(
    rule=starts_written_over,
    asked="what adds to the residual stream",
    expected="starts smaller, as it was told to",
    got="gets other numbers afterwards",
    sentence="What adds to the residual stream is scaled by the depth, and all maps get new numbers afterwards.",
    mend="self.apply(self._init_weights) first, then the smaller numbers.",
    nothing="no start was seen that is scaled by the depth and written over",
)
SLOTS_LEFT_OUT = Slip(
    rule=slots_left_out_of_offsets,
    asked="where each column's rows of a common table begin",
    expected="behind all rows of the column before",
    got="one row earlier for each column before it",
    sentence="The rows of a column begin as if no column had a row of its own for what is missing: columns that stand "
    "side by side share rows, and the last rows of the table are never read.",
    mend="add the rows with the missing ones up: torch.cumsum(sizes, 0) - sizes",
    nothing="no columns were seen that share rows of a table",
)
