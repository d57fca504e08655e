"""What a script's text says of formulas that have one form: noise that is mixed in, guidance, draws from a Gaussian,
chances, and logarithms of a scale."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import Source
from conformance.watch.stated import sources

DEEP = 5
"""So many names are followed to what binds them."""
_NOISE = re.compile(r"^(noise|eps|epsilon)$|(^|\.)(randn|randn_like|normal|standard_normal)$")
_SHAPES = re.compile(r"^(view|reshape|unsqueeze|to|float|expand|expand_as|type_as|gather|repeat)$")
_PICKS = re.compile(r"^_?(extract|gather|pick|index|take|expand_dims|append_dims|right_pad|broadcast)\w*$")


class Mixed(NamedTuple):
    """Noise is mixed in with a share that does not keep the variance. root, plain: the two shares, as written."""

    root: str
    plain: str
    place: str


def mixtures(run: Any) -> Iterator[Mixed | None]:
    """Where noise is added to something, both with shares that have to do with each other; None where they fit."""
    for source in sources(run):
        for node in source.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                for noisy, other in ((node.left, node.right), (node.right, node.left)):
                    for noise, share in _pairs(noisy) if not _has_noise(source, other) else ():
                        if is_noise(source, noise):
                            yield from _mixed(source, share, _factors(other))


def _has_noise(source: Source, term: ast.expr) -> bool:
    return any(is_noise(source, one) for one in _factors(term))


def _mixed(source: Source, share: ast.expr, signals: list[ast.expr]) -> Iterator[Mixed | None]:
    """What the share of noise is beside the factors of what it is added to."""
    share = _bare(source, share)
    inner = _under_root(share)
    rest = _rest(source, inner or share)
    for signal in signals:
        root = _under_root(_bare(source, signal))
        if root is not None and rest and rest == ast.unparse(_bare(source, root)):
            yield None if inner is not None else Mixed(ast.unparse(signal), ast.unparse(share), source.place(share))


def is_noise(source: Source, node: ast.expr) -> bool:
    """Whether these are numbers of a Gaussian, by their name or by the call that draws them."""
    drawn = bound(source, node)
    return any(
        _NOISE.search(ast.unparse(one.func if isinstance(one, ast.Call) else one)) is not None for one in (node, drawn)
    )


def bound(source: Source, node: ast.expr) -> ast.expr:
    """What a name stands for, as far as one assignment alone binds it."""
    for _ in range(DEEP):
        found = _bindings(source, node)
        if len(found) != 1:
            return node
        node = found[0]
    return node


def _bindings(source: Source, node: ast.expr) -> list[ast.expr]:
    """What is bound to a name in its function, or to an attribute in the file."""
    places: list[Any]
    if isinstance(node, ast.Name):
        places = source.inside(source.function(node))
    elif isinstance(node, ast.Attribute):
        places = source.nodes
    else:
        return []
    text, found = ast.unparse(node), []
    for one in places:
        if isinstance(one, ast.Assign):
            for target in one.targets:
                pairs = [(target, one.value)]
                if isinstance(target, ast.Tuple) and isinstance(one.value, ast.Tuple):
                    pairs = [*zip(target.elts, one.value.elts, strict=False)]
                found += [value for name, value in pairs if ast.unparse(name) == text]
        elif isinstance(one, ast.Call) and ast.unparse(one.func).endswith(".register_buffer") and len(one.args) > 1:
            found += [one.args[1]] if getattr(one.args[0], "value", "") == getattr(node, "attr", None) else []
    return found


def _bare(source: Source, node: ast.expr) -> ast.expr:
    """A number without the axes that it is given, and without the names that it goes by."""
    for _ in range(2 * DEEP):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _SHAPES.match(node.func.attr):
            node = node.func.value
        elif isinstance(node, ast.Call) and node.args and _PICKS.match(ast.unparse(node.func).rpartition(".")[2]):
            node = node.args[0]
        else:
            further = bound(source, node)
            if further is node or not isinstance(
                further, (ast.BinOp, ast.Name, ast.Attribute, ast.Subscript, ast.Call)
            ):
                return node
            if isinstance(further, ast.Call) and not _is_followed(further):
                return node
            node = further
    return node


def _is_followed(call: ast.Call) -> bool:
    """Whether a call takes a root, or only picks and shapes."""
    name = ast.unparse(call.func).rpartition(".")[2]
    return name == "sqrt" or _SHAPES.match(name) is not None or _PICKS.match(name) is not None


def _under_root(node: ast.expr) -> ast.expr | None:
    """What the square root is taken of; None where none is."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sqrt":
        return node.args[0] if node.args else node.func.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and getattr(node.right, "value", 0) == 0.5:
        return node.left
    return None


