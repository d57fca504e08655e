"""Where losses of several answers went wrong, and what a script sets up that nothing reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.origins import Line, argument, arguments
from conformance.watch.pointing.common import first, inputs_of, node_of, own_line, that
from conformance.watch.pointing.labels import items, labels_of
from conformance.watch.stated import classes, sources

_MADE = re.compile(r"tensor\(")
_PAIRED = re.compile(r"append\(\(|(return|yield) .*,")
_WHOLE = re.compile(r"full|ones|\.size\(|\.shape|len\(")
_DRAWN = re.compile(r"\brand\w*\(|bernoulli|\.random\(\)|random_?\(")
_COMPARED = re.compile(r" [<>]=? |bernoulli")


def symbols(run: Any, loss: Any) -> list[str]:
    """Where the labels of a CTC loss became numbers."""
    lines = [*items(run), *argument(loss.stack, 1, "targets")]
    inner = [line for one in lines for line in _returns(one)]
    paired = [line for line in lines if line.source.owner(line.node) and _PAIRED.search(line.text)]
    return first(that(inner, _MADE)[:1], [line.place for line in paired][:1], that(lines, _MADE)[:1], loss.place)


def _returns(line: Line) -> Iterator[Line]:
    """What the functions of the file give back that a statement calls."""
    names = {n.func.id for n in ast.walk(line.node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    for function in line.source.nodes if names else ():
        if isinstance(function, FUNCTIONS[:2]) and function.name in names:
            yield from (Line(line.source, n) for n in line.source.inside(function) if isinstance(n, ast.Return))


def lengths(run: Any, loss: Any) -> list[str]:
    """Where a CTC loss got its numbers of frames."""
    lines = [*own_line(loss), *argument(loss.stack, 2, "input_lengths")]
    return first(that(lines, re.compile("full|ones"))[:1] or that(lines, _WHOLE)[:1], [one.place for one in lines])


def unsoftened(loss: Any, position: int) -> list[str]:
    """The argument of a divergence whose softmax has no temperature."""
    source, call = node_of(loss)
    if source is None or call is None or len(call.args) <= position:
        return [loss.place]
    given = call.args[position]
    if isinstance(given, ast.Name):
        lines = argument(loss.stack, position, ("input", "target")[position])
        return first(that(lines, re.compile("softmax"))[:1], loss.place)
    return first(source.place(given), loss.place)


def side(run: Any, loss: Any, number: int) -> list[str]:
    """Where the one side of a product was made: 0 for the left one."""
    own = [(line.source, line.node) for line in argument(loss.stack, 0, "input")]
    inside = [(source, node) for source, owner in classes(run) for node in ast.walk(owner)]
    for source, node in [*own, *inside]:
        for product in ast.walk(node):
            operands = _operands(product)
            if len(operands) == 2:
                names = {n.id for n in ast.walk(operands[number]) if isinstance(n, ast.Name)}
                return first(_bound(source, product, names), source.place(product))
    return [loss.place]


def _operands(node: ast.AST) -> list[ast.expr]:
    """Both sides of a product of matrices."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and re.search(r"(^|\.)(matmul|mm|bmm|einsum)$", ast.unparse(node.func)):
        given = [one for one in node.args if not isinstance(one, ast.Constant)]
        return [node.func.value, *given] if len(given) == 1 and isinstance(node.func, ast.Attribute) else given
    return []


def _bound(source: Source, node: ast.AST, names: set[str]) -> list[str]:
    """The statements of the function around a node that bind one of some names, the nearest first."""
    found = [
        one
        for one in source.inside(source.function(node))
        if isinstance(one, ast.Assign) and any(getattr(t, "id", "") in names for t in one.targets)
    ]
    return [source.place(one) for one in reversed(found) if one.lineno < getattr(node, "lineno", 0)]


def drawn(run: Any, loss: Any) -> list[str]:
    """Where it is drawn which tokens are masked."""
    lines = [*labels_of(loss), *inputs_of(run, loss), *items(run)]
    random = [line for line in lines if _DRAWN.search(line.text)]
    random.sort(key=lambda line: not _COMPARED.search(line.text))
    return first([_asking(line, lines).place for line in random[:1]], loss.place)


def _asking(line: Line, lines: Iterable[Line]) -> Line:
    """The first statement that calls the function whose result a line is; the line itself where it is no result."""
    name = getattr(line.source.function(line.node), "name", "") if isinstance(line.node, ast.Return) else ""
    calls = (one for one in lines if isinstance(one.node, ast.Assign) and re.search(rf"\b{name}\(", one.text))
    return next(calls, line) if name else line


