"""Slips of steps in time, that the text of a file shows by itself: returns that end with a window, a return that is
asked for and counted down from its beginning, the newest of a history that is filled up in front, the future that is
read from its beginning in each round, windows that overlap and are counted whole, positions that are stretched, rows
that keep their oldest steps, the past in the place of the future, and windows that are divided by their number."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import Found, Slip, all_given, assigned, called, calls, functions, reads, unparse, walk

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


# --- stretches and windows ------------------------------------------------------------------------


def read_from_the_beginning(tree: ast.AST) -> Found:
    """Where a loop goes on by steps, never reads where it is, and takes the first step's stretch of something in each
    round, which it does not shorten."""
    for loop in (one for one in walk(tree) if isinstance(one, ast.For)):
        steps = loop.iter.args[2:] if isinstance(loop.iter, ast.Call) and called(loop.iter) == "range" else []
        if not steps or not isinstance(loop.target, ast.Name) or any(reads(one, loop.target.id) for one in loop.body):
            continue
        step = unparse(steps[0])
        inner = [one for statement in loop.body for one in walk(statement)]
        written = {unparse(to) for one in inner for to, _ in assigned(one)}
        for node in (one for one in inner if isinstance(one, ast.Subscript) and unparse(one.value) not in written):
            cuts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            firsts = (one for one in cuts if isinstance(one, ast.Slice) and one.lower is None and one.upper is not None)
            if any(unparse(one.upper) == step for one in firsts if one.upper is not None):
                yield f"{unparse(loop.iter)}: {unparse(node)}", node


_REACHED = re.compile(r"(prev(ious)?|last|scored|seen|done|old)\w*|\w+_(end|to|until)", re.IGNORECASE)


def overlaps_counted_again(tree: ast.AST) -> Found:
    """Where a loop over windows that overlap keeps how far it came, and reads it nowhere: all of each window counts."""
    for function in functions(tree):
        loops = [one for one in walk(function) if isinstance(one, ast.For) and "stride" in unparse(one.iter)]
        for loop in loops:
            kept = [(to, node) for node in walk(loop) for to, _ in assigned(node) if isinstance(to, ast.Name)]
            for to, node in kept:
                before = any(one.id == to.id for one in _names_before(function, loop))
                if _REACHED.fullmatch(to.id) and before and not reads(function, to.id):
                    yield unparse(node), node


def _names_before(function: ast.AST, loop: ast.For) -> list[ast.Name]:
    """The names that are given something before a loop."""
    stored = (one for one in walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    return [one for one in stored if one.lineno < loop.lineno]


# --- positions ------------------------------------------------------------------------------------

_PLACES = re.compile(r"(t|pos(ition)?(_?ids)?s?|steps|seq)(\.(float|to|type_as)\([^()]*\))*|torch\.arange\(.*\)")
_FACTOR = re.compile(r"((self|cfg|config|args)\.)?(\w+_)?(factor|scaling_factor|scale_factor)")


def positions_stretched(tree: ast.AST) -> Found:
    """Where the positions of a rotation are multiplied by the factor by which a text may be longer."""
    text = unparse(tree)
    for function in functions(tree):
        own = unparse(function)
        if not re.search(r"\bcos\b", own) or not re.search(r"\bsin\b", own):
            continue
        for node in walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _PLACES.fullmatch(unparse(node.left)):
                factor = unparse(node.right)
                name = factor.rpartition(".")[2]
                if _FACTOR.fullmatch(factor) and not re.search(rf"\b{name}\b[^\n=]*= [^\n]*/", text):
                    yield unparse(node), node


# --- past and future ------------------------------------------------------------------------------


def oldest_kept(tree: ast.AST) -> Found:
    """Where the last of a row is asked for, and of what stands before it the first steps are kept."""
    for function in functions(tree):
        own = [one for one in walk(function) if isinstance(one, ast.Subscript)]
        lasts = {unparse(one.value) for one in own if unparse(one.slice) == "-1"}
        for node in own:
            inner = node.value
            cuts = isinstance(node.slice, ast.Slice) and node.slice.lower is None and node.slice.upper is not None
            if not cuts or not isinstance(inner, ast.Subscript) or unparse(inner.slice) != ":-1":
                continue
            if unparse(inner.value) in lasts and not unparse(node.slice).startswith(":-"):
                yield unparse(node), node


_PAST = re.compile(r"past|hist(ory)?|context|ctx|lookback", re.IGNORECASE)
_AHEAD = re.compile(r"(future|ahead|upcoming|known)(_\w+)?", re.IGNORECASE)


def past_for_the_future(tree: ast.AST) -> Found:
    """Where what is called the future is taken at the places of the past, in a function that knows those of both."""
    for function in functions(tree):
        names = {one.id for one in walk(function) if isinstance(one, ast.Name)}
        if not any(map(_PAST.fullmatch, names)) or not any(map(_AHEAD.fullmatch, names)):
            continue
        pairs = [(unparse(to), given) for _, to, given in all_given(function)]
        for node in (one for one in walk(function) if isinstance(one, ast.Dict)):
            pairs += [
                (str(k.value), v) for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)
            ]
        for name, given in pairs:
            cuts = [one.slice for one in walk(given) if isinstance(one, ast.Subscript)]
            places = [one.id for one in cuts if isinstance(one, ast.Name)]  # of a slice that has a name
            if _AHEAD.fullmatch(name) and places and all(map(_PAST.fullmatch, places)):
                yield f"{name}: {unparse(given)}", given


_WEIGHTS = re.compile(r"weight|ramp|window|hann|taper|kernel|triang|gauss|blend|fade", re.IGNORECASE)


def joined_by_plain_counts(tree: ast.AST) -> Found:
    """Where windows are added up with weights, and their sum is divided by how many there were."""
    for function in functions(tree):
        sums = [one for one in walk(function) if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add)]
        sums = [one for one in sums if isinstance(one.target, ast.Subscript) and ":" in unparse(one.target)]
        for one in sums:
            counts = isinstance(one.value, ast.Constant) and one.value.value in (1, 1.0)
            for other in sums if counts else ():
                alike = unparse(other.target).partition("[")[2] == unparse(one.target).partition("[")[2]
                weights = isinstance(other.value, ast.BinOp) and isinstance(other.value.op, ast.Mult)
                if alike and weights and other is not one and _WEIGHTS.search(unparse(other.value)):
                    yield f"{unparse(other)}; {unparse(one)}", one


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
FROM_THE_BEGINNING = Slip(
    rule=read_from_the_beginning,
    asked="what each round of a loop over stretches reads",
    expected="its own stretch",
    got="the first one, each time",
    sentence="A loop goes on by stretches and reads the first one in each round: what is known of the later ones is "
    "never used.",
    mend="x[:, start : start + step]",
    nothing="no loop over stretches was seen that reads the first one each time",
)
COUNTED_AGAIN = Slip(
    rule=overlaps_counted_again,
    asked="which tokens of overlapping windows are counted",
    expected="those behind where the window before ended",
    got="how far the loop came is kept, and never read",
    sentence="Windows overlap, how far the last one came is kept and never read: tokens are counted in every window "
    "that holds them, those with little before them, too.",
    mend="fresh = end - previous_end",
    nothing="no overlapping windows were seen that are counted whole",
)
STRETCHED = Slip(
    rule=positions_stretched,
    asked="what a factor of length does to the positions of a rotation",
    expected="it divides them",
    got="it multiplies them",
    sentence="Positions are multiplied by the factor by which texts may be longer: their angles leave what was learnt "
    "sooner and not later.",
    mend="positions / factor",
    nothing="no positions were seen that a factor of length stretches",
)
OLDEST_KEPT = Slip(
    rule=oldest_kept,
    asked="which steps are kept of what stands before the one that is asked for",
    expected="the last ones",
    got="the first ones",
    sentence="Of a long row the first steps are kept, though the last one is asked for: those right before it are "
    "thrown away.",
    mend="row[:-1][-n:]",
    nothing="no row was seen of which the oldest steps are kept",
)
PAST_FOR_FUTURE = Slip(
    rule=past_for_the_future,
    asked="where what is known of the future is taken",
    expected="at the places of the future",
    got="at those of the past",
    sentence="What is called the future is taken at the places of the past: the model is told of other times than "
    "those that it forecasts.",
    mend="x[future]",
    nothing="no future was seen that is taken at the places of the past",
)
PLAIN_COUNTS = Slip(
    rule=joined_by_plain_counts,
    asked="by what the sum of weighted windows is divided",
    expected="by the sum of their weights",
    got="by how many there are",
    sentence="Windows are added up with weights and divided by their number: where weights are small, what is joined "
    "is too small.",
    mend="add the weights up in the place of ones",
    nothing="no weighted windows were seen that are divided by their number",
)
