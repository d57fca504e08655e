"""Rows of different lengths that a model is told in numbers: does what fills them up change the answers for the rest?

The frames behind the end of each row are made others. Convolutions look a little over the end, so the first frames
behind it, as many as they see, stay; and of answers for each frame only those in the first half of a row are compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from conformance.watch.events import Probe
from conformance.watch.record import Run
from conformance.watch.repeating import Call
from conformance.watch.watcher import place

_ATTENTION = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
_ACROSS = (nn.GroupNorm, nn.modules.instancenorm._InstanceNorm, nn.RNNBase)
"""Parts that carry what stands at the end of a row to its beginning in models that are meant so."""

STACKED = 8
"""So many frames at most are put together to one, without a convolution."""


def padded_frames(run: Run, call: Call) -> None:
    """Add how far the answers move with the frames (N, T, F) behind the lengths (N,) that a call is given."""
    if any(isinstance(part, _ACROSS) for part in call.module.modules()):
        return
    given = call.given()
    for frames in (one for one in given if one.dim() == 3 and one.is_floating_point()):
        for axis in (1, 2):
            lengths = next((one for one in given if _are_lengths(one, frames, axis)), None)
            if lengths is not None:
                _move(run, call, frames, axis, lengths)
                return


def _reach(module: nn.Module) -> int:
    """How many frames over the end the convolutions of a model see at most."""
    reach, stride = STACKED, 1
    for part in module.modules():
        if isinstance(part, (nn.Conv1d, nn.Conv2d)):
            reach += (max(part.kernel_size) - 1) * max(part.dilation) * stride
            stride *= max(part.stride)
    return reach


def _are_lengths(lengths: Tensor, frames: Tensor, axis: int) -> bool:
    """Whether whole numbers (N,) say after how many frames only zeros follow, in several rows."""
    if lengths.dim() != 1 or lengths.is_floating_point() or len(lengths) != len(frames):
        return False
    size = frames.shape[axis]
    if (
        not size - STACKED < int(lengths.max()) <= size
        or int((lengths <= size - 4).sum()) < 2
        or int(lengths.min()) < 4
    ):
        return False
    return not bool(frames.movedim(axis, 1)[torch.arange(size) >= lengths[:, None]].any())


def _move(run: Run, call: Call, frames: Tensor, axis: int, lengths: Tensor) -> None:
    tail = torch.arange(frames.shape[axis]) >= (lengths + _reach(call.module))[:, None]
    if int(tail.any(1).sum()) < 2:
        return
    other = frames.movedim(axis, 1).clone()
    other[tail] = other.flip(1)[tail] + other[~tail].std()
    before, unmasked = call.answers(), _unmasked(call)
    for first, second in zip(before, call.answers(frames, other.movedim(1, axis).contiguous()), strict=True):
        if first.dim() > 3 or first.shape != second.shape or first.shape[0] != len(lengths):
            continue
        early = tail.any(1)
        if first.dim() == 3:
            half = (lengths * first.shape[1] // frames.shape[axis] // 2)[:, None]
            early = (torch.arange(first.shape[1]) < half) & early[:, None]
        if bool(early.any()):
            moved = float((first[early] - second[early]).abs().max() / first[early].abs().max().clamp(min=1e-6))
            line = run.modules[call.number][1]
            run.add(Probe(what="padding", error=moved, place=line, unmasked=unmasked))
            return


def _unmasked(call: Call) -> tuple[str, ...]:
    """The user's lines that call attention and give it no mask of padding."""
    found: list[str] = []

    def look(part: nn.Module, given: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        at = 3 if isinstance(part, nn.MultiheadAttention) else 2
        masks = [one for name, one in keywords.items() if "padding_mask" in name] or [*given[at : at + 1]]
        if not any(isinstance(one, Tensor) for one in masks):
            found.append(place())

    hooks = [
        part.register_forward_pre_hook(look, with_kwargs=True)
        for part in call.module.modules()
        if isinstance(part, _ATTENTION)
    ]
    try:
        call.answers()
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(dict.fromkeys(one for one in found if one))
