"""The calls that compute one node of a plan on the CPU: a kernel where the op has one, else numpy or its reference.

What only plans have (fused groups, joins) has a binder here, under its op's name. A binder
is given the calls that it appends to, the node, its operands (arrays, and literals as numbers) and its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minigrad import dtypes, kernels
from minigrad.compiler import codegen, fusion
from minigrad.compiler.layout import covers
from minigrad.kernels.calls import Calls
from minigrad.node import Node
from minigrad.ops.index import thaw
from minigrad.ops.registry import OPS

Binder = Callable[[Calls, Node, list[Any], list[np.ndarray]], None]
BINDERS: dict[str, Binder] = {}


def bind(calls: Calls, node: Node, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
    """Append what computes a node's outputs."""
    if node.op not in BINDERS:
        _of_op(calls, node.op, inputs, outputs, node.attrs)
        return
    edges = [edge for edge in node.inputs if edge is not None]
    literals = [edge[0].attrs["value"] if edge[0].op == "literal" else None for edge in edges]
    operands = [array if value is None else value for array, value in zip(inputs, literals, strict=True)]
    BINDERS[node.op](calls, node, operands, outputs)


def _of_op(
    calls: Calls, name: str, inputs: list[np.ndarray], outputs: list[np.ndarray], attrs: Mapping[str, Any]
) -> None:
    op = OPS[name]
    if any(kernels.bind(op, inputs, outputs, attrs, calls, planned) is not None for planned in (False, True)):
        return
    if name == "put" and outputs[0] is inputs[0]:
        calls.add(_put_in_place, outputs[0], attrs["index"], *inputs[1:])
    elif any(dtypes.is_half(array.dtype) for array in inputs):  # numpy would add up in the half type
        calls.add(_by_reference, op, inputs, attrs, outputs)
    elif op.ufunc is not None:
        calls.add(_fill, op.ufunc, outputs[0], *inputs)
    elif name == "sum":
        calls.add(np.add.reduce, inputs[0], attrs["dims"], None, outputs[0], attrs["keepdim"])
    else:
        calls.add(_by_reference, op, inputs, attrs, outputs)


def _fill(function: np.ufunc, output: np.ndarray, *inputs: np.ndarray) -> None:
    function(*inputs, out=output)


def _put_in_place(target: np.ndarray, index: Any, value: np.ndarray, *indices: np.ndarray) -> None:
    """Write only the part that changes: a cache takes a new entry without being copied."""
    target[thaw(index, indices)] = value


def _by_reference(op: Any, inputs: list[np.ndarray], attrs: Any, outputs: list[np.ndarray]) -> None:
    """An op without a kernel: its reference, then a copy."""
    for output, value in zip(outputs, op.evaluate(inputs, attrs), strict=True):
        np.copyto(output, value)


# --- what only plans have ----------------------------------------------------------------------------


def binds(op: str) -> Callable[[Binder], Binder]:
    """The function is the binder of `op`."""

    def keep(binder: Binder) -> Binder:
        BINDERS[op] = binder
        return binder

    return keep


@binds("join")
def _join(calls: Calls, node: Node, operands: list[Any], outputs: list[np.ndarray]) -> None:
    (output,) = outputs
    if not covers(node):
        calls.add(output.fill, 0)
    for part, index in zip(operands, node.attrs["indices"], strict=True):
        place = output[(*thaw(index), ...)]  # with "..." a single element is a view, too
        if np.asarray(part).__array_interface__["data"] != place.__array_interface__["data"]:
            calls.add(np.copyto, place, part)


@binds("fused")
def _steps(calls: Calls, node: Node, operands: list[Any], outputs: list[np.ndarray]) -> None:
    rows, columns, kinds, arrays = _covered(calls, node.outputs[0][0], operands)
    work = rows * columns * (0.1 * len(operands) + fusion.work(node.attrs["body"]))
    places = [i for i, kind in enumerate(kinds) if isinstance(kind, str)]
    starts = {i: array.ctypes.data for i, array in zip(places, arrays, strict=True) if kinds[i] == codegen.FULL}
    over: list[int | None] = []
    for output in outputs:
        over.append(next((i for i, start in starts.items() if start == output.ctypes.data), None))
    outputs = [output for output, place in zip(outputs, over, strict=True) if place is None]
    read = [edge[0].outputs[edge[1]][1].name for edge in node.inputs if edge is not None]
    kernel = codegen.compiled(codegen.source(node.attrs["body"], kinds, read, node.attrs["kept"], over))
    if codegen.is_flat(kinds):
        calls.over_rows(kernel, rows * columns, work, *[a.reshape(-1) for a in (*arrays, *outputs)])
    else:
        calls.over_rows(kernel, rows, work, *arrays, *[o.reshape(rows, columns) for o in outputs])


def _covered(calls: Calls, shape: tuple[int, ...], operands: list[Any]) -> tuple[int, int, list[Any], list[np.ndarray]]:
    """Rows and columns of elementwise steps, what each operand covers of them, and the arrays among these."""
    cut = fusion.split_point(shape, [given.shape for given in operands if isinstance(given, np.ndarray)])
    assert cut is not None
    rows, columns = int(np.prod(shape[:cut])), int(np.prod(shape[cut:]))
    kinds: list[Any] = []
    arrays: list[np.ndarray] = []
    for array in operands:
        if not isinstance(array, np.ndarray):
            kinds.append(array)
            continue
        padded = (1,) * (len(shape) - array.ndim) + array.shape
        over_rows = any(n != 1 for n in padded[:cut]) or rows == 1
        over_columns = any(n != 1 for n in padded[cut:]) or columns == 1
        if array.size == 1 and rows * columns != 1:
            over_rows = over_columns = False
        flat = calls.contiguous(array)
        if over_rows and over_columns:
            kinds.append(codegen.FULL)
            arrays.append(flat.reshape(rows, columns))
        elif over_columns:
            kinds.append(codegen.ROW)
            arrays.append(flat.reshape(columns))
        elif over_rows:
            kinds.append(codegen.COLUMN)
            arrays.append(flat.reshape(rows))
        else:
            kinds.append(codegen.SCALAR)
            arrays.append(flat.reshape(1))
    return rows, columns, kinds, arrays
