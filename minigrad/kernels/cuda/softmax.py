"""Softmax, log-softmax and softmax's derivative along any dimension; rows in registers where they fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from minigrad.kernels.cuda.expressions import maximum
from minigrad.kernels.cuda.language import Kernel, cuda, device, float32, int64, kernel
from minigrad.kernels.cuda.reductions import from_rows, to_rows
from minigrad.kernels.cuda.rows import TEAMS, Team, block_row, grid_for, team_for, warp_row
from minigrad.kernels.cuda.teams import WARP, maxima, sums

ZERO, LEAST = float32(0), float32("-inf")
UNROLL = 4  # loads of a thread that are under way together


@device
def rescaled(total, peak, higher):
    """(a sum of e^(x - peak) as one of e^(x - higher), what to take from x for it): of nothing but -inf, 0 and 0."""
    shift = ZERO if higher == LEAST else higher
    return total * math.exp(peak - shift), shift


def gather_normaliser(threads: int) -> Callable[..., Any]:
    """A device function (x, start, n, shared) -> (peak, total) of x[start : start + n], by a block that reads it once.

    Every thread keeps a maximum and a sum of exponentials that are scaled anew for every four elements. NaN, and
    infinity as a maximum, make the total NaN; nothing but -inf makes it 0, and its logarithm -inf.
    """
    largest, added = maxima(threads), sums(threads)

    @device
    def gathered(x, start, n, shared):
        peak, total = LEAST, ZERO
        j = cuda.threadIdx.x
        while j + 3 * threads < n:
            at = start + j
            p, q, r, s = x[at], x[at + threads], x[at + 2 * threads], x[at + 3 * threads]
            higher = maximum(peak, maximum(maximum(p, q), maximum(r, s)))
            total, shift = rescaled(total, peak, higher)
            total += math.exp(p - shift) + math.exp(q - shift) + (math.exp(r - shift) + math.exp(s - shift))
            peak = higher
            j += 4 * threads
        while j < n:
            value = x[start + j]
            higher = maximum(peak, value)
            total, shift = rescaled(total, peak, higher)
            total += math.exp(value - shift)
            peak = higher
            j += threads
        highest = largest(peak, shared)
        total, _ = rescaled(total, peak, highest)
        return highest, added(total, shared)

    return gathered


def _make(team: Team, log: bool) -> Kernel:
    threads, per = team
    largest, added = maxima(threads), sums(threads)
    place = warp_row if threads == WARP else block_row

    @device
    def result(value, peak, total):
        return value - peak - math.log(total) if log else math.exp(value - peak) / total

    name = f"{'log_softmax' if log else 'softmax'}_{team.name}"
    if not per:
        gathered = gather_normaliser(threads)

        @kernel("float32*, float32*, int32, int32", name=name, threads=team.block)
        def softmax_loop(x, y, rows, n):
            shared = cuda.shared.array(WARP, float32)
            start = int64(cuda.blockIdx.x) * n
            peak, total = gathered(x, start, n, shared)
            values = cuda.local.array(UNROLL, float32)
            for first in range(cuda.threadIdx.x, n, UNROLL * threads):
                for k in range(UNROLL):  # loads before stores, which might be to the same memory
                    j = first + k * threads
                    values[k] = x[start + j] if j < n else ZERO
                for k in range(UNROLL):
                    j = first + k * threads
                    if j < n:
                        y[start + j] = result(values[k], peak, total)

        return softmax_loop

    @kernel("float32*, float32*, int32, int32", name=name, threads=team.block)
    def softmax(x, y, rows, n):
        shared = cuda.shared.array(WARP, float32)
        values = cuda.local.array(per, float32)
        row, t = place()
        if row < rows:
            start = int64(row) * n
            peak, total = LEAST, ZERO
            for k in range(per):
                j = k * threads + t
                values[k] = x[start + j] if j < n else LEAST
                peak = maximum(peak, values[k])
            peak = largest(peak, shared)
            for k in range(per):
                if k * threads + t < n:
                    total += math.exp(values[k] - peak)
            total = added(total, shared)
            for k in range(per):
                j = k * threads + t
                if j < n:
                    y[start + j] = result(values[k], peak, total)

    return softmax


def _make_grad(team: Team) -> Kernel:
    threads, per = team
    added = sums(threads)
    place = warp_row if threads == WARP else block_row
    name = f"softmax_grad_{team.name}"
    if not per:

        @kernel("float32*, float32*, float32*, int32, int32", name=name, threads=team.block)
        def softmax_grad_loop(g, y, dx, rows, n):
            shared = cuda.shared.array(WARP, float32)
            start = int64(cuda.blockIdx.x) * n
            total = ZERO
            for j in range(cuda.threadIdx.x, n, threads):
                total += g[start + j] * y[start + j]
            total = added(total, shared)
            for j in range(cuda.threadIdx.x, n, threads):
                dx[start + j] = y[start + j] * (g[start + j] - total)

        return softmax_grad_loop

    @kernel("float32*, float32*, float32*, int32, int32", name=name, threads=team.block)
    def softmax_grad(g, y, dx, rows, n):
        shared = cuda.shared.array(WARP, float32)
        ups = cuda.local.array(per, float32)
        values = cuda.local.array(per, float32)
        row, t = place()
        if row < rows:
            start = int64(row) * n
            total = ZERO
            for k in range(per):
                j = k * threads + t
                ups[k] = g[start + j] if j < n else ZERO
                values[k] = y[start + j] if j < n else ZERO
                total += ups[k] * values[k]
            total = added(total, shared)
            for k in range(per):
                j = k * threads + t
                if j < n:
                    dx[start + j] = values[k] * (ups[k] - total)

    return softmax_grad


SOFTMAX = {(team, log): _make(team, log) for team in TEAMS for log in (False, True)}
SOFTMAX_GRAD = {team: _make_grad(team) for team in TEAMS}


def _binder(name: str, pick: Callable[[Team], Kernel]) -> Callable[..., bool]:
    def bind(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dim: int) -> bool:
        if not outputs[0].size:
            return True
        rows = [to_rows(calls, x, dim) for x in inputs]
        n = rows[0].shape[-1]
        count, team = rows[0].size // n, team_for(n)
        from_rows(
            calls,
            outputs[0],
            dim,
            lambda y: calls.launch(pick(team), grid_for(team, count), team.block, *rows, y, count, n),
        )
        return True

    bind.__name__ = bind.__qualname__ = name
    return bind


softmax = _binder("softmax", lambda team: SOFTMAX[team, False])
log_softmax = _binder("log_softmax", lambda team: SOFTMAX[team, True])
softmax_grad = _binder("softmax_grad", lambda team: SOFTMAX_GRAD[team])
