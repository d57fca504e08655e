"""Where labels, masks and losses went wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.watch.events import Backward, Loss, Written
from conformance.watch.lines import FUNCTIONS, source_of
from conformance.watch.origins import DEEP, Line, argument, behind, receiver, scope_of
from conformance.watch.pointing.common import (
    CUTS,
    first,
    functions_of,
    inputs_of,
    learned,
    node_of,
    own_line,
    statements,
    that,
)
from conformance.watch.stated import classes

_CUT = re.compile(r"\[[^\]]*:|roll|shift|cat\(|flip|stack|pad\(|clone|where|scatter|-100|tensor\(")
_SHIFTED = re.compile(r"\b\d+:|:\s*-\s*\d|\[[^\]]*[+-] \d\b|roll|shift|cat\(|flip")
_SLICED = re.compile(r"\b\d+:|:\s*-\s*\d|\[[^\]]*[+-] \d\b")
_AHEAD = re.compile(r"\b1:|\+ 1\b|roll\([^)]*-1")
_BEHIND = re.compile(r":\s*-\s*1\b|cat\(|roll\([^)]*[^-]1|shift")
_LABELS = ("labels", "target", "targets", "label", "y")


def labels_of(loss: Any) -> list[Line]:
    return _picked(loss) if isinstance(loss, Written) else argument(loss.stack, 1, *_LABELS)


def _picked(loss: Written) -> list[Line]:
    """The lines behind the labels of a loss that is written by hand: behind what picks one number of each row, in the
    innermost function around the loss that does so."""
    for depth in range(len(loss.stack)):
        scope, call = scope_of(loss.stack, depth), loss.stack[depth].call()
        inside = scope.source.inside(scope.source.function(call)) if scope is not None and call is not None else []
        picks = [pick for pick in map(_pick, inside) if pick is not None]
        if scope is not None and call is not None and picks:
            after = [one for one in picks if one.lineno >= call.lineno] or picks
            own = [Line(scope.source, scope.source.statement(after[0]))]
            return list(dict.fromkeys([*own, *behind(after[0], scope, (), DEEP)]))
    return []


def _pick(node: ast.AST) -> ast.expr | None:
    """What picks one number of each row: the index of `gather`, the labels of `one_hot` or `[arange(n), y]`."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "gather":
            return next(
                (one.value for one in node.keywords if one.arg == "index"), node.args[-1] if node.args else None
            )
        return node.args[0] if name == "one_hot" and node.args else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and "range(" in ast.unparse(node.slice):
        return node.slice.elts[-1]
    return None


def shift(run: Any, loss: Any, is_missing: bool) -> list[str]:
    """Where labels and inputs were cut apart: where a shift is missing, on the side that has none first."""
    labels, inputs = [*own_line(loss), *labels_of(loss)], inputs_of(run, loss)
    cut = _best([line for line in labels if line not in inputs]) or _best(labels)
    fed = _best(inputs) or next(iter(inputs), None)
    is_one = cut is not None and cut in inputs and not isinstance(getattr(cut.node, "value", None), ast.Tuple)
    if is_one:  # both are of one line that does not tell them apart: the mistake is where they are handed on
        return first(loss.place, fed.place if fed else "")
    if is_missing and cut is not None and fed is not None and _AHEAD.search(cut.text) and not _BEHIND.search(fed.text):
        return first(fed.place, inputs[0].place, cut.place)
    made = [*items(run)] if cut is None or cut in inputs else []
    handed = (that(made, _SLICED) or that(made, _CUT))[:1]
    return first(handed, cut.place if cut else "", fed.place if fed else "", loss.place)


def items(run: Any) -> Iterator[Line]:
    """The statements of the classes and functions that make the items and batches of the script's loaders."""
    for code in run.givers:
        source = source_of(code.co_filename)
        node = source.defined(code) if source else None
        owner = source.owner(node) if source and node is not None else None
        named = {n.attr for n in ast.walk(owner) if isinstance(n, ast.Attribute)} if owner else set[str]()
        for one in ast.walk(owner or node) if source and node is not None else ():
            if source and isinstance(one, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)):
                method = getattr(source.function(one), "name", "")
                if owner is None or method in named or method.startswith("__"):  # others the script calls itself
                    yield Line(source, one)


def _best(lines: Sequence[Line]) -> Line | None:
    """The nearest line that shifts; else the nearest that cuts."""
    found = (line for wanted in (_SHIFTED, _CUT) for line in lines if wanted.search(line.text))
    return next(found, None)


def counted(run: Any, loss: Any) -> list[str]:
    """Where a loss is told what does not count: what made it, what calls it, and where its labels were filled."""
    made = [line for line in receiver(loss.stack) if re.search(r"EntropyLoss|NLLLoss|ignore|Smooth", line.text)]
    labels = sorted(labels_of(loss), key=_is_of_others)
    given = [*items(run)]
    filled = that(labels, _SET) or that(given, _NAMED) or that(labels, _FILLED) or that(given, _LABELLED)[-1:]
    call = loss.stack[0].call() if loss.stack else None
    told = call is not None and any(one.arg == "ignore_index" for one in call.keywords)
    is_own = call is None or _A_LOSS.search(ast.unparse(call.func)) is not None  # else a library computes it
    if told or not is_own or any("ignore_index" in line.text for line in made):  # it leaves out what it is told to
        return first(filled[:1], [line.place for line in made][:1], loss.place)
    return first([line.place for line in made][:1], loss.place, filled)


def filled(run: Any, loss: Any) -> list[str]:
    """Where labels that do not count were set, and the loss."""
    lines = sorted(labels_of(loss), key=_is_of_others)
    return first(that(lines, _FILLED)[:2] or that([*items(run)], _FILLED)[-1:], loss.place)


