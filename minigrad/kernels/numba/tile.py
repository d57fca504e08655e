"""Matrix products whose result stays in registers: the innermost loop of attention.

LLVM's vectoriser does not keep a block of results in registers over a loop, so this one is written in its own language:
a tile of `ROWS` x `LANES` results is loaded, `count` outer products are added to it, and it is stored. What is not
known (the order of memory of the left factor) is a stride, so one loop serves A B and A^T B; the right factor has its
rows in order. Nothing is packed and nothing is checked: callers pad to whole tiles.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from minigrad.kernels.numba.jit import inline

LANES = 16  # columns are padded to a multiple of it
ROWS = 4  # rows are padded to a multiple of it
TURN = 2  # outer products in a turn of the loop
# Columns of a tile in vectors of LANES: as many results as the registers hold (32 of 512 bits, or 16 of 256 bits).
WIDE = 4 if llvmlite.binding.get_host_cpu_features().get("avx512f") else 1

_FLOAT, _INT, _VECTOR = ir.FloatType(), ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
_SPLAT = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)


def _tile(vectors: int) -> Any:
    """The tile of `vectors` * LANES columns; see `multiply` for the arguments."""

    @intrinsic
    def tile(typing: Any, c: Any, ci: Any, cs: Any, a: Any, ai: Any, am: Any, ak: Any, b: Any, bi: Any, bs: Any,
             count: Any, add: Any) -> Any:  # fmt: skip
        at = types.intp
        return types.void(c, at, at, a, at, at, at, b, at, at, at, types.boolean), _build

    def _build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        c, ci, cs, a, ai, am, ak, b, bi, bs, count, add = arguments

        def memory(which: int, array: Any, offset: Any) -> Any:
            return builder.gep(context.make_array(signature.args[which])(context, builder, array).data, [offset])

        def load(pointer: Any) -> Any:
            loaded = builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()))
            loaded.align = 4
            return loaded

        def times(stride: Any, number: int) -> Any:
            return builder.mul(stride, _INT(number))

        c, a, b = memory(0, c, ci), memory(3, a, ai), memory(7, b, bi)
        places = [
            builder.gep(builder.gep(c, [times(cs, i)]), [_INT(LANES * j)]) for i in range(ROWS) for j in range(vectors)
        ]
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        undefined = ir.Constant(_VECTOR, ir.Undefined)

        def outer_product(k: Any, sums: list[Any]) -> list[Any]:
            row, column = builder.gep(b, [builder.mul(k, bs)]), builder.gep(a, [builder.mul(k, ak)])
            right = [load(builder.gep(row, [_INT(LANES * j)])) for j in range(vectors)]
            new: list[Any] = []
            for i in range(ROWS):
                element = builder.load(builder.gep(column, [times(am, i)]))
                left = builder.insert_element(undefined, element, ir.IntType(32)(0))
                left = builder.shuffle_vector(left, undefined, _SPLAT)
                for j in range(vectors):
                    product = builder.fmul(left, right[j], flags=("contract",))
                    new.append(builder.fadd(sums[len(new)], product, flags=("contract",)))
            return new

        def add_up(begin: Any, end: Any, steps: int, sums: list[Any]) -> list[Any]:
            """`sums` and the outer products begin .. end, `steps` of them in each turn of a loop."""
            before, loop, after = builder.block, builder.append_basic_block("turn"), builder.append_basic_block("after")
            builder.cbranch(builder.icmp_signed("<", begin, end), loop, after)
            builder.position_at_end(loop)
            k, held = builder.phi(_INT), [builder.phi(_VECTOR) for _ in sums]
            new: list[Any] = list(held)
            for step in range(steps):
                new = outer_product(builder.add(k, _INT(step)), new)
            following = builder.add(k, _INT(steps))
            builder.cbranch(builder.icmp_signed("<", following, end), loop, after)
            builder.position_at_end(after)
            results = [builder.phi(_VECTOR) for _ in sums]
            for phis, first in (([k, *held], [begin, *sums]), (results, sums)):
                for phi, start in zip(phis, first, strict=True):
                    phi.add_incoming(start, before)
            for phi, value in zip([k, *held, *results], [following, *new, *new], strict=True):
                phi.add_incoming(value, loop)
            return results

        most = builder.and_(count, _INT(-TURN))
        results = [builder.select(add, load(place), zero) for place in places]
        results = add_up(_INT(0), most, TURN, results)
        results = add_up(most, count, 1, results)
        for place, result in zip(places, results, strict=True):
            builder.store(result, builder.bitcast(place, _VECTOR.as_pointer())).align = 4
        return context.get_dummy_value()

    return tile


_one, _wide = _tile(1), _tile(WIDE)


@inline
def multiply(c, ci, cs, a, ai, am, ak, b, bi, bs, rows, columns, count, add):
    """c = a b, or c += a b if `add`, for `rows` x `columns` results and a sum of `count` products.

    Arrays are flat; the element (i, k) of a stands at ai + i am + k ak, the others at ci + i cs + j and bi + k bs + j.
    Rows come in multiples of ROWS, columns of LANES.
    """
    for i in range(0, rows, ROWS):
        j = 0
        while j + WIDE * LANES <= columns:
            _wide(c, ci + i * cs + j, cs, a, ai + i * am, am, ak, b, bi + j, bs, count, add)
            j += WIDE * LANES
        while j < columns:
            _one(c, ci + i * cs + j, cs, a, ai + i * am, am, ak, b, bi + j, bs, count, add)
            j += LANES
