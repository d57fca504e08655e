"""What a script's text says of how the data that judge are made: with the random numbers of the training data, or with
what is for training alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import Source
from conformance.watch.parts import Bound, bindings, names_judging, names_training
from conformance.watch.stated import sources

_SEED = re.compile(r"^(rng_|random_)?(seed|state)$")
_SEEDS = re.compile(r"(manual_seed|default_rng|RandomState|Random|(^|\.)seed)$")
_DRAWS = re.compile(
    r"(^|\.)(rand|randn|randint|random|randrange|normal|uniform|choice|choices|integers|sample|shuffle|permutation|randperm"
    r"|gauss|bernoulli|multinomial|standard_normal|rand_like|randn_like|normal_|uniform_)$"
)
_NUMBER = re.compile(r"(^|[_\['\"])(n|num|size|count|len|rows|samples|examples|per)(_|['\"\]]|$)|len\(", re.IGNORECASE)


class Same(NamedTuple):
    """Data that judge are drawn from the seed of the training data. train, other: their names. call: as it is written.
    place: of the call."""

    train: str
    other: str
    call: str
    place: str


def same_seeds(run: Any) -> list[Same]:
    """Where a function that draws all of its numbers from a seed makes both with the same one."""
    files = sources(run)
    makers = {one.name: one for source in files for one in _makers(source)}
    return [found for source in files for found in _same_seeds(source, makers)]


def _same_seeds(source: Source, makers: dict[str, Maker]) -> Iterator[Same]:
    bound = [*bindings(source), *_first_names(source)]
    made = [(one, call) for one in bound for call in _calls(one) if _name(call) in makers]
    for judged, its in (pair for pair in made if names_judging(pair[0].name)):
        for train, mine in (pair for pair in made if names_training(pair[0].name)):
            if _name(mine) == _name(its) and _is_same(mine, its, makers[_name(its)]):
                yield Same(train.name, judged.name, ast.unparse(its), source.place(its))


def _first_names(source: Source) -> Iterator[Bound]:
    """What a call binds to several names, by the first of them: `train_x, train_y = make(n, seed)`."""
    for node in (one for one in source.nodes if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)):
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
            yield Bound(target.elts[0].id, node.value, node)


class Maker(NamedTuple):
    """A function or class that draws from one generator alone, which its seed begins. taken: the names of what it
    takes. sizes: of each draw, the names that say how much is drawn, or how often."""

    name: str
    taken: list[str]
    sizes: list[set[str]]


def _makers(source: Source) -> Iterator[Maker]:
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef):
            continue
        owner = source.owner(node)
        if (owner is not None) is not (node.name == "__init__"):
            continue
        taken = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        seed = next((one for one in taken if _SEED.match(one)), "")
        calls = [one for one in ast.walk(owner or node) if isinstance(one, ast.Call)]
        begun = [one for one in calls if _SEEDS.search(ast.unparse(one.func))]
        if seed and len(begun) == 1 and _begins_with(begun[0], seed):
            draws = [one for one in calls if _DRAWS.search(ast.unparse(one.func)) and one is not begun[0]]
            if all(_draws_from(source, one, begun[0]) for one in draws):
                sizes = [_names(source, one) for one in draws]
                yield Maker(owner.name, taken[1:], sizes) if owner else Maker(node.name, taken, sizes)


def _begins_with(call: ast.Call, seed: str) -> bool:
    """Whether a generator begins with a seed, alone or with numbers beside it: `default_rng([seed, row])`."""
    given = call.args[0] if call.args else call
    parts = given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
    return seed in map(ast.unparse, parts) and all(isinstance(one, (ast.Name, ast.Constant)) for one in parts)


def _names(source: Source, draw: ast.Call) -> set[str]:
    """The names in a draw, and in what is gone through around it."""
    loops = [one for one in source.outward(draw) if isinstance(one, (ast.For, ast.comprehension))]
    loops += [one for around in source.outward(draw) for one in getattr(around, "generators", [])]
    parts = [*draw.args, *(one.iter for one in loops)]
    return {one.id for part in parts for one in ast.walk(part) if isinstance(one, ast.Name)}


def _draws_from(source: Source, draw: ast.Call, begun: ast.Call) -> bool:
    """Whether numbers are drawn from the generator that was begun; that of the library where this is no other."""
    statement = source.statement(begun)
    name = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
    if not name:
        return True
    given = {ast.unparse(one.value) for one in draw.keywords if one.arg == "generator"}
    return name in given or ast.unparse(draw.func).startswith(f"{name}.")


def _calls(one: Bound) -> Iterator[ast.Call]:
    return (node for node in ast.walk(one.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _is_same(mine: ast.Call, its: ast.Call, maker: Maker) -> bool:
    """Whether two calls give one seed, and differ in how many rows they ask for at most, of which all is drawn: what
    is drawn for all rows together may have to be the same."""
    ours, theirs = _given(mine, maker.taken), _given(its, maker.taken)
    if ours is None or theirs is None or ours.keys() != theirs.keys():
        return False
    seed = next((name for name in ours if _SEED.match(name)), "")
    if not seed or not isinstance(ours[seed], (ast.Constant, ast.Attribute)):
        return False
    apart = {name for name in ours if ast.unparse(ours[name]) != ast.unparse(theirs[name])}
    if not all(_is_number(one[name]) for name in apart for one in (ours, theirs)) or seed in apart:
        return False
    fixed = {*maker.taken} - apart
    return not apart or all(one & apart or any(n not in fixed and n.islower() for n in one) for one in maker.sizes)


def _given(call: ast.Call, taken: list[str]) -> dict[str, ast.expr] | None:
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return None
    named = {one.arg: one.value for one in call.keywords if one.arg}
    return {**dict(zip(taken, call.args, strict=False)), **named}


def _is_number(node: ast.expr) -> bool:
    is_constant = isinstance(node, ast.Constant) and type(node.value) is int
    return is_constant or _NUMBER.search(ast.unparse(node)) is not None


class Varied(NamedTuple):
    """Data that judge are made with an option that is for training. other: their name. option: as it is written."""

    other: str
    option: str
    place: str


_OPTION = re.compile(r"^(is_)?(augment\w*|training|train)$")
_MEANT = re.compile(r"aug|tta|train", re.IGNORECASE)
_VARIES = re.compile(r"aug|flip|crop|jitter|rand|noise|shift|rotat", re.IGNORECASE)


def varied(run: Any) -> list[Varied]:
    """Where the data that judge have an option of training, as the training data have."""
    return [found for source in sources(run) for found in _varied(source)]


def _varied(source: Source) -> Iterator[Varied]:
    bound = [*bindings(source)]
    of_training = {
        (called, option) for one in bound if names_training(one.name) for called, option, _, _ in _options(one)
    }
    for one in (one for one in bound if names_judging(one.name) and not _MEANT.search(one.name)):
        for called, option, call, keyword in _options(one):
            is_part = option == "train" and "test" not in one.name.lower()  # the validation part of the training data
            is_part = is_part and not _varies(source, called, option)
            if (called, option) in of_training and not is_part and not _is_cut(source, call):
                yield Varied(one.name, ast.unparse(keyword), source.place(keyword.value))


def _options(one: Bound) -> Iterator[tuple[str, str, ast.Call, ast.keyword]]:
    """What a value is made with: which call has which option of training."""
    for call in (node for node in ast.walk(one.value) if isinstance(node, ast.Call)):
        for keyword in call.keywords:
            is_on = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg and _OPTION.match(keyword.arg) and is_on:
                yield ast.unparse(call.func), keyword.arg, call, keyword


def _varies(source: Source, called: str, option: str) -> bool:
    """Whether a class of the file varies each sample where it was made with an option."""
    for test in source.nodes:
        function, owner = source.function(test), source.owner(test)
        if not isinstance(test, (ast.If, ast.IfExp)) or owner is None or owner.name != called:
            continue
        asked = {n.attr.lstrip("_") for n in ast.walk(test.test) if isinstance(n, ast.Attribute)}
        if option in asked and getattr(function, "name", "") != "__init__" and _VARIES.search(ast.unparse(test)):
            return True
    return False


def _is_cut(source: Source, call: ast.Call) -> bool:
    """Whether only a part of what a call gives is taken."""
    around = source.around.get(call)
    is_part = isinstance(around, ast.Call) and re.search(r"Subset|split", ast.unparse(around.func)) is not None
    return is_part or isinstance(around, ast.Subscript)
