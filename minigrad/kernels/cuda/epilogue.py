"""Products whose results pass through elementwise steps before they are written: bias, activation, residual and so on.

The steps come from a plan's fused group (`minigrad.compiler.epilogue`) and are written as text, as fused kernels are.
Each of up to three more arrays is read once, at any strides, where the result is written: a row of four lanes reads and
writes 32 bytes. A product that tiles do not compute (few rows, small, parts of k) is written first, and then stepped
through in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels import EPILOGUE_INPUTS
from minigrad.kernels.cuda import codegen, elementwise
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.codegen import SINGLE, Form, Operand, Step
from minigrad.kernels.cuda.language import Kernel, cuda, device, float32, kernel
from minigrad.kernels.cuda.matmul import (
    Tiling,
    accumulator,
    batch_of,
    bounds_of,
    layout_name,
    results_of,
    store_pair,
    tile_of,
)
from minigrad.kernels.cuda.memory import DeviceArray
from minigrad.kernels.cuda.products import choose, described, product, readable, route


class Epilogue(NamedTuple):
    """Steps over a product (input 0) and other inputs; numbers: for each of those its text if it is a number."""

    body: tuple[Step, ...]
    numbers: tuple[str | None, ...]
    kept: tuple[int, ...]

    @property
    def text(self) -> str:
        """The device function `value`: a product, and arrays with a place in each, to the first and last result."""
        inputs = (Operand("float32", SINGLE), *(Operand("float32", SINGLE, number) for number in self.numbers))
        output = Operand("float32", SINGLE)
        form = Form(self.body, inputs, (output,) * len(self.kept), self.kept, dims=1, width=1)
        names = [f"e{i}" for i in range(EPILOGUE_INPUTS)]
        read = "".join(f", {name}[i{name}]" for name in names[: self.numbers.count(None)])
        arguments = ", ".join(f"{name}, i{name}" for name in names)
        results = [f"r{i}" for i in range(len(self.kept))]
        return "\n".join(
            [
                *codegen.compute_text(form),
                "",
                "",
                f"def value(product, {arguments}):",
                f"    {', '.join(results)} = compute(product{read})",
                f"    return float32({results[0]}), float32({results[-1]})",
                "",
            ]
        )


@cache
def fused_kernel(
    tiling: Tiling, a_deep: bool, b_deep: bool, a_vector: bool, b_vector: bool, epilogue: Epilogue
) -> Kernel:
    """A product of float32 (see `matmul.tiled_kernel`) with its epilogue; d is its second result, where it has two.

    Launch: grid (tiles of C, batches), `tiling.threads`, `tiling.shared_bytes`. Of e0 to e2: the strides of the batch
    dimensions, rows and columns.
    """
    bm, bn = tiling.m, tiling.n
    fragments = (*tiling.fragments, 4)
    accumulate = accumulator("float32", tiling, a_deep, b_deep, a_vector, b_vector)
    store = store_pair("float32")
    registers, blocks = bounds_of("float32", tiling, a_vector and b_vector)
    text = epilogue.text
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    scope = codegen.executed(text, f"epilogue_{digest}")
    value, second = device(scope["value"]), len(epilogue.kept) > 1

    @device
    def put(
        y, x, one, two, both, c, d, base, c_line, paired, e0, e0_at, e0_row, e0_column, e1, e1_at, e1_row, e1_column,
        e2, e2_at, e2_row, e2_column,
    ):  # fmt: skip
        at = base + y * c_line + x
        i0, i1, i2 = (
            e0_at + y * e0_row + x * e0_column, e1_at + y * e1_row + x * e1_column, e2_at + y * e2_row + x * e2_column,
        )  # fmt: skip
        u = value(one, e0, i0, e1, i1, e2, i2)
        v = u
        if both:
            v = value(two, e0, i0 + e0_column, e1, i1 + e1_column, e2, i2 + e2_column)
        store(c, at, u[0], v[0], both, paired != 0)
        if second:
            store(d, at, u[1], v[1], both, paired != 0)

    results = results_of("float32", tiling, a_deep, b_deep, put)

    @kernel(
        "float32*, " * 7 + ", ".join(["int32"] * 26),
        name=f"matmul_float32_{bm}x{bn}_{layout_name(a_deep, b_deep, a_vector, b_vector)}_{digest}",
        threads=tiling.threads,
        blocks=blocks,
        registers=registers,
    )
    def matmul_fused(
        a, b, c, d, e0, e1, e2, m, n, k, a_line, b_line, c_line, inner, a_outer, a_inner, b_outer, b_inner, c_outer,
        c_inner, paired, e0_outer, e0_inner, e0_row, e0_column, e1_outer, e1_inner, e1_row, e1_column,
        e2_outer, e2_inner, e2_row, e2_column,
    ):  # fmt: skip
        total = cuda.local.array(fragments, float32)
        tile_m, tile_n = tile_of(cuda.blockIdx.x, (m + bm - 1) // bm, (n + bn - 1) // bn)
        row, column = tile_m * bm, tile_n * bn
        a_base = batch_of(cuda.blockIdx.y, inner, a_outer, a_inner)
        b_base = batch_of(cuda.blockIdx.y, inner, b_outer, b_inner)
        accumulate(a, a_base, a_line, b, b_base, b_line, m, n, row, column, 0, k, total)
        results(
            a, a_base, a_line, b, b_base, b_line, m, n, row, column, 0, k, total,
            c, d, batch_of(cuda.blockIdx.y, inner, c_outer, c_inner), c_line, paired,
            e0, batch_of(cuda.blockIdx.y, inner, e0_outer, e0_inner), e0_row, e0_column,
            e1, batch_of(cuda.blockIdx.y, inner, e1_outer, e1_inner), e1_row, e1_column,
            e2, batch_of(cuda.blockIdx.y, inner, e2_outer, e2_inner), e2_row, e2_column,
        )  # fmt: skip

    return matmul_fused


def fused_matmul(
    calls: DeviceCalls, inputs: Sequence[Any], outputs: Sequence[DeviceArray], *, body: tuple[Step, ...],
    kept: tuple[int, ...], shape: tuple[int, ...],
) -> bool:  # fmt: skip
    """a ``(..., m, k)``, b ``(..., k, n)``, and arrays or numbers that broadcast to the product as `shape`."""
    a, b, *others = inputs
    if not _in_tiles(calls, a, b, others, outputs, codegen.typed(body), kept):
        target = outputs[0] if outputs[0].is_contiguous else calls.scratch(shape, outputs[0].dtype)
        product(calls, a, b, target.reshape(_matrix_shape(a, b)))
        elementwise.fused(calls, [target, *others], outputs, body=body, kept=kept)
    return True


def _matrix_shape(a: DeviceArray, b: DeviceArray) -> tuple[int, ...]:
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def _in_tiles(
    calls: DeviceCalls, a: DeviceArray, b: DeviceArray, others: Sequence[Any], outputs: Sequence[DeviceArray],
    body: tuple[Step, ...], kept: tuple[int, ...],
) -> bool:  # fmt: skip
    """The product and its steps as one launch; False where tiles of C do not compute them."""
    shape = _matrix_shape(a, b)
    if not outputs[0].size or not a.shape[-1] or not all(c.is_contiguous for c in outputs):
        return False
    try:
        arrays = [x.reshape(shape) if x.shape == outputs[0].shape else x for x in others if isinstance(x, DeviceArray)]
    except ValueError:  # not without a copy
        return False
    arrays = [x if x.ndim <= len(shape) else x.reshape(x.shape[-1:]) for x in arrays]  # of one row
    found = described(a, b, outputs[0].reshape(shape), arrays)
    if found is None or route(found[0]) != "tiled" or found[0].c.column != 1:
        return False
    problem, more = found
    m, n, k, batches = problem.m, problem.n, problem.k, problem.batches
    tiling, splits = choose("float32", m, n, k, batches, calls.runtime.driver.processors)
    if splits > 1:
        return False
    problem = readable(calls, problem)
    numbers = tuple(repr(x.item()) if isinstance(x, np.ndarray) else None for x in others)
    unused = problem.c._replace(outer=0, inner=0, row=0, column=0)
    given = [*more, *[unused] * (EPILOGUE_INPUTS - len(more))]
    calls.launch(
        fused_kernel(tiling, *problem.layout, Epilogue(body, numbers, kept)),
        (-(-m // tiling.m) * -(-n // tiling.n), batches), tiling.threads,
        problem.a.array, problem.b.array, outputs[0], outputs[-1], *(x.array for x in given), m, n, k,
        *problem.lines, *problem.batch_strides, int(problem.c.paired(0) and outputs[-1].pointer % 8 == 0),
        *(stride for x in given for stride in (x.outer, x.inner, x.row, x.column)), shared=tiling.shared_bytes,
    )  # fmt: skip
    return True
