"""float32 products on a matrix unit for bfloat16 (Intel's AMX): six products of thirds, as exact as float32's own.

A float32 has 24 significant bits, a bfloat16 has 8: x = x0 + x1 + x2, each rounded to what is left. The unit multiplies
16 x 32 bfloat16 by 32 x 16 exactly, adds up in float32, and does so sixteen times as fast as float32 multiply-adds.
a b = a0 b0 + (a0 b1 + a1 b0) + (a0 b2 + a1 b1 + a2 b0), up to 2^-24 of |a b|, which is what one float32 product is
rounded by; sums are cut into as many products as the unit does at once, so that results are closer to the exact ones
than those of a chain of multiply-adds. (Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence
datatype for higher-precision computations", 2019.)

An infinity, NaN, or a number that bfloat16 rounds to infinity cannot be split: the tiles of C that it goes into are
computed by `gemm_tile`. The unit takes what is below 2^-126 for 0, so factors below 2^-102 lose digits.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from minigrad.kernels.machine import has
from minigrad.kernels.numba.gemm_tile import LANES, VECTOR, add, copy, exchange, near, pack, tiles
from minigrad.kernels.numba.jit import inline, intrinsic, kernel, types

THIRDS = 3
TALL = LANES  # rows of C at a time: results stay in two by two tiles
STEP = 32  # products of a sum that the unit does at once
_DEPTH = 384  # products of a sum at a time: C, which comes from afar, is read and written once for as many
_ROWS, _COLUMNS = 512, 256  # of A and of B that are split at a time: they stay in a second-level cache of 2 MB
_TILE = 1024  # bytes of a tile: 16 rows of 64
_THIRD = 2 * _TILE  # bytes between the thirds of a pair of tiles
_STEP = THIRDS * _THIRD  # bytes of `STEP` columns of a strip of A, or rows of a panel of B
_STRIP = _DEPTH // STEP * _STEP + 64  # bytes of a strip or panel; a line more, lest all begin at one place of the cache
_LARGEST = np.int32(0x7F7F7FFF)  # bits of the largest number that bfloat16 does not round to infinity
_ZERO = np.float32(0)
ROOM = (_ROWS + _COLUMNS) // TALL * _STRIP // 4 + (_DEPTH + TALL + VECTOR) * LANES  # numbers that a thread needs

_INT, _BITS, _BYTE, _NOTHING = ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.VoidType()
_WIDE, _WORDS = ir.VectorType(ir.FloatType(), VECTOR), ir.VectorType(_BITS, VECTOR)


@cache
def served() -> bool:
    """Has this processor the unit, and does the system let this process use it?"""
    if platform.system() != "Linux" or not (has("amx-bf16") and has("amx-tile")):
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18  # its registers are large: Linux wants a process to ask for them
    return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0


def _call(builder: ir.IRBuilder, name: str, arguments: list[Any], result: Any = _NOTHING) -> Any:
    """A function of LLVM's own."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def _pointer(builder: ir.IRBuilder, address: Any, by: Any = 0, kind: Any = _BYTE) -> Any:
    by = _INT(by) if isinstance(by, int) else by
    return builder.inttoptr(builder.add(address, by), kind.as_pointer())


# --- thirds -----------------------------------------------------------------------------------------


def _thirds(builder: ir.IRBuilder, numbers: list[Any]) -> tuple[list[Any], Any]:
    """Two vectors in thirds, whose numbers share a word, the first's in its lower half; the larger magnitudes' bits."""

    def vector(word: int) -> Any:
        return ir.Constant(_WORDS, [word] * VECTOR)

    sizes = [builder.and_(builder.bitcast(x, _WORDS), vector(0x7FFFFFFF)) for x in numbers]
    larger = builder.select(builder.icmp_unsigned(">", *sizes), *sizes)
    parts = []
    for third in range(THIRDS):
        bits = [builder.bitcast(x, _WORDS) for x in numbers]
        if third < THIRDS - 1:  # what is left of the last one fits
            bits = [builder.and_(builder.add(b, vector(0x8000)), vector(0xFFFF0000)) for b in bits]
            numbers = [builder.fsub(x, builder.bitcast(b, _WIDE)) for x, b in zip(numbers, bits, strict=True)]
        upper = builder.and_(bits[1], vector(0xFFFF0000))
        parts.append(builder.or_(builder.lshr(bits[0], vector(16)), upper))
    return parts, larger


