"""Softmax down columns of scores, its derivative, and how columns are made of rows: LANES queries side by side, keys
one after the other.

With queries across a vector nothing is ever added up or compared within one, and every query goes its own way. Written
in LLVM's language as the products are (`minigrad.kernels.numba.tile`), so that peaks and sums stay in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from minigrad.kernels.numba.jit import inline, intrinsic, types
from minigrad.kernels.numba.math import POWERS
from minigrad.kernels.numba.tile import INT, LANES, VECTOR, load, loop, place, rows_of, splat, store

_SIDE_BY_SIDE = 4  # keys whose maxima and sums do not wait for each other
_MAGIC, _EXPONENT, _MANTISSA, _LEAST_POWER = 1.5 * 2**23, 0x4B400000 - 127, 23, -126.0
_WORDS = ir.VectorType(ir.IntType(32), LANES)


def _vector(number: Any) -> Any:
    return ir.Constant(VECTOR, [float(number)] * LANES)


def _words(number: Any) -> Any:
    return ir.Constant(_WORDS, [int(number)] * LANES)


_LOW, _ZERO = _vector(-np.inf), _vector(0)


def _broadcast(builder: ir.IRBuilder, number: Any) -> Any:
    """A vector of words of one whole number."""
    undefined = ir.Constant(_WORDS, ir.Undefined)
    word = builder.insert_element(undefined, builder.trunc(number, ir.IntType(32)), ir.IntType(32)(0))
    return builder.shuffle_vector(word, undefined, _words(0))


def _exp2(builder: ir.IRBuilder, x: Any) -> Any:
    """2^x as in `minigrad.kernels.numba.math.exp2`, for a register.

    x = k + r with |r| <= 1/2; adding 1.5 2^23 rounds to k and leaves its bits at the end of the sum.
    """
    shifted = builder.fadd(x, _vector(_MAGIC))
    r = builder.fsub(x, builder.fsub(shifted, _vector(_MAGIC)))
    p = _vector(np.float32(POWERS[-1]))
    for coefficient in POWERS[-2::-1]:
        product = builder.fmul(p, r, flags=("contract",))
        p = builder.fadd(product, _vector(np.float32(coefficient)), flags=("contract",))
    exponent = builder.sub(builder.bitcast(shifted, _WORDS), _words(_EXPONENT))
    y = builder.fmul(p, builder.bitcast(builder.shl(exponent, _words(_MANTISSA)), VECTOR))
    return builder.select(builder.fcmp_ordered("<", x, _vector(_LEAST_POWER)), _ZERO, y)


def _larger(builder: ir.IRBuilder, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@intrinsic
def scaled(typing: Any, target: Any, at: Any, pitch: Any, source: Any, first: Any, step: Any, count: Any, columns: Any,
           factor: Any) -> Any:  # fmt: skip
    """`count` rows of `columns` elements, a multiple of LANES, times `factor`, or row i times element i of it: element
    (i, c) goes from first + i step + c to at + i pitch + c."""
    one = not isinstance(factor, types.Array)

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        target, at, pitch, source, first, step, count, columns, factor = arguments
        to, of = (
            place(context, builder, signature.args[which], array, offset)
            for which, array, offset in ((0, target, at), (3, source, first))
        )
        factors = factor if one else place(context, builder, signature.args[8], factor, INT(0))

        def row(i: Any, _: int, state: list[Any]) -> list[Any]:
            here, there = builder.gep(to, [builder.mul(pitch, i)]), builder.gep(of, [builder.mul(step, i)])
            times = splat(builder, factors if one else builder.load(builder.gep(factors, [i])))

            def vector(j: Any, _: int, state: list[Any]) -> list[Any]:
                c = builder.mul(j, INT(LANES))
                store(builder, builder.fmul(load(builder, builder.gep(there, [c])), times), builder.gep(here, [c]))
                return state

            return loop(builder, INT(0), builder.udiv(columns, INT(LANES)), 1, state, vector)

        loop(builder, INT(0), count, 1, [INT(0)], row)
        return context.get_dummy_value()

    number = types.intp
    kind = types.float32 if one else factor
    return types.void(target, number, number, source, number, number, number, number, kind), build


@intrinsic
def hide(typing: Any, scores: Any, stride: Any, begin: Any, end: Any, lane: Any, least: Any, most: Any) -> Any:
    """Minus infinity to the scores of the keys begin .. end for those of LANES queries from `lane` on that do not see
    them: query i sees the keys i + least .. i + most. Laid out as for `weigh`."""

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        scores, stride, begin, end, lane, least, most = arguments
        first = place(context, builder, signature.args[0], scores, lane)
        lanes = ir.Constant(_WORDS, list(range(LANES)))
        low, high = (builder.add(_broadcast(builder, edge), lanes) for edge in (least, most))

        def key(k: Any, _: int, state: list[Any]) -> list[Any]:
            where, number = builder.gep(first, [builder.mul(k, stride)]), _broadcast(builder, k)
            seen = builder.and_(builder.icmp_signed("<=", low, number), builder.icmp_signed("<=", number, high))
            store(builder, builder.select(seen, load(builder, where), _LOW), where)
            return state

        loop(builder, begin, end, 1, [INT(0)], key)
        return context.get_dummy_value()

    number = types.intp
    return types.void(scores, number, number, number, number, number, number), build


@intrinsic
def turn(typing: Any, target: Any, at: Any, pitch: Any, source: Any, first: Any, step: Any, there: Any,
         factor: Any) -> Any:  # fmt: skip
    """LANES rows of LANES elements as columns, times `factor`: element (i, c) goes to at + c pitch + i.

    Row i stands at first + i step. Of the rows the first `there` exist; the last one stands for those that do not.
    """

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        target, at, pitch, source, first, step, there, factor = arguments
        to, of = (
            place(context, builder, signature.args[which], array, offset)
            for which, array, offset in ((0, target, at), (3, source, first))
        )
        lines = [load(builder, builder.gep(of, [builder.mul(step, i)])) for i in rows_of(builder, there, LANES)]
        lanes = range(LANES)
        for half in (1, 2, 4, 8):  # exchange off-diagonal blocks of this size
            mixed = []
            for i, line in enumerate(lines):
                shift = LANES - half if i & half == 0 else LANES + half
                picks = [lane if lane & half == i & half else lane + shift for lane in lanes]
                mixed.append(builder.shuffle_vector(line, lines[i ^ half], ir.Constant(_WORDS, picks)))
            lines = mixed
        times = splat(builder, factor)
        for column, line in enumerate(lines):
            store(builder, builder.fmul(line, times), builder.gep(to, [builder.mul(pitch, INT(column))]))
        return context.get_dummy_value()

    number = types.intp
    return types.void(target, number, number, source, number, number, number, types.float32), build


@intrinsic
def _weigh(typing: Any, scores: Any, peaks: Any, totals: Any, factors: Any, stride: Any, begin: Any, end: Any,
           lane: Any) -> Any:  # fmt: skip
    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        arrays, (stride, begin, end, lane) = arguments[:4], arguments[4:]
        places = zip(signature.args[:4], arrays, strict=True)
        first, *held = [place(context, builder, kind, array, lane) for kind, array in places]

        def key(k: Any) -> Any:
            return builder.gep(first, [builder.mul(k, stride)])

        def highest(k: Any, number: int, peaks: list[Any]) -> list[Any]:
            peaks[number] = _larger(builder, load(builder, key(k)), peaks[number])
            return peaks

        before = load(builder, held[0])
        peak, *others = loop(builder, begin, end, _SIDE_BY_SIDE, [before] + [_LOW] * (_SIDE_BY_SIDE - 1), highest)
        for other in others:
            peak = _larger(builder, other, peak)
        base = builder.select(builder.fcmp_ordered("==", peak, _LOW), _ZERO, peak)  # nothing is visible so far

        def power(k: Any, number: int, sums: list[Any]) -> list[Any]:
            where = key(k)
            e = _exp2(builder, builder.fsub(load(builder, where), base))
            store(builder, e, where)
            sums[number] = builder.fadd(sums[number], e)
            return sums

        factor = _exp2(builder, builder.fsub(before, base))
        total, *others = loop(
            builder, begin, end, _SIDE_BY_SIDE,
            [builder.fmul(load(builder, held[1]), factor)] + [_ZERO] * (_SIDE_BY_SIDE - 1), power,
        )  # fmt: skip
        for other in others:
            total = builder.fadd(total, other)
        for vector, where in zip((peak, total, factor), held, strict=True):
            store(builder, vector, where)
        return context.get_dummy_value()

    number = types.intp
    return types.void(scores, peaks, totals, factors, number, number, number, number), build


@intrinsic
def _weigh_back(typing: Any, scores: Any, slants: Any, lse: Any, inner: Any, stride: Any, begin: Any, end: Any,
                lane: Any) -> Any:  # fmt: skip
    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        arrays, (stride, begin, end, lane) = arguments[:4], arguments[4:]
        places = zip(signature.args[:4], arrays, strict=True)
        *first, base, mean = [place(context, builder, kind, array, lane) for kind, array in places]
        base, mean = load(builder, base), load(builder, mean)

        def both(k: Any, _: int, state: list[Any]) -> list[Any]:
            score, slant = (builder.gep(start, [builder.mul(k, stride)]) for start in first)
            p = _exp2(builder, builder.fsub(load(builder, score), base))
            sloping = builder.fmul(p, builder.fsub(load(builder, slant), mean))
            store(builder, p, score)
            store(builder, builder.select(builder.fcmp_unordered("!=", p, _ZERO), sloping, _ZERO), slant)
            return state

        loop(builder, begin, end, _SIDE_BY_SIDE, [INT(0)], both)
        return context.get_dummy_value()

    number = types.intp
    return types.void(scores, slants, lse, inner, number, number, number, number), build


# The compiler may reassociate in a kernel, not in its helpers: rounding by adding and subtracting would be lost.


@inline
def weigh(scores, peaks, totals, factors, stride, begin, end, lane):
    """Replace the scores of the keys begin .. end by 2^(score - peak), for LANES queries from `lane` on.

    Key k stands at k stride + lane. peaks and totals are those of the keys so far, and are brought up to date;
    what was added up under the old peak has to be multiplied by factors. NaN needs no care: it stays in the total.
    """
    _weigh(scores, peaks, totals, factors, stride, begin, end, lane)


@inline
def weigh_back(scores, slants, lse, inner, stride, begin, end, lane):
    """Replace scores by the weights p = 2^(score - lse), and slants, their gradients, by those of the scores:
    p (slant - inner), 0 where p is 0. Laid out as for `weigh`."""
    _weigh_back(scores, slants, lse, inner, stride, begin, end, lane)
