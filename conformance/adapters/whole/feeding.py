"""Where a model that is fed in pieces, with a cache, first computes something else than one pass over the same text.

Both runs are recorded, and their operations are laid side by side by line and module. The first operation of a piece
whose result for the newest tokens is not that of one pass shows the mistake; what it read leads to the line that made
it: the join of old keys and new ones, a mask that is cut from the wrong end, positions that begin anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.whole.conditions import under
from conformance.adapters.whole.declared import TextModel
from conformance.adapters.whole.flow import moves
from conformance.adapters.whole.record import Call, Op, Record, Value, record
from conformance.adapters.whole.stepping import Steps
from conformance.adapters.whole.writer import Writer, Written
from conformance.protocol import Array, Arrays

_STEPS = 4
"""So many passes of a writer are looked at: a place that is counted wrongly shows in the third."""
Twins = dict[int, Op]
"""Number of an operation of a piece -> the same operation of one pass."""


def fed_otherwise_at(subject: TextModel, writer: Writer, written: Written, data: Arrays) -> str:
    """file:line of what makes the steps of a writer differ from one pass over the same text; "" where none is seen."""
    with suppress(Exception):
        twin, script = subject.twin(), written.new[:, :_STEPS]
        again: list[Written] = []
        run = record(twin.module, lambda: again.append(writer.write_with(twin, data, script.shape[1], script=script)))
        said = np.concatenate([again[0].prefix, again[0].new], 1)
        return _differs_at(under(subject, written.conditions), run, data, torch.tensor(said))
    return ""


def stepped_otherwise_at(subject: TextModel, steps: Steps, ids: Array, pieces: tuple[int, ...]) -> str:
    """The same for pieces that are fed by hand."""
    with suppress(Exception):
        twin = subject.twin()
        run = record(twin.module, lambda: steps.fed(twin, ids, pieces))
        return _differs_at(subject, run, {subject.calling.main.meaning: ids}, torch.tensor(ids))
    return ""


def _differs_at(subject: TextModel, steps: Record, data: Arrays, said: Tensor) -> str:
    """said: (B, N) the text as it is written. Of a writer that calls parts of the model alone nothing is said."""
    outer = [call for call in steps.calls if call.parent < 0]
    if len(outer) < 2 or any(call.path for call in outer):
        return ""
    fed: list[Tensor] = []
    for call in outer:
        given = next(value for value in call.given if value.data.dtype is torch.int64 and value.data.dim() == 2)
        piece = given.data if subject.calling.batch_first else given.data.T
        start = sum(one.shape[1] for one in fed)
        if fed and start < said.shape[1] and not torch.equal(piece, said[:, start : start + piece.shape[1]]):
            return _line(steps.producer(given), call)
        fed.append(piece)
        whole = _one_pass(subject, data, torch.cat(fed, 1))
        if found := _first(steps, call, whole, len(piece)):
            return found
    return ""


def _one_pass(subject: TextModel, data: Arrays, ids: Tensor) -> Record:
    given = {**data, subject.calling.main.meaning: ids.numpy()}
    with subject.mode(False), torch.no_grad():
        return record(subject.module, lambda: subject.run(given))


def _line(op: Op | None, call: Call | None) -> str:
    """The line of an operation; without one, that of the call."""
    place = op.place if op is not None else call.caller if call is not None else None
    return str(place or "")


def _first(steps: Record, outer: Call, whole: Record, rows: int) -> str:
    """file:line of what makes the first result of a piece that is not that of one pass; "" where all are."""
    twins = dict(_pairs(steps, outer, whole))
    chosen, counted = _chosen(steps), set[Value]()
    for number, other in twins.items():
        op = steps.ops[number]
        if _counts_tokens(op, other) or counted.intersection(op.inputs):
            counted.update(op.outputs)
        if chosen.union(counted).intersection(op.outputs):
            continue
        if not all(_alike(a.data, b.data, rows) for a, b in zip(op.outputs, other.outputs, strict=False)):
            pairs = zip(op.inputs, other.inputs, strict=False)
            differing = next(((a, b) for a, b in pairs if not _alike(a.data, b.data, rows)), None)
            cause = _culprit(steps, *differing, twins, rows) if differing else None
            if cause is None or cause.place == op.place:
                cause = _left_out(steps, whole, op, other) or cause
            return _line(cause or op, None)
    return ""


def _counts_tokens(op: Op, other: Op) -> bool:
    """Is it a statistic of all tokens that are read, which is another one for a piece?"""
    sizes = [[value.shape for value in one.inputs] for one in (op, other)]
    return sizes[0] != sizes[1] and [v.shape for v in op.outputs] == [v.shape for v in other.outputs] and bool(sizes[0])


def _pairs(steps: Record, outer: Call, whole: Record) -> Iterator[tuple[int, Op]]:
    """The operations of a piece with those of one pass from the same line of the same module, where both did them
    equally often, in order."""
    mine, theirs = _by_line(steps, [steps.ops[number] for number in outer.ops]), _by_line(whole, whole.ops)
    found = {
        op.number: other
        for key, ops in mine.items()
        if len(ops) == len(theirs.get(key, ()))
        for op, other in zip(ops, theirs[key], strict=True)
    }
    yield from sorted(found.items(), key=lambda pair: pair[0])


def _chosen(run: Record) -> set[Value]:
    """Values with a row for each of the tokens that meet a condition, such as those of an expert: they are as many as
    there are, and stand for others in a piece than in one pass."""
    found: set[Value] = set()
    for op in run.ops:
        counted = {value.shape[0] for value in op.inputs if value in found and value.shape}
        if op.name == "nonzero":
            found.update(op.outputs)
        elif counted:
            found.update(value for value in op.outputs if not value.shape or value.shape[0] in counted)
    return found


def _by_line(run: Record, ops: list[Op]) -> Mapping[Any, list[Op]]:
    found: dict[Any, list[Op]] = {}
    for op in ops:
        call = run.call_of(op)
        found.setdefault((call.path if call is not None else "", op.place, op.name), []).append(op)
    return found


def _culprit(steps: Record, value: Value, expected: Value, twins: Twins, rows: int) -> Op | None:
    """What made a value that is not that of one pass, on a way that one pass does not go; None for what reads it."""
    made = steps.producer(value)
    if made is None or made.number in twins:
        return None
    while made.number not in twins and moves(made) and len(made.inputs) == 1:
        behind = steps.producer(made.inputs[0])
        if behind is None:
            break
        made = behind
    return _joined(steps, made, expected, rows) if made.name == "cat" else made


def _joined(steps: Record, join: Op, expected: Value, rows: int) -> Op:
    """What made the one part of a join that is not that of one pass, in another line; else the join."""
    axis, at, wrong = int(join.args[1]) if len(join.args) > 1 else 0, 0, []
    if join.outputs[0].shape != expected.shape:
        return join
    for value in join.inputs:
        size = value.shape[axis]
        if not _alike(value.data, expected.data.narrow(axis, at, size), rows):
            wrong.append(value)
        at += size
    made = steps.producer(wrong[0]) if len(wrong) == 1 else None
    while made is not None and made.place == join.place and moves(made) and len(made.inputs) == 1:
        made = steps.producer(made.inputs[0])
    return made or join


def _left_out(steps: Record, whole: Record, op: Op, other: Op) -> Op | None:
    """The last of what the line of an operation reads in one pass and not in the piece, such as a mask."""
    mine, theirs = _read_by_line(steps, op), _read_by_line(whole, other)
    ran = {one.place for one in mine}
    return max((one for one in theirs if one.place not in ran), key=lambda one: one.number, default=None)


def _read_by_line(run: Record, op: Op) -> list[Op]:
    """The operations of other lines from which the line of an operation has what it reads for it."""
    found, stack, seen = list[Op](), [op], set[int]()
    while stack:
        here = stack.pop()
        for made in filter(None, map(run.producer, here.inputs)):
            if made.number in seen:
                continue
            seen.add(made.number)
            (stack if made.place == op.place else found).append(made)
    return found


def _alike(one: Tensor, other: Tensor, rows: int) -> bool:
    """Are the newest tokens of a piece those of one pass? Along an axis that is shorter for the piece its entries are
    the last ones, of all or of each of the `rows` that lie behind each other in it; along one that is longer, as in a
    cache with room to spare, the first ones are compared. Of other forms nothing is said."""
    if one.dim() != other.dim() or one.is_complex() != other.is_complex():
        return True
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    return any(_close(*_cut(one.double(), other.double(), parts)) for parts in (1, rows))


def _cut(one: Tensor, other: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """The entries of both that stand for the same tokens."""
    for axis in range(one.dim()):
        mine, theirs = one.shape[axis], other.shape[axis]
        if mine > theirs:
            one = one.narrow(axis, 0, theirs)
        elif mine < theirs and (mine % parts or theirs % parts):
            other = other.narrow(axis, theirs - mine, mine)
        elif mine < theirs:
            apart = other.unflatten(axis, (parts, theirs // parts))
            other = apart.narrow(axis + 1, (theirs - mine) // parts, mine // parts).flatten(axis, axis + 1)
    return one, other


def _close(one: Tensor, other: Tensor) -> bool:
    scale = float(other.abs().nan_to_num(posinf=0.0, neginf=0.0).max()) if other.numel() else 0.0
    return bool(torch.isclose(one, other, rtol=0.0, atol=1e-4 * max(scale, 1e-6)).all())
