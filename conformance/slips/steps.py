"""Slips of steps in time, that the text of a file shows by itself: returns that end with a window, a return that is
asked for and counted down from its beginning, and the newest of a history that is filled up in front."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import Found, Slip, assigned, called, calls, functions, unparse, walk

# --- returns --------------------------------------------------------------------------------------

_TO_GO = re.compile(
    r"\w*(rewards?|returns?)_?to_?go\w*|rtgs?|(compute_)?discount(ed)?_?(cum_?sum|returns?|rewards?)", re.IGNORECASE
)
_REWARDS = re.compile(r"rewards?\b|rews?\b", re.IGNORECASE)


def returns_of_a_window(tree: ast.AST) -> Found:
    """Where returns to go are summed over a window of rewards that ends before the episode does."""
    for node in calls(tree):
        if not _TO_GO.fullmatch(called(node)):
            continue
        for given in node.args:
            cut = given.slice if isinstance(given, ast.Subscript) else None
            ends = isinstance(cut, ast.Slice) and cut.upper is not None and cut.lower is not None
            if ends and _REWARDS.search(unparse(given)):
                yield unparse(node), node


def returns_from_the_beginning(tree: ast.AST) -> Found:
    """Where, step by step, the return that is still wanted is the first one less a reward, and is put behind the
    others: what was got in between is wanted again."""
    for loop in (one for one in walk(tree) if isinstance(one, ast.For | ast.While)):
        for node in walk(loop):
            for to, given in assigned(node):
                if called(given) not in ("cat", "concat", "concatenate", "append") or unparse(to) not in unparse(given):
                    continue
                for less in (one for one in walk(given) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)):
                    first = re.fullmatch(re.escape(unparse(to)) + r"\[(:, )?(:1|0)\]", unparse(less.left))
                    if first and _REWARDS.search(unparse(less.right)):
                        yield unparse(less), node


# --- the newest of a history ----------------------------------------------------------------------

_IN_FRONT = re.compile(r"(\w+_)?(pad(ded)?_(left|front)|left_pad(ded)?|front_pad(ded)?)(_\w+)?", re.IGNORECASE)
_COUNT = re.compile(r"\(?\w+ != (\w+\.)*(pad\w*|0)\)?\.(long\(\)\.|int\(\)\.)?sum\((dim=|axis=)?(-1|1)\) - 1", re.I)


def newest_by_a_count(tree: ast.AST) -> Found:
    """Where a file fills histories up in front, and reads the state at the number of real entries less one: that is the
    newest of one that is filled up behind."""
    if not any(_IN_FRONT.fullmatch(one.name) for one in functions(tree)) or "flip(" in unparse(tree):
        return
    for node in walk(tree):
        for _, given in assigned(node):
            if _COUNT.fullmatch(unparse(given)):
                yield unparse(node), node


WINDOWED = Slip(
    rule=returns_of_a_window,
    asked="the rewards that a return to go sums",
    expected="all to the end of the episode",
    got="those of a window",
    sentence="Returns to go end with the window: they depend on where it ends, and are not what is asked for later.",
    mend="sum to the end of the episode, then cut: returns_to_go(rewards)[start:stop]",
    nothing="no return to go was seen that ends with a window",
)
COUNTED_DOWN = Slip(
    rule=returns_from_the_beginning,
    asked="the return that is still wanted",
    expected="the last one less the reward",
    got="the first one less the reward",
    sentence="The return that is wanted is counted down from its beginning: rewards before the last one are forgotten.",
    mend="returns[-1:] - reward",
    nothing="no wanted return was seen that is counted down from its beginning",
)
NEWEST_PLACE = Slip(
    rule=newest_by_a_count,
    asked="the place of the newest entry of a history that is filled up in front",
    expected="the last one",
    got="the number of real entries less one",
    sentence="Histories are filled up in front, and the newest entry is looked for at their number: it is the last.",
    mend="states[:, -1]",
    nothing="no history was seen that is filled up in front and read by its number",
)
