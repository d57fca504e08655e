"""What a script's text says of data that are set apart to judge: whether anything reads them, where a measure is taken
of the training data in their place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.parts import TOOLS, names_judging, names_training

_MEASURES = re.compile(
    r"(^|_)(eval\w*|valid\w*|val|test\w*|estimate\w*|measure\w*|perplexity|accuracy|acc|recall\w*|metrics?|score)(_|$)"
)
_NUMBERS = re.compile(
    r"loss|acc(?!el)|ppl|score|metric|err|(^|_)n(_|$)|num|size|len|count|frac|ratio|step", re.IGNORECASE
)
_SHOWS = ("len", "print")
_OF_MODULES = ("parameters", "eval", "state_dict")
_QUIET = re.compile(r"no_grad|inference_mode")


def unread_parts(source: Source) -> Iterator[tuple[str, str, str]]:
    """The name of the data that judge, that of the training data which are taken, and the place: where data to judge
    are set apart beside the training data, nothing reads them, and a measure is taken of the training data."""
    uses = [n for n in source.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    if any(getattr(n, "id", "") in ("globals", "locals", "vars", "eval") for n in uses):
        return
    for asked, given, place in _pairs(source):
        of_others = [one for one in _binding(source, asked) if one is not place]
        mine = [n for n in uses if source.function(n) not in of_others]
        if any(n.id == asked and not _only_shows(source, n) and not _is_given(source, n) for n in mine):
            continue
        yield from _handed(source, asked)
        for use in (n for n in mine if n.id == given):
            place = _measured(source, use)
            if place is not None:
                yield asked, given, source.place(place)
                break


def _pairs(source: Source) -> Iterator[tuple[str, str, ast.AST | None]]:
    """The names of data that judge, with those of the training data that are bound beside them in the same way, and the
    function where that is; where several functions have such names, the last one, which what they make is handed to."""
    bound = [n for n in source.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    order = {n: at for at, n in enumerate(dict.fromkeys(n.id for n in bound))}
    for asked in (n for n in order if names_judging(n) and not _NUMBERS.search(n)):
        function = _binding(source, asked)[-1]
        stored = [n for n in bound if n.id == asked and source.function(n) is function]
        if len(stored) != 1 or not isinstance(source.statement(stored[0]), ast.Assign):
            continue
        rest = _rest(asked)
        beside = [n for n in bound if names_training(n.id) and _rest(n.id) == rest and source.function(n) is function]
        if beside:
            yield asked, beside[0].id, function


def _binding(source: Source, name: str) -> list[ast.AST | None]:
    """The functions that bind a name, in order; None is the file itself."""
    bound = (n for n in source.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name)
    return list(dict.fromkeys(source.function(n) for n in sorted(bound, key=lambda n: n.lineno)))


def _rest(name: str) -> tuple[str, ...]:
    """The words of a name but the one that says which part of the data it is."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    return tuple(one for one in words if one and not names_training(one) and not names_judging(one))


def _only_shows(source: Source, node: ast.AST) -> bool:
    """Whether a use of data only says how many they are."""
    for around in source.outward(node):
        if isinstance(around, ast.Call):
            return ast.unparse(around.func) in _SHOWS
        if isinstance(around, (ast.stmt, ast.Subscript)):
            return False
    return False


def _is_given(source: Source, node: ast.Name) -> bool:
    """Whether a name is a parameter of the function that it is read in."""
    function = source.function(node)
    return isinstance(function, FUNCTIONS) and node.id in {
        n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)
    }


def _measured(source: Source, use: ast.AST) -> ast.AST | None:
    """Where a measure is taken of what a name stands for: the call of a function that is named so, or the loop or
    statement in a block without gradients; None where it is not."""
    if _only_shows(source, use):
        return None
    inner: ast.AST = use
    for around in source.outward(use):
        if isinstance(around, ast.Call) and inner is not around.func:
            called = ast.unparse(around.func).rpartition(".")[2]
            if _MEASURES.search(called.lower()) and inner is use and not names_training(called):
                is_alone = not _is_said(source, around) and not _others(source, around, use)
                return source.statement(around) if is_alone else None
        if isinstance(around, ast.With) and any(_QUIET.search(ast.unparse(one)) for one in around.items):
            loops = [n for n in source.outward(use) if isinstance(n, ast.For)]
            return loops[0] if loops and around in source.outward(loops[0]) else source.statement(use)
        if isinstance(around, FUNCTIONS):
            return None
        inner = around
    return None


def _others(source: Source, call: ast.Call, use: ast.AST) -> bool:
    """Whether a call is given something beside some data that is no tool and no module, and may be what it judges."""
    given = [*call.args, *(one.value for one in call.keywords)]
    names = {n.id for n in given if isinstance(n, ast.Name) and n is not use and not TOOLS.search(n.id)}
    owners = [n for n in source.nodes if isinstance(n, ast.Attribute) and n.attr in _OF_MODULES]
    return bool(names - {n.value.id for n in owners if isinstance(n.value, ast.Name)})


def _is_said(source: Source, call: ast.Call) -> bool:
    """Whether the result of a call gets a name that says that it is of the training data."""
    statement = source.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(names_training(n.id) for one in targets for n in ast.walk(one) if isinstance(n, ast.Name))


def _handed(source: Source, asked: str) -> Iterator[tuple[str, str, str]]:
    """Where a function takes data of a name that nothing reads, and is given others: `fit(model, train, test)` of
    `def fit(model, train, val)`."""
    functions = {n.name: n for n in source.nodes if isinstance(n, FUNCTIONS[:2])}
    for call in (n for n in source.nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
        function = functions.get(getattr(call.func, "id", ""))
        names = [one.arg for one in function.args.args] if function is not None else []
        given = [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
        for name, value in given:
            is_other = isinstance(value, ast.Name) and (names_judging(value.id) or names_training(value.id))
            if name == asked and is_other and value.id != asked:  # type: ignore[attr-defined]
                yield asked, ast.unparse(value), source.place(call)