def put(run: Any, loss: Any) -> list[str]:
    """Where the places are chosen that get the mask: what indexes the statement that writes it, or that statement."""
    lines = [*inputs_of(run, loss), *items(run)]
    for line in lines:
        target = line.node.targets[0] if isinstance(line.node, ast.Assign) else None
        if isinstance(target, ast.Subscript) and re.search("mask", ast.unparse(line.node.value), re.IGNORECASE):  # type: ignore[attr-defined]
            names = {target.slice.id} if isinstance(target.slice, ast.Name) else set[str]()
            return first(_bound(line.source, line.node, names)[:1], line.place)
    return drawn(run, loss)


def drawn_again(run: Any, loss: Any) -> list[str]:
    """Where the generator begins anew that draws which tokens are masked, or where they are drawn."""
    lines = [*items(run), *labels_of(loss), *inputs_of(run, loss)]
    seeds = [line for line in lines if re.search(r"seed\(|Generator\(", line.text)]
    seeds.sort(key=lambda line: not _DRAWN.search(line.text))
    return first([line.place for line in seeds][:1], drawn(run, loss))


def ending(run: Any, loss: Any) -> list[str]:
    """Where labels are told not to count."""
    ignored = re.compile(r"-100|IGNORE|ignore", re.IGNORECASE)
    lines = [line for line in [*labels_of(loss), *items(run)] if ignored.search(line.text)]
    lines.sort(key=lambda line: not isinstance(line.node, ast.Return))
    return first([line.place for line in lines][:2], loss.place)


_ANSWERS = r"\w*(answer|target|tgt|response|reply|output|completion|summary|title)\w*"


def encoded(run: Any) -> list[str]:
    """Where texts that are asked for become tokens."""
    answers = written(run, rf"^{_ANSWERS} = .*(encode|token|ids|vocab|stoi)\w*[\[(]")
    return first(answers[:1], written(run, rf"(encode|token\w*|numericali[sz]e|to_ids|stoi)[\[(].*{_ANSWERS}")[:1])


def begun(run: Any) -> list[str]:
    """Where the list of labels begins."""
    return first(written(run, r"^\w*(label|tag)\w* = \[|, \w*(label|tag)\w* = .*\[\]")[:1])


def prompted(run: Any) -> list[str]:
    """Where labels of a prompt are left out: `[-100] * n`, `labels[:n] = IGNORE`."""
    return written(run, r"\[(-100|\w*(?i:ignore)\w*)\] \* |\[[^\]]*:[^\]]*\] = (-100|\w*(?i:ignore)\w*)$")[:1]


ALIASES = r"\.(detach\(\)|data)(?!\w|\.clone|\.copy).* for "
"""What keeps weights in a list, and does not copy them."""


def written(run: Any, pattern: str) -> list[str]:
    """The statements of the user's files that have such a text."""
    wanted = re.compile(pattern)
    return [line.place for line in _plain(run) if wanted.search(line.text)]


def _plain(run: Any) -> Iterator[Line]:
    for source in sources(run):
        for node in source.nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)):
                yield Line(source, node)


def made(run: Any, owner: type, attribute: str) -> Iterator[Line]:
    """The statements of a class that set an attribute."""
    for source, node in classes(run):
        if node.name == owner.__name__:
            for one in ast.walk(node):
                if isinstance(one, ast.Assign) and any(_is_own(target, attribute) for target in one.targets):
                    yield Line(source, one)


def is_read(run: Any, owner: type, attribute: str) -> bool:
    """Whether a class reads an attribute in another method than that which makes it."""
    for source, node in classes(run):
        for one in ast.walk(node) if node.name == owner.__name__ else ():
            is_load = isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load) and _is_own(one, attribute)
            if is_load and getattr(source.function(one), "name", "__init__") != "__init__":
                return True
    return False


def _is_own(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and getattr(node.value, "id", "") == "self"


def reads_key(run: Any, key: str) -> bool:
    """Whether a file of the user's takes a key out of something: x["key"], x.get("key"), x.pop("key")."""
    for source in sources(run):
        for node in source.nodes:
            given = node.slice if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) else None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                given = node.args[0] if node.func.attr in ("get", "pop", "getattr") else None
            if isinstance(given, ast.Constant) and given.value == key:
                return True
    return False


def zeroed(run: Any, numbers: Iterable[int]) -> list[str]:
    """Where parameters are made zero that a class holds itself."""
    found = []
    for number in numbers:
        name = run.parameters[number].name
        for source, owner in classes(run, name):
            for node in ast.walk(owner):
                if isinstance(node, (ast.Assign, ast.Expr)):
                    text = Line(source, node).text
                    if "zero" in text and re.search(rf"self\.{name.rpartition('.')[2]}\b", text):
                        found.append(source.place(node))
    return first(found)


def margin(event: Any) -> list[str]:
    """The lines behind the margin that a logsigmoid got, those that subtract first."""
    lines = arguments(event.stack)
    apart = [line.place for line in lines if " - " in line.text]
    return first(apart, [line.place for line in lines])


def reference(run: Any) -> list[str]:
    """The first line that binds what is called a reference: the model, or what it answers."""
    return written(run, r"^(self\.)?(\w*_)?ref\w* = ")[:1]
