"""Slips of grids and of what is folded into the batch, that the text of a file shows by itself: neighbours that are
taken twice, shifts that are not undone, masks that are repeated in another order than rows are folded, and scores that
are regrouped in another order than they were."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import Found, Slip, all_given, assigned, called, calls, functions, unparse, walk

_EVERY_OTHER = re.compile(r"(\w+)\[(.*(?<!\w)[01]::2.*)\]")


def neighbours_taken_twice(tree: ast.AST) -> Found:
    """Where every other row and column of a picture is taken four times, and two of them are the same."""
    for function in functions(tree):
        taken: dict[str, list[tuple[str, ast.AST]]] = {}
        for node in walk(function):
            found = _EVERY_OTHER.fullmatch(unparse(node)) if isinstance(node, ast.Subscript) else None
            if found and found[2].count("::2") == 2:
                taken.setdefault(found[1], []).append((found[2], node))
        for name, cuts in taken.items():
            texts = [text for text, _ in cuts]
            twice = next((node for at, (text, node) in enumerate(cuts) if text in texts[:at]), None)
            if len(cuts) == 4 and twice is not None:
                yield f"{name}[{unparse(twice).partition('[')[2]}", twice


def shifted_twice(tree: ast.AST) -> Found:
    """Where what was rolled by a negative shift is rolled by the same one once more, behind what was done with it."""
    for function in functions(tree):
        rolled: dict[str, list[tuple[str, ast.Call]]] = {}
        for _, to, given in all_given(function):
            if isinstance(given, ast.Call) and called(given) == "roll" and unparse(given.args[0]) == unparse(to):
                shifts = next((word.value for word in given.keywords if word.arg == "shifts"), given.args[-1])
                rolled.setdefault(unparse(to), []).append((unparse(shifts), given))
        for found in rolled.values():
            if len(found) == 2 and found[0][0] == found[1][0] and re.match(r"\(?-", found[0][0]):
                yield unparse(found[1][1]), found[1][1]


def masks_in_another_order(tree: ast.AST) -> Found:
    """Where rows are folded as (sample, channel), and their mask is repeated as (channel, sample)."""
    for function in functions(tree):
        text = unparse(function)
        folded = re.search(r"\.permute\(0, 2, 1, 3\)\.reshape\((\w+) \* (\w+),", text)
        for call in calls(function) if folded else ():
            times = [unparse(one) for one in call.args]
            owner = unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            if called(call) == "repeat" and times == [folded[2], "1"] and "mask" in owner:  # type: ignore[index]
                yield unparse(call), call


def regrouped_in_another_order(tree: ast.AST) -> Found:
    """Where (a, b, ...) is flattened along its first axes, and what is made of it gets the shape (b, a)."""
    for function in functions(tree):
        for node in walk(function):
            for to, given in assigned(node):
                names = [unparse(one) for one in to.elts] if isinstance(to, ast.Tuple) else []
                if len(names) < 2 or not unparse(given).endswith((".shape", ".size()")):
                    continue
                first, second = names[:2]
                flat = re.search(rf"flatten\(0, 1\)|\b{re.escape(first)} \* {re.escape(second)}\b", unparse(function))
                for call in calls(function) if flat else ():
                    sizes = [unparse(one) for one in call.args]
                    if called(call) in ("view", "reshape") and sizes == [second, first]:
                        yield unparse(call), call


_PAIRS = re.compile(
    r"start\w*\[:, :, None\] \+ \w*end\w*\[:, None, :\]|start\w*\.unsqueeze\((-1|2)\) \+ \w*end\w*\.unsqueeze\((-2|1)\)"
)


def starts_behind_ends(tree: ast.AST) -> Found:
    """Where all pairs of a start and an end are scored, and only those are left out that are too long."""
    for function in functions(tree):
        text = unparse(function)
        if _PAIRS.search(text) and not re.search(r"triu|end\w* (>=|<) |start\w* (<=|>) |\bj >= i|\bi <= j", text):
            for call in calls(function):
                if called(call) == "tril":
                    yield unparse(call), call
                    break


def sides_exchanged(tree: ast.AST) -> Found:
    """Where the scores of starts are compared with ends, or those of ends with starts."""
    for call in calls(tree):
        sides = [unparse(one).lower() for one in call.args[:2]]
        if called(call) == "cross_entropy" and len(sides) == 2:
            starts = ["start" in side and "end" not in side for side in sides]
            ends = [re.search(r"(?<![a-z])ends?(?![a-z])", side.replace("_", " ")) is not None for side in sides]
            if (starts[0] and ends[1] and not starts[1]) or (ends[0] and starts[1] and not starts[0]):
                yield unparse(call), call


_PADDED = re.compile(r"\bpad\([^()]*(\([^()]*\)[^()]*)*, \((1, 0|0, 1)\)")


def edges_at_one_side(tree: ast.AST) -> Found:
    """Where runs of ones are found by the differences of what is padded at one side, and begin and end are both asked
    for: a run that touches the other side has no edge there."""
    for function in functions(tree):
        text = unparse(function)
        if not (re.search(r"\w\[1:\] - \w+\[:-1\]|\bdiff\(", text) and "== 1" in text and "== -1" in text):
            continue
        for _, to, given in all_given(function):
            if _PADDED.search(unparse(given)):
                yield f"{unparse(to)} = {unparse(given)}", given


TWICE = Slip(
    rule=neighbours_taken_twice,
    asked="which neighbours are merged into one",
    expected="all four, each once",
    got="one of them twice, and one never",
    sentence="Of four neighbours that are merged one is taken twice, and another one never.",
    mend="x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]",
    nothing="no neighbours were seen that are taken twice",
)
SHIFTED_TWICE = Slip(
    rule=shifted_twice,
    asked="how a picture that was shifted is shifted back",
    expected="by the same number, the other way",
    got="the same way once more",
    sentence="A picture is shifted twice the same way: what comes out of the windows is added at other places.",
    mend="torch.roll(x, shifts=(shift, shift), dims=(1, 2))",
    nothing="no picture was seen that is shifted twice the same way",
)
MASKS_IN_ANOTHER_ORDER = Slip(
    rule=masks_in_another_order,
    asked="in which order a mask is repeated for rows that are folded into the batch",
    expected="as the rows are folded",
    got="as a whole, one channel after the other",
    sentence="Rows are folded sample by sample, and their mask is repeated as a whole: rows get the mask of other "
    "samples.",
    mend="mask.repeat_interleave(channels, 0)",
    nothing="no mask was seen that is repeated in another order than its rows are folded",
)
REGROUPED = Slip(
    rule=regrouped_in_another_order,
    asked="in which order flat answers are grouped again",
    expected="as they were flattened",
    got="with the axes exchanged",
    sentence="Rows are flattened as (a, b), and their answers are grouped as (b, a): they are given to others.",
    mend="answers.view(a, b)",
    nothing="no answers were seen that are regrouped in another order",
)
BEHIND = Slip(
    rule=starts_behind_ends,
    asked="which pairs of a start and an end may be the best",
    expected="those whose end does not stand before their start",
    got="all that are not too long, those too that end before they begin",
    sentence="Of pairs of a start and an end only those are left out that are too long: an end may stand before its "
    "start.",
    mend="allowed.triu().tril(longest - 1)",
    nothing="no pairs were seen that may end before they begin",
)
SIDES_EXCHANGED = Slip(
    rule=sides_exchanged,
    asked="with which labels the scores of starts and of ends are compared",
    expected="with those of their own side",
    got="with those of the other side",
    sentence="The scores of one side of a span are compared with the labels of the other side.",
    mend="cross_entropy(end_logits, end_positions)",
    nothing="no scores of a side were seen that are compared with the other side",
)
ONE_SIDE = Slip(
    rule=edges_at_one_side,
    asked="where runs that touch the edge of a row begin and end",
    expected="there",
    got="nowhere at the side that is not padded",
    sentence="Runs are found by differences of what is padded at one side: a run that lasts to the other side has no "
    "edge there, and gets lost.",
    mend="F.pad(x, (1, 1))",
    nothing="no runs were seen whose edges are looked for at one side",
)
