"""What a script's text says of its choices: which measure keeps the best weights, and which way round; which lists are
shuffled; which rates are computed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.events import Snapshot, Step
from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.parts import names_judging, names_training
from conformance.watch.stated import sources

_BEST = re.compile(r"(^|[._'\"\[])(best|lowest|highest)(_|\b|\w)", re.IGNORECASE)
_KEEPS = re.compile(r"\bsave\w*\(|(?<!load_)state_dict\(|deepcopy\(")
_HIGHER = re.compile(
    r"(^|[._'\"])(\w+_)?(acc|accuracy|f1|bleu|rouge\w*|auc|auroc|recall|precision)\d?(_|\b)", re.IGNORECASE
)
_TURNED = re.compile(r"neg|minus|inv|delta|diff|drop|gain|improve|reduc", re.IGNORECASE)
_LOWER = re.compile(r"loss|ppl|perplexity|err|nll|(^|[._'\"])(mse|mae|rmse|wer|cer|bpc)(_|\b)", re.IGNORECASE)


class Choice(NamedTuple):
    """A measure that is compared with the best one so far, where something is kept if it is better. best: as it is
    written. measure: its text, and that of what binds it where its own name says nothing. lower: whether the lower one
    is kept. is_bound: whether the best one is bound again where it can be seen; is_here: in this test. place: of the
    comparison; bound: of what binds the measure; made: of the lines of the call that it is the result of. other: what
    the best one is set to where that is another measure, and other_at: where."""

    best: str
    measure: str
    lower: bool
    is_bound: bool
    is_here: bool
    place: str
    bound: str
    made: frozenset[str]
    other: str = ""
    other_at: str = ""


def choices(run: Any) -> list[Choice]:
    """Where the scripts of a run keep weights because a measure is the best so far."""
    return [found for source in sources(run) for found in choices_in(source)]


def choices_in(source: Source) -> Iterator[Choice]:
    """The same in one file."""
    for node in source.nodes:
        if not isinstance(node, ast.If):
            continue
        for test in node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]:
            sides = _sides(test)
            if sides is None:
                continue
            measure, best, lower = sides
            branches = [[*node.body], [*node.orelse]]
            here = next((at for at, branch in enumerate(branches) if _binds(branch, best)), None)
            if here is None and not _says(branches[0], _KEEPS):
                continue
            text, bound = _said(source, node, measure)
            is_bound = here is not None or _is_bound(source, node, best)
            is_lower = lower is (here in (0, None))
            about = (is_lower, is_bound, here is not None, source.place(node), bound, _made(source, node, measure))
            other = _other(branches[here or 0], best, measure)
            of_it = (ast.unparse(other), source.place(other)) if other is not None else ()
            yield Choice(ast.unparse(best), text, *about, *of_it)


def _other(body: list[ast.stmt], best: ast.expr, measure: ast.expr) -> ast.expr | None:
    """What the best one is set to where it is not the measure that was compared: another one of the same collection,
    the least or largest of all in it, or that of training in the place of one that judges."""
    text = ast.unparse(measure)
    around = ast.unparse(measure.value) if isinstance(measure, ast.Subscript) else ""
    for one in (n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Assign)):
        value = one.value
        if ast.unparse(best) not in map(ast.unparse, one.targets) or text in ast.unparse(value):
            continue
        is_next = isinstance(value, ast.Subscript) and ast.unparse(value.value) == around
        is_call = isinstance(value, ast.Call) and ast.unparse(value.func) in ("min", "max")
        is_of_all = is_call and bool(around) and around in ast.unparse(value)
        is_of_training = names_judging(text) and names_training(getattr(value, "id", ""))
        if is_next or is_of_all or is_of_training:
            return value
    return None


def _sides(test: ast.expr) -> tuple[ast.expr, ast.expr, bool] | None:
    """The measure and the best one of a comparison, and whether it asks for the lower one; None for another test."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    sides = [_without_margin(test.left), _without_margin(test.comparators[0])]
    named = [isinstance(one, _NAMES) and _is_best(ast.unparse(one)) for one in sides]
    less, more = isinstance(test.ops[0], (ast.Lt, ast.LtE)), isinstance(test.ops[0], (ast.Gt, ast.GtE))
    if sum(named) != 1 or not (less or more) or not isinstance(sides[named.index(False)], _NAMES):
        return None
    return sides[named.index(False)], sides[named.index(True)], less is named[1]


_FIXED = re.compile(r"thresh|limit|baseline|known|required", re.IGNORECASE)


def _is_best(text: str) -> bool:
    """Whether a name says the best so far, and no number that is given."""
    return _BEST.search(text) is not None and _FIXED.search(text) is None


_NAMES = (ast.Name, ast.Attribute, ast.Subscript)


