"""What a script's text says of measures over several batches: whether each batch weighs as much as the next, however
many rows it has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.events import Batch, Forward
from conformance.watch.lines import Source
from conformance.watch.measures import values_of
from conformance.watch.stated import sources
from conformance.watch.watcher import speaks_of_evaluation


class Averaged(NamedTuple):
    """A mean of the means of batches. name: as it is added up. is_loss: whether a loss's own mean is, of which scripts
    often show no more than this. place: where it is added up."""

    name: str
    is_loss: bool
    place: str


_QUIET = re.compile(r"no_grad|inference_mode")
_MEAN = re.compile(r"\.mean\(\s*\)")
_MEASURED = re.compile(r"==|\.eq\(|\.abs\(|\.pow\(2|\*\* 2|argmax")
_LOSS = re.compile(r"(^|_|\.)(loss|nll)\w*\.item\(\)$")


def sizes(run: Any) -> set[int]:
    """How many rows the calls of evaluations had, where no batch had more than the first one."""
    found: dict[int, list[int]] = {}
    for call in run.of(Forward):
        if call.samples and not call.gradients and (not call.training or call.evaluating):
            found.setdefault(call.module, []).append(len(call.samples))
    return {size for rows in found.values() if max(rows) == rows[0] for size in rows}


def means_of_means(run: Any) -> list[Averaged]:
    """The measures of evaluations that are means of the means of their batches, the surest first."""
    found = [one for source in sources(run) for one in _means(source)]
    return sorted(found, key=lambda one: one.is_loss)


def _means(source: Source) -> Iterator[Averaged]:
    for loop in (n for n in source.nodes if isinstance(n, ast.For)):
        if not _judges(source, loop) or "backward(" in ast.unparse(loop):
            continue
        inside = source.inside(source.function(loop))
        for one in ast.walk(loop):
            name, value = _added(one)
            if value is None or isinstance(value, ast.Tuple):
                continue
            text = _said(value, inside)
            is_measure = _MEAN.search(text) is not None and _MEASURED.search(text) is not None
            is_loss = _LOSS.search(ast.unparse(value)) is not None
            if (is_measure or is_loss) and not _weighs(value) and _is_divided(name, inside, loop):
                yield Averaged(name, not is_measure, source.place(one))


class Counted(NamedTuple):
    """Hits of rows that are divided by the number of batches. name: as they are added up; by: the number;
    size: how many rows a batch has; place: of the division."""

    name: str
    by: str
    size: int
    place: str


_HITS = re.compile(r".*(==|\.eq\().*\.sum\(\)(\.item\(\))?")


def hits_by_batches(run: Any) -> list[Counted]:
    """The hits of evaluations over a loader of several rows a batch that are divided by `len(loader)`."""
    rows: dict[str, int] = {}
    for batch in run.of(Batch):
        rows[batch.place] = max(rows.get(batch.place, 0), batch.size)
    return [
        one
        for source in sources(run)
        for loop in source.nodes
        if isinstance(loop, ast.For) and rows.get(source.place(loop), 0) > 1
        for one in _by_batches(source, loop, rows[source.place(loop)])
    ]


def _by_batches(source: Source, loop: ast.For, size: int) -> Iterator[Counted]:
    inside, end = source.inside(source.function(loop)), loop.end_lineno or 0
    loaders = {f"len({ast.unparse(n)})" for n in ast.walk(loop.iter) if isinstance(n, (ast.Name, ast.Attribute))}
    added = [_added(one) for one in ast.walk(loop) if isinstance(one, ast.AugAssign)]
    hits = {name for name, value in added if value is not None and _HITS.fullmatch(_plain(value, inside))}
    for one in inside:
        is_after = isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) and one.lineno > end
        if (
            is_after
            and ast.unparse(one.left) in hits
            and ast.unparse(one.right) in loaders
            and not _is_dividend(source.around[one])
        ):
            yield Counted(ast.unparse(one.left), ast.unparse(one.right), size, source.place(one))


def full_batches(run: Any) -> list[Counted]:
    """The hits of evaluations that are divided by a number to which each batch adds the size of a full one."""
    seen = sizes(run)
    return [
        Counted(hits, number, max(seen), source.place(adding))
        for source in sources(run)
        for loop in source.nodes
        if len(seen) > 1 and isinstance(loop, ast.For) and _judges(source, loop)
        for hits, number, adding in _by_full_batches(source, loop)
    ]


_FULL = re.compile(r"(\w+\.)*(\w*batch_?size|bs|batch|b)", re.IGNORECASE)


def _by_full_batches(source: Source, loop: ast.For) -> Iterator[tuple[str, str, ast.AST]]:
    inside = source.inside(source.function(loop))
    adding = {ast.unparse(n.target): n for n in ast.walk(loop) if isinstance(n, ast.AugAssign)}
    for one in (n for n in inside if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)):
        hits, number = adding.get(ast.unparse(one.left)), adding.get(ast.unparse(one.right))
        if hits is None or number is None or not isinstance(number.value, (ast.Name, ast.Attribute)):
            continue
        size = ast.unparse(number.value)
        if _FULL.fullmatch(size) and not values_of(inside, size) and _HITS.fullmatch(_plain(hits.value, inside)):
            yield ast.unparse(one.left), f"{ast.unparse(one.right)}, to which each batch adds {size}", number


def means_of_roots(run: Any) -> list[Averaged]:
    """Errors that are called after a root (RMSE) and are a mean of the roots of the batches."""
    return [one for source in sources(run) for one in _roots(source)]


_OF_ROOT = re.compile(r"rmse|root_?mean", re.IGNORECASE)
_ROOT = re.compile(r"sqrt\(|\*\* 0\.5")
_OF_BATCHES = re.compile(r"out|batch|loader|step")


def _roots(source: Source) -> Iterator[Averaged]:
    for one in source.nodes:
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div):
            text = re.fullmatch(r"sum\(\(?(.*) for (.+) in ([\w.]+)\)?\) / len\(([\w.]+)\)", ast.unparse(one))
            is_mean = text is not None and text[3] == text[4] and _ROOT.search(text[1]) is not None
            if text and is_mean and _OF_BATCHES.search(text[3]) and _OF_ROOT.search(ast.unparse(source.statement(one))):
                yield Averaged("the mean of the roots", False, source.place(one))
        elif isinstance(one, ast.For) and _judges(source, one):
            inside = source.inside(source.function(one))
            for node in ast.walk(one):
                name, value = _added(node)
                is_root = value is not None and _ROOT.search(_said(value, inside)) and _OF_ROOT.search(name)
                if value is not None and is_root and not _weighs(value) and _is_divided(name, inside, one):
                    yield Averaged(name, False, source.place(node))


def _is_dividend(around: ast.AST) -> bool:
    """Whether what stands there is divided further, as by the rows of a batch."""
    return isinstance(around, ast.BinOp) and isinstance(around.op, ast.Div)


def _plain(value: ast.expr, inside: list[Any]) -> str:
    """The text of what is added, or of the only value of its name."""
    values = values_of(inside, value.id) if isinstance(value, ast.Name) else [value]
    text = ast.unparse(values[0]) if len(values) == 1 else ""
    return "" if re.search(r" / |mean\(", text) else text


def _judges(source: Source, loop: ast.For) -> bool:
    """Whether a loop is of an evaluation: in a function that is named so, or without gradients."""
    function = source.function(loop)
    quiet = [*getattr(function, "decorator_list", [])]
    quiet += [i.context_expr for n in source.outward(loop) if isinstance(n, ast.With) for i in n.items]
    inner = [i.context_expr for n in loop.body if isinstance(n, ast.With) for i in n.items]
    return speaks_of_evaluation(getattr(function, "name", "")) or any(
        _QUIET.search(ast.unparse(one)) for one in (*quiet, *inner)
    )


def _added(node: ast.AST) -> tuple[str, ast.expr | None]:
    """What a statement adds to which name: `total += value`, `values.append(value)`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return ast.unparse(node.target), node.value
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args:
        return ast.unparse(call.func.value), call.args[0]
    return "", None


