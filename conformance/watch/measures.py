"""What a script's text says of its measures: whether hits are counted where labels count, whether all batches of an
evaluation go into them, and whether mixed rows and mixed labels have the same shares."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from conformance.watch.events import Loss
from conformance.watch.lines import FUNCTIONS, Source, source_of
from conformance.watch.stated import sources
from conformance.watch.watcher import speaks_of_evaluation


class Hits(NamedTuple):
    """Hits that are counted at other places than those by whose number they are divided. hits, number: as they are
    written. place: where the hits are counted, or the places where these are wrong."""

    hits: str
    number: str
    place: str


_ALL = re.compile(r"numel\(|\.size\(|\.shape\b|nelement\(")
_MASKS = re.compile(r"mask|active|real|valid|counted|scored|keep|pad", re.IGNORECASE)
_BARE = ("item", "sum", "float", "double", "long", "int", "cpu", "detach", "reshape", "view", "flatten", "contiguous")


def hits_elsewhere(run: Any) -> list[Hits]:
    """Hits that are divided by a number that is not that of the places where they were counted."""
    ignoring = {found for one in run.of(Loss) if one.unasked and one.stack for found in _labels(one)}
    functions = {code: _defined(code) for code, _ in ignoring}
    found: list[Hits] = []
    for source in sources(run):
        for function in (source.tree, *(n for n in source.nodes if isinstance(n, FUNCTIONS[:2]))):
            left_out = {name for code, name in ignoring if functions[code] is function and name}
            found += _hits(source, function, left_out)
    return found


def _defined(code: Any) -> Any:
    source = source_of(code.co_filename)
    known = source.defined(code) if source else None
    return source.tree if source is not None and known is None and code.co_name == "<module>" else known


def _labels(loss: Any) -> Iterator[tuple[Any, str]]:
    """The names of the labels that a loss was given: in the function that calls it, and in those that hand them on."""
    name = ""
    for depth, at in enumerate(loss.stack):
        call = at.call()
        if call is None:
            return
        named = [one.value for one in call.keywords if one.arg in (name, *(("target", "labels") if not depth else ()))]
        given = [*named, *(call.args[1:2] if not depth else _handed(loss.stack[depth - 1].code, call, name))]
        name = _root(given[0]) if given else ""
        if not name:
            return
        yield at.code, name


def _handed(code: Any, call: ast.Call, name: str) -> list[ast.expr]:
    """What a call gives the parameter of some code that has a name."""
    names = [*code.co_varnames[: code.co_argcount]]
    if name not in names or any(isinstance(one, ast.Starred) for one in call.args):
        return []
    at = names.index(name) - (names[0] == "self" and isinstance(call.func, ast.Attribute))
    return call.args[at : at + 1] if at >= 0 else []


def _root(node: ast.expr) -> str:
    """What an expression is of, without what only shapes it: `tgt.reshape(-1)` is of `tgt`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _BARE:
        node = node.func.value
    return ast.unparse(node)


def _hits(source: Source, function: Any, left_out: set[str]) -> Iterator[Hits]:
    inside = source.inside(function)
    added = {ast.unparse(n.target): n for n in inside if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)}
    for one in inside:
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div):
            hits, number = (added.get(ast.unparse(side)) for side in (one.left, one.right))
            if hits is not None and number is not None:
                yield from _compared(source, inside, (hits, hits.value), (number, number.value), left_out)
            elif hits is None and number is None:
                left, right = ((_binding(inside, side) or one, side) for side in (one.left, one.right))
                yield from _compared(source, inside, left, right, left_out)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "mean":
            sides = _sides(_bare(one.func.value, inside))
            roots = {*map(_root, sides)} if sides and not one.args else set()
            cut = {labels for n in inside if (labels := _left_out(n)) in roots}
            if roots & left_out or cut:
                yield Hits(ast.unparse(one.func.value), "the number of all places", source.place(one))


Counted = tuple[ast.AST, ast.expr]
"""Where something is counted, and what."""


