"""Matrix products whose result stays in registers: the innermost loop of attention.

LLVM's vectoriser does not keep a block of results in registers over a loop, so this one is written in its own language:
`count` outer products make a tile of a few rows and vectors of results, which is stored, or added to what is there (at
the end: a long sum in parts has a fraction of the error of one that goes through all its terms). What is not known
(the order of memory of the left factor) is a stride, so one loop serves A B and A^T B; the right factor has its rows in
order. Nothing is packed and nothing is checked: callers pad columns to whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from minigrad.kernels.machine import has
from minigrad.kernels.numba.jit import inline, intrinsic, types

LANES = 16  # elements of a vector: columns are padded to a multiple of it
TURN = 2  # outer products in a turn of the loop
ROWS = 8  # of a narrow tile; rows are worth cutting into multiples of it
# Tiles of 4 x 4, 8 x 2 and 8 x 1 vectors fill the 32 registers of 512 bits; with 16 of 256 bits 4 x 1 has to do.
_MANY = has("avx512f")

FLOAT, INT, VECTOR = ir.FloatType(), ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
_FIRST = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)


def place(context: Any, builder: ir.IRBuilder, kind: Any, array: Any, offset: Any) -> Any:
    """The address of an element of a flat array."""
    from numba.core import cgutils

    return builder.gep(cgutils.create_struct_proxy(kind)(context, builder, array).data, [offset])


def load(builder: ir.IRBuilder, pointer: Any) -> Any:
    """The vector at any address."""
    loaded = builder.load(builder.bitcast(pointer, VECTOR.as_pointer()))
    loaded.align = 4
    return loaded


def store(builder: ir.IRBuilder, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, VECTOR.as_pointer())).align = 4


def splat(builder: ir.IRBuilder, number: Any) -> Any:
    """A vector of one number."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, number, ir.IntType(32)(0)), undefined, _FIRST)


def rows_of(builder: ir.IRBuilder, there: Any, rows: int) -> list[Any]:
    """The numbers of `rows` rows of which only the first `there` exist: the last one stands for those that do not."""
    last = builder.sub(there, INT(1))
    return [builder.select(builder.icmp_signed("<", INT(i), last), INT(i), last) for i in range(rows)]


def loop(
    builder: ir.IRBuilder, begin: Any, end: Any, turn: int, state: Sequence[Any],
    step: Callable[[Any, int, list[Any]], list[Any]],
) -> list[Any]:  # fmt: skip
    """`state` after step(k, k's place in the turn, state) for k = begin .. end: first `turn` of them at a time."""

    def part(begin: Any, end: Any, turn: int, state: Sequence[Any]) -> list[Any]:
        before, body, after = builder.block, builder.append_basic_block("turn"), builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed("<", begin, end), body, after)
        builder.position_at_end(body)
        k, held = builder.phi(INT), [builder.phi(value.type) for value in state]
        new: list[Any] = list(held)
        for number in range(turn):
            new = step(builder.add(k, INT(number)), number, new)
        following, last = builder.add(k, INT(turn)), builder.block
        builder.cbranch(builder.icmp_signed("<", following, end), body, after)
        builder.position_at_end(after)
        results = [builder.phi(value.type) for value in state]
        for phis, first in (([k, *held], [begin, *state]), (results, state)):
            for phi, start in zip(phis, first, strict=True):
                phi.add_incoming(start, before)
        for phi, value in zip([k, *held, *results], [following, *new, *new], strict=True):
            phi.add_incoming(value, last)
        return results

    end = builder.select(builder.icmp_signed("<", end, begin), begin, end)
    most = builder.add(begin, builder.and_(builder.sub(end, begin), INT(-turn)))
    state = part(begin, most, turn, state)
    return state if turn == 1 else part(most, end, 1, state)


def _tile(rows: int, vectors: int) -> Any:
    """The tile of up to `rows` rows, `vectors` * LANES columns; see `multiply` for the arguments.

    Where there are fewer rows the last one is computed again in place of those that are missing.
    """

    @intrinsic
    def tile(typing: Any, c: Any, ci: Any, cs: Any, a: Any, ai: Any, am: Any, ak: Any, b: Any, bi: Any, bs: Any,
             there: Any, count: Any, add: Any) -> Any:  # fmt: skip
        at = types.intp
        return types.void(c, at, at, a, at, at, at, b, at, at, at, at, types.boolean), _build

    def _build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        c, ci, cs, a, ai, am, ak, b, bi, bs, there, count, add = arguments
        c, a, b = (
            place(context, builder, signature.args[which], array, offset)
            for which, array, offset in ((0, c, ci), (3, a, ai), (7, b, bi))
        )
        row = rows_of(builder, there, rows)
        lefts = [builder.mul(am, number) for number in row]
        starts = [builder.gep(c, [builder.mul(cs, number)]) for number in row]
        places = [builder.gep(start, [INT(LANES * j)]) for start in starts for j in range(vectors)]
        zero = ir.Constant(VECTOR, [0.0] * LANES)

        def outer_product(k: Any, _: int, sums: list[Any]) -> list[Any]:
            line, column = builder.gep(b, [builder.mul(k, bs)]), builder.gep(a, [builder.mul(k, ak)])
            right = [load(builder, builder.gep(line, [INT(LANES * j)])) for j in range(vectors)]
            new: list[Any] = []
            for offset in lefts:
                left = splat(builder, builder.load(builder.gep(column, [offset])))
                for j in range(vectors):
                    product = builder.fmul(left, right[j], flags=("contract",))
                    new.append(builder.fadd(sums[len(new)], product, flags=("contract",)))
            return new

        results = loop(builder, INT(0), count, TURN, [zero] * len(places), outer_product)
        before = [builder.select(add, load(builder, where), zero) for where in places]  # all: rows may be one
        for where, old, result in zip(places, before, results, strict=True):
            store(builder, builder.fadd(old, result), where)
        return context.get_dummy_value()

    return tile


_four, _two = (_tile(4, 4), _tile(ROWS, 2)) if _MANY else (_tile(4, 1), _tile(4, 1))
_one, _TALL = (_tile(ROWS, 1), ROWS) if _MANY else (_tile(4, 1), 4)


@inline
def multiply(c, ci, cs, a, ai, am, ak, b, bi, bs, rows, columns, count, add):
    """c = a b, or c += a b if `add`, for `rows` x `columns` results and a sum of `count` products.

    Arrays are flat; the element (i, k) of a stands at ai + i am + k ak, the others at ci + i cs + j and bi + k bs + j.
    Columns come in multiples of LANES. No count, or less, means no products.
    """
    j = 0
    while _MANY and j + 4 * LANES <= columns:
        for i in range(0, rows, 4):
            _four(c, ci + i * cs + j, cs, a, ai + i * am, am, ak, b, bi + j, bs, min(4, rows - i), count, add)
        j += 4 * LANES
    while _MANY and j + 2 * LANES <= columns:
        for i in range(0, rows, ROWS):
            _two(c, ci + i * cs + j, cs, a, ai + i * am, am, ak, b, bi + j, bs, min(ROWS, rows - i), count, add)
        j += 2 * LANES
    while j < columns:
        for i in range(0, rows, _TALL):
            _one(c, ci + i * cs + j, cs, a, ai + i * am, am, ak, b, bi + j, bs, min(_TALL, rows - i), count, add)
        j += LANES