def _rest(source: Source, node: ast.expr) -> str:
    """What is taken from 1; "" where this is no such difference."""
    node = _bare(source, node)
    is_rest = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and getattr(node.left, "value", 0) == 1
    return ast.unparse(_bare(source, node.right)) if is_rest else ""  # type: ignore[attr-defined]


class Guided(NamedTuple):
    """Where guidance leads. away: from which answer, to: to which one. is_right: whether that has the condition."""

    away: str
    to: str
    is_right: bool
    place: str


_WITHOUT = re.compile(r"un_?cond|null|empty|(^|_)u(nc)?$|no_?(cond|label|text)", re.IGNORECASE)
_WITH = re.compile(r"(^|_)(c|cond\w*|text|pos\w*|class|labels?)$", re.IGNORECASE)


def guidance(run: Any) -> Iterator[Guided]:
    """Where two answers are extrapolated, of which one is named as that without a condition: u + w (c - u), or
    (1 + w) c - w u."""
    for source in sources(run):
        for node in source.nodes:
            found = _extrapolated(node)
            if found is None:
                continue
            away, to = found
            ways = _is_without(away), _is_without(to)
            if set(ways) == {True, False}:
                yield Guided(ast.unparse(away), ast.unparse(to), ways[0] is True, source.place(node))


def _is_without(answer: ast.expr) -> bool | None:
    """Whether an answer is that without a condition, by its name; None where that says nothing."""
    if not isinstance(answer, (ast.Name, ast.Attribute)):
        return None
    name = answer.id if isinstance(answer, ast.Name) else answer.attr
    return True if _WITHOUT.search(name) else False if _WITH.search(name) else None


def _extrapolated(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """From which answer to which a sum goes."""
    if not isinstance(node, ast.BinOp):
        return None
    if isinstance(node.op, ast.Add):
        for base, product in ((node.left, node.right), (node.right, node.left)):
            for difference in _factors(product):
                is_difference = isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub)
                sides = [difference.right, difference.left] if is_difference else []  # type: ignore[attr-defined]
                if ast.unparse(base) in map(ast.unparse, sides):
                    return sides[0], sides[1]
    if isinstance(node.op, ast.Sub):
        for weight, one in _pairs(node.left):
            for less, other in _pairs(node.right):
                if isinstance(weight, ast.BinOp) and isinstance(weight.op, ast.Add):
                    sum_of = {ast.unparse(weight.left), ast.unparse(weight.right)}
                    if sum_of == {"1", ast.unparse(less)} or sum_of == {"1.0", ast.unparse(less)}:
                        return other, one
    return None