def _compared(source: Source, inside: list[Any], hits: Counted, number: Counted, left_out: set[str]) -> Iterator[Hits]:
    """What is wrong with hits and the number that they are divided by."""
    what, by = _bare(hits[1], inside), _bare(number[1], inside)
    sides, texts = _sides(what), (ast.unparse(hits[1]), ast.unparse(number[1]))
    is_all = _ALL.search(_text(number[1], inside)) is not None and not isinstance(by, ast.Compare)
    if sides is not None:
        cuts = {ast.unparse(one.slice) if isinstance(one, ast.Subscript) else "" for one in sides}
        if len(cuts) == 1 and re.fullmatch(r"[a-z_]\w*", cut := min(cuts)) and re.search(r"\.sum\(\)", texts[1]):
            known = {cut, *map(ast.unparse, values_of(inside, cut))}
            if not any(text in _text(number[1], inside) for text in known):
                yield Hits(*texts, source.place(number[0]))
        if is_all and left_out & {*map(_root, sides)}:
            yield Hits(*texts, source.place(number[0]))
        counted = _unequal(by)
        if counted is not None and counted[1] < 0 and _is_other(sides, counted[0], inside):
            yield Hits(*texts, source.place(hits[0]))
    elif is_all and isinstance(what, ast.BinOp) and isinstance(what.op, (ast.BitAnd, ast.Mult)):
        both = [_bare(what.left, inside), _bare(what.right, inside)]
        names = [ast.unparse(one) for one in (what.left, what.right)]
        pairs = [_sides(one) for one in both]
        masked = [
            _unequal(one) is not None or _MASKS.search(name) is not None for one, name in zip(both, names, strict=True)
        ]
        if (pairs[0] and masked[1]) or (pairs[1] and masked[0]):
            yield Hits(*texts, source.place(number[0]))


def _left_out(node: Any) -> str:
    """The labels of `labels != -100`."""
    found = _unequal(node) if isinstance(node, (ast.Compare, ast.Call)) else None
    return found[0] if found is not None and found[1] < 0 else ""


def _is_other(sides: tuple[ast.expr, ast.expr], labels: str, inside: list[Any]) -> bool:
    """Whether neither side of a comparison is of the labels, or was cut to their places."""
    texts = [_text(one, inside) for one in sides]
    is_cut = any(isinstance(one, ast.Subscript) and not isinstance(one.slice, ast.Constant) for one in sides)
    wanted = re.compile(rf"(?<!\w){re.escape(labels)}(?!\w)|where|masked")
    return not is_cut and not any(map(wanted.search, texts))


def _bare(node: ast.expr, inside: list[Any], deep: int = 4) -> ast.expr:
    """What a number is counted of: without `.sum().item()`, and what a name is bound to."""
    while deep:
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if isinstance(node.func, ast.Attribute) and name in _BARE and ast.unparse(node.func.value) != "torch":
                node = node.func.value
            elif name in ("sum", "int", "float") and len(node.args) == 1:
                node = node.args[0]
            else:
                return node
        elif isinstance(node, ast.Name):
            values = values_of(inside, node.id)
            if len(values) != 1:
                return node
            node, deep = values[0], deep - 1
        else:
            return node
    return node


def values_of(inside: list[Any], name: str) -> list[ast.expr]:
    """What the assignments of a function bind to a name, alone or among others."""
    return [value for one in inside if isinstance(one, ast.Assign) for bound, value in pairs_in(one) if bound == name]


def _binding(inside: list[Any], node: ast.expr) -> ast.Assign | None:
    """The assignment that binds a name, where it is the only one."""
    name = getattr(node, "id", "")
    found = [n for n in inside if isinstance(n, ast.Assign) and any(bound == name for bound, _ in pairs_in(n))]
    return found[0] if name and len(found) == 1 else None


