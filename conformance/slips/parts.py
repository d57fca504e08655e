"""Slips of the parts of the data, that the text of a file shows by itself: splits that are not what their function's
name promises, groups that are torn apart, thresholds that the test chooses, parts that share rows, a validation that is
the test, rows that are asked for and never remembered, a part that learns and reaches into the one that judges, a
training part without an end, pictures that are mirrored where their classes are left and right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations

from conformance.slips.slip import (
    JUDGING,
    LEARNED,
    OF_GROUPS,
    SPLITS,
    TRAINS,
    VALIDATES,
    Found,
    Slip,
    all_given,
    assigned,
    blocks,
    called,
    calls,
    functions,
    last_given,
    unparse,
    walk,
)

# --- what a function promises ---------------------------------------------------------------------

_PROMISE = re.compile(
    r"_*((make|do|get)_)?(split|partition|divide|grouped?|folds?)(_\w+)?_(by|per)_(?P<first>\w+)"
    r"|_*(?P<second>[^\W_]+)_(wise_)?split",
    re.IGNORECASE,
)


_NO_GROUP = re.compile(
    r"random\w*|ratio\w*|share\w*|size\w*|frac\w*|percent\w*|index|indices|row|rows|name|names|train\w*|val\w*|test\w*"
    r"|data\w*|load|make|get|do|holdout|hash|all|no|the|line|lines|text\w*|sequence\w*|word\w*|token\w*|sample\w*|item\w*"
    r"|file\w*|batch\w*|head\w*|chunk\w*|seed|k_?fold|fold|is|in|stratified\w*|qkv|len|length|n",
    re.IGNORECASE,
)


_BY_CHANCE = ("shuffle", "permutation", "randperm", "sample", "random_split", "train_test_split")


def rows_for_groups(tree: ast.AST) -> Found:
    """Where a function that splits data by something, in its name, draws the rows and never reads that something."""
    for function in functions(tree):
        promised = _PROMISE.fullmatch(function.name)
        group = (promised["first"] or promised["second"]) if promised else ""
        if not group or _NO_GROUP.fullmatch(group):
            continue
        drawn = [one for one in calls(function) if called(one) in _BY_CHANCE]
        stem = re.sub(r"(ies|es|s|y)?(_?ids?)?$", "", group.lower())[:6]
        says = re.compile(rf".*{re.escape(stem)}.*|{group[0]}_?ids?", re.IGNORECASE)
        if drawn and stem and not any(says.fullmatch(name) for name in _read(function)):
            yield f"{function.name} draws {unparse(drawn[0])}", drawn[0]


def _read(function: ast.FunctionDef) -> Iterator[str]:
    """The names, attributes and texts that a function reads; not a name whose length alone is asked."""
    lengths = [one.args[0] for one in calls(function) if called(one) == "len" and one.args]
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        for node in walk(statement):
            if isinstance(node, ast.Name) and node not in lengths:
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.keyword) and node.arg:
                yield node.arg


# --- groups ---------------------------------------------------------------------------------------


def groups_torn_apart(tree: ast.AST) -> Found:
    """Where rows say to which group they belong, nothing ever reads it, and the rows are split by chance."""
    kept = {name for node in walk(tree) for name in _names_of_a_row(node)}
    groups = {name for name in kept if OF_GROUPS.fullmatch(name)}
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            groups.discard(node.attr)
        elif isinstance(node, ast.Subscript | ast.Call):
            read = [node.slice] if isinstance(node, ast.Subscript) else node.args
            groups -= {one.value for one in read if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    for function in functions(tree) if groups else ():
        names = set(re.findall(r"[a-z]+", unparse(function).lower()))
        drawn = [one for one in calls(function) if called(one) in ("shuffle", "permutation", "randperm")]
        if drawn and "train" in names and names & {"val", "valid", "test", "dev"} and "split" in function.name:
            yield f"{function.name} draws {unparse(drawn[0])}, and nothing reads {sorted(groups)[0]!r}", drawn[0]


def _names_of_a_row(node: ast.AST) -> list[str]:
    """The names of what a row of data keeps, where a node makes one: a dict in a list of them, a dataclass, a named
    tuple. What a dict has as a constant is no number of a group, but a word of a dictionary."""
    row: ast.AST | None = node.elt if isinstance(node, ast.ListComp) else None
    if isinstance(node, ast.Call) and called(node) == "append" and node.args:
        row = node.args[0]
    if isinstance(row, ast.Dict):
        pairs = [pair for pair in zip(row.keys, row.values, strict=True) if not isinstance(pair[1], ast.Constant)]
        return [key.value for key, _ in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    if not isinstance(node, ast.ClassDef):
        return []
    says = " ".join(unparse(one) for one in (*node.bases, *node.decorator_list))
    fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
    is_row = re.search(r"dataclass|NamedTuple", says)
    return [one.id for one in fields if isinstance(one, ast.Name)] if is_row else []


# --- thresholds -----------------------------------------------------------------------------------

_CHOOSES = re.compile(
    r"(best|find|tune|pick|choose|optimal|select|search)_?\w*thresh\w*|thresh\w*_(search|tuning)"
    r"|(fit|tune|learn|find)_?(temperature|temp|platt|scal\w*|calibrat\w*)|calibrate(_\w+)?",
    re.I,
)


_OF_TEST = re.compile(r"(\w+[._])?test(_\w+)?|\w+\[(['\"]test['\"]|test(_\w+)?|held(_?out)?(_\w+)?)\]", re.IGNORECASE)


def thresholds_of_the_test(tree: ast.AST) -> Found:
    """Where a threshold, or a scale of probabilities, is fitted to the labels of the test that is measured with it."""
    for function in [tree, *functions(tree)]:
        statements = [one for block in blocks(function) for one in block]
        given_at = all_given(function)
        for node in statements:
            for call in (one for _, given in assigned(node) for one in calls(given)):
                if not _CHOOSES.fullmatch(called(call)):
                    continue
                names = [unparse(one) for one in call.args]
                inner = (one for x in call.args if isinstance(x, ast.Starred) for one in walk(x))
                names += [one.id for one in inner if isinstance(one, ast.Name)]
                parts = (one for one in call.args if isinstance(one, ast.Subscript | ast.Attribute))
                names += [unparse(one.value) for one in parts]  # test[1], test.labels
                if any(
                    _OF_TEST.fullmatch(name) or _is_of_test(last_given(name, node.lineno, given_at)) for name in names
                ):
                    yield unparse(node), node


def _is_of_test(given: ast.expr | None) -> bool:
    """Whether something is made by a call that is handed test data."""
    return isinstance(given, ast.Call) and any(_OF_TEST.fullmatch(unparse(x)) for x in given.args)


# --- parts that share rows ------------------------------------------------------------------------


_FORMS = re.compile(r"(join|list|tuple|set|sorted|array|asarray|tensor|as_tensor|from_numpy|deepcopy)$|[A-Z]")


def parts_that_share_rows(tree: ast.AST) -> Found:
    """Where two parts begin, or end, at the same row of a list, or one of them is all of it: by their names one learns
    and one judges, or a function that splits data returns them beside each other."""
    for function in [tree, *functions(tree)]:
        statements = [node for block in blocks(function) for node in block]
        cuts = [
            (to.id, _cut_of(given), node)
            for node in statements
            for to, given in assigned(node)
            if isinstance(to, ast.Name) and (LEARNED.fullmatch(to.id) or JUDGING.fullmatch(to.id))
        ]
        for (name, one, _), (other, two, node) in combinations(cuts, 2):
            roles = {bool(LEARNED.fullmatch(name)), bool(LEARNED.fullmatch(other))}
            if len(roles) == 2 and _share(one, two):
                yield f"{name} and {other}: {' and '.join(_shown(one, two))}", node
        makes_parts = isinstance(function, ast.FunctionDef) and SPLITS.search(function.name)
        for node in statements if makes_parts else ():
            value = node.value if isinstance(node, ast.Return) else None
            parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) in (2, 3) else []
            found = [_cut_of(part) for part in parts]
            if all(one[0] and one[1:] != ("", "") for one in found) and len({one[0] for one in found}) == 1:
                for first, second in combinations(found, 2):
                    if _share(first, second):
                        yield " and ".join(_shown(first, second)), node


def _cut_of(given: ast.expr) -> tuple[str, str, str]:
    """Of which list something is a cut, and from where to where: ("rows", "", "n") of ``rows[:n]``, also where it is
    put into another form: ``"".join(rows[:n])``, ``Rows(rows[:n])``."""
    while isinstance(given, ast.Call) and len(given.args) == 1 and _FORMS.match(called(given)):
        given = given.args[0]
    if isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Slice) and isinstance(given.value, ast.Name):
        ends = (given.slice.lower, given.slice.upper)
        return given.value.id, *("" if one is None else unparse(one) for one in ends)  # type: ignore[return-value]
    return (given.id, "", "") if isinstance(given, ast.Name) else ("", "", "")


def _share(one: tuple[str, str, str], two: tuple[str, str, str]) -> bool:
    """Whether two cuts of one list have rows in common for sure."""
    if not one[0] or one[0] != two[0] or one[1:] == two[1:]:
        return False
    whole = ("", "") in (one[1:], two[1:])
    return whole or (one[1] == two[1] and one[2] != two[2]) or (one[2] == two[2] and one[1] != two[1])


def _shown(*cuts: tuple[str, str, str]) -> list[str]:
    return [name if not (begin or end) else f"{name}[{begin}:{end}]" for name, begin, end in cuts]


# --- parts by another name ------------------------------------------------------------------------


_VALIDATION = re.compile(rf"(?<![a-z])({VALIDATES})(?![a-z])", re.IGNORECASE)


def tests_called_validation(tree: ast.AST) -> Found:
    """Where what is called the validation is taken from the test part, and the file knows a part of that name."""
    text = unparse(tree)
    if not re.search(rf"['\"]({VALIDATES})['\"]", text) or "train_test_split" in text:
        return
    for node in walk(tree):
        for to, given in assigned(node):
            names = [one.id for one in walk(to) if isinstance(one, ast.Name)]
            if not names or not all(map(_VALIDATION.search, names)) or _VALIDATION.search(unparse(given)):
                continue
            keys = [one.slice for one in walk(given) if isinstance(one, ast.Subscript)]
            if any(isinstance(key, ast.Constant) and key.value == "test" for key in keys):
                yield unparse(node), node


# --- rows that are remembered ---------------------------------------------------------------------

_EMPTY = re.compile(r"set\(\)|\{\}|dict\(\)|\[\]|list\(\)")


def never_remembered(tree: ast.AST) -> Found:
    """Where a loop asks whether a set holds something, and nothing is ever put into the set."""
    for function in functions(tree):
        empty = {
            to.id: node
            for node in walk(function)
            for to, given in assigned(node)
            if isinstance(to, ast.Name) and _EMPTY.fullmatch(unparse(given))
        }
        for name, place in empty.items():
            uses = [one for one in walk(function) if isinstance(one, ast.Name) and one.id == name]
            asked = [
                right
                for node in walk(function)
                if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
                for right in node.comparators
            ]
            looked_at = [one for one in uses if one in asked]
            if looked_at and len(uses) == 1 + len(looked_at):
                yield f"{name} is asked and stays empty", place


# --- parts that reach into another one ------------------------------------------------------------


_JUDGES = re.compile(
    rf"(self\.)?_?({VALIDATES}|test)(_?(set|ds|data|dataset|windows|part|split|samples))?", re.IGNORECASE
)


_BORDER = re.compile(
    r"(\w+\.)*_*(train|val|valid|validation|test|dev)_?(start|begin|end|stop|until|to|from)\w*", re.IGNORECASE
)


def parts_that_reach(tree: ast.AST) -> Found:
    """Where training windows and those that judge are cut by one function, up to the same border, though the latter
    begin at another one."""
    for block in [one for node in [tree, *functions(tree)] for one in blocks(node)]:
        made = [
            (unparse(to), given)
            for statement in block
            for to, given in assigned(statement)
            if isinstance(given, ast.Call)
        ]
        for name, train in made:
            for other, judge in made:
                if TRAINS.fullmatch(name) and _JUDGES.fullmatch(other) and called(train) == called(judge):
                    mine, its = _borders(train), _borders(judge)
                    if len(its) == 2 and len(mine) == 1 and mine[0] == its[1] and its[0] != its[1]:
                        yield f"{name} goes on to {mine[0]}, {other} begins at {its[0]}", train


def _borders(call: ast.Call) -> list[str]:
    """What of a call's arguments is a border of parts by its name, in order: ``panel.val_start, panel.test_start``."""
    given = [unparse(one) for one in [*call.args, *(keyword.value for keyword in call.keywords)]]
    return [text for text in given if _BORDER.fullmatch(text)]


