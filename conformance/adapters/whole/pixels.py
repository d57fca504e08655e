"""Images that a recorded run answers with: does each patch stand where the patch stood that it was made from?

The places of the patches are followed along the stream of tokens to the last product, and from there to the pixels.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.flow import PRODUCTS, UNKNOWN, carriers, carry, moves, operands, smaller
from conformance.adapters.whole.record import Op, Place, Record, Value


def pixel_findings(record: Record) -> Iterator[Finding]:
    """Answers (B, C, H, W) whose patches stand elsewhere than the patches of the image."""
    for answer in record.results:
        if len(answer.shape) != 4 or not answer.data.is_floating_point() or not record.computed(answer):
            continue
        last = _last_product(record, answer)
        if last is None:
            continue
        for made in _patched(record):
            shown = _places(record, made, last, answer)
            if shown is None:
                continue
            wanted = _in_order(made, shown)
            if wanted is not None and bool((shown != wanted).any()):
                wrong = (shown != wanted).any(0).float().mean()
                yield Finding(
                    "patches-are-answered-where-they-were",
                    "The image of the answer is put together in another order than the patches were cut in.",
                    _ordered_at(record, answer) or last.place,
                    "each patch where the patch stood that it is made from",
                    f"{float(wrong):.0%} of the pixels belong to a patch of another place",
                    "View the tokens as (B, rows, columns, h, w, C), and permute to (B, C, rows, h, columns, w).",
                    paths=("",),
                )
            break


def _patched(record: Record) -> list[Value]:
    """What convolutions make of images: (B, features, rows, columns), with more than one of both."""
    made = [op.outputs[0] for op in record.ops if op.name == "convolution"]
    return [value for value in made if len(value.shape) == 4 and min(value.shape[2:]) > 1 and record.computed(value)]


def _last_product(record: Record, answer: Value) -> Op | None:
    """The product whose elements are those of the answer, moved or scaled; None where the answer is no such thing."""
    op = record.producer(answer)
    while op is not None and op.name not in PRODUCTS:
        behind = [value for value in carriers(op) if record.computed(value)]
        if len(behind) != 1:
            return None
        op = record.producer(behind[0])
    return op


def _places(record: Record, made: Value, last: Op, answer: Value) -> Tensor | None:
    """For each pixel (C, H, W) of the first answer the place of its patch; None where that is not known of all."""
    rows, columns = made.shape[2:]
    home = torch.arange(rows * columns).reshape(rows, columns).expand(made.shape)
    operand = next((value for value in operands(last) if record.computed(value)), None)
    arrived = carry(record, {made: home}, operand, smaller) if operand is not None else None
    if arrived is None or arrived.dim() != 2:
        return None
    of_row = arrived.amax(-1)
    if bool((of_row == UNKNOWN).all()) or bool(((arrived != of_row[:, None]) & (arrived != UNKNOWN)).any()):
        return None
    shown = carry(record, {last.outputs[0]: of_row[:, None].expand(last.outputs[0].shape)}, answer, smaller)
    return None if shown is None or bool((shown[0] == UNKNOWN).any()) else shown[0]


def _in_order(made: Value, shown: Tensor) -> Tensor | None:
    """The place of each pixel (H, W) where patches stand in rows and columns; None where they do not fit the image."""
    (rows, columns), (height, width) = made.shape[2:], shown.shape[1:]
    if height % rows or width % columns:
        return None
    down, right = torch.arange(height) // (height // rows), torch.arange(width) // (width // columns)
    return down[:, None] * columns + right


def _ordered_at(record: Record, answer: Value) -> Place | None:
    """The last line that puts axes in another order; else the last that gives them other sizes."""
    op, found = record.producer(answer), None
    while op is not None and moves(op) and op.inputs:
        if op.name in ("permute", "transpose", "t"):
            return op.place
        found = found or op.place
        op = record.producer(op.inputs[0])
    return found