def pairs_in(statement: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment binds, alone or as one of several, and what to."""
    for target in statement.targets:
        if isinstance(target, ast.Name):
            yield target.id, statement.value
        elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            for part, value in zip(target.elts, statement.value.elts, strict=False):
                yield getattr(part, "id", ""), value


def _text(node: ast.expr, inside: list[Any]) -> str:
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return " ".join([ast.unparse(node), *(ast.unparse(one) for name in names for one in values_of(inside, name))])


def _sides(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Predictions and labels that are compared: `predicted == labels`, `predicted.eq(labels)`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        sides = node.left, node.comparators[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "eq" and node.args:
        sides = node.func.value, node.args[0]
    else:
        return None
    return None if any(isinstance(one, ast.Constant) for one in sides) else sides


def _unequal(node: ast.expr) -> tuple[str, int] | None:
    """The labels and the number of `labels != -100`; a number that has a name counts as 0."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.NotEq, ast.Gt, ast.GtE)):
        left, right = node.left, node.comparators[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "ne" and node.args:
        left, right = node.func.value, node.args[0]
    else:
        return None
    try:
        value = ast.literal_eval(right)
    except ValueError:
        value = 0
    return (_root(left), value) if isinstance(value, int) else None


class Last(NamedTuple):
    """A measure that each batch of an evaluation binds anew, so that it is of the last batch alone."""

    name: str
    place: str


_MEASURE = re.compile(r"loss|acc(?!el)|ppl|perplex|nll|score|f1|bleu|correct", re.IGNORECASE)
LATE = 10**9
_EXAMPLES = re.compile(r"last|example|sample|first|prev", re.IGNORECASE)


def of_the_last_batch(run: Any) -> list[Last]:
    """The measures of evaluations that are of their last batch alone."""
    return [found for source in sources(run) for node in source.nodes for found in _last(source, node)]


def _last(source: Source, loop: ast.AST) -> Iterator[Last]:
    if not isinstance(loop, ast.For) or _is_left(loop) or loop.orelse:
        return
    function = source.function(loop)
    name = getattr(function, "name", "")
    text = ast.unparse(function)
    if not speaks_of_evaluation(name) or "backward(" in text or "(" not in ast.unparse(loop):
        return
    inside, end = source.inside(function), loop.end_lineno or 0
    uses = [n for n in inside if isinstance(n, ast.Name)]
    around = {n for n in source.outward(loop) if isinstance(n, (ast.For, ast.While))}
    for statement in _always(loop.body):
        for bound in (n for target in statement.targets for n in _names(target)):
            mine = [n for n in uses if n.id == bound.id]
            reads = [n for n in mine if isinstance(n.ctx, ast.Load)]
            stores = [n for n in mine if not isinstance(n.ctx, ast.Load)]
            others = [n for n in stores if loop.lineno <= n.lineno <= end and n is not bound]
            anew = min((n.lineno for n in stores if n.lineno > end), default=LATE)
            after = [n for n in reads if end < n.lineno <= anew]
            begun_anew = bool(others) and _is_empty(statement.value) and _only_adds(source, loop, others)
            if begun_anew and after and len(after) == len([n for n in reads if loop.lineno <= n.lineno <= anew]):
                yield Last(bound.id, source.place(statement))
                continue
            if others or not after or len(after) < len([n for n in reads if loop.lineno <= n.lineno <= anew]):
                continue
            before = any(n.lineno < loop.lineno for n in stores)
            begun = before and any(map(_is_empty, values_of(inside, bound.id)))
            is_kept = any(isinstance(one, ast.Return) for n in after for one in source.outward(n))
            is_measure = bool(_MEASURE.search(bound.id)) and is_kept and not around
            if (begun or is_measure) and not _EXAMPLES.search(bound.id):
                yield Last(bound.id, source.place(statement))


def _only_adds(source: Source, loop: ast.For, stores: Sequence[ast.Name]) -> bool:
    """Whether names are stored by adding to them, and in no loop within a loop."""
    for name in stores:
        inner = next((n for n in source.outward(name) if isinstance(n, (ast.For, ast.While))), None)
        if not isinstance(source.around[name], ast.AugAssign) or inner is not loop:
            return False
    return True


def _is_left(loop: ast.For) -> bool:
    """Whether a loop may be left before its end, or goes over few things that it names itself."""
    is_short = isinstance(loop.iter, (ast.Tuple, ast.List))
    return is_short or any(isinstance(n, (ast.Break, ast.Return, ast.Yield)) for n in ast.walk(loop))


def _always(body: Sequence[ast.stmt]) -> Iterator[ast.Assign]:
    """The assignments of a block that run each time."""
    for one in body:
        if isinstance(one, ast.Assign):
            yield one
        elif isinstance(one, ast.With):
            yield from _always(one.body)


def _names(target: ast.expr) -> Iterator[ast.Name]:
    for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
        if isinstance(one, ast.Name):
            yield one


def _is_empty(value: ast.expr) -> bool:
    """Whether a value is what one begins to add to: 0, an empty list, zeros."""
    if isinstance(value, ast.Constant):
        return value.value in (0, 0.0) and value.value is not False
    if isinstance(value, (ast.List, ast.Dict)):
        return not (value.elts if isinstance(value, ast.List) else value.keys)
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("zeros")


_RATIO = re.compile(
    r"(^|_)(f1|f_?beta|fscore|precision|recall|auc|auroc|bleu|rouge|mcc|kappa|spearman|pearson|r2)(_|$)", re.I
)
_MEANS = re.compile(r"(^|\.)(mean|average|fmean)$")


def means_of_ratios(run: Any) -> list[Last]:
    """The measures that are no mean over rows, as F1, and are worked out for each batch and then averaged."""
    return [found for source in sources(run) for node in source.nodes for found in _means_of_ratios(source, node)]


def _means_of_ratios(source: Source, loop: ast.AST) -> Iterator[Last]:
    if not isinstance(loop, ast.For) or not re.search(r"loader|batch|dl\b|iter", ast.unparse(loop.iter), re.IGNORECASE):
        return
    inside = source.inside(source.function(loop))
    for node in (one for statement in loop.body for one in ast.walk(statement)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append" and len(node.args) == 1:
            value, name = node.args[0], ast.unparse(node.func.value)  # type: ignore[attr-defined]
            is_averaged = any(_is_mean_of(one, name) for one in inside)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            value, name = node.value, ast.unparse(node.target)
            is_averaged = any(_is_share_of_batches(one, name) for one in inside)
        else:
            continue
        ratio = next((said for one in ast.walk(value) if (said := _ratio_of(one))), "")
        if ratio and is_averaged:
            yield Last(ratio, source.place(node))


def _ratio_of(node: ast.AST) -> str:
    """What an expression asks for by name that is no mean over rows: `f1_score(...)`, `report(...)["macro_f1"]`."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and isinstance(node.slice, ast.Constant):
        name = str(node.slice.value)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
        name = node.attr
    else:
        return ""
    return name if _RATIO.search(name) else ""


def _is_share_of_batches(node: ast.AST, name: str) -> bool:
    """`total / len(loader)`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or ast.unparse(node.left) != name:
        return False
    return re.fullmatch(r"len\(\w*(loader|dl|batches)\)|(n|num)_batches", ast.unparse(node.right)) is not None


def _is_mean_of(node: ast.AST, name: str) -> bool:
    """`np.mean(values)`, `sum(values) / len(values)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return (ast.unparse(node.left), ast.unparse(node.right)) == (f"sum({name})", f"len({name})")
    is_mean = isinstance(node, ast.Call) and _MEANS.search(ast.unparse(node.func)) is not None
    return is_mean and any(ast.unparse(one) == name for one in node.args)  # type: ignore[attr-defined]


class Mixture(NamedTuple):
    """Two rows, or their labels, that are mixed wrongly. what: as it is written. wrong: "alike" where both sides are
    the same, "exchanged" where the shares are those of the other side, "apart" where the labels are of other rows,
    "unmixed" where these are handed back as they came, "overwritten" where the other row is read when it is scaled."""

    what: str
    wrong: str
    place: str


_ORDERS = r"randperm|permutation|shuffle"


def mixtures(run: Any) -> list[Mixture]:
    """The mixtures that are not of rows and of their own labels in the same shares."""
    found = [found for source in sources(run) for found in _mixtures(source)]
    return [*found, *(one for source in sources(run) for one in _overwritten(source))]


def _mixtures(source: Source) -> Iterator[Mixture]:
    for function in (source.tree, *(n for n in source.nodes if isinstance(n, FUNCTIONS[:2]))):
        others, given = _given_by_others(source, function)
        inside = [*others, *given, *source.inside(function)]
        found = [(one, *sides) for one in inside for sides in _shares(one)]
        orders = [_permuted(inside, mine, other) for _, _, mine, other in found]
        for (one, share, mine, other), order in zip(found, orders, strict=True):
            is_sure = any(order_ for (_, its, *_), order_ in zip(found, orders, strict=True) if its == share)
            bound = {name: (ast.unparse(value), back) for made, back in given.items() for name, value in pairs_in(made)}
            sides = [ast.unparse(side) for side in (mine, other)]
            backs = [back for name, (_, back) in bound.items() if re.search(rf"\b{name}\b", sides[0])]
            if len({_in_words_of(bound, side) for side in sides}) == 1:
                if is_sure:
                    place = one if sides[0] == sides[1] else backs[0]
                    yield Mixture(ast.unparse(one), "alike", source.place(place))
            elif order:
                earlier = [
                    before for (_, its, *_), before in zip(found, orders, strict=True) if its == share and before
                ]
                if earlier[0] != order:
                    names = {n.id for side in (mine, other) for n in ast.walk(side) if isinstance(n, ast.Name)}
                    made = [back for bound, back in given.items() if names & {name for name, _ in pairs_in(bound)}]
                    yield Mixture(ast.unparse(one), "exchanged", source.place(made[0] if made else one))
        if isinstance(function, FUNCTIONS[:2]) and len(found) == 1 and not given:
            yield from _drawn_apart(source, inside, *found[0])
            yield from _unmixed(source, function, inside, *found[0])


def _in_words_of(bound: dict[str, tuple[str, ast.AST]], text: str) -> str:
    """An expression with the names that other functions gave, as these functions write them."""
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda name: bound[name[0]][0] if name[0] in bound else name[0], text)


def _given_by_others(source: Source, function: ast.AST) -> tuple[list[ast.AST], dict[ast.Assign, ast.AST]]:
    """The nodes of the functions of a file whose several results a function binds; and its names bound to what these
    return, with the place where they do."""
    functions = {n.name: n for n in source.nodes if isinstance(n, FUNCTIONS[:2])}
    nodes, given = list[ast.AST](), dict[ast.Assign, ast.AST]()
    for one in source.inside(function):
        called = functions.get(getattr(getattr(getattr(one, "value", None), "func", None), "id", ""))
        if called is None or called is function or not isinstance(one, ast.Assign):
            continue
        its = source.inside(called)
        backs = [n for n in its if isinstance(n, ast.Return)]
        if len(backs) == 1 and isinstance(backs[0].value, ast.Tuple) and isinstance(one.targets[0], ast.Tuple):
            nodes += its
            given[ast.Assign(targets=one.targets, value=backs[0].value)] = backs[0]
    return nodes, given


def _drawn_apart(
    source: Source, inside: list[Any], one: ast.AST, _: str, mine: ast.expr, other: ast.expr
) -> Iterator[Mixture]:
    """Where rows are mixed with those of one random order, and something else is taken in another one."""
    drawn = {name for n in inside if isinstance(n, ast.Assign) for name, value in pairs_in(n)
             if re.search(_ORDERS, ast.unparse(value))}  # fmt: skip
    inner = {id(n) for n in ast.walk(one)}
    taken = [n for n in inside if isinstance(n, ast.Subscript) and id(n) not in inner]
    elsewhere = {n.slice.id for n in taken if isinstance(n.slice, ast.Name)} & drawn
    here = {ast.unparse(n.slice) for side in (mine, other) for n in ast.walk(side) if isinstance(n, ast.Subscript)}
    is_drawn = any(here_ in drawn or re.search(_ORDERS, here_) for here_ in here)
    if is_drawn and elsewhere and not here & elsewhere:
        yield Mixture(ast.unparse(one), "apart", source.place(one))


def _overwritten(source: Source) -> Iterator[Mixture]:
    """Where rows are scaled in place before the others are read from them: `x.mul_(share).add_(x[order])`, or
    `x *= share` and then `x += rest * x[order]`."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_":
            inner = node.func.value
            is_scaled = isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "mul_"
            name = ast.unparse(inner.func.value) if is_scaled else ""  # type: ignore[attr-defined]
            if name and any(_reads_rows(given, name) for given in node.args):
                yield Mixture(ast.unparse(node), "overwritten", source.place(node))
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult):
            name, inside = ast.unparse(node.target), source.inside(source.function(node))
            later = [n for n in inside if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)]
            adds = [n for n in later if n.lineno > node.lineno and ast.unparse(n.target) == name]
            if any(_reads_rows(n.value, name) for n in adds):
                yield Mixture(ast.unparse(node), "overwritten", source.place(node))


def _reads_rows(value: ast.expr, name: str) -> bool:
    """Whether an expression reads rows of what has a name, in an order that has one: `x[order]`."""
    found = (n for n in ast.walk(value) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Name))
    return any(ast.unparse(n.value) == name for n in found)


