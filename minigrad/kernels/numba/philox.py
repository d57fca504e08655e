"""Philox4x32-10 in compiled code: the words that `minigrad.random.philox` gives, for any window of a draw.

Rounds in LLVM's language: from arrays the compiler would load and store every counter again in every round.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minigrad.kernels.numba.jit import inline, intrinsic, types
from minigrad.kernels.numba.tile import place

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF, _ROUNDS = 0xFFFFFFFF, 32, 10
_LANES, _SIDE_BY_SIDE = 8, 2  # blocks in a vector, and vectors whose rounds do not wait for each other
AT_ONCE = _LANES * _SIDE_BY_SIDE  # blocks that are drawn at a time

_WORD, _VECTOR = ir.IntType(64), ir.VectorType(ir.IntType(64), _LANES)
_INDICES = ir.VectorType(ir.IntType(32), _LANES)


def _all(number: int) -> Any:
    return ir.Constant(_VECTOR, [number] * _LANES)


@intrinsic
def _draw(typing: Any, words: Any, at: Any, seed: Any, counter: Any) -> Any:
    """The words of AT_ONCE blocks from `counter` on, to words[at:]."""

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        words, at, seed, counter = arguments
        target = place(context, builder, signature.args[0], words, at)

        def splat(number: Any) -> Any:
            undefined = ir.Constant(_VECTOR, ir.Undefined)
            first = builder.insert_element(undefined, number, ir.IntType(32)(0))
            return builder.shuffle_vector(first, undefined, ir.Constant(_INDICES, [0] * _LANES))

        def low(value: Any) -> Any:
            return builder.and_(value, _all(_LOW))

        def high(value: Any) -> Any:
            return builder.lshr(value, _all(_HALF))

        def turn(counters: list[Any], k0: Any, k1: Any) -> list[Any]:
            c0, c1, c2, c3 = counters
            p0, p1 = builder.mul(c0, _all(_M0)), builder.mul(c2, _all(_M1))
            first, third = builder.xor(high(p1), c1), builder.xor(high(p0), c3)
            return [builder.xor(first, k0), low(p1), builder.xor(third, k1), low(p0)]

        states = []
        for vector in range(_SIDE_BY_SIDE):
            offsets = ir.Constant(_VECTOR, [vector * _LANES + lane for lane in range(_LANES)])
            block = builder.add(splat(counter), offsets)
            states.append([low(block), high(block), _all(0), _all(0)])
        keys = [low(splat(seed)), high(splat(seed))]
        for _ in range(_ROUNDS):
            states = [turn(counters, *keys) for counters in states]
            keys = [low(builder.add(key, _all(weyl))) for key, weyl in zip(keys, (_W0, _W1), strict=True)]
        offset = 0
        for c0, c1, c2, c3 in states:
            front, back = (builder.or_(a, builder.shl(b, _all(_HALF))) for a, b in ((c0, c1), (c2, c3)))
            for half in range(0, _LANES, _LANES // 2):  # the words of a block stand together
                picks = [lane for i in range(half, half + _LANES // 2) for lane in (i, _LANES + i)]
                mixed = builder.shuffle_vector(front, back, ir.Constant(_INDICES, picks))
                pointer = builder.gep(target, [_WORD(offset)])
                builder.store(mixed, builder.bitcast(pointer, _VECTOR.as_pointer())).align = 4
                offset += 2 * _LANES
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64, types.int64), build


@inline
def draw(words, seed, counter, blocks):
    """The 4 * `blocks` words of the stream `seed` from the block `counter` on, a multiple of AT_ONCE blocks."""
    for start in range(0, blocks, AT_ONCE):
        _draw(words, 4 * start, seed, counter + start)