# --- mirrors --------------------------------------------------------------------------------------

_AWARE = re.compile(r"swap|mirror|opposite|counterpart|partner|flip\w*_(label|class|id|map|target)", re.IGNORECASE)


_SIDE = re.compile(r"(.*[^a-z])?(left|right)([^a-z].*)?", re.IGNORECASE)


_LABELS = re.compile(r"y|ys|labels?|targets?|lbl|cls", re.IGNORECASE)


_VARIES = re.compile(r"augment|jitter|distort|var(y|ied|iant)", re.IGNORECASE)


_DRAWN = re.compile(r"rand|rng\.|bernoulli", re.IGNORECASE)


_LAST_AXIS = re.compile(r"\(?\[?-1,?\]?\)?|\(?\[?3,?\]?\)?")


def mirrored(tree: ast.AST) -> Found:
    """Where pictures are mirrored by chance, their labels are left as they are, and two of the classes are left and
    right."""
    if (sides := _sides(tree)) is None:
        return
    of_items = {node for one in functions(tree) if one.name == "__getitem__" for node in walk(one)}
    for node in walk(tree):
        if isinstance(node, ast.Call | ast.Subscript) and _mirrors(node, node in of_items):
            around = [one for one in functions(tree) if node in walk(one)]
            varies = called(node) == "RandomHorizontalFlip" or (bool(around) and _is_by_chance(around[-1], node))
            if varies and not (around and _minds(around[-1], node)):
                yield f"{unparse(node)}, where classes are {sides[0]} and {sides[1]}", node