def means_over_masked(run: Any) -> Iterator[tuple[str, str]]:
    """The means over what was filled with zeros where a mask says so, in code of a loss: what is written, and where."""
    for source in sources(run):
        for node in source.nodes:
            filled = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            if filled is None or node.func.attr != "mean" or node.args or node.keywords:  # type: ignore[attr-defined]
                continue
            is_masked = isinstance(filled, ast.Call) and getattr(filled.func, "attr", "") == "masked_fill"
            if is_masked and len(filled.args) == 2 and ast.unparse(filled.args[1]) in ("0", "0.0"):  # type: ignore[attr-defined]
                around = source.owner(node) or source.function(node)
                if re.search(r"loss|nll|log_softmax|cross_entropy|criterion", ast.unparse(around)):
                    yield ast.unparse(node), source.place(node)


def short_zips(run: Any) -> Iterator[tuple[str, str]]:
    """The comparisons of two sequences that end with the shorter one, `all(a == b for a, b in zip(x, y))`, where no
    length is compared beside them: what is written, and where."""
    for source in sources(run):
        for node in source.nodes:
            made = (
                node.args[0] if isinstance(node, ast.Call) and ast.unparse(node.func) == "all" and node.args else None
            )
            if not isinstance(made, ast.GeneratorExp) or not isinstance(made.elt, ast.Compare):
                continue
            loop = made.generators[0]
            call = loop.iter if isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "zip" else None
            pair = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            sides = {ast.unparse(made.elt.left), *map(ast.unparse, made.elt.comparators)}
            compares = isinstance(made.elt.ops[0], ast.Eq) and sides == pair and len(pair) == 2
            if call is None or call.keywords or len(call.args) != 2 or not compares:
                continue
            text = ast.unparse(source.statement(node))
            said = [ast.unparse(one) for one in call.args]
            if "len(" not in text and any(_OF_ANSWERS.search(one) for one in said):
                yield ast.unparse(node), source.place(node)


