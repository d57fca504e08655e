"""What lets the rows of a batch see each other, and where they first do: two runs that share their first row, operation
by operation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.whole.calling import T
from conformance.adapters.whole.record import Op, Record, record
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.watching import Watching, argument
from conformance.protocol import Arrays

_CLOSE = 1e-6
_WORDS = 11
"""So many rows a table is given that may be one sentence: no usual size of anything else."""


class MixingProbes(RunningModel):
    """The rows of a batch, of a running model."""

    @property
    def tokens_compete(self) -> bool:
        """Whether a choice is made among all tokens of a batch: experts with a capacity, experts that choose."""
        if "tokens_compete" not in self.known:
            only = self.calling.main.length
            try:
                self.known["tokens_compete"] = self._chooses_among(3, only or 7)
            except Exception:
                if only:
                    raise
                self.known["tokens_compete"] = self._chooses_among(3, T)  # it may take even lengths only
        return bool(self.known["tokens_compete"])

    def _chooses_among(self, batch: int, length: int) -> bool:
        with self.mode(False), torch.no_grad(), _Choices(batch * length) as choices:
            self.run(self.example(batch, length))
        return choices.seen

    @property
    def batched(self) -> bool:
        """Whether the answer has a row for each row of the batch, and the rows are no words of one sentence."""
        return super().batched and not self.rows_are_words

    @property
    def rows_are_words(self) -> bool:
        """Whether it takes tables of numbers (T, features) and attends among their rows: these are the words of one
        sentence, which has no batch."""
        if "rows_are_words" not in self.known:
            data, watched = self.example(_WORDS), _SquareSoftmax(_WORDS)
            if all(one.ndim == 2 and np.issubdtype(one.dtype, np.floating) for one in data.values()):
                with suppress(Exception), self.mode(False), torch.no_grad(), watched:
                    self.run(data)
            self.known["rows_are_words"] = watched.seen
        return bool(self.known["rows_are_words"])

    def normalises_over_batches(self) -> bool:
        return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in self.module.modules())

    def takes_statistics_of_its_batch(self) -> bool:
        """Whether it normalises over the batch in evaluation, too: no statistics were kept."""
        parts = (part for part in self.module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm))
        return any(part.running_mean is None for part in parts)

    def mixing_place(self, one: Arrays, other: Arrays, row: int = 0) -> str:
        """file:line where rows of a batch first see each other; "" where that is not found. one: inputs of which a row
        is the first of the other inputs."""
        with suppress(Exception):
            return _mixing_place(self, one, other, row)
        return ""


class _SquareSoftmax(Watching):
    """Whether a softmax gave each of so many rows a weight for each of them, or attention did."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.seen = rows, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, square = func.overloadpacket.__name__, (self.rows, self.rows)
        if name in ("_softmax", "_safe_softmax"):
            self.seen = self.seen or tuple(args[0].shape[-2:]) == square
        elif "scaled_dot_product" in name:
            self.seen = self.seen or (args[0].shape[-2], args[1].shape[-2]) == square
        return func(*args, **(kwargs or {}))


class _Choices(Watching):
    """Whether a choice was made along the tokens of a batch: the largest, the first so many, a running count."""

    def __init__(self, among: int) -> None:
        super().__init__()
        self.among, self.seen = among, False
        self.found: set[int] = set()  # where in memory the places are that a condition holds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in ("topk", "sort", "cumsum"):
            at = {"topk": 2, "sort": 1, "cumsum": 1}[name]
            axis = argument(args, kwargs, at, "dim", -1)
            self.seen = self.seen or (args[0].dim() > 0 and args[0].shape[axis] == self.among)
        elif name == "nonzero":
            self.found.add(result.untyped_storage()._cdata)
        elif name == "slice" and args[0].untyped_storage()._cdata in self.found:
            self.seen = self.seen or len(result) < len(args[0])
        return result


def _mixing_place(subject: RunningModel, one: Arrays, other: Arrays, row: int) -> str:
    """file:line of the first operation that gives the row something else though it reads the same of it; "" where none
    is found. The row is the first one of the other inputs."""
    rows, others = (len(next(iter(inputs.values()))) for inputs in (one, other))
    with subject.mode(False), torch.no_grad():
        first = record(subject.module, lambda: subject.run(one))
        second = record(subject.module, lambda: subject.run(other))
    for op, again in zip(first.ops, second.ops, strict=False):
        if op.name != again.name:
            return ""
        if _mixes(first, op, again, _Row(rows, row), _Row(others, 0)):
            return str(op.place or "")
    return ""


@dataclass(frozen=True)
class _Row:
    """One row of a batch."""

    of: int
    at: int

    def along(self, tensor: Tensor, axis: int, is_outer: bool) -> Tensor | None:
        """What an axis has of the row, where all rows lie along it: one behind the other, or in turns; else None."""
        size = tensor.shape[axis]
        if size % self.of:
            return None
        sizes = (self.of, size // self.of) if is_outer else (size // self.of, self.of)
        return tensor.unflatten(axis, sizes).select(axis + (not is_outer), self.at)


def _mixes(run: Record, op: Op, again: Op, row: _Row, other: _Row) -> bool:
    computed = [(a.data, b.data) for a, b in zip(op.inputs, again.inputs, strict=False) if run.computed(a)]
    if not computed or not all(_alike(a, b, row, other) for a, b in computed):
        return False
    return any(not _alike(a.data, b.data, row, other) for a, b in zip(op.outputs, again.outputs, strict=False))


def _alike(one: Tensor, other: Tensor, row: _Row, again: _Row) -> bool:
    """Do both have the same of the row, whichever axis the rows lie along? Are they the same where they have none?"""
    pairs = [(one, other)] if one.shape == other.shape else []
    for axis in range(min(one.dim(), other.dim())):
        for is_outer in (True, False):
            mine, theirs = row.along(one, axis, is_outer), again.along(other, axis, is_outer)
            if mine is not None and theirs is not None and mine.shape == theirs.shape:
                pairs.append((mine, theirs))
    return any(_close(mine, theirs) for mine, theirs in pairs)


def _close(one: Tensor, other: Tensor) -> bool:
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    one, other = one.double(), other.double()
    largest = float(one.abs().nan_to_num(posinf=0.0).max()) if one.numel() else 0.0
    return bool(torch.isclose(one, other, rtol=0.0, atol=_CLOSE * max(largest, 1e-9), equal_nan=True).all())
