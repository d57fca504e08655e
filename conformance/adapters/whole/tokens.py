"""The tokens of a recorded run: are patches and frames whole where they enter? Does the head read the class token?"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import PRODUCTS, RESHAPES, UNKNOWN, carriers, carry, moves, operands, smaller
from conformance.adapters.whole.record import Op, Place, Record, Value


def token_findings(record: Record) -> list[Finding]:
    """What is wrong with tokens that the model makes itself; one finding for each claim and line."""
    return once([*_class_token(record), *_patches(record), *_features(record)])


def makes_tokens(record: Record) -> bool:
    """Does the run make tokens of images or frames, or have one of its own?"""
    return any(op.name == "convolution" for op in record.ops) or bool(_pictures(record)) or bool(_joined(record))


# --- the class token


def _joined(record: Record) -> list[tuple[Op, Value, int, set[int]]]:
    """Operations that join parameters to a computed sequence: with the result, its axis, and where parameters stand."""
    found = []
    for op in record.ops:
        if op.name != "cat" or len(op.inputs) < 2 or len(op.outputs[0].shape) != 3:
            continue
        computed = [record.computed(value) for value in op.inputs]
        learned = [any(v.kind == "parameter" for v in record.before([value])) for value in op.inputs]
        if not any(computed) or all(computed):
            continue
        axis = int(op.args[1]) % 3 if len(op.args) > 1 else 0
        places, at = set(), 0
        for value, one, parameter in zip(op.inputs, computed, learned, strict=True):
            size = value.shape[axis]
            if parameter and not one and size == 1:
                places.add(at)
            at += size
        if places and axis < 2:
            found.append((op, op.outputs[0], axis, places))
    return found


def _class_token(record: Record) -> Iterator[Finding]:
    joined = _joined(record)
    if len(joined) != 1:
        return
    op, whole, axis, places = joined[0]
    read: dict[int, Op] = {}
    others = False
    after, used = record.after([whole]), record.before(record.results)
    for reader in record.ops:
        if not reader.inputs or reader.inputs[0] not in after or reader.inputs[0].shape != whole.shape:
            continue
        if reader.name == "select" and reader.outputs[0] in used and int(reader.args[1]) % 3 == axis:
            read[int(reader.args[2]) % whole.shape[axis]] = reader
        elif reader.name in ("mean", "sum", "amax", "max") and reader.outputs[0].shape != (*whole.shape[:-1], 1):
            others = others or reader.outputs[0].shape[-1:] == whole.shape[-1:]
    if not read or others or places & set(read):
        return
    at, reader = next(iter(read.items()))
    yield Finding(
        "class-token-is-read-where-it-stands",
        f"The learned token stands at place {min(places)} of the sequence, and the answer is read from place {at}.",
        reader.place,
        f"place {min(places)}",
        f"place {at}",
        f"Read the token where it was joined ({op.place.text if op.place else 'the cat'}).",
        paths=("",),
    )


# --- patches and frames


def _pictures(record: Record) -> list[Value]:
    """Images that the model was called with: numbers (B, C, H, W)."""
    outer = [value for call in record.calls if call.parent < 0 for value in call.given]
    return [value for value in outer if value.data.is_floating_point() and len(value.shape) == 4]


def _patches(record: Record) -> Iterator[Finding]:
    """Images that are cut by reshaping: each token is one rectangle of pixels."""
    for image in _pictures(record):
        height, width = image.shape[-2:]
        pixel = torch.arange(height * width).reshape(height, width).expand(image.shape)
        reader, labels = _first_product(record, image, pixel)
        if reader is None or labels is None or labels.shape[-1] < 4 or labels.shape[-2] < 2:
            continue
        rows = labels.reshape(-1, labels.shape[-1])[: height * width]
        if bool((rows < 0).any()) or rows.shape[-1] >= height * width:
            continue
        sides = {_sides(row.unique(), width) for row in rows}
        said = _said_sides(record) or _split_sides(record, image)
        got = " and ".join(f"{side[0]} x {side[1]} pixels" for side in sides if side) or "pixels that are apart"
        if None in sides or (said and len(sides) == 1 and sides.isdisjoint(said)):
            yield Finding(
                "patches-are-pieces-of-the-image",
                "A token is made of other pixels of the image than those of one patch.",
                _cut(record, reader) or reader.place,
                "the pixels of one patch" + "".join(f", {h} x {w}" for h, w in said),
                got,
                "Permute (B, C, rows, h, columns, w) to (B, rows, columns, h, w, C), and flatten then.",
                paths=("",),
            )


def _sides(pixels: Tensor, width: int) -> tuple[int, int] | None:
    """Height and width of the rectangle that these pixels are; None where they are none."""
    rows, columns = pixels // width, pixels % width
    height, length = int(rows.max() - rows.min() + 1), int(columns.max() - columns.min() + 1)
    return (height, length) if height * length == len(pixels) else None


def _said_sides(record: Record) -> set[tuple[int, int]]:
    """The height and width of a patch by what modules keep under such a name; empty where none does."""
    found = set()
    for module in record.module.modules():
        for name, value in vars(module).items():
            if not re.fullmatch(r"(?i)patch(_?(size|dim|shape))?", name):
                continue
            pair = (value, value) if isinstance(value, int) else value
            if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(side, int) for side in pair):
                found.add((pair[0], pair[1]))
    return found


def _split_sides(record: Record, image: Value) -> set[tuple[int, int]]:
    """The height and width of a patch by the view that splits rows into (rows of patches, height) and columns likewise;
    empty where none does."""
    height, width = image.shape[-2:]
    for op in record.ops:
        shape = (
            op.outputs[0].shape if op.outputs and op.name in RESHAPES and record.reaches(image, op.inputs[0]) else ()
        )
        if len(shape) != 6 or len(op.inputs[0].shape) != 4:
            continue
        for at in (1, 2):  # the channels stand in front of these four axes, or behind them
            down, high, right, wide = shape[at : at + 4]
            if (down * high, right * wide) == (height, width):
                return {(high, wide)}
    return set()


def _features(record: Record) -> Iterator[Finding]:
    """What a convolution gives: each token has all features of one place."""
    for op in record.ops:
        if op.name != "convolution" or len(op.outputs[0].shape) not in (3, 4):
            continue
        made = op.outputs[0]
        batch, channels, *sizes = made.shape
        count = torch.Size(sizes).numel()
        place = torch.arange(count).reshape(sizes).expand(made.shape)
        reader, labels = _first_product(record, made, place)
        if reader is None or labels is None or count < 2:
            continue
        rows = labels.reshape(-1, labels.shape[-1])
        rows = rows[~(rows == UNKNOWN).all(-1)]  # a class token stands beside them
        if rows.shape != (batch * count, channels) or bool((rows < 0).any()):
            continue
        if bool((rows != rows[:, :1]).any()):
            yield Finding(
                "patches-are-pieces-of-the-image",
                "A token has features of several places: the axes of features and of places are mixed.",
                _cut(record, reader) or reader.place,
                "all features of one place",
                "features of several places",
                "Move the features last before you flatten: x.flatten(2).transpose(1, 2).",
                paths=("",),
            )


def _first_product(record: Record, start: Value, labels: Tensor) -> tuple[Op | None, Tensor | None]:
    """The first product with a matrix of its own that `start` reaches in its elements, and its labels there."""
    seen, stack = {start}, [start]
    found: list[tuple[Op, Value]] = []
    while stack:
        here = stack.pop()
        for op in record.consumers(here):
            if op.name in PRODUCTS and here in operands(op):
                found.append((op, here))
            elif here in carriers(op):
                ahead = [value for value in op.outputs if value not in seen]
                seen.update(ahead)
                stack += ahead
    if not found:
        return None, None
    op, operand = min(found, key=lambda item: item[0].number)
    if sum(map(record.computed, operands(op))) != 1:
        return None, None
    carried = carry(record, {start: labels}, operand, smaller)
    return op, carried


def _ordered_at(record: Record, op: Op) -> Place | None:
    """The line that puts axes in another order just before a reshape; None where none does."""
    here: Op | None = op
    while here is not None and here.inputs and moves(here):
        if here.name in ("permute", "transpose", "t"):
            return here.place
        here = record.producer(here.inputs[0])
    return None


def _cut(record: Record, reader: Op) -> Place | None:
    """The last line before a product that changes the number of axes; where axes are put in another order in the line
    before, that line."""
    value = next(v for v in operands(reader) if record.computed(v))
    op = record.producer(value)
    while op is not None and op.inputs and carriers(op):
        if (
            moves(op)
            and op.outputs
            and len(op.outputs[0].shape) != len(op.inputs[0].shape)
            and op.place != reader.place
        ):
            return _ordered_at(record, op) or op.place
        behind = next((value for value in carriers(op) if record.computed(value)), None)  # no class token
        op = record.producer(behind) if behind is not None else None
    return None