_OF_ANSWERS = re.compile(
    r"pred|guess|answer|hyp|gen(erated)?|out|decoded|resp|gold|ref|target|label|truth", re.IGNORECASE
)


def _unmixed(
    source: Source, function: Any, inside: list[Any], one: ast.AST, share: str, mine: ast.expr, other: ast.expr
) -> Iterator[Mixture]:
    """Where a function mixes rows by a drawn share with those of a random order, and hands their labels back as it got
    them: neither the share nor the order leaves it."""
    takes = {argument.arg for argument in function.args.args}
    backs = [n.value for n in inside if isinstance(n, ast.Return) and n.value is not None]
    given = {n.id for back in backs for n in ast.walk(back) if isinstance(n, ast.Name)}
    changed = {bound for n in inside if isinstance(n, ast.Assign) for bound, _ in pairs_in(n)}
    mixed = {n.id for side in (mine, other) for n in ast.walk(side) if isinstance(n, ast.Name)}
    orders = {n.slice.id for side in (mine, other) for n in ast.walk(side)
              if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Name)}  # fmt: skip
    drawn = " ".join(ast.unparse(value) for value in values_of(inside, share))
    is_drawn = re.search(r"beta|rand|uniform", drawn, re.IGNORECASE) and len(orders) == 1
    uses = [n for n in inside if isinstance(n, ast.Name) and n.id in orders and isinstance(n.ctx, ast.Load)]
    plain = (takes & given) - changed - mixed - {share}
    if is_drawn and len(uses) == 1 and plain and len(backs) == 1 and not given & ({share} | orders):
        yield Mixture(ast.unparse(one), "unmixed", source.place(backs[0]))


