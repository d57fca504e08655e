"""The two inner pieces of a large matrix product on 512-bit vectors: panels of B, and a tile of C held in registers.

A tile is 12 x 32 results: 24 of the 32 vector registers, two for a row of B's panel and one for an element of A. For
every product of the sum two vectors and twelve numbers are loaded, and 24 fused multiply-adds keep the unit busy.
A is read where it lies, row by row or column by column; a row of a panel of B is `LANES` numbers in order, packed once;
where A lies by columns, B may be read where it lies, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from minigrad.kernels.machine import has
from minigrad.kernels.numba.jit import inline, intrinsic, types

SERVED = has("avx512f")
VECTOR = 16  # numbers in a register
LANES = 2 * VECTOR  # columns of a tile and of a panel
HEIGHT = 12  # rows of a tile
PACKING = 20  # packing a panel takes as long as so many rows of products
_STRIDES = 3  # rows of A that one pointer serves: x86 adds once or twice a stride without a register for it
_FIRST, _SECOND = 3, 2  # LLVM's names of the caches
_ZERO = np.float32(0)

_FLOAT, _INT, _BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(8)
_WIDE = ir.VectorType(_FLOAT, VECTOR)
_SPLAT = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR), [0] * VECTOR)


def _load(builder: ir.IRBuilder, kind: Any, address: Any) -> Any:
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 4
    return loaded


def _store(builder: ir.IRBuilder, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 4


def _tile(rows: int, by_rows: bool) -> Any:
    """tile(c, cs, a, stride, b, bs, count, add, soon, pace): addresses and strides in bytes; C = A B or C += A B for
    `rows` x LANES.

    by_rows: rows of A lie `stride` apart, a row's elements in order; else columns do, and a column's elements, and rows
    of B lie `bs` apart. By rows B has to be a panel: read where it lies, it gained nothing for whole steps. Meanwhile,
    once a turn of the loop, lines that are needed later are fetched into the second-level cache, from `soon` on `pace`
    bytes a product.
    """
    turn = 4 if by_rows else 2  # products in a turn of the loop

    @intrinsic
    def tile(typing: Any, c: Any, cs: Any, a: Any, stride: Any, b: Any, bs: Any, count: Any, add: Any, soon: Any,
             pace: Any) -> Any:  # fmt: skip
        at = types.int64
        return types.void(at, at, at, at, at, at, at, types.boolean, at, at), _build

    def _build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        c, cs, a, stride, b, bs, count, add, soon, pace = arguments
        down = _INT(4 * LANES) if by_rows else bs
        flag, memory = ir.IntType(32), _BYTE.as_pointer()
        signature = ir.FunctionType(ir.VoidType(), [memory, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [memory], signature)

        def fetch(address: Any, write: bool, near: int) -> None:
            builder.call(prefetch, [address, flag(int(write)), flag(near), flag(1)])

        def shifted(address: Any, by: int) -> Any:
            return builder.add(address, _INT(by)) if by else address

        places = [
            builder.inttoptr(shifted(builder.add(c, builder.mul(cs, _INT(i))), 4 * VECTOR * j), _WIDE.as_pointer())
            for i in range(rows)
            for j in range(2)
        ]
        zero = ir.Constant(_WIDE, [0.0] * VECTOR)
        undefined = ir.Constant(_WIDE, ir.Undefined)
        twice = builder.shl(stride, _INT(1))
        pointers = range(0, rows, _STRIDES) if by_rows else (0,)
        starts = [builder.add(a, builder.mul(stride, _INT(i))) for i in pointers]

        def element(pointers: list[Any], row: int, step: int) -> Any:
            if not by_rows:
                column = pointers[0] if not step else builder.add(pointers[0], builder.mul(stride, _INT(step)))
                return shifted(column, 4 * row)
            pointer, ahead = pointers[row // _STRIDES], row % _STRIDES
            if ahead:
                pointer = builder.add(pointer, stride if ahead == 1 else twice)
            return shifted(pointer, 4 * step)

        def further(address: Any, stride: Any, steps: int) -> Any:
            return builder.add(address, builder.mul(stride, _INT(steps))) if steps else address

        def products(steps: int, pointers: list[Any], right: Any, soon: Any, sums: list[Any]) -> list[Any]:
            fetch(builder.inttoptr(soon, memory), False, _SECOND)
            for step in range(steps):
                line = further(right, down, step)
                row = [_load(builder, _WIDE, shifted(line, 4 * VECTOR * j)) for j in range(2)]
                new = []
                for i in range(rows):
                    number = _load(builder, _FLOAT, element(pointers, i, step))
                    left = builder.insert_element(undefined, number, ir.IntType(32)(0))
                    left = builder.shuffle_vector(left, undefined, _SPLAT)
                    for j in range(2):
                        product = builder.fmul(left, row[j], flags=("contract",))
                        new.append(builder.fadd(sums[2 * i + j], product, flags=("contract",)))
                sums = new
            return sums

        def loop(steps: int, turns: Any, state: list[Any]) -> list[Any]:
            """`turns` times `steps` products; state: pointers into A, the one into B, what is fetched next, sums."""
            before, body, after = builder.block, builder.append_basic_block("turn"), builder.append_basic_block("after")
            builder.cbranch(builder.icmp_signed(">", turns, _INT(0)), body, after)
            builder.position_at_end(body)
            left = builder.phi(_INT)
            held = [builder.phi(value.type) for value in state]
            n = len(starts)
            sums = products(steps, held[:n], held[n], held[n + 1], list(held[n + 2 :]))
            ahead = _INT(4 * steps) if by_rows else builder.mul(stride, _INT(steps))
            following = [builder.add(pointer, ahead) for pointer in held[:n]]
            following += [further(held[n], down, steps), further(held[n + 1], pace, steps), *sums]
            fewer = builder.sub(left, _INT(1))
            builder.cbranch(builder.icmp_signed(">", fewer, _INT(0)), body, after)
            builder.position_at_end(after)
            results = [builder.phi(value.type) for value in state]
            for phis, first in (([left, *held], [turns, *state]), (results, state)):
                for phi, value in zip(phis, first, strict=True):
                    phi.add_incoming(value, before)
            for phi, value in zip([left, *held, *results], [fewer, *following, *following], strict=True):
                phi.add_incoming(value, body)
            return results

        for place in places:
            fetch(builder.bitcast(place, memory), True, _FIRST)
        shift = turn.bit_length() - 1
        state = [*starts, b, soon, *[zero] * len(places)]
        state = loop(turn, builder.lshr(count, _INT(shift)), state)
        state = loop(1, builder.and_(count, _INT(turn - 1)), state)
        sums = state[len(starts) + 2 :]
        adding, storing = builder.append_basic_block("adding"), builder.append_basic_block("storing")
        before = builder.block
        builder.cbranch(add, adding, storing)
        builder.position_at_end(adding)
        totals = []
        for place, value in zip(places, sums, strict=True):
            old = builder.load(place)
            old.align = 4
            totals.append(builder.fadd(old, value))
        builder.branch(storing)
        builder.position_at_end(storing)
        results = [builder.phi(_WIDE) for _ in places]
        for result, value, total in zip(results, sums, totals, strict=True):
            result.add_incoming(value, before)
            result.add_incoming(total, adding)
        for place, result in zip(places, results, strict=True):
            builder.store(result, place).align = 4
        return context.get_dummy_value()

    return tile


_R12, _R4, _R1 = (_tile(rows, True) for rows in (12, 4, 1))
_C12, _C4, _C1 = (_tile(rows, False) for rows in (12, 4, 1))


@inline
def tiles(rows, by_rows, c, cs, a, stride, b, bs, count, add, soon, pace):
    """C = A B or C += A B for `rows` x LANES results, as `_tile` says: in tiles of twelve rows, four, and one."""
    down = stride if by_rows else 4
    i = 0
    while i + 12 <= rows:
        if by_rows:
            _R12(c + i * cs, cs, a + i * down, stride, b, bs, count, add, soon, pace)
        else:
            _C12(c + i * cs, cs, a + i * down, stride, b, bs, count, add, soon, pace)
        i += 12
    while i + 4 <= rows:
        if by_rows:
            _R4(c + i * cs, cs, a + i * down, stride, b, bs, count, add, soon, pace)
        else:
            _C4(c + i * cs, cs, a + i * down, stride, b, bs, count, add, soon, pace)
        i += 4
    while i < rows:
        if by_rows:
            _R1(c + i * cs, cs, a + i * down, stride, b, bs, count, add, soon, pace)
        else:
            _C1(c + i * cs, cs, a + i * down, stride, b, bs, count, add, soon, pace)
        i += 1


@intrinsic
def _move(typing: Any, to: Any, source: Any) -> Any:
    """VECTOR numbers from one address to another."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _store(builder, _load(builder, _WIDE, arguments[1]), arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