def _said(value: ast.expr, inside: list[Any]) -> str:
    """The text of a value, and of what its names are bound to."""
    names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
    return " ".join([ast.unparse(value), *(ast.unparse(v) for name in names for v in values_of(inside, name)[:1])])


_ROWS = re.compile(r"len\(|size\(|shape|numel|count|^n$|_n$|\bn_|num|batch|rows|weight|\bb\b|bs$", re.IGNORECASE)


def _weighs(value: ast.expr) -> bool:
    """Whether a mean is multiplied by a number of rows before it is added."""
    products = [n for n in ast.walk(value) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    return any(_ROWS.search(ast.unparse(side)) for one in products for side in (one.left, one.right))


def _is_divided(name: str, inside: list[Any], loop: ast.For) -> bool:
    """Whether what is added up is divided by the number of batches behind its loop."""
    end = loop.end_lineno or 0
    ones = {ast.unparse(n.target) for n in inside if isinstance(n, ast.AugAssign) and ast.unparse(n.value) == "1"}
    batches = ones | {f"len({ast.unparse(n)})" for n in ast.walk(loop.iter) if isinstance(n, (ast.Name, ast.Attribute))}
    wanted = re.escape(name)
    for one in (n for n in inside if getattr(n, "lineno", 0) > end):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) and ast.unparse(one.left) == name:
            number = re.sub(r"^max\((?:1, )?(.*?)(?:, 1)?\)$", r"\1", ast.unparse(one.right))
            if number in batches:
                return True
        elif isinstance(one, (ast.BinOp, ast.Call)):
            text = ast.unparse(one)
            if re.fullmatch(rf"sum\({wanted}\) / (max\()?len\({wanted}\)(, 1\))?|[\w.]*mean\({wanted}\)", text):
                return True
            if re.fullmatch(rf"torch\.(tensor|stack)\({wanted}\)\.mean\(\)", text):
                return True
    return False
