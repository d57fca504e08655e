"""Embedding: rows of a table at given ids, and the gradient, in which rows of equal ids add up."""

from __future__ import annotations

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import placed
from minigrad.ops.derivation import derive, grid
from minigrad.ops.registry import ANY_DTYPE, Array, Op, op
from minigrad.tensor import Tensor


def check_rows(ids: Array, vocab: int) -> None:
    """Raise IndexError for an id outside 0 .. vocab - 1: numpy would take it from the end, a kernel from anywhere."""
    if ids.size:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= vocab:
            raise IndexError(outside_vocabulary(vocab).format(low if low < 0 else high))


def outside_vocabulary(vocab: int) -> str:
    """What is said of an id without a row in the table, with {} for it."""
    return f"embedding: id {{}} is outside the vocabulary of {vocab}"


def _embedding(weight: Array, ids: Array, *, padding_idx: int | None) -> Array:
    check_rows(ids, len(weight))
    return weight[ids]


embedding_op = op(
    "embedding",
    _embedding,
    {
        "weight": lambda g, ids, weight_shape, padding_idx: embedding_grad_op(
            g, ids, shape=weight_shape, padding_idx=padding_idx
        )
    },
    shape=lambda metas, *, padding_idx: [((*metas[1][0], metas[0][0][1]), metas[0][1])],
    samples=lambda rng: [((rng.standard_normal((5, 3)), np.array([[0, 2], [2, 4]])), {"padding_idx": None})],
    formula="weight[ids]",
    exact_dtype=True,
    kernels={"numba.embedding": "float32", "cuda.index": ANY_DTYPE},
    derivation=derive(
        "row t of y is row ids_t of the weight",
        "dL = sum_t <g_t, dweight_ids(t)>: a word that stands twice in the text gets both gradients",
        "the row padding_idx, where there is one, gets none: on purpose, it stays as it is",
        let={"s": "moved(numbers(weight))"},
        example=lambda: ([grid(2, 3), np.array([1, 0, 1])], {"padding_idx": None}),
        weight="collect(g, s, weight)",
    ),
)


def _embedding_grad(g: Array, ids: Array, *, shape: tuple[int, int], padding_idx: int | None) -> Array:
    """Rows of equal ids add up: sorted by id, then summed by segment."""
    flat, rows = ids.reshape(-1), g.reshape(-1, shape[1])
    result = np.zeros(shape, g.dtype)
    if flat.size:
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        result[ordered[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    if padding_idx is not None:
        result[padding_idx] = 0
    return result


def _masked_padding(g: Tensor, padding_idx: int | None) -> Tensor:
    if padding_idx is None:
        return g
    keep = np.arange(g.array.shape[0]) != padding_idx
    return g * placed(keep[:, None].astype(g.array.dtype), g.storage.device)


embedding_grad_op: Op = op(
    "embedding_grad",
    _embedding_grad,
    {"g": lambda g, ids, padding_idx: embedding_op(_masked_padding(g, padding_idx), ids, padding_idx=None)},
    shape=lambda metas, *, shape, padding_idx: [(shape, metas[0][1])],
    flops=rules.per_input(1),
    samples=lambda rng: [
        ((rng.standard_normal((2, 2, 3)), np.array([[0, 2], [2, 4]])), {"shape": (5, 3), "padding_idx": p})
        for p in (None, 2)
    ],
    formula="zeros (vocab, d), with row g_t added at ids_t; the padding row stays zero",
    kernels={"numba.embedding": "float32", "cuda.index": ANY_DTYPE},
    derivation=derive(
        "row v of y is the sum of the g_t with ids_t = v",
        "each g_t went to row ids_t, and nowhere else",
        g="h[ids]",
        example=lambda: ([grid(3, 3), np.array([1, 0, 1])], {"shape": (2, 3), "padding_idx": None}),
    ),
)


def embedding(ids: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` ``(vocab, d)`` at `ids` ``(...)``: ``(..., d)``. The row `padding_idx` gets no gradient.

    Raises IndexError for an id outside the vocabulary, TypeError for ids that are not integers, ValueError for a
    weight that is no matrix and a padding_idx outside the vocabulary.
    """
    if dtypes.category(ids.array.dtype) != 1:
        raise TypeError(f"embedding: ids must be integers, got {dtypes.name(ids.array.dtype)}")
    if weight.array.ndim != 2:
        raise ValueError(f"embedding: the weight must be (vocabulary, width), got shape {list(weight.array.shape)}")
    return embedding_op(weight, ids, padding_idx=padding_row(padding_idx, weight.array.shape[0]))


def padding_row(padding_idx: int | None, vocab: int) -> int | None:
    """The row of a table that `padding_idx` speaks of, from its end where negative. Raises ValueError outside."""
    padding_idx = None if padding_idx is None else rules.integer(padding_idx, "padding_idx")
    if padding_idx is not None and not -vocab <= padding_idx < vocab:
        raise ValueError(f"padding_idx {padding_idx} is outside the table of {vocab} rows")
    return None if padding_idx is None else padding_idx % vocab


expect_tensors(globals())
