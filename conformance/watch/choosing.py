"""What a script's text says of the data that choose: whether the test data decide what is kept, and whether the data
that judge are the training data once more, drawn from the same seed or copied before they were split."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.slips.slip import VALIDATES
from conformance.watch.lines import Source
from conformance.watch.parts import EITHER_CASE, Bound, bindings, names_judging, names_training
from conformance.watch.stated import sources

_TEST = re.compile(r"(^|_)test(s|ing|set)?\d*(_|$)", re.IGNORECASE)
_VALID = re.compile(rf"(^|_)({VALIDATES})\d*(_|$)", re.IGNORECASE)
_SEED = re.compile(r"seed", re.IGNORECASE)
_SPLITS = re.compile(
    r"^(\w+_)?(train(_test|_val\w*)?|test|random|stratified|group(ed)?|data(set)?|rows|fold)_?split$"
    r"|^split_(data\w*|rows|train\w*|examples|samples|by_\w+)$",
    re.IGNORECASE,
)
_COPIES = re.compile(
    r"over_?sampl|up_?sampl|augment|duplicat|(balance|repeat)_(data\w*|rows|classes|rare|samples|examples)",
    re.IGNORECASE,
)
_CHOOSES = re.compile(r"step|stop|update|best|check|report", re.IGNORECASE)


class Chosen(NamedTuple):
    """What the data are that judge. asked: what names them. given: what is taken. place: where."""

    asked: str
    given: str
    place: str


def by_test_data(run: Any) -> Iterator[Chosen]:
    """Where what is named after the validation is worked out on the test data and decides something: it is compared, or
    handed to a schedule or to what stops early. The script has validation data, too."""
    for source in sources(run):
        names = {n.id if isinstance(n, ast.Name) else n.attr for n in source.nodes
                 if isinstance(n, (ast.Name, ast.Attribute))}  # fmt: skip
        for node in (n for n in source.nodes if isinstance(n, ast.Assign)):
            call = node.value
            if not isinstance(call, ast.Call):
                continue
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            asked = [_last(one) for one in targets if _is(_VALID, _last(one)) and not _is(_TEST, _last(one))]
            given = [_last(one) for one in (*call.args, *(word.value for word in call.keywords))]
            tests = [one for one in given if _is(_TEST, one)]
            if not asked or not tests or any(_is(_VALID, one) for one in given):
                continue
            beside = _TEST.sub("_", tests[0]).strip("_")
            if _decides(source, node, asked[0]) and any(
                _is(_VALID, name) and _VALID.sub("_", name).strip("_") == beside for name in names
            ):
                yield Chosen(asked[0], tests[0], source.place(node))


def _decides(source: Source, node: ast.AST, name: str) -> bool:
    """Whether a name is compared, or handed to a call that may stop, step or keep, in the function of a statement."""
    for one in source.inside(source.function(node)):
        if isinstance(one, ast.Compare):
            parts: list[ast.expr] = [one.left, *one.comparators]
        elif isinstance(one, ast.Call) and _CHOOSES.search(ast.unparse(one.func).rpartition(".")[2]):
            parts = one.args
        else:
            continue
        if any(_last(_whole(part)) == name for part in parts):
            return True
    return False


def _whole(part: ast.expr) -> ast.expr:
    """What a figure is taken from: `dev` of `dev["f1"]`."""
    while isinstance(part, ast.Subscript):
        part = part.value
    return part


def drawn_alike(run: Any) -> Iterator[Chosen]:
    """Where one function draws the training data and those that judge from one and the same seed."""
    for source in sources(run):
        made = [(one, one.value if isinstance(one.value, ast.Call) else None) for one in _all_bound(source)]
        for train, first in made:
            for other, second in made:
                if not names_training(train.name) or not names_judging(other.name) or first is None or second is None:
                    continue
                alike = ast.unparse(first.func) == ast.unparse(second.func)
                seeds = [_seed(one) for one in (first, second)]
                is_one_seed = alike and seeds[0] and seeds[0] == seeds[1]
                if first is not second and is_one_seed and _differ_in_sizes(first, second):
                    yield Chosen(other.name, train.name, source.place(second))


def copied_before_the_split(run: Any) -> Iterator[Chosen]:
    """Where rows are copied, as rare ones are, before they are split: ``split(oversample(rows))``."""
    for source in sources(run):
        copied = {one.name: one for one in bindings(source) if isinstance(one.value, ast.Call) and _copies(one.value)}
        for call in (n for n in source.nodes if isinstance(n, ast.Call)):
            called = ast.unparse(call.func).rpartition(".")[2]
            if not _SPLITS.search(called) or not call.args:
                continue
            first = call.args[0]
            if isinstance(first, ast.Call) and _copies(first):
                yield Chosen(called, ast.unparse(first.func), source.place(call))
            elif isinstance(first, ast.Name) and first.id in copied:
                before = copied[first.id]
                is_one = source.function(before.statement) is source.function(call)
                if is_one and before.statement.lineno < call.lineno:
                    yield Chosen(called, ast.unparse(before.value.func), source.place(call))  # type: ignore[attr-defined]
        for one in bindings(source):  # parts that are cut out of what was copied
            cut = one.value if isinstance(one.value, ast.Subscript) and isinstance(one.value.slice, ast.Slice) else None
            whole = copied.get(cut.value.id) if cut is not None and isinstance(cut.value, ast.Name) else None
            if whole is None or source.function(whole.statement) is not source.function(one.statement):
                continue
            if whole.statement.lineno < one.statement.lineno and names_judging(one.name):
                yield Chosen(one.name, ast.unparse(whole.value.func), source.place(one.statement))  # type: ignore[attr-defined]


def _copies(call: ast.Call) -> bool:
    return _COPIES.search(ast.unparse(call.func).rpartition(".")[2]) is not None


def _all_bound(source: Source) -> Iterator[Bound]:
    """What assignments bind, also to each name of several at once."""
    yield from bindings(source)
    for node in (n for n in source.nodes if isinstance(n, ast.Assign)):
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Call):
            for target in node.targets[0].elts:
                if isinstance(target, ast.Name):
                    yield Bound(target.id, node.value, node)


def _seed(call: ast.Call) -> str:
    """The seed that a call is given, as it is written."""
    named = [word.value for word in call.keywords if _SEED.search(word.arg or "")]
    given = named or [one for one in call.args if _SEED.search(_last(one))]
    return ast.unparse(given[0]) if len(given) == 1 else ""


_SIZES = re.compile(r"^\d+$|(^|\.)(n|num|number)_\w+$|_(n|num|size|count)$|^len\(", re.IGNORECASE)


def _differ_in_sizes(first: ast.Call, second: ast.Call) -> bool:
    """Whether two calls differ in how many rows they ask for, and in nothing else."""
    given = [[*call.args, *(word.value for word in call.keywords)] for call in (first, second)]
    if len(given[0]) != len(given[1]):
        return False
    texts = [(ast.unparse(a), ast.unparse(b)) for a, b in zip(*given, strict=True)]
    return all(_SIZES.search(text) for pair in texts if pair[0] != pair[1] for text in pair)


def _is(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.search(EITHER_CASE.sub("_", name)) is not None


def _last(node: ast.AST) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")