@intrinsic
def exchange(typing: Any, to: Any, down: Any, source: Any, stride: Any) -> Any:
    """A block of VECTOR x VECTOR numbers, exchanged in registers: four times halves of growing size change places."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, down, source, stride = arguments
        rows = [_load(builder, _WIDE, builder.add(source, builder.mul(stride, _INT(i)))) for i in range(VECTOR)]
        kind = ir.VectorType(ir.IntType(32), VECTOR)
        for half in (1, 2, 4, 8):
            first = [lane if not lane & half else VECTOR + lane - half for lane in range(VECTOR)]
            second = [lane + half if not lane & half else VECTOR + lane for lane in range(VECTOR)]
            for i in range(VECTOR):
                if not i & half:
                    a, b = rows[i], rows[i + half]
                    rows[i] = builder.shuffle_vector(a, b, ir.Constant(kind, first))
                    rows[i + half] = builder.shuffle_vector(a, b, ir.Constant(kind, second))
        for i, row in enumerate(rows):
            _store(builder, row, builder.add(to, builder.mul(down, _INT(i))))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), build


@intrinsic
def _number(typing: Any, address: Any) -> Any:
    """The number at an address."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, _FLOAT, arguments[0])

    return types.float32(types.int64), build


@intrinsic
def _put(typing: Any, address: Any, value: Any) -> Any:
    """Write a number."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _store(builder, arguments[1], arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), build


@inline
def copy(to, source, count):
    """`count` numbers in order."""
    whole = count // VECTOR * VECTOR
    for j in range(0, whole, VECTOR):
        _move(to + 4 * j, source + 4 * j)
    for j in range(whole, count):
        _put(to + 4 * j, _number(source + 4 * j))


@inline
def gather(to, pitch, source, stride, by_rows, rows, count):
    """`rows` x `count` numbers of A, whose rows or columns lie `stride` bytes apart, to where that is `pitch`."""
    if by_rows:
        for i in range(rows):
            copy(to + i * pitch, source + i * stride, count)
    elif rows < HEIGHT:
        for k in range(count):
            copy(to + k * pitch, source + k * stride, rows)
    else:
        for k in range(count - 1):  # whole vectors: what a column has too much, the next one writes over
            _move(to + k * pitch, source + k * stride)
        copy(to + (count - 1) * pitch, source + (count - 1) * stride, rows)


@inline
def add(to, source, count):
    """to += source, `count` numbers in order."""
    for j in range(count):
        _put(to + 4 * j, _number(to + 4 * j) + _number(source + 4 * j))


@inline
def near(number, units, blocks, unit):
    """Where a thread ends that should end at a `number` of units, of `unit` rows and `units` a block: between two
    blocks, if that is near, because to begin a block for a few rows takes longer than they do."""
    block = (number + units // 2) // units
    return block * units if 0 < block < blocks and abs(number - block * units) * unit < 2 * PACKING else number


@inline
def pack(to, b, stride, plain, columns, count):
    """`columns` x `count` numbers of B as panels, each ``(count, LANES)``; the last one is filled up with zeros.

    plain: a row of B's elements lie in order, its rows `stride` bytes apart; else columns do.
    """
    whole = columns // LANES * LANES
    panel = 4 * LANES * count
    if plain:
        for k in range(count):
            target, source = to + 4 * LANES * k, b + k * stride
            for j in range(0, whole, LANES):
                _move(target, source + 4 * j)
                _move(target + 4 * VECTOR, source + 4 * (j + VECTOR))
                target += panel
    else:
        blocks = count // VECTOR * VECTOR
        for j in range(0, whole, VECTOR):
            target, source = to + j // LANES * panel + 4 * (j % LANES), b + j * stride
            for k in range(0, blocks, VECTOR):
                exchange(target + 4 * LANES * k, 4 * LANES, source + 4 * k, stride)
            for k in range(blocks, count):
                for i in range(VECTOR):
                    _put(target + 4 * (LANES * k + i), _number(source + i * stride + 4 * k))
    if whole < columns:
        target = to + whole // LANES * panel
        for k in range(count):
            for j in range(columns - whole):
                place = b + k * stride + 4 * (whole + j) if plain else b + (whole + j) * stride + 4 * k
                _put(target + 4 * (LANES * k + j), _number(place))
            for j in range(columns - whole, LANES):
                _put(target + 4 * (LANES * k + j), _ZERO)
