"""Products of rows with matrices that they choose: of a mixture of experts a token reads the weights of a few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from minigrad.ops.along import gather
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import derive, grid
from minigrad.ops.joins import cat
from minigrad.ops.matmul import matmul
from minigrad.ops.registry import Op, Sample, op
from minigrad.ops.shape import expand, permute, reshape
from minigrad.ops.stored import KINDS, as_computed, to_stored
from minigrad.tensor import Tensor


def _steps(x: Tensor, chosen: Tensor, *parts: Tensor, count: int) -> Tensor:
    """Every matrix times every row, of which those that were chosen are taken."""
    scales: Sequence[Tensor | None] = parts[count:] or [None] * count
    wide = [as_computed(m, s, x.array.dtype) for m, s in zip(parts[:count], scales, strict=True)]
    rows, n = x.array.shape[0], wide[0].array.shape[0]
    every = reshape(matmul(x, permute(cat(wide, 0), 1, 0)), (rows, count, n))
    taken = gather(every, 1, expand(reshape(chosen, rows, 1, 1), rows, 1, n))
    return reshape(taken, rows, n)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, chosen = rng.standard_normal((3, 5)), np.array([1, 0, 1])
    matrices = [rng.standard_normal((4, 5)) for _ in range(2)]
    yield (x, chosen, *matrices), {"count": 2}
    for kind in KINDS:
        parts = [to_stored(matrix, kind) for matrix in matrices]
        yield (x, chosen, *[part for both in zip(*parts, strict=True) for part in both]), {"count": 2}


chosen_linear_op: Op = op(
    "chosen_linear",
    None,
    decomposition=_steps,
    shape=lambda metas, *, count: [((metas[0][0][0], metas[2][0][0]), metas[0][1])],
    flops=lambda metas, outputs, *, count: 2 * metas[0][0][1] * outputs[0][0][0] * outputs[0][0][1],
    wide=1,
    samples=_samples,
    formula="row i of x times W_c(i)^T: the matrix that c chooses for it",
    source="Shazeer et al. 2017, 'Outrageously large neural networks', section 2: what is gated by 0 is not computed",
    kernels={"numba.chosen": "float32"},
    derivation=derive(
        "row i of y is x_i W^T with the W that it chose: dy_i = dx_i W^T",
        "<g_i, dx_i W^T> = <g_i W, dx_i>: a row's gradient comes back through the same matrix",
        x="g @ parts[0]",
        example=lambda: ([grid(2, 2), np.array([0, 0]), grid(3, 2, seed=1)], {"count": 1}),
    ),
)


def chosen_linear(
    x: Tensor, chosen: Tensor, matrices: Sequence[Tensor], scales: Sequence[Tensor] | None = None
) -> Tensor:
    """Row i of x ``(m, k)`` times the transpose of matrices[chosen[i]] ``(n, k)``: ``(m, n)``. chosen int ``(m,)``.

    scales: of matrices of int8, as for `stored_linear`. In a plan only the matrices that were chosen are read.
    """
    return chosen_linear_op(x, chosen, *matrices, *(scales or ()), count=len(matrices))


expect_tensors(globals())
