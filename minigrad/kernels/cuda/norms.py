"""Layer norm, RMS norm and their derivatives over the last dimension; rows in registers where they fit.

The weight's (and bias's) gradient is summed over rows: each of at most `MOST_TEAMS` teams takes rows in turn, keeps the
sums of its columns in registers, and writes them once; a column reduction adds the teams' sums in their order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels.cuda import elementwise
from minigrad.kernels.cuda.language import Kernel, cuda, float32, int64, kernel
from minigrad.kernels.cuda.reductions import reduce
from minigrad.kernels.cuda.rows import TEAMS, Team, block_row, grid_for, team_for, warp_row
from minigrad.kernels.cuda.teams import WARP, sums

ZERO, ONE = float32(0), float32(1)
MOST_TEAMS = 528  # teams that share the rows of a derivative: a number of our own, so that sums repeat on any device


class Norm(NamedTuple):
    """The kernels of one team, forward or backward."""

    layer: Kernel
    rms: Kernel


def _make(team: Team) -> Norm:
    threads, per = team
    added = sums(threads)
    place = warp_row if threads == WARP else block_row

    @kernel(
        "float32*, float32*, float32*, float32*, float32*, float32*, int32, int32, float32",
        name=f"layer_norm_{team.name}",
        threads=team.block,
    )
    def layer(x, weight, bias, y, average, rstd, rows, n, eps):
        shared = cuda.shared.array(WARP, float32)
        values = cuda.local.array(per, float32)
        row, t = place()
        if row < rows:
            start = int64(row) * n
            total = ZERO
            for k in range(per):
                j = k * threads + t
                values[k] = x[start + j] if j < n else ZERO
                total += values[k]
            mean = added(total, shared) / float32(n)
            squares = ZERO
            for k in range(per):
                if k * threads + t < n:
                    centred = values[k] - mean
                    squares += centred * centred
            scale = ONE / math.sqrt(added(squares, shared) / float32(n) + eps)
            for k in range(per):
                j = k * threads + t
                if j < n:
                    y[start + j] = (values[k] - mean) * scale * weight[j] + bias[j]
            if t == 0:
                average[row] = mean
                rstd[row] = scale

    @kernel(
        "float32*, float32*, float32*, float32*, int32, int32, float32",
        name=f"rms_norm_{team.name}",
        threads=team.block,
    )
    def rms(x, weight, y, rstd, rows, n, eps):
        shared = cuda.shared.array(WARP, float32)
        values = cuda.local.array(per, float32)
        row, t = place()
        if row < rows:
            start = int64(row) * n
            squares = ZERO
            for k in range(per):
                j = k * threads + t
                values[k] = x[start + j] if j < n else ZERO
                squares += values[k] * values[k]
            scale = ONE / math.sqrt(added(squares, shared) / float32(n) + eps)
            for k in range(per):
                j = k * threads + t
                if j < n:
                    y[start + j] = values[k] * scale * weight[j]
            if t == 0:
                rstd[row] = scale

    return Norm(layer, rms)


def _make_grad(team: Team) -> Norm:
    threads, per = team
    added = sums(threads)
    place = warp_row if threads == WARP else block_row
    rows_of_block = team.rows

    @kernel(
        "float32*, float32*, float32*, float32*, float32*, float32*, float32*, float32*, int32, int32",
        name=f"layer_norm_grad_{team.name}",
        threads=team.block,
    )
    def layer_grad(g, x, weight, average, rstd, dx, dweight, dbias, rows, n):
        shared = cuda.shared.array(WARP, float32)
        ups = cuda.local.array(per, float32)
        normals = cuda.local.array(per, float32)
        by_weight = cuda.local.array(per, float32)
        by_bias = cuda.local.array(per, float32)
        for k in range(per):
            by_weight[k] = ZERO
            by_bias[k] = ZERO
        first, t = place()
        for row in range(first, rows, cuda.gridDim.x * rows_of_block):
            start = int64(row) * n
            mean, scale = average[row], rstd[row]
            s, sn = ZERO, ZERO
            for k in range(per):
                j = k * threads + t
                ups[k] = g[start + j] if j < n else ZERO
                normals[k] = (x[start + j] - mean) * scale if j < n else ZERO
                scaled = ups[k] * weight[j] if j < n else ZERO
                s += scaled
                sn += scaled * normals[k]
                by_weight[k] += ups[k] * normals[k]
                by_bias[k] += ups[k]
            s = added(s, shared) / float32(n)
            sn = added(sn, shared) / float32(n)
            for k in range(per):
                j = k * threads + t
                if j < n:
                    dx[start + j] = scale * (ups[k] * weight[j] - s - normals[k] * sn)
        for k in range(per):
            j = k * threads + t
            if j < n:
                dweight[first * n + j] = by_weight[k]
                dbias[first * n + j] = by_bias[k]

    @kernel(
        "float32*, float32*, float32*, float32*, float32*, float32*, int32, int32",
        name=f"rms_norm_grad_{team.name}",
        threads=team.block,
    )
    def rms_grad(g, x, weight, rstd, dx, dweight, rows, n):
        shared = cuda.shared.array(WARP, float32)
        ups = cuda.local.array(per, float32)
        normals = cuda.local.array(per, float32)
        by_weight = cuda.local.array(per, float32)
        for k in range(per):
            by_weight[k] = ZERO
        first, t = place()
        for row in range(first, rows, cuda.gridDim.x * rows_of_block):
            start = int64(row) * n
            scale = rstd[row]
            sn = ZERO
            for k in range(per):
                j = k * threads + t
                ups[k] = g[start + j] if j < n else ZERO
                normals[k] = x[start + j] * scale if j < n else ZERO
                sn += ups[k] * weight[j] * normals[k] if j < n else ZERO
                by_weight[k] += ups[k] * normals[k]
            sn = added(sn, shared) / float32(n)
            for k in range(per):
                j = k * threads + t
                if j < n:
                    dx[start + j] = scale * (ups[k] * weight[j] - normals[k] * sn)
        for k in range(per):
            j = k * threads + t
            if j < n:
                dweight[first * n + j] = by_weight[k]

    return Norm(layer_grad, rms_grad)


def _make_loop(team: Team) -> Norm:
    """The same for rows that are read again for every pass."""
    threads = team.threads
    added = sums(threads)

    @kernel(
        "float32*, float32*, float32*, float32*, float32*, float32*, int32, int32, float32",
        name=f"layer_norm_{team.name}",
        threads=threads,
    )
    def layer(x, weight, bias, y, average, rstd, rows, n, eps):
        shared = cuda.shared.array(WARP, float32)
        row, t = block_row()
        start = int64(row) * n
        total = ZERO
        for j in range(t, n, threads):
            total += x[start + j]
        mean = added(total, shared) / float32(n)
        squares = ZERO
        for j in range(t, n, threads):
            centred = x[start + j] - mean
            squares += centred * centred
        scale = ONE / math.sqrt(added(squares, shared) / float32(n) + eps)
        for j in range(t, n, threads):
            y[start + j] = (x[start + j] - mean) * scale * weight[j] + bias[j]
        if t == 0:
            average[row] = mean
            rstd[row] = scale

    @kernel(
        "float32*, float32*, float32*, float32*, int32, int32, float32",
        name=f"rms_norm_{team.name}",
        threads=threads,
    )
    def rms(x, weight, y, rstd, rows, n, eps):
        shared = cuda.shared.array(WARP, float32)
        row, t = block_row()
        start = int64(row) * n
        squares = ZERO
        for j in range(t, n, threads):
            squares += x[start + j] * x[start + j]
        scale = ONE / math.sqrt(added(squares, shared) / float32(n) + eps)
        for j in range(t, n, threads):
            y[start + j] = x[start + j] * scale * weight[j]
        if t == 0:
            rstd[row] = scale

    return Norm(layer, rms)


def _make_loop_grad(team: Team) -> Norm:
    """Sums of columns lie in memory, where every thread has columns of its own."""
    threads = team.threads
    added = sums(threads)

    @kernel(
        "float32*, float32*, float32*, float32*, float32*, float32*, float32*, float32*, int32, int32",
        name=f"layer_norm_grad_{team.name}",
        threads=threads,
    )
    def layer_grad(g, x, weight, average, rstd, dx, dweight, dbias, rows, n):
        shared = cuda.shared.array(WARP, float32)
        first, t = block_row()
        for j in range(t, n, threads):
            dweight[first * n + j] = ZERO
            dbias[first * n + j] = ZERO
        for row in range(first, rows, cuda.gridDim.x):
            start = int64(row) * n
            mean, scale = average[row], rstd[row]
            s, sn = ZERO, ZERO
            for j in range(t, n, threads):
                up, normal = g[start + j], (x[start + j] - mean) * scale
                s += up * weight[j]
                sn += up * weight[j] * normal
                dweight[first * n + j] += up * normal
                dbias[first * n + j] += up
            s = added(s, shared) / float32(n)
            sn = added(sn, shared) / float32(n)
            for j in range(t, n, threads):
                normal = (x[start + j] - mean) * scale
                dx[start + j] = scale * (g[start + j] * weight[j] - s - normal * sn)

    @kernel(
        "float32*, float32*, float32*, float32*, float32*, float32*, int32, int32",
        name=f"rms_norm_grad_{team.name}",
        threads=threads,
    )
    def rms_grad(g, x, weight, rstd, dx, dweight, rows, n):
        shared = cuda.shared.array(WARP, float32)
        first, t = block_row()
        for j in range(t, n, threads):
            dweight[first * n + j] = ZERO
        for row in range(first, rows, cuda.gridDim.x):
            start = int64(row) * n
            scale = rstd[row]
            sn = ZERO
            for j in range(t, n, threads):
                up, normal = g[start + j], x[start + j] * scale
                sn += up * weight[j] * normal
                dweight[first * n + j] += up * normal
            sn = added(sn, shared) / float32(n)
            for j in range(t, n, threads):
                dx[start + j] = scale * (g[start + j] * weight[j] - x[start + j] * scale * sn)

    return Norm(layer_grad, rms_grad)


NORMS = {team: _make(team) if team.per else _make_loop(team) for team in TEAMS}
# a block of 1024 threads has no registers for a row's sums beside the row
GRADS = {team: _make_grad(team) if team.per else _make_loop_grad(team) for team in TEAMS if team != Team(1024, 8)}


def _rows(calls: Any, x: Any, teams: Collection[Team]) -> tuple[Any, int, int, Team]:
    """Contiguous `x`, how many rows of how many elements it has, and their team."""
    n = x.shape[-1]
    return calls.contiguous(x), x.size // n, n, team_for(n, teams)


def layer_norm(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, eps: float) -> bool:
    """(y, mean, 1/std) of ``(..., d)``; mean and 1/std are ``(..., 1)``."""
    if not inputs[0].size:
        return _nothing(calls, outputs)
    x, rows, n, team = _rows(calls, inputs[0], NORMS)
    rest = [calls.contiguous(array) for array in inputs[1:]]
    calls.launch(NORMS[team].layer, grid_for(team, rows), team.block, x, *rest, *outputs, rows, n, eps)
    return True


def rms_norm(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, eps: float) -> bool:
    """(y, 1/rms) of ``(..., d)``; 1/rms is ``(..., 1)``."""
    if not inputs[0].size:
        return _nothing(calls, outputs)
    x, rows, n, team = _rows(calls, inputs[0], NORMS)
    weight = calls.contiguous(inputs[1])
    calls.launch(NORMS[team].rms, grid_for(team, rows), team.block, x, weight, *outputs, rows, n, eps)
    return True


def layer_norm_grad(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, eps: float) -> bool:
    """(dx, dweight, dbias)."""
    return _grad(calls, inputs, outputs, lambda norm: norm.layer)


def rms_norm_grad(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, eps: float) -> bool:
    """(dx, dweight)."""
    return _grad(calls, inputs, outputs, lambda norm: norm.rms)


def _grad(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], pick: Any) -> bool:
    if not inputs[1].size:
        return _nothing(calls, outputs)
    x, rows, n, team = _rows(calls, inputs[1], GRADS)
    g, *rest = [calls.contiguous(array) for array in (inputs[0], *inputs[2:])]
    blocks = grid_for(team, min(rows, MOST_TEAMS))
    teams = blocks * team.rows
    partial = [calls.scratch((teams, n), np.dtype("float32")) for _ in outputs[1:]]
    calls.launch(pick(GRADS[team]), blocks, team.block, g, x, *rest, outputs[0], *partial, rows, n)
    for sums_of_teams, output in zip(partial, outputs[1:], strict=True):
        reduce(calls, "sum", sums_of_teams, output, 1, teams, n)
    return True


def _nothing(calls: Any, outputs: Sequence[Any]) -> bool:
    """Of no rows, a sum over them is zero; the statistics of rows without elements are of no use."""
    for output in outputs[1:]:
        if output.size:
            elementwise.fill(calls, output, 0)
    return True
