"""Frames of which some are padding: what convolutions along the time read, and how many rows they make.

A convolution behind the first reads what the layers before it made of padding, biases among it, where nothing empties
it: then the last real frames depend on the padding behind them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.whole.attention import attentions
from conformance.adapters.whole.fillers import AllOf, Beside
from conformance.adapters.whole.flow import base_name
from conformance.adapters.whole.hiding import Culprit
from conformance.adapters.whole.record import Op, Record, record
from conformance.adapters.whole.running import RunningModel
from conformance.protocol import Array, NotProvided

_STEP = 8
"""Numbers of frames are multiples of it, so that strides leave none over."""
_COUNTS = {"div", "floor_divide", "__rshift__", "ceil", "floor"}
"""Operations by which lengths behind a stride are counted."""


@dataclass(frozen=True)
class Convolved:
    """One convolution along the time. kernel, stride, padding: its own along the time; before, after: the lengths of
    what it got and gave; emptied: whether all that it got of the padding of row 0 is zero."""

    op: Op
    kernel: int
    stride: int
    padding: int
    before: int
    after: int
    emptied: bool


class FrameProbes(RunningModel):
    """The experiments, of a running model."""

    def of_any_length(self) -> Self:
        """The model, called with any number of frames, also where the few that others are run with do not suffice."""
        one = self.calling.main
        if one.length is None or None not in one.shape or self.calling.two_sided:
            return self
        _ = self.noise, self.renewed  # found out with as many frames as it was called with, and kept
        return replace(self, calling=replace(self.calling, inputs=(replace(one, length=None),)))

    def frames_beside(self) -> tuple[Array, Array, str]:
        """The answers for a text beside frames of which a quarter is real, as its lengths say: with zeros behind these,
        and with fewer zeros, or with other numbers far behind them where it takes one number of frames only; and which.
        Edges of convolutions see the same zeros. Raises NotProvided where it takes no frames beside its words, or no
        lengths of them, or where norms count the time."""
        frames = [(name, make) for name, make in self.calling.fixed.items() if isinstance(make, Beside)]
        lengths = [name for name, make in self.calling.fixed.items() if isinstance(make, AllOf)]
        if not frames or not lengths or len(frames[0][1].shape) != 2:
            raise NotProvided("it takes no frames beside its words whose number it is told")
        if any(isinstance(part, (nn.GroupNorm, nn.InstanceNorm1d)) for part in self.module.modules()):
            raise NotProvided("its norms count the padding of frames")
        name, made = frames[0]
        data = self.example(2, seed=46)
        longest = max(made.shape[0], 8 * _STEP)
        real, make = longest // 4 // _STEP * _STEP, Beside(name, (longest, made.shape[1]))

        def answer(steps: int, other: float) -> Array:
            def given(inputs: Mapping[str, Tensor]) -> Tensor:
                numbers = make(inputs)[:, :steps].clone()
                numbers[0, real : real + 2 * _STEP] = 0.0
                numbers[0, real + 2 * _STEP :] *= other
                return numbers

            told = dict.fromkeys(lengths, lambda inputs: torch.tensor([real, steps]))
            calling = replace(self.calling, fixed={**self.calling.fixed, name: given, **told})
            return np.asarray(replace(self, calling=calling)(**data)["out"][:1])

        try:
            whole = answer(longest, 0.0)
        except Exception as error:
            raise NotProvided("it takes too few frames") from error
        with suppress(Exception):
            return whole, answer(longest // 2 // _STEP * _STEP, 0.0), "less padding"
        return whole, answer(longest, 1.0), "other numbers in the padding"

    def padding_convolved(self, inputs: dict[str, np.ndarray], real: np.ndarray) -> Culprit | None:
        """The convolution that reads padding and should not, in a run in which row 0 has padding: one behind the
        strides, where attention leaves padding out; of those that shorten the time one behind another to which emptied
        padding is given."""
        with suppress(Exception):
            with self.mode(False), torch.no_grad():
                run = record(self.module, lambda: self.run({**inputs, "padding": real}))
            return reads_padding(list(convolved(run, torch.tensor(real))))
        return None

    def padding_counted_at(self, less: dict[str, np.ndarray], more: dict[str, np.ndarray]) -> str:
        """file:line of the first operation on row 0 whose result for the real frames differs between two runs, of which
        the second has more padding; "" where none is found."""
        with suppress(Exception):
            with self.mode(False), torch.no_grad():
                one, other = (record(self.module, partial(self.run, data)) for data in (less, more))
            share = float(less["padding"][0].mean())
            used = one.before(one.results)
            for op, again in zip(one.ops, other.ops, strict=False):
                if op.name != again.name:
                    break
                for a, b in zip(op.outputs, again.outputs, strict=True):
                    if a in used and _differ(a.data, b.data, len(less["padding"]), share):
                        return str(op.place or "")
        return ""

    def rows_left_out(self, length: int) -> tuple[list[int], Culprit] | None:
        """Which rows an attention hides from every query though no frame of the input is padding, and the line that
        counts them. None where the rows of attention are not made by convolutions in strides alone, each of which
        looks no further over the end than half of its kernel."""
        real = torch.ones(1, length, dtype=torch.bool)
        with self.mode(False), torch.no_grad():
            run = record(self.module, lambda: self.run({**self.example(1, length), "padding": real.numpy()}))
        rows = length
        strided = [one for one in convolved(run, real) if one.stride > 1]
        for one in strided:
            if one.before != rows or 2 * one.padding >= one.kernel:
                return None
            rows = one.after
        cores = [core for core in attentions(run) if core.hidden.shape[-2:] == (rows, rows)]
        if not strided or not cores:
            return None
        for core in cores:
            hidden = core.hidden.flatten(0, -3).all(-2).any(0)
            if bool(hidden.any()):
                behind = {
                    value.op for value in run.before([core.softmax.gave]) - run.after([core.raw]) if value.op >= 0
                }
                ops = [run.ops[number] for number in sorted(behind)]
                counts = [op for op in ops if base_name(op) in _COUNTS and not op.outputs[0].data.is_floating_point()]
                return hidden.nonzero().flatten().tolist(), Culprit("", counts[-1].place if counts else core.place)
        return [], Culprit("", None)

    def without_norms_over_time(self) -> Self | None:
        """A copy whose norms of groups of channels, which count all times, give what they get; None where it has none
        before a convolution that shortens the time."""
        other = self.twin()
        parts = list(other.module.modules())
        strided = [at for at, part in enumerate(parts) if isinstance(part, nn.Conv1d) and part.stride[0] > 1]
        found = [at for at, part in enumerate(parts) if isinstance(part, (nn.GroupNorm, nn.InstanceNorm1d))]
        if not found or not strided or min(found) > max(strided):
            return None
        for at in found:
            parts[at].forward = nn.Identity().forward
        return other


def convolved(run: Record, real: Tensor) -> Iterator[Convolved]:
    """The convolutions of a run along the time, in order. real: (B, T) of bool, which frames of the input are real."""
    length, count = real.shape[1], int(real[0].sum())
    now = length
    for op in run.ops:
        if op.name != "convolution" or op.args[6] or not run.computed(op.inputs[0]):
            continue
        given, weight, gave = op.inputs[0], op.inputs[1], op.outputs[0]
        if len(given.shape) < 3 or given.shape[0] != len(real):
            continue
        axis = min(range(2, len(given.shape)), key=lambda at: abs(given.shape[at] - now))
        before = given.shape[axis]
        first = math.ceil(count * now / length) + 1 + max(before - now, 0)
        rest = given.data[0].narrow(axis - 1, min(first, before), max(before - first, 0))
        stride, padding = (op.args[at][min(axis - 2, len(op.args[at]) - 1)] for at in (3, 4))
        if weight.shape[axis] > 1:
            emptied = not bool(rest.any())
            yield Convolved(op, weight.shape[axis], stride, padding, before, gave.shape[axis], emptied)
        now = gave.shape[axis]


def _differ(one: Tensor, other: Tensor, batch: int, share: float) -> bool:
    """Whether two results differ where they are of real frames: this share of the axes that grow with the padding."""
    if one.dim() != other.dim() or not one.is_floating_point():
        return False
    if one.dim() and one.shape[0] == other.shape[0] == batch:
        one, other = one[:1], other[:1]
    for axis in range(one.dim()):
        if one.shape[axis] != other.shape[axis]:
            kept = int(share * one.shape[axis])
            one, other = one.narrow(axis, 0, kept), other.narrow(axis, 0, kept)
    return bool(((one - other).abs() > 1e-6 * one.abs().amax()).any()) if one.numel() else False


def reads_padding(found: list[Convolved]) -> Culprit | None:
    """The first convolution that reads padding and should not; None where there is none."""
    last = max((at for at, one in enumerate(found) if one.stride > 1), default=-1)
    for at, one in enumerate(found):
        known = any(other.emptied for other in found[1:at])
        if not one.emptied and (at > last or (at > 0 and known)):
            return Culprit("a convolution reads the padding behind the last real frame", one.op.place)
    return None
