"""How the numbers that a model is given lie: whether those of an evaluation are scaled as those of training are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from conformance.watch.details import Spread
from conformance.watch.lines import source_of
from conformance.watch.scaling import normalised
from conformance.watch.stated import sources

LARGEST, WIDEST = 2**20, 64
"""Inputs of more numbers are not looked at; more features than these are taken as one."""


def spread_of(given: Iterable[Tensor]) -> Spread | None:
    """How the first input of numbers lies, feature by feature: the last axis of (N, F) and (N, T, F), the channels of
    images."""
    first = next((one for one in given if one.is_floating_point() and one.dim() >= 2), None)
    if first is None or not 0 < first.numel() <= LARGEST or first.device.type != "cpu" or first.is_sparse:
        return None
    values = first.detach().double().movedim(1 if first.dim() >= 4 else -1, -1).flatten(0, -2)
    if values.shape[1] > WIDEST:
        values = values.reshape(-1, 1)
    means, squares = values.mean(0).tolist(), (values * values).mean(0).tolist()
    return Spread(len(first), len(values), first.dim(), tuple(means), tuple(squares))


class Lying(NamedTuple):
    """What several inputs together are. rows: how many; numbers: of each feature; axes: of one input."""

    rows: int
    numbers: int
    axes: int
    means: Any
    deviations: Any

    @property
    def size(self) -> float:
        return float(np.sqrt((self.means**2 + self.deviations**2).mean()))


def together(calls: Sequence[Any]) -> Lying | None:
    """The inputs of some calls as one; None where they have not the same features, or nothing is known of one."""
    found = [call.spread for call in calls]
    if not found or any(one is None for one in found) or len({(len(one.means), one.axes) for one in found}) > 1:
        return None
    weights = np.asarray([one.count for one in found], np.float64)
    means, squares = (
        np.average([getattr(one, name) for one in found], axis=0, weights=weights) for name in ("means", "squares")
    )
    if not np.isfinite(squares).all():
        return None
    deviations = np.sqrt(np.maximum(squares - means**2, 0))
    return Lying(sum(one.rows for one in found), int(weights.sum()), found[0].axes, means, deviations)


class Otherwise(NamedTuple):
    """An evaluation whose inputs lie otherwise than those of training. said: how; wanted: in words; is_certain:
    whether it cannot be meant; place: of the line that scales, where it is known."""

    call: Any
    said: str
    wanted: str
    is_certain: bool = True
    place: str = ""


FEW, TIMES, OFF = 32, 20.0, 0.6
"""So many rows are compared at least. So many times as large is another unit. Of so many features the scale is another
one."""


def scaled_otherwise(run: Any, learned: Sequence[Any], judged: Sequence[Any]) -> Iterator[Otherwise]:
    """The evaluations of a module whose inputs are scaled otherwise than those it learns from."""
    known = {row for call in learned for row in call.samples}
    shifts = any(_MEANT.search(ast.unparse(source.tree)) for source in sources(run))
    for module in dict.fromkeys(call.module for call in judged):
        calls = [call for call in judged if call.module == module]
        mine, its = together([call for call in learned if call.module == module]), together(calls)
        if mine is None or its is None or min(mine.rows, its.rows) < FEW or len(mine.means) != len(its.means):
            continue
        if min(mine.size, its.size) > 0 and not 1 / TIMES < its.size / mine.size < TIMES:
            yield Otherwise(calls[0], f"{its.size / mine.size:.3g} times as large", "of one size", not shifts)
        elif is_standard(mine) and _is_off(its):
            wide = its.deviations.max() > 3 or its.deviations.min() < 1 / 3
            alike = np.ptp(its.means) < 0.5 and its.deviations.max() < 1.5 * its.deviations.min()
            said = f"means {_shown(its.means)} and deviations {_shown(its.deviations)}"
            yield Otherwise(calls[0], said, "means of 0 and deviations of 1", not shifts and (wide or not alike))
        elif (place := _on_condition(run)) and _differ(mine, its):
            said = f"means {_shown(its.means)}, where those of training have {_shown(mine.means)}"
            yield Otherwise(calls[0], said, "as those of training", True, place)
        for own in _of_their_own(learned, calls, module, known):
            yield Otherwise(own, "means of exactly 0, and so those of training", "the numbers of training")


_MEANT = re.compile(r"\bood|_ood|covariate|corrupt|adversar|domain_?(shift|adapt)|out_of_dist")


def is_standard(one: Lying, near: float = 0.2) -> bool:
    """Whether features have a mean of 0 and a deviation of 1, all that are not constant, and more than one."""
    some = one.deviations > 1e-6
    is_near = (np.abs(one.means[some]) < near) & (np.abs(one.deviations[some] - 1) < near)
    return int(some.sum()) >= 2 and bool(is_near.all()) and one.axes != 3  # a series drifts


def _is_off(one: Lying) -> bool:
    off = (one.deviations > 2) | (one.deviations < 0.5) | (np.abs(one.means) > 0.75)
    return bool(off[one.deviations > 1e-6].mean() > OFF) if (one.deviations > 1e-6).any() else False


def _differ(first: Lying, second: Lying) -> bool:
    """Whether most features lie elsewhere, or are spread otherwise."""
    some = np.maximum(first.deviations, 1e-9)
    ratio = second.deviations / some
    return bool(((np.abs(first.means - second.means) > 0.5 * some) | (ratio > 1.5) | (ratio < 1 / 1.5)).mean() > OFF)


def _shown(values: Any) -> str:
    return ", ".join(f"{one:.2g}" for one in values[:3])


def _of_their_own(learned: Sequence[Any], calls: Sequence[Any], module: int, known: set[int]) -> Iterator[Any]:
    """The first call of an evaluation of other rows whose features are scaled to exactly 0 and 1 by themselves, as
    those of the first epoch are."""
    first = together([call for call in learned if call.module == module and call.order < calls[0].order])
    if first is None or not _is_exact(first):
        return
    for _, group in groupby(calls, lambda call: (call.step, call.place)):
        judged = [*group]
        rows = {row for call in judged for row in call.samples}
        lying = together(judged)
        if lying is not None and lying.rows >= FEW // 2 and _is_exact(lying) and len(rows & known) < 0.5 * len(rows):
            yield judged[0]
            return


def _is_exact(one: Lying) -> bool:
    some = one.deviations > 1e-6
    wanted = (1.0, float(np.sqrt(1 - 1 / one.numbers)))
    are_one = np.min([np.abs(one.deviations[some] - size) for size in wanted], axis=0) < 1e-4
    return int(some.sum()) >= 2 and bool((np.abs(one.means[some]) < 1e-5).all() and are_one.all())


_TRAINS = re.compile(r"^(not )?((self|args|cfg)\.)?(is_)?(train\w*|augment)$|(split|mode|phase|part) == '(train\w*)'")


def _on_condition(run: Any) -> str:
    """Where what makes items or batches scales them in one part of the data alone: `if self.train: x = (x - m) / s`."""
    for code in run.givers:
        source = source_of(code.co_filename)
        function = source.defined(code) if source is not None else None
        for one in source.inside(function) if source is not None and function is not None else ():
            if not isinstance(one, ast.If) or not _TRAINS.search(ast.unparse(one.test)) or one.orelse:
                continue
            for inner in one.body:
                if isinstance(inner, ast.Assign) and normalised(inner.value) and "rand" not in ast.unparse(inner):
                    return source.place(inner)  # type: ignore[union-attr]
    return ""