def _splitter(across: bool) -> Any:
    """split(to, source, stride): numbers in thirds, as tiles at `to` that lie `_THIRD` bytes apart, 16 rows of 32; the
    largest number's bits. Memory holds 16 rows of 32, or, `across`, 32 rows of 16, two of which share one of a tile."""

    @intrinsic
    def split(typing: Any, to: Any, source: Any, stride: Any) -> Any:
        return types.int32(types.int64, types.int64, types.int64), build

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        to, source, stride = arguments
        before, loop, after = builder.block, builder.append_basic_block("row"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        row, target, place, largest = (builder.phi(kind) for kind in (_INT, _INT, _INT, _WORDS))
        numbers = []
        for by in (_INT(0), stride if across else _INT(4 * VECTOR)):
            numbers.append(builder.load(_pointer(builder, place, by, _WIDE)))
            numbers[-1].align = 4
        if not across:  # neighbours share a word
            alternate = [ir.Constant(_WORDS, list(range(start, 2 * VECTOR, 2))) for start in (0, 1)]
            numbers = [builder.shuffle_vector(*numbers, lanes) for lanes in alternate]
        parts, larger = _thirds(builder, numbers)
        for third, part in enumerate(parts):
            builder.store(part, _pointer(builder, target, _THIRD * third, _WORDS)).align = 64
        rows = builder.add(row, _INT(1))
        ahead = builder.add(place, builder.shl(stride, _INT(1)) if across else stride)
        new = builder.select(builder.icmp_unsigned(">", larger, largest), larger, largest)
        states = (row, _INT(0), rows), (target, to, builder.add(target, _INT(64))), (place, source, ahead)
        for phi, start, following in (*states, (largest, ir.Constant(_WORDS, [0] * VECTOR), new)):
            phi.add_incoming(start, before)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", rows, _INT(VECTOR)), loop, after)
        builder.position_at_end(after)
        return _call(builder, "llvm.vector.reduce.umax.v16i32", [new], _BITS)

    return split


_split_rows, _split_across = _splitter(False), _splitter(True)


@inline
def _split(to, largest, source, stride, in_order, left, size, count, spare):
    """Strips of A or panels of B in thirds: `size` rows of A or columns of B, `count` products of the sum. What is
    beyond `size` and `count` is 0. largest: the bits of the largest number of each strip or panel.

    in_order: are neighbours of the sum neighbours in memory? left: is it A's?
    """
    pairs, steps = -(-size // TALL), -(-count // STEP)
    largest[:pairs] = 0
    for number in range(2 * pairs * steps):  # in the order of memory
        if in_order:
            tile, step = number // steps, number % steps
            place = source + VECTOR * tile * stride + 4 * STEP * step
        else:
            tile, step = number % (2 * pairs), number // (2 * pairs)
            place = source + STEP * step * stride + 4 * VECTOR * tile
        target = to + tile // 2 * _STRIP + step * _STEP + tile % 2 * _TILE
        there, deep = min(VECTOR, size - VECTOR * tile), min(STEP, count - STEP * step)
        pitch = stride
        if there < VECTOR or deep < STEP:
            spare[:] = _ZERO
            rows, length, pitch = (there, deep, 4 * STEP) if in_order else (deep, there, 4 * VECTOR)
            for row in range(rows):
                copy(spare.ctypes.data + row * pitch, place + row * stride, max(length, 0))
            place = spare.ctypes.data
        found = _split_rows(target, place, pitch) if in_order else _split_across(target, place, pitch)
        largest[tile // 2] = max(largest[tile // 2], found)
        if in_order != left:  # tiles of A have products of a sum side by side, those of B have them below each other
            for third in range(THIRDS):
                exchange(target + third * _THIRD, 64, target + third * _THIRD, 64)


# --- products ---------------------------------------------------------------------------------------


@intrinsic
def _configure(typing: Any) -> Any:
    """Let this thread have eight tiles of 16 rows of 64 bytes."""

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        told = [0] * 64
        told[0], told[16:32], told[48:56] = 1, [64, 0] * 8, [16] * 8  # kind of configuration, bytes of a row, rows
        kind = ir.ArrayType(_BYTE, 64)
        memory = builder.alloca(kind)
        builder.store(ir.Constant(kind, told), memory)
        _call(builder, "llvm.x86.ldtilecfg", [builder.bitcast(memory, _BYTE.as_pointer())])
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def _release(typing: Any) -> Any:
    """Give the tiles back."""

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        _call(builder, "llvm.x86.tilerelease", [])
        return context.get_dummy_value()

    return types.void(), build


# (third of A, third of B): neighbours share one, so that only the other is loaded; small terms come first
_ORDER = ((2, 0), (1, 0), (1, 1), (0, 1), (0, 0), (0, 2))
_FETCHED = 8  # rows of the next tiles of C that are fetched in a step


@intrinsic
def _multiply(typing: Any, c: Any, cs: Any, a: Any, b: Any, steps: Any, adds: Any, following: Any) -> Any:
    """C = A B or C += A B for TALL x LANES results, rows `cs` bytes apart, from a strip of A and a panel of B.

    What the next step needs, and a part of the next results (`following`), is fetched meanwhile: a thread that shares
    its core with another one has half of the room to look ahead (0.98 of the vectors' speed there, 0.86 without).
    """
    at = types.int64

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        c, cs, a, b, steps, adds, following = arguments

        def load(tile: int, place: Any, stride: Any) -> None:
            _call(builder, "llvm.x86.tileloadd64", [_BYTE(tile), place, stride])

        def fetch(place: Any, write: bool) -> None:
            _call(builder, "llvm.prefetch.p0", [place, _BITS(int(write)), _BITS(3), _BITS(1)])  # kept near, and data

        down = builder.mul(cs, _INT(VECTOR))
        rows = c, builder.add(c, down)
        results = [_pointer(builder, row, 4 * VECTOR * j) for row in rows for j in range(2)]
        names = ("adding", "zeroing", "ready", "step", "after")
        adding, zeroing, ready, loop, after = (builder.append_basic_block(name) for name in names)
        builder.cbranch(adds, adding, zeroing)
        builder.position_at_end(adding)
        for tile, place in enumerate(results):
            load(tile, place, cs)
        builder.branch(ready)
        builder.position_at_end(zeroing)
        for tile in range(4):
            _call(builder, "llvm.x86.tilezero", [_BYTE(tile)])
        builder.branch(ready)
        builder.position_at_end(ready)
        builder.branch(loop)
        builder.position_at_end(loop)
        left, strip, panel, soon = (builder.phi(_INT) for _ in range(4))
        held = [-1, -1]
        for number, thirds in enumerate(_ORDER):
            for line in range(16 * number, 16 * number + 16):
                for memory in (strip, panel):
                    fetch(_pointer(builder, memory, _STEP + 64 * line), write=False)
            for side, (third, memory) in enumerate(zip(thirds, (strip, panel), strict=True)):
                for i in range(2 if third != held[side] else 0):
                    load(4 + 2 * side + i, _pointer(builder, memory, _THIRD * third + _TILE * i), _INT(64))
            held = list(thirds)
            for i in range(2):
                for j in range(2):
                    _call(builder, "llvm.x86.tdpbf16ps", [_BYTE(2 * i + j), _BYTE(4 + i), _BYTE(6 + j)])
        for row in range(_FETCHED):
            line = builder.add(soon, builder.mul(cs, _INT(row)))
            for j in range(2):
                fetch(_pointer(builder, line, 4 * VECTOR * j), write=True)
        fewer = builder.sub(left, _INT(1))
        further = [builder.add(memory, _INT(_STEP)) for memory in (strip, panel)]
        lower = builder.add(soon, builder.mul(cs, _INT(_FETCHED)))
        states = (left, steps, fewer), (strip, a, further[0]), (panel, b, further[1]), (soon, following, lower)
        for phi, start, then in states:
            phi.add_incoming(start, ready)
            phi.add_incoming(then, loop)
        builder.cbranch(builder.icmp_signed(">", fewer, _INT(0)), loop, after)
        builder.position_at_end(after)
        for tile, place in enumerate(results):
            _call(builder, "llvm.x86.tilestored64", [_BYTE(tile), place, cs])
        return context.get_dummy_value()

    return types.void(at, at, at, at, at, types.boolean, at), build


@kernel
def blocks(start, stop, a, a_stride, a_by_rows, b, b_stride, b_by_rows, c, c_stride, m, n, k, grid, columns, parts,
           apart, thread, space):  # fmt: skip
    """Units of C, as `minigrad.kernels.numba.gemm` cuts it, of TALL rows; `columns` is a multiple of LANES."""
    room = space[thread * ROOM : (thread + 1) * ROOM]
    strips = room.ctypes.data
    panels = strips + _ROWS // TALL * _STRIP
    edge = panels + _COLUMNS // LANES * _STRIP
    plain = edge + 4 * TALL * LANES
    spare = room[ROOM - VECTOR * STEP :]
    in_strips, in_panels = np.empty(_ROWS // TALL, np.int32), np.empty(_COLUMNS // LANES, np.int32)
    down = TALL * c_stride
    a_down, a_along = (a_stride, 4) if a_by_rows else (4, a_stride)
    b_down, b_along = (b_stride, 4) if b_by_rows else (4, b_stride)
    _configure()
    units = -(-m // TALL)
    start, stop = near(start, units, parts * grid, TALL), near(stop, units, parts * grid, TALL)
    while start < stop:
        block, skipped = start // units, start % units
        taken = min(units - skipped, stop - start)
        start += taken
        part, left = block // grid, block % grid * columns
        result, low, high = c + part * apart, part * k // parts, (part + 1) * k // parts
        top, right = skipped * TALL, min(left + columns, n)
        bottom = min(top + taken * TALL, m)
        for upper in range(top, bottom, _ROWS):
            lower = min(upper + _ROWS, bottom)
            for first in range(low, high, _DEPTH):
                count, adds = min(_DEPTH, high - first), first > low
                left_factor = a + upper * a_down + first * a_along
                _split(strips, in_strips, left_factor, a_stride, a_by_rows, True, lower - upper, count, spare)
                for begin in range(left, right, _COLUMNS):
                    end = min(begin + _COLUMNS, right)
                    right_factor = b + first * b_down + begin * b_along
                    _split(panels, in_panels, right_factor, b_stride, not b_by_rows, False, end - begin, count, spare)
                    for j in range(begin, end, LANES):
                        panel, wide = (j - begin) // LANES, min(LANES, end - j)
                        for i in range(upper, lower, TALL):
                            strip, tall = (i - upper) // TALL, min(TALL, lower - i)
                            place, whole = result + i * c_stride + 4 * j, tall == TALL and wide == LANES
                            target, stride = (place, c_stride) if whole else (edge, 4 * LANES)
                            if in_strips[strip] <= _LARGEST and in_panels[panel] <= _LARGEST:
                                last = i + TALL >= lower
                                following = result + upper * c_stride + 4 * (j + LANES) if last else place + down
                                _multiply(target, stride, strips + strip * _STRIP, panels + panel * _STRIP,
                                          -(-count // STEP), adds and whole, following)  # fmt: skip
                            else:
                                pack(plain, right_factor + (j - begin) * b_along, b_stride, b_by_rows, wide, count)
                                tiles(tall, a_by_rows, target, stride, left_factor + (i - upper) * a_down, a_stride,
                                      plain, 4 * LANES, count, adds and whole, plain, 0)  # fmt: skip
                            for row in range(0 if whole else tall):
                                if adds:
                                    add(place + row * c_stride, edge + 4 * LANES * row, wide)
                                else:
                                    copy(place + row * c_stride, edge + 4 * LANES * row, wide)
    _release()