def _shares(node: Any) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """The share of `share * a + (1 - share) * b`, with a and b."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
        return
    sides = [one for side in (node.left, node.right) for one in _factors(side)]
    for share, mine in sides:
        for rest, other in sides:
            is_rest = ast.unparse(rest) in (f"1 - {ast.unparse(share)}", f"1.0 - {ast.unparse(share)}")
            if is_rest and _side(node.left, mine) is not _side(node.left, other):
                yield ast.unparse(share), mine, other


def _side(left: ast.expr, part: ast.expr) -> bool:
    return any(one is part for one in ast.walk(left))


def _factors(side: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult):
        yield side.left, side.right
        yield side.right, side.left


def _alone(node: ast.expr, other: ast.expr, inside: list[Any]) -> str:
    """The text of one side of a mixture, and of what the names are bound to that the other side has not."""
    mine, its = ({n.id for n in ast.walk(one) if isinstance(n, ast.Name)} for one in (node, other))
    values = (one for name in sorted(mine - its) for one in values_of(inside, name))
    return " ".join([ast.unparse(node), *map(ast.unparse, values)])


def _permuted(inside: list[Any], mine: ast.expr, other: ast.expr) -> str:
    """Which side of a mixture is the rows in another order: "first" or "second"; "" where that is not clear."""
    pairs = (pair for n in inside if isinstance(n, ast.Assign) for pair in pairs_in(n))
    orders = {name for name, value in pairs if re.search(_ORDERS, ast.unparse(value))} - {""}
    texts = [_alone(mine, other, inside), _alone(other, mine, inside)]
    said = [any(re.search(rf"\[{order}[\],]", text) for order in orders) for text in texts]
    return "" if said[0] is said[1] else "first" if said[0] else "second"