def _sides(tree: ast.AST) -> tuple[str, str] | None:
    """Two texts of one list that are alike but for left and right."""
    for node in walk(tree):
        held = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        texts = [one.value for one in held if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        for text in texts:
            other = re.sub("left", "right", text, flags=re.IGNORECASE)
            if other != text and other.lower() in [one.lower() for one in texts] and len(texts) > 2:
                return text, other
    return None


def _mirrors(node: ast.Call | ast.Subscript, is_item: bool) -> bool:
    """Whether it turns the last axis of a picture round. is_item: of one picture, (C, H, W)."""
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        return len(parts) not in (0, 3) and unparse(parts[-1]) == "::-1"  # of three, the last may be the colours
    name = called(node)
    if name in ("hflip", "fliplr", "RandomHorizontalFlip", "horizontal_flip"):
        return True
    if name != "flip" or not isinstance(node.func, ast.Attribute):
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    axes = given[1:] if unparse(node.func.value) in ("torch", "np", "numpy") else given
    if len(axes) != 1:
        return False
    written = unparse(axes[0])
    return _LAST_AXIS.fullmatch(written) is not None or (is_item and written in ("2", "[2]", "(2,)"))


def _is_by_chance(function: ast.FunctionDef, flip: ast.AST) -> bool:
    """Whether a function mirrors some pictures and not others, by chance: a picture that is put beside its mirror, or
    a task that is to mirror, is no variety of one."""
    if _VARIES.search(function.name):
        return True
    coins = {
        name.id
        for node in walk(function)
        for to, given in assigned(node)
        if _DRAWN.search(unparse(given)) and any(isinstance(one, ast.Compare) for one in walk(given))
        for name in walk(to)
        if isinstance(name, ast.Name)
    }
    for node in walk(function):
        asked: list[ast.expr] = [node.test] if isinstance(node, ast.If | ast.IfExp) else []
        asked += node.args[:1] if isinstance(node, ast.Call) and called(node) == "where" else []
        asked += [to.slice for to, _ in assigned(node) if isinstance(to, ast.Subscript)]
        tosses = any(
            _DRAWN.search(unparse(one)) or coins & {name.id for name in walk(one) if isinstance(name, ast.Name)}
            for one in asked
        )
        if tosses and flip in walk(node):
            return True
    return False


def _minds(function: ast.FunctionDef, flip: ast.AST) -> bool:
    """Whether a function that mirrors pictures speaks of the other side, or binds labels anew."""
    for node in walk(function):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if _AWARE.search(name):
                return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SIDE.fullmatch(node.value):
            return True
        for to, given in assigned(node):
            if _LABELS.fullmatch(unparse(to)) and flip not in walk(given):
                return True
    return False


_TIMED = re.compile(r"\b(\w+) (>=?|<=?) ")


def training_without_an_end(tree: ast.AST) -> Found:
    """Where the rows of two parts that judge are chosen by a time, and those of the training part by none."""
    for block in [one for node in [tree, *functions(tree)] for one in blocks(node)]:
        made = {unparse(to): given for statement in block for to, given in assigned(statement)}
        learned = [name for name in made if LEARNED.fullmatch(name)]
        judging = [name for name in made if JUDGING.fullmatch(name)]
        times = [{found[0] for found in _TIMED.findall(unparse(made[name])) if ">" in found[1]} for name in judging]
        common = set.intersection(*times) if len(times) > 1 else set()
        for name in learned:
            text = unparse(made[name])
            chooses = isinstance(made[name], ast.Compare | ast.BinOp | ast.Subscript)
            if common and chooses and "==" in text and not any(re.search(rf"\b{time}\b", text) for time in common):
                yield f"{name} = {text}, and the others by {min(common)}", made[name]


PROMISES = Slip(
    rule=rows_for_groups,
    asked="by what the data are split",
    expected="by what the function's name says",
    got="row by row",
    sentence="The function says by what it splits, and draws single rows: what belongs together is on both sides.",
    mend="draw the groups, and give each row to the part of its group",
    nothing="no function was seen that says by what it splits and does not read it",
)
REMEMBERED = Slip(
    rule=never_remembered,
    asked="what was seen before",
    expected="remembered",
    got="never put in",
    sentence="The set is asked whether it holds a row, and no row is put into it: copies are not found.",
    mend="seen.add(row)",
    nothing="no set was seen that is asked and never filled",
)
SHARED = Slip(
    rule=parts_that_share_rows,
    asked="the rows of the parts",
    expected="each in one part",
    got="some in two of them",
    sentence="Two parts are cut from one list at the same end: they share rows, and what judges is known before.",
    mend="train, val, test = rows[a:], rows[:b], rows[b:a]",
    nothing="no two parts were seen that are cut from one list at the same end",
)
RENAMED = Slip(
    rule=tests_called_validation,
    asked="from which part the validation is taken",
    expected="from its own",
    got="from the test",
    sentence="What is called the validation is taken from the test: what it chooses is chosen by the test.",
    mend='val = predict(model, parts["val"])',
    nothing="no validation was seen that is taken from the test part",
)
UNENDING = Slip(
    rule=training_without_an_end,
    asked="the times of the rows that are learned from",
    expected="before those that judge",
    got="all",
    sentence="The parts that judge begin at a time, and the training part ends at none: it holds what comes later.",
    mend="train = mine & (time < end_of_training)",
    nothing="no training part was seen without an end beside parts that begin at a time",
)
REACHING = Slip(
    rule=parts_that_reach,
    asked="where the training part ends",
    expected="where the part that judges begins",
    got="it ends with it",
    sentence="The training part goes on to where the part that judges ends: what judges is learned from.",
    mend="end the training part at the border where the other one begins",
    nothing="no training part was seen that is cut up to where the part that judges ends",
)
MIRRORS = Slip(
    rule=mirrored,
    asked="the label of a picture that is mirrored",
    expected="that of the other side",
    got="left as it was",
    sentence="Pictures are mirrored and keep their labels, though two classes are left and right: both get the "
    "pictures of the other one.",
    mend="leave the mirror out, or exchange the two labels with it",
    nothing="no picture was seen that is mirrored where classes are left and right",
    is_of_all=True,
)
GROUPS = Slip(
    rule=groups_torn_apart,
    asked="rows of one group",
    expected="in one part of the data",
    got="drawn one by one",
    sentence="The rows say to which group they belong, and are split one by one: those of a group are on both sides, "
    "and the figures are too good.",
    mend="draw the groups, and give each row to the part of its group",
    nothing="no split was seen of rows that name a group which nothing reads",
    is_of_all=True,
)
THRESHOLDS = Slip(
    rule=thresholds_of_the_test,
    asked="by which data a threshold or a scale is chosen",
    expected="by those of the validation",
    got="by those of the test",
    sentence="The threshold, or the scale, is the best one for the labels of the test: what is measured with it there "
    "is too good.",
    mend="choose it by the validation data, and keep it",
    nothing="no threshold was seen that the test's own labels choose",
)
