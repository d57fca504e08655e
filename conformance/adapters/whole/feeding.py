"""What a cached step hands its parts beside what one pass over the same text hands them: the first difference."""

from __future__ import annotations

from contextlib import suppress
from itertools import zip_longest

import torch
from torch import Tensor

from conformance.adapters.whole.record import Call, Record, Value, record
from conformance.adapters.whole.writer import TextModel, Writer, Written
from conformance.protocol import Arrays


def fed_otherwise_at(subject: TextModel, writer: Writer, written: Written, data: Arrays) -> str:
    """file:line that makes the first thing handed to a part in the second step, positions or a rotation, that is not
    what one pass has there for the last token; "" where there is none."""
    with suppress(Exception):
        twin, script = subject.twin(), written.new[:, :2]
        steps = record(twin.module, lambda: writer.write_with(twin, data, 2, script=script))
        text = torch.tensor(written.prefix.tolist()), torch.tensor(written.new[:, :1].tolist())
        ids = torch.cat(text, 1).numpy()
        with subject.mode(False), torch.no_grad():
            whole = record(subject.module, lambda: subject.run({**data, subject.calling.main.meaning: ids}))
        outer = [call for call in steps.calls if call.parent < 0]
        return _first(steps, _inside(steps, outer[1]), whole.calls[1:])
    return ""


def _inside(run: Record, outer: Call) -> list[Call]:
    return [call for call in run.calls if call is not outer and outer in run.around(call)]


def _first(steps: Record, fed: list[Call], whole: list[Call]) -> str:
    for one, other in zip_longest(fed, whole):
        if one is None or other is None or one.path != other.path:
            return ""
        for value, expected in zip(_handed(one), _handed(other), strict=False):
            if not _alike(value.data, expected.data):
                op = steps.producer(value)
                return str((op.place if op is not None else one.caller) or "")
    return ""


def _handed(call: Call) -> list[Value]:
    """What a part is handed, tensors by themselves: a cache is a list of them."""
    return [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, Value)]


def _alike(one: Tensor, other: Tensor) -> bool:
    """Is the last entry along the one axis in which they differ the same? Of other forms nothing is said."""
    if one.dim() != other.dim() or one.is_complex() != other.is_complex():
        return True
    axes = [axis for axis in range(one.dim()) if one.shape[axis] != other.shape[axis]]
    if len(axes) > 1:
        return True
    if axes:
        one, other = one.select(axes[0], -1), other.select(axes[0], -1)
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    scale = float(other.double().abs().nan_to_num(posinf=0.0, neginf=0.0).max()) if other.numel() else 0.0
    return bool(torch.isclose(one.double(), other.double(), rtol=0.0, atol=1e-4 * max(scale, 1e-6)).all())
