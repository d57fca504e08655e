"""Where numbers come from and go to in a record: which element of one value is which element of another.

Labels are integers, one an element. They are carried forward from chosen values through everything that moves elements
(views, copies, concatenation) or works element by element, so a layout is never guessed: it is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from conformance.adapters.whole.record import Op, Record, Value

SAME = {"_to_copy", "clone", "detach", "alias", "lift_fresh", "contiguous"}
RESHAPES = {"view", "_unsafe_view", "_reshape_alias", "reshape"}
JOINS = {"cat", "stack", "written", "slice_scatter", "select_scatter", "constant_pad_nd"}
PICKS = {"index_select", "gather", "index", "repeat", "roll", "flip", "tril", "triu", "copy", "take_along_dim"}
PASSES = {
    *("_softmax", "_safe_softmax", "native_dropout", "native_layer_norm", "_fused_rms_norm", "_log_softmax"),
    *("index_put", "index_put_", "_index_put_impl_", "index_fill", "index_fill_"),
}
"""Operations whose first result keeps every element of their first input in its place; some write over a few."""
POINTWISE = {"masked_fill", "copy", "rsub", "where", "polar", "fill", "zero"}
PRODUCTS = {"mm", "addmm", "bmm"}
UNKNOWN, MIXED = -1, -2
Merge = Callable[[Tensor, Tensor], Tensor]


def base_name(op: Op) -> str:
    """The name of an operation without the sign that it writes in place."""
    return op.name.removesuffix("_") if not op.name.startswith("__") else op.name


def moves(op: Op) -> bool:
    """Does the operation only move elements?"""
    view = bool(getattr(op.function, "is_view", False))
    return view or op.name in SAME or op.name in RESHAPES or op.name in JOINS or op.name in PICKS


def pointwise(op: Op) -> bool:
    """Does the operation work element by element?"""
    return torch.Tag.pointwise in getattr(op.function, "tags", ()) or base_name(op) in POINTWISE


def carriers(op: Op) -> tuple[Value, ...]:
    """The inputs whose elements come through the operation, each at a place of its own."""
    if op.name in PASSES or op.name in PICKS:
        return op.inputs[:1]
    if base_name(op) == "copy":
        return op.inputs[1:]
    return op.inputs if moves(op) or pointwise(op) else ()


def operands(op: Op) -> tuple[Value, Value]:
    """The two factors of a product."""
    return op.inputs[-2], op.inputs[-1]


def equal_or_mixed(first: Tensor, second: Tensor) -> Tensor:
    """The label that both have; MIXED where they differ."""
    result = torch.where(first == second, first, MIXED)
    return torch.where(first == UNKNOWN, second, torch.where(second == UNKNOWN, first, result))


def smaller(first: Tensor, second: Tensor) -> Tensor:
    """The smaller label of the two."""
    result = torch.minimum(first, second)
    return torch.where(first == UNKNOWN, second, torch.where(second == UNKNOWN, first, result))


def carry(record: Record, start: Mapping[Value, Tensor], target: Value, merge: Merge = equal_or_mixed) -> Tensor | None:
    """The labels of `start` as they arrive at `target`; None where they do not. UNKNOWN: an element from elsewhere."""
    labels = dict(start)
    needed = record.before([target], min((value.number for value in start), default=0))
    for number in sorted({value.op for value in needed if value.op >= 0 and value not in start}):
        op = record.ops[number]
        if any(value in labels for value in op.inputs):
            for value, result in zip(op.outputs, _through(op, labels, merge), strict=False):
                labels[value] = result
    return labels.get(target)


def _through(op: Op, labels: Mapping[Value, Tensor], merge: Merge) -> list[Tensor]:
    known = [value for value in carriers(op) if value in labels]
    shape = op.outputs[0].shape if op.outputs else ()
    if not known:
        return []
    if op.name in SAME or op.name in PASSES:
        return [labels[known[0]]]
    if op.name in RESHAPES:
        return [labels[known[0]].reshape(shape)]
    if op.name == "view_as_real":
        return [labels[known[0]].unsqueeze(-1).expand(shape)]
    if op.name == "view_as_complex":
        parts = labels[known[0]]
        return [merge(parts[..., 0], parts[..., 1])]
    if op.name == "constant_pad_nd":
        return [torch.nn.functional.pad(labels[known[0]], op.args[1], value=UNKNOWN)]
    if moves(op):

        def tensor(value: Value) -> Tensor:
            if value in labels:
                return labels[value]
            return torch.full(value.shape, UNKNOWN) if op.name in JOINS else value.data

        args, kwargs = tree_map_only(Value, tensor, (op.args, op.kwargs))
        return [leaf for leaf in tree_leaves(op.function(*args, **kwargs)) if isinstance(leaf, Tensor)]
    result = None
    for value in known:
        given = labels[value].expand(shape)
        result = given if result is None else merge(result, given)
    return [result] if result is not None else []


def numbered(value: Value) -> Tensor:
    """A label for each element: its place in the flat value."""
    return torch.arange(value.data.numel()).reshape(value.shape)


def sources(record: Record, value: Value, stop: Callable[[Op], bool] = lambda op: False) -> list[Value]:
    """Where the elements of `value` come from: back through moves and element-wise operations to all else (products,
    norms by hand, inputs), in the order in which they were made. What does not depend on the input is left out."""
    found: dict[int, Value] = {}
    seen: set[Value] = set()
    stack = [value]
    while stack:
        here = stack.pop()
        if here in seen or not record.computed(here):
            continue
        seen.add(here)
        op = record.producer(here)
        behind = carriers(op) if op is not None and not stop(op) else ()
        if not behind:
            found[here.number] = here
        stack.extend(behind)
    return [found[number] for number in sorted(found)]


def origin(record: Record, value: Value) -> Value:
    """The value behind that `value` shows in another form: back through moves of one input."""
    op = record.producer(value)
    while op is not None and moves(op) and op.name not in JOINS and op.inputs:
        value = op.inputs[0]
        op = record.producer(value)
    return value


@dataclass
class Factor:
    """What constants make of a value on its way: their product, and the operations that multiply."""

    value: float = 1.0
    ops: list[Op] = field(default_factory=list)
    plain: bool = True  # nothing but sums and constant factors on the way


def factor(record: Record, start: set[Value], end: Value) -> Factor:
    """The constant factor between the values `start` and `end`; factors that are no single number count as 1."""
    result = Factor()
    after = record.after(start)
    here = end
    while here not in start:
        op = record.producer(here)
        behind = [value for value in carriers(op) if value in after] if op is not None else []
        if op is None or not behind:
            result.plain = False
            return result
        name = base_name(op)
        if name in ("mul", "div", "neg", "multiply", "true_divide"):
            _multiply(result, op, name, behind)
        elif pointwise(op) and name not in ("add", "sub", "masked_fill", "where", "clone", "rsub", "copy"):
            result.plain = False
        here = min(behind, key=lambda value: value.number) if name in ("add", "sub") else behind[0]
    return result


def _multiply(result: Factor, op: Op, name: str, behind: list[Value]) -> None:
    if name == "neg":
        result.value = -result.value
        return
    other = op.args[1] if op.args[0] is behind[0] else op.args[0]
    if isinstance(other, Value):
        numbers = other.data.reshape(-1)
        if not len(numbers) or numbers.is_complex() or not bool((numbers == numbers[0]).all()):
            return
        number = float(numbers[0])
    else:
        number = float(other)
    if number == 1.0:
        return
    if name in ("div", "true_divide") and other is op.args[0]:
        result.plain = False
    elif number:
        result.value *= 1 / number if name in ("div", "true_divide") else number
        result.ops.append(op)
    else:
        result.plain = False


@dataclass
class Projection:
    """A product of values that depend on the input with a matrix that does not, as tokens and columns.

    tokens: for each element of the result, the number of the token of `base` that it was computed from (int64, the
    result's shape). columns: which column of the projection it is. weight: the parameter; matrix: what was used
    of it. slices: how many heads share the matrix.
    """

    value: Value
    base: Value
    weight: Value
    matrix: Tensor
    tokens: Tensor
    columns: Tensor
    slices: int = 1


def projection(record: Record, value: Value) -> Projection | None:
    """`value` read as a projection; None where it is none."""
    op = record.producer(value)
    if op is None or op.name not in PRODUCTS or not value.data.numel():
        return None
    left, right = operands(op)
    if record.computed(left) == record.computed(right):
        return None
    swapped = record.computed(right)  # weight times the transposed input
    given, weight = (right, left) if swapped else (left, right)
    base = origin(record, given)
    places = carry(record, {base: numbered(base)}, given)
    if places is None or not base.shape:
        return None
    places = places.transpose(-1, -2) if swapped else places  # (..., rows, width)
    width = base.shape[-1]
    tokens, offsets = places // width, places % width
    if bool((tokens != tokens[..., :1]).any()):
        return None
    rows = tokens[..., 0]
    if len(places.unique()) < places.numel() and not bool((places == places[:1]).all()):
        rows = torch.arange(rows.numel()).reshape(rows.shape)  # a token that was repeated before it was projected
        base = given
    slices = 1
    columns = torch.arange(value.shape[-2] if swapped else value.shape[-1]).expand(*rows.shape, -1)
    count = columns.shape[-1]
    first = offsets.amin(-1)
    if bool((first != first.reshape(-1)[0]).any()):  # parts of one token in different rows
        part = first // max(places.shape[-1], 1)
        slices = int(part.max()) + 1
        columns = columns + part.unsqueeze(-1) * count
        if weight.data.dim() == 3 and not bool((weight.data == weight.data[:1]).all()):
            slices = 1  # each head has its own matrix
    elif rows.dim() == 3 - 1 and value.data.dim() == 3 and len(rows) > 1 and bool((rows == rows[:1]).all()):
        columns = columns + torch.arange(len(rows))[:, None, None] * count
    grid = rows.unsqueeze(-1).expand_as(columns)
    if swapped:
        grid, columns = grid.transpose(-1, -2), columns.transpose(-1, -2)
    return Projection(value, base, origin(record, weight), weight.data, grid, columns, slices)
