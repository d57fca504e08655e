"""What a script's text says of how its inputs are scaled: the data that judge as those of training, or not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import Source
from conformance.watch.parts import Bound, are_beside, bindings, names_judging, names_training
from conformance.watch.stated import sources


class Unscaled(NamedTuple):
    """Data that judge are scaled otherwise than those of training. other: their name. how: what the data of training
    have, or the others have by themselves. is_own: whether the others are scaled by numbers of their own. place: of
    what binds them."""

    other: str
    how: str
    is_own: bool
    place: str


def scaled_otherwise(run: Any) -> list[Unscaled]:
    """The data that judge and are not scaled, or by numbers of their own, where those of training are scaled."""
    return [found for source in sources(run) for found in _otherwise(source)]


def _otherwise(source: Source) -> Iterator[Unscaled]:
    bound = [*bindings(source)]
    for train in (one for one in bound if names_training(one.name)):
        for other in (one for one in bound if names_judging(one.name) and are_beside(source, train, one)):
            how = normalised(train.value)
            if how and normalised(other.value) != how and _lacks(source, train, other, how):
                yield Unscaled(other.name, how, False, source.place(other.value))
            are_transforms = all(map(_transforms, (train.value, other.value))) and _rest(train.name) == _rest(
                other.name
            )
            if are_transforms and _normalises(train.value) and not _normalises(other.value):
                yield Unscaled(other.name, "Normalize", False, source.place(other.value))
            fitted = _fitted(train.value)
            if fitted and fitted == _fitted(other.value):
                yield Unscaled(other.name, fitted, True, source.place(other.value))


def _rest(name: str) -> frozenset[str]:
    """The words of a name that do not say which part of the data it is."""
    return frozenset(one for one in name.lower().split("_") if not names_training(one) and not names_judging(one))


_NUMBERS = (ast.Name, ast.Attribute, ast.Constant)


def normalised(value: ast.expr) -> str:
    """The spread of `(x - mean) / spread`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) and isinstance(value.left, ast.BinOp):
        names = [value.left.right, value.right]
        if isinstance(value.left.op, ast.Sub) and all(isinstance(one, _NUMBERS) for one in names):
            return ast.unparse(value.right)
    return ""


def _lacks(source: Source, train: Bound, other: Bound, how: str) -> bool:
    """Whether data are cut from what those of training are cut from, and nothing divides them by the spread."""
    parts = [train.value.left.left, other.value]  # type: ignore[attr-defined]
    whole = [ast.unparse(one.value) for one in parts if isinstance(one, ast.Subscript)]
    if len(whole) < 2 or whole[0] != whole[1]:
        return False
    divided = (n for n in source.nodes if isinstance(n, ast.BinOp) and ast.unparse(n.right) == how)
    later = (n for n in source.nodes if isinstance(n, ast.AugAssign) and ast.unparse(n.value) == how)
    names = {n.id for one in (*divided, *later) for n in ast.walk(one) if isinstance(n, ast.Name)}
    again = [n for n in source.nodes if isinstance(n, ast.Name) and n.id == other.name and isinstance(n.ctx, ast.Store)]
    return other.name not in names and len(again) == 1


def _transforms(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "Compose"


def _normalises(value: ast.expr) -> bool:
    return any(getattr(n, "attr", getattr(n, "id", "")) in ("Normalize", "normalize") for n in ast.walk(value))


def _fitted(value: ast.expr) -> str:
    """What fits itself to data and scales them: `scaler.fit_transform(x)`."""
    is_fit = (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "fit_transform"
    )
    return ast.unparse(value.func.value) if is_fit else ""  # type: ignore[attr-defined]


class Fitted(NamedTuple):
    """A scaler is fitted to all data, of which parts judge. scaler, whole: as they are written. other: the name of a
    part that judges. place: where it is fitted."""

    scaler: str
    whole: str
    other: str
    place: str


_SCALES = re.compile(r"scale|standardi[sz]|normali[sz]er|min_?max", re.IGNORECASE)
_FITS = ("fit", "fit_transform")


def fitted_to_all(run: Any) -> list[Fitted]:
    """The scalers that are fitted to what training data and data that judge are both cut from."""
    return [found for source in sources(run) for found in _to_all(source)]


def _to_all(source: Source) -> Iterator[Fitted]:
    for call in source.nodes:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _FITS:
            continue
        whole = call.args[0] if call.args else None
        if not isinstance(whole, ast.Name):
            continue
        bound = [one for one in bindings(source) if source.function(one.statement) is source.function(call)]
        made = [one.name for one in bound if one.value is call and call.func.attr == "fit"]  # scaler = Scaler().fit(x)
        scaler = made[0] if made else ast.unparse(call.func.value)
        known = " ".join(ast.unparse(one.value) for one in bound if one.name == scaler)
        if not _SCALES.search(f"{scaler} {known}") or names_training(whole.id) or names_judging(whole.id):
            continue
        scaled = {one.name for one in bound if call in ast.walk(one.value) or _is_scaled(one.value, scaler, whole.id)}
        parts = [*_cut(source, call, {whole.id} | scaled)]
        judging = [name for name in parts if names_judging(name)]
        if judging and any(map(names_training, parts)):
            yield Fitted(scaler, whole.id, judging[0], source.place(call))
        elif other := _fitted_beside(source, call):
            yield Fitted(scaler, whole.id, other, source.place(call))


def _fitted_beside(source: Source, call: ast.Call) -> str:
    """The rows that judge, by their name, where another scaler of the same kind is fitted to the rows of training:
    `Scaler().fit(y[train])` beside `Scaler().fit(x)`."""
    inside = [*source.inside(source.function(call))]
    alike = [n for n in inside if isinstance(n, ast.Call) and ast.unparse(n.func) == ast.unparse(call.func)]
    rows = [n.args[0].slice for n in alike if n.args and isinstance(n.args[0], ast.Subscript)]
    if not any(isinstance(one, ast.Name) and names_training(one.id) for one in rows):
        return ""
    given = [n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return next(filter(names_judging, given), "")


def _is_scaled(value: ast.expr, scaler: str, whole: str) -> bool:
    return any(
        isinstance(n, ast.Call) and ast.unparse(n.func) == f"{scaler}.transform" and whole in map(ast.unparse, n.args)
        for n in ast.walk(value)
    )


def _cut(source: Source, call: ast.Call, names: set[str]) -> Iterator[str]:
    """The names of the parts that a function cuts from data: `train = x[:n]`, `Subset(x, order[:n])`, `split(x)`."""
    for one in source.inside(source.function(call)):
        if not isinstance(one, ast.Assign):
            continue
        targets = one.targets[0].elts if isinstance(one.targets[0], ast.Tuple) else [one.targets[0]]
        values = one.value.elts if isinstance(one.value, ast.Tuple) else [one.value] * len(targets)
        for target, value in zip(targets, values, strict=False):
            taken = value.value if isinstance(value, ast.Subscript) else None
            given = value.args if isinstance(value, ast.Call) and len(value.args) > 1 else []
            if any(isinstance(part, ast.Name) and part.id in names for part in (taken, *given)):
                yield ast.unparse(target)
