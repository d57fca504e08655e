"""Which rows of which data set a loader draws from, behind subsets, wrappers and samplers; which loaders share some."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, SequentialSampler, Subset

from conformance.watch.details import Rows
from conformance.watch.events import Backward, Batch, Forward
from conformance.watch.lines import At, source_of
from conformance.watch.parts import JUDGING
from conformance.watch.targets import fingerprints

MOST, SHOWN = 2**18, 64
"""So many rows a data set has at most, and so many at either end of what it holds are compared with another's."""


def rows_of(loader: Any, place: str, stack: tuple[At, ...]) -> Rows | None:
    """The rows that a loader draws from; None where that is not known, or where it draws from all of a data set that
    nothing shares."""
    dataset, sampler = loader.dataset, getattr(loader, "sampler", None)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__") or not 0 < len(dataset) <= MOST:
        return None
    drawn = getattr(sampler, "indices", None) if not isinstance(sampler, SequentialSampler) else None
    numbers = [*map(int, drawn)] if isinstance(drawn, Sequence) else [*range(len(dataset))]
    while True:
        if isinstance(dataset, Subset):
            numbers = [int(dataset.indices[one]) for one in numbers]
            dataset = dataset.dataset
        elif (inner := _inside(dataset)) is not None:
            dataset = inner
        else:
            break
    return Rows(place, _whole(dataset), frozenset(numbers), stack)


def _inside(dataset: Any) -> Any:
    """The data set that another one shows item by item: the only one that it holds, of as many rows."""
    held = [one for one in getattr(dataset, "__dict__", {}).values() if isinstance(one, Dataset)]
    is_one = len(held) == 1 and hasattr(held[0], "__len__") and hasattr(dataset, "__len__")
    return held[0] if is_one and len(held[0]) == len(dataset) else None


def _whole(dataset: Any) -> int:
    """A fingerprint of a data set: of its class, its length and what it holds row by row; of itself where it holds
    nothing of the kind."""
    size = len(dataset)
    held = dataset if isinstance(dataset, (list, tuple)) else [*getattr(dataset, "__dict__", {}).values()]
    held = [held] if isinstance(dataset, (list, tuple)) else [*held, *getattr(dataset, "tensors", ())]
    known = [found for one in held if (found := _ends(one, size)) is not None]
    return hash((type(dataset).__qualname__, size, *known)) if known else id(dataset)


def _ends(held: Any, size: int) -> tuple[int, ...] | None:
    """Fingerprints of the first and last rows of what is held."""
    if isinstance(held, (Tensor, np.ndarray)) and held.ndim and len(held) == size:
        rows = held.detach().cpu().float().numpy() if isinstance(held, Tensor) else held
        if rows.dtype == object:
            return None
        return fingerprints(np.ascontiguousarray(np.concatenate([rows[:SHOWN], rows[-SHOWN:]]).reshape(-1, 1)))
    if isinstance(held, (list, tuple)) and len(held) == size:
        shown = [*held[:SHOWN], *held[-SHOWN:]]
        return tuple(hash(repr(one.tolist() if isinstance(one, Tensor) else one)) for one in shown)
    return None


class Shared(NamedTuple):
    """A loader that judges, and the one that was learned from before it, over rows of which some are the same."""

    judging: Rows
    learned: Rows
    common: int
    is_named: bool
    event: Forward


def shared(run: Any) -> Iterator[Shared | None]:
    """For each loader that judges, what it shares with the one that was learned from last; None where that is nothing,
    or all of both."""
    learned = {last.rows for last, event in _after_batches(run) if isinstance(event, Backward)}
    now, known = -1, set[tuple[int, int]]()
    for last, event in _after_batches(run):
        if isinstance(event, Backward):
            now = last.rows
        elif not event.gradients and last.rows not in learned and now >= 0 and (last.rows, now) not in known:
            known.add((last.rows, now))
            judging, other = run.rows[last.rows], run.rows[now]
            if judging.of == other.of:
                common = len(judging.numbers & other.numbers)
                is_part = common and judging.numbers != other.numbers
                named = bool(event.evaluating) or _is_named(judging.stack)
                yield Shared(judging, other, common, named, event) if is_part else None


def _after_batches(run: Any) -> Iterator[tuple[Batch, Any]]:
    """The passes of a run, each with the last batch before it, where the rows of its loader are known."""
    last = None
    for event in run.events:
        if isinstance(event, Batch):
            last = event
        elif isinstance(event, (Forward, Backward)) and last is not None and last.rows >= 0:
            yield last, event


def _is_named(stack: tuple[At, ...]) -> bool:
    """Whether the statements that made a loader say that it judges."""
    for at in stack:
        call, source = at.call(), source_of(at.code.co_filename)
        if call is None or source is None:
            continue
        statement = source.statement(call)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = [n for one in (*targets, call) for n in ast.walk(one)]
        said = [getattr(n, "id", "") or getattr(n, "attr", "") or getattr(n, "arg", "") or "" for n in names]
        if any(map(JUDGING.search, said)):
            return True
    return False
