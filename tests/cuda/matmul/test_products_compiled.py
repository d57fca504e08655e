"""Products and attention compiled for sm_90: nothing in doubles, nothing spilled, arrays in registers."""

import itertools

import pytest

from minigrad.kernels.cuda import decode_attention, flash, matmul, matvec
from minigrad.kernels.cuda.head_tiles import HEAD_SIZES
from minigrad.kernels.cuda.tiles import DTYPES

pytest.importorskip("numba_cuda", reason="compiling kernels needs the extra [cuda]")

LARGE, SMALL = matmul.LARGE, matmul.SMALL


TILED, FLASH = matmul.tiled_kernel, (flash.forward_kernel, flash.grad_query_kernel, flash.grad_key_kernel)
SHAPES = dict(zip(FLASH, (flash.forward_shape, flash.grad_query_shape, flash.grad_key_shape), strict=True))


def tiled(dtype, tiling, *layout, out=None):
    """layout: for each operand whether its depth is contiguous, for each whether it lies in aligned pieces."""
    return TILED, dtype, tiling, *layout, out or dtype


def attending(factory, dtype, size, vector=True, *dropping):
    return factory, dtype, size, vector, SHAPES[factory](dtype, size, 4096, vector, *dropping), *dropping


# (factory, arguments): kernels are made when they are tested
USUAL = [
    tiled("float32", LARGE, True, True, True, True),
    tiled("float32", SMALL, False, False, True, True),
    tiled("bfloat16", LARGE, True, True, True, True),
    (matmul.simple_kernel, "float32", 64),
    (matmul.sum_parts, "bfloat16"),
    (matvec.deep_matvec, "float32", 8, True),
    attending(flash.forward_kernel, "float32", 128),
    attending(flash.grad_key_kernel, "float32", 128),
    attending(flash.forward_kernel, "bfloat16", 64),
    attending(flash.grad_query_kernel, "float32", 64, True, True),
    (decode_attention.split_kernel, "float32", 16, True),
    (decode_attention.combine_kernel, "float32"),
]
BOTH = (True, False)
EVERY = [
    *(
        tiled(d, t, *layout)
        for d in DTYPES
        for t in (LARGE, SMALL)
        for layout in itertools.product(BOTH, repeat=4)
        if d == "float32" or t == SMALL or all(layout[2:])  # as `products.choose` chooses
    ),
    tiled("bfloat16", LARGE, True, True, True, True, out="float32"),
    *(attending(f, d, size, v) for f in FLASH for d in DTYPES for size in HEAD_SIZES for v in BOTH),
    *(
        attending(f, d, size, v, True)
        for f in FLASH
        for d in DTYPES
        for size in HEAD_SIZES
        for v in BOTH
        if f is not flash.grad_key_kernel or flash.grad_key_fits(d, size, v, True)
    ),
    *((f, d, 64, True, flash.SHORT) for f in FLASH for d in DTYPES),
    *((matvec.deep_matvec, d, rows, v) for d in DTYPES for rows in matvec.ROWS for v in BOTH),
    *((matvec.wide_matvec, d, rows, v, d) for d in DTYPES for rows in matvec.ROWS for v in BOTH),
    *((decode_attention.split_kernel, d, lanes, v) for d in DTYPES for lanes in decode_attention.LANES for v in BOTH),
    *((matmul.simple_kernel, d, tile) for d in DTYPES for tile in (32, 64)),
]


def cases():
    for case in dict.fromkeys([*USUAL, *EVERY]):
        factory, *arguments = case
        parts = ("x".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in arguments)
        marks = () if case in USUAL else pytest.mark.deep
        yield pytest.param(factory, arguments, id="-".join((factory.__name__, *parts)), marks=marks)


@pytest.mark.parametrize(("factory", "arguments"), [*cases()])
def test_a_kernel_compiles_within_its_means(factory, arguments):
    from minigrad.kernels.cuda import compiler

    kernel = factory(*arguments)
    report = compiler.report(kernel, (9, 0))
    assert report.spills == 0
    assert report.registers <= kernel.registers
    assert kernel.threads * max(kernel.blocks, 1) * report.registers <= 65536
    assert not report.float64
    assert not report.calls
    assert not report.local