def _without_margin(node: ast.expr) -> ast.expr:
    """A measure without what is added to it, taken from it or multiplied: best - 1e-4."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        node = node.left
    return node


def _binds(body: list[ast.stmt], name: ast.expr) -> bool:
    text = ast.unparse(name)
    return any(ast.unparse(one) == text for statement in body for one in _bound_in(statement))


def _bound_in(statement: ast.AST) -> Iterator[ast.expr]:
    """What a statement and those inside it bind, one by one."""
    for node in ast.walk(statement):
        context = getattr(node, "ctx", None)
        if isinstance(node, _NAMES) and isinstance(context, ast.Store):
            yield node


def _says(body: list[ast.stmt], wanted: re.Pattern[str]) -> bool:
    return any(wanted.search(ast.unparse(one)) for one in body)


def _is_bound(source: Source, test: ast.If, best: ast.expr) -> bool:
    """Whether the best measure is bound where that may be after a comparison: a name in the loop around it, an
    attribute outside of the function that makes the object."""
    if isinstance(best, ast.Name):
        around = source.function(test)
        loops = [
            n for n in source.outward(test) if isinstance(n, (ast.For, ast.While)) and source.function(n) is around
        ]
        if not loops:
            return True  # it is made elsewhere, and may be given back
        return any(getattr(one, "id", "") == best.id for one in _bound_in(loops[-1]))
    if isinstance(best, ast.Attribute):
        bound = [n for n in source.nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
        named = [one for one in bound if one.attr == best.attr]
        is_set = any(isinstance(n, ast.Name) and n.id == "setattr" for n in source.nodes)
        return is_set or any(getattr(source.function(one), "name", "") != "__init__" for one in named) or not named
    return True


def _loops(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """The loops around a node in its function, innermost first."""
    around = source.function(node)
    return (n for n in source.outward(node) if isinstance(n, (ast.For, ast.While)) and source.function(n) is around)


def _said(source: Source, node: ast.AST, measure: ast.expr) -> tuple[str, str]:
    """What a measure is called; where its name says nothing, what binds it in its function, and the place of that."""
    text = ast.unparse(measure)
    if not isinstance(measure, ast.Name) or _HIGHER.search(text) or _LOWER.search(text):
        return text, ""
    inside = source.inside(source.function(node))
    bound = [n for n in inside if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == text]
    if len(bound) != 1 or not isinstance(bound[0].value, _NAMES):
        return text, ""
    return ast.unparse(bound[0].value), source.place(bound[0])


def _made(source: Source, node: ast.AST, measure: ast.expr) -> frozenset[str]:
    """The lines of the last call before a comparison, in its function, that gives a measure alone or among others."""
    name = getattr(measure, "id", "")
    inside = source.inside(source.function(node))
    bound = [n for n in inside if isinstance(n, ast.Assign) and any(_part_of(t, name) for t in n.targets)]
    before = [n for n in bound if n.lineno < getattr(node, "lineno", 0)][-1:]
    if not name or not before or not isinstance(before[0].value, ast.Call):
        return frozenset()
    file = source.place(node).rpartition(":")[0]
    return frozenset(f"{file}:{line}" for line in range(before[0].lineno, (before[0].end_lineno or 0) + 1))


def _part_of(target: ast.expr, name: str) -> bool:
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return any(getattr(one, "id", "") == name for one in parts)


def wrong_way(choice: Choice) -> str:
    """ "higher" or "lower" where that is better for a measure by its name, and the other is kept; else empty."""
    higher, lower = (wanted.search(choice.measure) is not None for wanted in (_HIGHER, _LOWER))
    if higher is lower or _TURNED.search(choice.measure) or (choice.is_bound and not choice.is_here):
        return ""
    return "higher" if higher and choice.lower else "lower" if lower and not choice.lower else ""


class ByTraining(NamedTuple):
    """Weights are kept by a loss of training, though a measure of other data is beside it. loss, judged: their names.
    is_last: whether it is that of the last batch alone. place: of the comparison."""

    loss: str
    judged: str
    is_last: bool
    place: str


_MEASURED = re.compile(r"loss|acc|ppl|perplex|nll|score|f1|bleu|metric|err", re.IGNORECASE)


def by_training(run: Any) -> list[ByTraining]:
    """`if loss.item() < best`, where an inner loop calls `loss.backward()` and the outer one measures `val_loss`; or
    `if train_loss < best`."""
    return [found for source in sources(run) for node in source.nodes for found in _by_training(source, node)]


def _by_training(source: Source, node: ast.AST) -> Iterator[ByTraining]:
    test = node.test if isinstance(node, ast.If) and _says(node.body, _KEEPS) else None
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        test = test.values[-1]  # best is None or loss < best
    loop = next(_loops(source, node), None) if isinstance(test, ast.Compare) else None
    if loop is None or not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return
    sides = [test.left, test.comparators[0]]
    best = [one for one in sides if isinstance(one, _NAMES) and _is_best(ast.unparse(one))]
    names = [name for one in sides if one not in best and (name := _number_of(one))]
    if len(best) != 1 or len(names) != 1 or names_training(ast.unparse(best[0])):
        return
    bound = [n for n in source.inside(source.function(node)) if _is_bound_to(n, names[0])]
    inner = [one for n in bound for one in [next(_loops(source, n), None)]]
    if not bound or len({*map(id, inner)}) != 1 or inner[0] is None:
        return
    is_whole = inner[0] is loop and names_training(names[0]) and _MEASURED.search(names[0]) is not None
    is_last = inner[0] is not loop and loop in source.outward(inner[0]) and _learns(inner[0], names[0])
    if not is_whole and not is_last:
        return
    judged = [one.id for one in _bound_in(loop) if isinstance(one, ast.Name) and _judges(one.id)]
    others = [n for n in ast.walk(loop) if isinstance(n, (ast.If, ast.Call)) and n is not node]
    chosen = [ast.unparse(n.test) for n in others if isinstance(n, ast.If)]
    chosen += [
        ast.unparse(n) for n in others if isinstance(n, ast.Call) and getattr(n.func, "id", "") in ("min", "max")
    ]
    if judged and not any(name in text for name in judged for text in chosen):
        yield ByTraining(names[0], judged[0], is_last, source.place(node))


def _judges(name: str) -> bool:
    return names_judging(name) and _MEASURED.search(name) is not None


def _number_of(node: ast.expr) -> str:
    """The name of `loss` or `loss.item()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        node = node.func.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_bound_to(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _learns(loop: ast.AST, name: str) -> bool:
    """Whether a loop goes backward from what has a name."""
    return re.search(rf"(?<!\w){re.escape(name)}\b[^\n]*backward\(", ast.unparse(loop)) is not None


_NO_MODEL = re.compile(r"opt|sched|scaler", re.IGNORECASE)


def may_keep_more(run: Any) -> bool:
    """Whether a line that has not run asks another thing than optimizers and schedules for its state."""

    passed = {at.place for event in run.of(Snapshot) for at in event.stack}
    calls = [(source, n) for source in sources(run) for n in source.nodes if isinstance(n, ast.Attribute)]
    asked = [
        (source, n) for source, n in calls if n.attr == "state_dict" and not _NO_MODEL.search(ast.unparse(n.value))
    ]
    return any(source.place(node) not in passed for source, node in asked)


class Apart(NamedTuple):
    """Two lists that belong together, of which one alone is shuffled."""

    shuffled: str
    other: str
    place: str


_LABELS = re.compile(r"(\w+_)?(labels?|targets?|tags?|ys?|classes|golds?|answers|tgts?)(_\w+)?")


_OTHERWISE = re.compile(
    r"neg|rand|shuf|perm|wrong|fake|distract|colou?r|marker|style|name|order|idx|ind(ex|ices)|keys|seed"
)
_TOGETHER = ("zip", "TensorDataset", "torch.utils.data.TensorDataset")


def torn_pairs(run: Any) -> list[Apart]:
    """Lists that are shuffled in place without the labels that they are zipped with afterwards."""
    return [found for source in sources(run) for node in source.nodes for found in _torn(source, node)]


def _torn(source: Source, node: ast.AST) -> Iterator[Apart]:
    """What a shuffle tears apart: both lists were made before it, and they are put together after it."""
    name = _shuffled(node)
    if not name or _OTHERWISE.search(name.lower()):  # a false order is what is wanted, or it is only for a picture
        return
    inside = source.inside(source.function(node))
    line = getattr(node, "lineno", 0)
    for call in inside:
        if not (
            isinstance(call, ast.Call) and ast.unparse(call.func) in ("zip", "TensorDataset") and call.lineno > line
        ):
            continue
        given = [ast.unparse(one) for one in call.args if isinstance(one, ast.Name)]
        others = [one for one in given if one != name and _LABELS.fullmatch(one.lower())]
        if name not in given or len(call.args) != 2 or not others or _LABELS.fullmatch(name.lower()):
            continue
        own = [*_binding_lines(inside, name)]
        its = [*_binding_lines(inside, others[0])]
        is_alone = not any(_shuffled(one) == others[0] for one in inside)
        if own and its and is_alone and max(*own, *its) < line:
            yield Apart(name, others[0], source.place(node))


def _shuffled(node: ast.AST) -> str:
    """The name of the list that a call shuffles in place."""
    is_shuffle = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "shuffle"
    given = node.args if is_shuffle and isinstance(node, ast.Call) else []
    return given[0].id if len(given) == 1 and isinstance(given[0], ast.Name) else ""


def _binding_lines(inside: list[Any], name: str) -> Iterator[int]:
    return (n.lineno for n in inside if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store))


_RATE = re.compile(r"(^|_)(lr|learning_?rate)(_|$)", re.IGNORECASE)
_SHOWS = re.compile(r"print|log|write|append|set_description|set_postfix|add_scalar|format|info|update$")


class Unused(NamedTuple):
    """A rate that is computed in a loop that steps, and only shown. steps: the places of the loop's steps."""

    name: str
    place: str
    steps: frozenset[str]


def unused_rates(run: Any) -> list[Unused]:
    """The rates that a function of the script's computes in a loop that steps, and that are only shown."""

    stepping = frozenset(at.place for step in run.of(Step) for at in step.stack)
    return [found for source in sources(run) for node in source.nodes for found in _unused(source, node, stepping)]


def _unused(source: Source, node: ast.AST, stepping: frozenset[str]) -> Iterator[Unused]:
    call = node.value if isinstance(node, ast.Assign) else None
    if not isinstance(node, ast.Assign) or not isinstance(call, ast.Call) or not isinstance(node.targets[0], ast.Name):
        return
    name, called = node.targets[0].id, getattr(call.func, "id", "")
    function = next((n for n in source.nodes if isinstance(n, FUNCTIONS[:2]) and n.name == called), None)
    if function is None or not (_RATE.search(called) or _RATE.search(name)):
        return
    if re.search("param_groups|optim", ast.unparse(call) + ast.unparse(function)):
        return
    loops = [*_loops(source, node)]
    calls = (one for one in source.nodes if isinstance(one, ast.Call) and source.place(one) in stepping)
    inside = frozenset(source.place(one) for one in calls if loops and loops[0] in source.outward(one))
    around = source.function(node)
    reads = [n for n in ast.walk(around) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    if inside and reads and all(_is_shown(source, one) for one in reads):
        yield Unused(name, source.place(node), inside)


def _is_shown(source: Source, node: ast.AST) -> bool:
    """Whether a value is read for the reader only: printed, logged, collected."""
    for around in source.outward(node):
        if isinstance(around, ast.JoinedStr):
            return True
        if isinstance(around, ast.Call):
            return _SHOWS.search(ast.unparse(around.func)) is not None
        if isinstance(around, ast.stmt):
            return False
    return False


_SEEDS = ("manual_seed", "default_rng", "RandomState")


class Seeded(NamedTuple):
    """A generator gets a seed in a loop that steps, though not from what the loop counts. lines: of the loop."""

    place: str
    lines: frozenset[str]


def seeded_in_loops(run: Any) -> list[Seeded]:
    """Where generators get the same seed in each turn of a loop that steps."""

    stepping = {at.place for step in run.of(Step) for at in step.stack}
    found = []
    for source in sources(run):
        steps = [n for n in source.nodes if isinstance(n, ast.Call) and source.place(n) in stepping]
        for node in source.nodes:
            if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in _SEEDS:
                continue
            loops = [*_loops(source, node)]
            counted = {getattr(one, "id", "") for loop in loops for one in _bound_in(loop)}
            named = {getattr(one, "id", "") for given in node.args for one in ast.walk(given)} - {""}
            if loops and not named & counted and any(loops[0] in source.outward(one) for one in steps):
                file = source.place(node).rpartition(":")[0]
                numbers = range(getattr(loops[0], "lineno", 0), (getattr(loops[0], "end_lineno", 0) or 0) + 1)
                found.append(Seeded(source.place(node), frozenset(f"{file}:{number}" for number in numbers)))
    return found


_COSINE = re.compile(r"1(\.0*)? \+ (\w+\.)*cos\(")
_TURNS = re.compile(r"\bpi\b|\btau\b|3\.14|radians|deg2rad", re.IGNORECASE)
_PLANS = re.compile(r"lr|rate|sched|cosine|anneal|decay|warm|factor|coeff|lambda", re.IGNORECASE)


def cosines_without_pi(run: Any) -> list[str]:
    """Where a schedule takes half a cosine wave of a share of its steps, and nothing says pi."""
    found = []
    for source in sources(run):
        for node in source.nodes:
            if not isinstance(node, (ast.Return, ast.Assign)) or not _COSINE.search(ast.unparse(node)):
                continue
            function = source.function(node)
            if _PLANS.search(getattr(function, "name", "")) and not _turns(source, function):
                found.append(source.place(node))
    return found


def _turns(source: Source, function: ast.AST) -> bool:
    """Whether a function, or what binds a name in it, says pi."""
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    outside = [
        n for n in source.nodes if isinstance(n, ast.Assign) and {getattr(t, "id", "") for t in n.targets} & names
    ]
    return any(_TURNS.search(ast.unparse(one)) for one in (function, *outside))