def _factors(node: ast.expr) -> list[ast.expr]:
    return [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else []


def _pairs(node: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    found = _factors(node)
    return [(found[0], found[1]), (found[1], found[0])] if found else []


class Drawn(NamedTuple):
    """A draw from a Gaussian whose deviation is a variance. log: the logarithm of it, as written."""

    log: str
    place: str


_LOG_VARIANCE = re.compile(r"(^|\.|_)(log_?var(iance)?s?|ln_?var)(_|$)", re.IGNORECASE)


def draws(run: Any) -> Iterator[Drawn | None]:
    """Where noise is multiplied by the exponential of a logarithm of the variance; None where half of it is taken."""
    for source in sources(run):
        variances = {*_variances(source)}
        for node in source.nodes:
            for noise, factor in _pairs(node) if isinstance(node, ast.BinOp) else ():
                if not is_noise(source, noise):
                    continue
                deviation = bound(source, factor)
                log = _under_exponential(deviation)
                if log is not None and ast.unparse(log) in variances:
                    yield Drawn(ast.unparse(log), source.place(deviation))
                elif log is not None and any(ast.unparse(one) in variances for one in ast.walk(log)):
                    yield None


def _variances(source: Source) -> Iterator[str]:
    """What a divergence from the standard Gaussian takes for the logarithm of a variance: 1 + l - m^2 - exp(l)."""
    for node in source.nodes:
        log = log_of_divergence(node)
        if log:
            yield log


def log_of_divergence(node: ast.AST) -> str:
    """The logarithm of the variance in 1 + l - m^2 - exp(l); "" in what is no such sum."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub)):
        return ""
    terms = [*_terms(node, 1)]
    added = [ast.unparse(one) for sign, one in terms if sign > 0]
    taken = [one for sign, one in terms if sign < 0]
    logs = [ast.unparse(one) for one in map(_under_exponential, taken) if one is not None]
    log = next((one for one in logs if one in added and _LOG_VARIANCE.search(one)), "")
    return log if len(added) == 2 and len(taken) == 2 and {"1", "1.0"} & {*added} else ""


def _terms(node: ast.expr, sign: int) -> Iterator[tuple[int, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
    else:
        yield sign, node


def _under_exponential(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "exp":
        return node.args[0] if node.args else node.func.value
    return None


class Chance(NamedTuple):
    """What is named as the chance of a change is the chance that nothing changes. chance: its name."""

    chance: str
    place: str


_OF_CHANGE = re.compile(r"drop|uncond|mask|corrupt|noise|replace|flip", re.IGNORECASE)
_OF_NONE = re.compile(r"keep|kept|stay|retain", re.IGNORECASE)
_CHANGED = re.compile(r"null|uncond|mask|unk|empty|num_classes|n_classes|drop", re.IGNORECASE)
_UNIFORM = re.compile(r"(^|\.)(rand|rand_like|random)$")


def chances(run: Any) -> Iterator[Chance | None]:
    """Where values are replaced by one that stands for none, at places where random numbers are below, or above, a
    number with a telling name; None where its name is right."""
    for source in sources(run):
        for value, where in _replaced(source):
            test = bound(source, where)
            found = _compared(test)
            if found is None or not _CHANGED.search(ast.unparse(value)):
                continue
            chance, is_below = found
            says = [bool(one.search(chance)) for one in (_OF_CHANGE, _OF_NONE)]
            if says == [not is_below, is_below]:
                yield Chance(chance, source.place(test))
            elif any(says):
                yield None


def _replaced(source: Source) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is put where: `x[where] = value`, `x.masked_fill(where, value)`."""
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield node.value, node.targets[0].slice
        elif isinstance(node, ast.Call) and re.search(r"\.masked_fill_?$", ast.unparse(node.func)) and node.args[1:]:
            yield node.args[1], node.args[0]


def _compared(test: ast.expr) -> tuple[str, bool] | None:
    """The name that random numbers are compared with, and whether those below it are meant."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    less = isinstance(test.ops[0], (ast.Lt, ast.LtE))
    if not less and not isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        return None
    for drawn, other, is_below in ((left, right, less), (right, left, not less)):
        is_drawn = isinstance(drawn, ast.Call) and _UNIFORM.search(ast.unparse(drawn.func))
        if is_drawn and isinstance(other, (ast.Name, ast.Attribute)):
            return ast.unparse(other).rpartition(".")[2], is_below
    return None


class Logarithm(NamedTuple):
    """A parameter begins as the logarithm of a scale, and nothing takes its exponential. name: of it. place: where it
    is read; begun: where it begins."""

    name: str
    place: str
    begun: str


_SCALE = re.compile(r"scale|temp", re.IGNORECASE)
_UNDOES = re.compile(r"(^|\.)(exp|exp2|expm1|pow|softplus|sigmoid)$")


def logarithms(run: Any) -> Iterator[Logarithm | None]:
    """Where a scale is learned as its logarithm; None where a line of the scripts undoes one."""
    files = sources(run)
    undone = [ast.unparse(one) for source in files for one in source.nodes if _undoes(source, one)]
    is_undone = any(_SCALE.search(text) for text in undone)
    for source in files:
        for name, begun in _begun_as_logarithms(source):
            reads = [n for n in source.nodes if isinstance(n, ast.Attribute) and n.attr == name]
            read = next((n for n in reads if isinstance(n.ctx, ast.Load) and not _is_watched(source, n)), None)
            if is_undone:
                yield None
            elif read is not None:
                yield Logarithm(name, source.place(read), source.place(begun))


def _undoes(source: Source, node: ast.AST) -> bool:
    """Whether this may undo a logarithm, and is more than a number that is shown."""
    if isinstance(node, ast.Call) and _UNDOES.search(ast.unparse(node.func)):
        return getattr(source.around.get(node), "attr", "") != "item"
    power = source.around.get(node)
    return isinstance(power, ast.BinOp) and isinstance(power.op, ast.Pow) and power.right is node


def _begun_as_logarithms(source: Source) -> Iterator[tuple[str, ast.Assign]]:
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            calls = [one for one in ast.walk(node.value) if isinstance(one, ast.Call)]
            names = [ast.unparse(one.func).rpartition(".")[2] for one in calls]
            if "Parameter" in names and "log" in names and _SCALE.search(node.targets[0].attr):
                yield node.targets[0].attr, node


def _is_watched(source: Source, node: ast.AST) -> bool:
    """Whether a number is only shown, clipped where it is kept, or given to an optimizer."""
    statement = source.statement(node)
    text = ast.unparse(statement).splitlines()[0]
    return re.search(r"print\(|log\w*\(|\.data\b|clamp_|\.item\(|optim|no_grad|^return self\.\w+$", text) is not None
