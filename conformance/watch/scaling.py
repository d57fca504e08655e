"""What a script's text says of how its inputs are scaled: the data that judge as those of training, or not."""

from __future__ import annotations

import ast
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
