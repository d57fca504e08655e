"""Positions of images of other sizes than the model was made for: where each patch's vector is taken from the table.

The table is given numbers that tell a row of patches, then numbers that tell a column. What reaches a patch of a wide
or a high image must tell its own row, and its own column.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.whole.flow import UNKNOWN, base_name, carry, moves
from conformance.adapters.whole.record import Op, Place, Record, Value, record
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.shapes import image_sizes, said_sizes

_MOST_SIDES = 4
_RESIZES = re.compile(r"upsample.*2d|grid_sampler_2d")


@dataclass(frozen=True)
class Resized:
    """One run on an image of (height, width) patches. rows, columns: (height, width), the row and the column that the
    vector of each patch tells, in those of the table; place: the line that puts the resized table in order."""

    size: tuple[int, int]
    rows: Tensor
    columns: Tensor
    place: Place | None


class ResizeProbes(RunningModel):
    """The experiment, of a running model."""

    def resized_positions(self) -> list[Resized]:
        """Runs on a wide and on a high image; none where the model takes one size only, or resizes no table."""
        shape = self.calling.main.shape
        if len(shape) != 3 or None in shape:
            return []
        told = [int(shape[1] or 0)] if shape[1] == shape[2] else []
        sides = [*told, *image_sizes(self.module, said_sizes(self.module, self.made.options))][:_MOST_SIDES]
        found: list[Resized] = []
        with suppress(Exception):
            side, plain = _usual(self, list(dict.fromkeys(sides)))
            for size in ((side, 2 * side), (2 * side, side)):
                with suppress(Exception):
                    found += _resized(plain, _run(self, size), side, size)
        return found


def _usual(subject: RunningModel, sides: list[int]) -> tuple[int, Record]:
    """The first side of a square image for which no table is resized, else the first that runs, and its run."""
    ran = []
    for side in sides:
        with suppress(Exception):
            ran.append((side, _run(subject, (side, side))))
            if not any(_RESIZES.search(op.name) for op in ran[-1][1].ops):
                return ran[-1]
    return ran[0]


def _run(subject: RunningModel, size: tuple[int, int]) -> Record:
    planes = int(subject.calling.main.shape[0] or 1)
    image = np.random.default_rng(70).standard_normal((2, planes, *size))
    arguments = subject.calling.arguments(subject.tensors({subject.calling.main.meaning: image}))
    with subject.mode(False), torch.no_grad():
        return record(subject.module, lambda: subject.module(**arguments))


def _resized(plain: Record, run: Record, side: int, size: tuple[int, int]) -> list[Resized]:
    for _, vectors, stream, table in _additions(run):
        behind = run.before([vectors])
        resize = next((op for op in run.ops if _RESIZES.search(op.name) and op.outputs[0] in behind), None)
        same = next((one for one in _additions(plain) if one[3].name == table.name), None)
        if resize is None or same is None:
            continue
        patch = _patch(plain, same[2], side)
        if patch is None:
            continue
        own = _tokens(plain, same[2], (side // patch, side // patch), patch)
        ramps = _ramps(plain, same[1], same[3], own) if own is not None else None
        tokens = _tokens(run, stream, (size[0] // patch, size[1] // patch), patch)
        if ramps is None or tokens is None:
            continue
        told = []
        for ramp in ramps:
            [given] = run.replay([vectors], {table: ramp.to(table.data.dtype)})
            told.append(given.expand(stream.shape)[0].double().mean(-1)[tokens])
        return [
            Resized((size[0] // patch, size[1] // patch), told[0], told[1], _ordered_at(run, vectors) or resize.place)
        ]
    return []


def _additions(run: Record) -> list[tuple[Op, Value, Value, Value]]:
    """Additions of vectors that come from one table of the model to a computed sequence (B, N, D): with the vectors,
    the sequence, and the table."""
    found = []
    for op in run.ops:
        if base_name(op) != "add" or len(op.inputs) != 2:
            continue
        for vectors, stream in (op.inputs, op.inputs[::-1]):
            if len(stream.shape) != 3 or not run.computed(stream) or run.computed(vectors):
                continue
            tables = [
                one for one in run.before([vectors]) if one.kind in ("parameter", "buffer") and one.data.dim() > 1
            ]
            if len(tables) == 1:
                found.append((op, vectors, stream, tables[0]))
    return found


def _patch(plain: Record, stream: Value, side: int) -> int | None:
    """The side of a patch, by the number of tokens of a square image, with up to two tokens beside the patches."""
    for extra in (0, 1, 2):
        rows = math.isqrt(stream.shape[1] - extra)
        if rows > 1 and rows * rows == stream.shape[1] - extra and side % rows == 0:
            return side // rows
    return None


def _tokens(run: Record, stream: Value, grid: tuple[int, int], patch: int) -> Tensor | None:
    """(rows, columns): which token is made of which patch; None where a token is made of several."""
    outer = [value for call in run.calls if call.parent < 0 for value in call.given]
    image = next(value for value in outer if len(value.shape) == 4)

    def touched(axis: int, at: int) -> Tensor:
        changed = image.data.clone()
        changed.narrow(axis, at * patch, patch).add_(1.0)
        [other] = run.replay([stream], {image: changed})
        return (other != stream.data)[0].any(-1)

    rows = torch.stack([touched(2, at) for at in range(grid[0])])
    columns = torch.stack([touched(3, at) for at in range(grid[1])])
    both = rows[:, None] & columns[None]
    return both.long().argmax(-1) if bool((both.sum(-1) == 1).all()) else None


def _ramps(plain: Record, vectors: Value, table: Value, tokens: Tensor) -> tuple[Tensor, Tensor] | None:
    """Two tables: what belongs to a patch is the number of its row, and that of its column. Which element belongs to
    which is read from a run on an image of the usual size; where the table is resized there, too, its rows are taken to
    be in the order of the patches, the last of them."""
    size = table.data.numel()
    labels = carry(plain, {table: torch.arange(size).reshape(table.shape)}, vectors)
    if labels is not None and labels.dim() == 3 and not bool((labels[0][tokens % labels.shape[1]] == UNKNOWN).any()):
        own = labels[0][tokens]
    elif table.data.dim() in (2, 3) and table.shape[-2] >= tokens.numel():
        kept = torch.arange(size).reshape(-1, table.shape[-1])[-tokens.numel() :]
        own = kept.reshape(*tokens.shape, table.shape[-1])
    else:
        return None
    ramps = []
    for axis in (0, 1):
        ramp = torch.zeros(size, dtype=torch.float64)
        shape = [-1 if at == axis else 1 for at in range(3)]
        numbers = torch.arange(tokens.shape[axis], dtype=torch.float64).reshape(shape).expand(own.shape)
        ramp[own.reshape(-1)] = numbers.reshape(-1)
        ramps.append(ramp.reshape(table.shape))
    return ramps[0], ramps[1]


def _ordered_at(run: Record, vectors: Value) -> Place | None:
    """The last line that puts axes in another order; None where none does."""
    op = run.producer(vectors)
    while op is not None and moves(op) and op.inputs:
        if op.name in ("permute", "transpose", "t"):
            return op.place
        here = next((value for value in op.inputs[::-1] if value.op >= 0), op.inputs[0])
        op = run.producer(here)
    return None