def _is_of_others(line: Line) -> bool:
    """Whether a statement sets what is not named after labels: a function often makes them beside inputs."""
    return _LABELLED.match(line.text) is None


_A_LOSS = re.compile(r"entropy|nll|loss|criterion|kl_div", re.IGNORECASE)
_LABELLED = re.compile(r"(\w*(label|target|tag|wanted|gold)\w*|ys?)(\[.*\]|\.\w+_\(.*)?( =|$)")
_NAMED = re.compile(r"^(\w*(label|target|tgt|tag|wanted)\w*|ys?)(\[.*\])? = .*(full|zeros|-100|pad|\d$)")
_SET = re.compile(r"-100|masked_fill|where|full\(|zeros|\[.*\] = ")
_FILLED = re.compile(r"-100|masked_fill|where|\[.*\] = |pad|full|zeros|clone|scatter")


def cut(loss: Any) -> list[str]:
    """Where what a loss gets was cut off from the graph, and the loss."""
    lines = [*own_line(loss), *argument(loss.stack, 0, "input")]
    return first(that(lines, CUTS)[:1], loss.place)


def turned(loss: Any) -> list[str]:
    """Where the labels and the answers of a loss got their layout."""
    lines = [*own_line(loss), *argument(loss.stack, 0, "input", "logits"), *labels_of(loss)]
    return first(that(lines, re.compile(r"transpose|permute|\.T\b|\.t\(|mT|rearrange|movedim"))[:2], loss.place)


def answers(run: Any, loss: Any) -> list[str]:
    """Where a loss got its rows from: a softmax on the way or in a part of the model, or the last lines that computed
    them."""
    lines = argument(loss.stack, 0, "input", "logits")
    scaled = re.compile(r"(?<!log_)softmax")
    inside = [place for source, owner in classes(run) for place in statements(source, owner, scaled)]
    if loss.input == "probabilities" and (that(lines, scaled) or inside):
        return first(that(lines, scaled)[:1] or inside[-1:], loss.place)
    ends = [line for line in lines if isinstance(line.node, ast.Return)]
    ends.sort(key=lambda line: getattr(line.source.function(line.node), "name", "") != "forward")
    return first([line.place for line in ends][:1], loss.place, [line.place for line in lines])


_DIVIDED = re.compile(r" / |/= |\bmean\b")
_COUNTED = (re.compile(r"numel|sum\(\)|count|len\("), re.compile(r"shape|size\(|mean\("))


def value(run: Any, back: Any) -> list[str]:
    """Where the loss of a backward pass got its value: a division, else the last line that computes it."""
    lines = learned(back)
    losses = [loss.place for loss in run.events[: back.order] if isinstance(loss, Loss)]
    plain = [] if _is_scaled(back) else [line.place for line in lines[:1]]
    return first(that(lines[:4], _DIVIDED)[:1], plain, back.place, losses[-1:])


def _is_scaled(back: Any) -> bool:
    """Whether what a backward pass begins with is computed in its own statement."""
    call = back.stack[0].call() if back.stack else None
    return (
        call is not None and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, (ast.Call, ast.BinOp))
    )


def divisor(run: Any, loss: Any) -> list[str]:
    """Where the number was made by which a loss is divided, and the division."""
    back = next(run.between(loss.order, len(run.events), Backward), None)
    lines = [*(learned(back) if back is not None else []), *own_line(loss)]
    divided = that(lines, re.compile(r" / |/= |mean\("))
    counts = [place for wanted in _COUNTED for place in that(lines, wanted) if place not in divided]
    return first(counts[:1], divided[:1], loss.place)


def distribution(loss: Any) -> list[str]:
    """Where a target distribution is filled."""
    here = [*functions_of(loss)][:1]
    lines = [*reversed(labels_of(loss))]
    lines.sort(key=lambda line: not here or line.source.function(line.node) is not here[0][1])
    return first(that(lines, re.compile(r"full|fill_|scatter|smooth|one_hot|eps")), loss.place)


def condition(event: Any) -> list[str]:
    """The `if` that an event depends on, then the event."""
    source, node = node_of(event)
    if source is None or node is None:
        return first(event.place)
    around = next((n for n in source.outward(node) if isinstance(n, (ast.If, *FUNCTIONS))), None)
    return first(source.place(around) if isinstance(around, ast.If) else "", event.place)


_WINDOWS = re.compile(r"\bslice\(|\[[^\]]*:[^\]]*\]|unfold|roll\(")


def windowed(run: Any, loss: Any) -> list[str]:
    """Where what a model is given was cut out; else the loss."""
    return first(that(inputs_of(run, loss)[1:], _WINDOWS)[:2] or [*_cut_apart(run)][-1:], loss.place)


def _cut_apart(run: Any) -> Iterator[str]:
    """The statements of the script that cut two parts out of one thing, one of them with a slice along an axis behind
    the first: `pieces[:, 1:], pieces[:, n]`."""
    for source in dict.fromkeys(source_of(at.code.co_filename) for event in run.events for at in event.stack):
        for node in source.nodes if source else ():
            if source and isinstance(node, (ast.Assign, ast.Return)) and node.value is not None:
                cuts = [
                    n for n in ast.walk(node.value) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Tuple)
                ]
                slices = [n for n in cuts if any(isinstance(one, ast.Slice) for one in n.slice.elts[1:])]  # type: ignore[attr-defined]
                if any(ast.unparse(n.value) == ast.unparse(m.value) for n in slices for m in cuts if m is not n):
                    yield source.place(node)
