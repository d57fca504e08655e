"""The words of the last lines of derivations (`minigrad.ops.derivation`), as functions of numpy arrays.

They share nothing with the engine's rules, so that an agreement of the two says something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.ops.index import SLOT

Array = np.ndarray


def _sum(x: Array, dim: Any = -1) -> Array:
    return np.sum(x, axis=dim, keepdims=True)


def _mean(x: Array, dim: Any = -1) -> Array:
    return np.mean(x, axis=dim, keepdims=True)


def _transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _spread(g: Array, x: Array, dims: Sequence[int]) -> Array:
    """a reduced value laid out over the shape that it was reduced from"""
    kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    return np.broadcast_to(np.reshape(g, kept), x.shape)


def _numbers(x: Array) -> Array:
    """0, 1, 2, ... in the shape of x: each element's place"""
    return np.arange(x.size).reshape(x.shape)


def _collect(g: Array, places: Array, x: Array) -> Array:
    """in the shape of x, at each place the sum of the g that belong there"""
    return np.bincount(places.ravel(), weights=g.ravel(), minlength=x.size).reshape(x.shape)


def _at(x: Array, index: Sequence[Any], *indices: Array) -> Array:
    """x[index]"""
    given = iter(indices)
    return x[tuple(next(given) if i == SLOT else slice(*i[1:]) if isinstance(i, tuple) else i for i in index)]


def _window(x: Array, shape: Sequence[int], strides: Sequence[int], offset: int) -> Array:
    """a window on the elements in their order: shape, strides and offset in elements"""
    places = np.full(shape, offset)
    for axis, stride in enumerate(strides):
        steps = np.arange(shape[axis]) * stride
        places += steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return x.ravel()[places]


def _split(g: Array, tensors: Sequence[Array], dim: int) -> list[Array]:
    """the parts of g that stand where the tensors do"""
    return np.split(g, np.cumsum([t.shape[dim] for t in tensors])[:-1], axis=dim)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _hide(scores: Array, causal: bool) -> Array:
    """-inf at later keys, where attention is causal"""
    queries, keys = scores.shape[-2:]
    return np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -np.inf) if causal else scores


# words of the project's own, each with its meaning as a docstring
DEFINED: dict[str, Any] = {
    "spread": _spread, "numbers": _numbers, "collect": _collect, "at": _at, "window": _window, "split": _split,
    "hide": _hide,
}  # fmt: skip
WORDS: dict[str, Any] = {
    **{name: value for name, value in vars(np).items() if isinstance(value, np.ufunc)},
    **{name: getattr(np, name) for name in ("where", "flip", "cumsum", "tril", "triu", "pi", "take_along_axis")},
    "erf": np.vectorize(math.erf, otypes=[np.float64]), "sum": _sum, "mean": _mean, "T": _transposed,
    "softmax": _softmax, "one_hot": lambda ids, n: np.eye(n)[ids], **DEFINED,
}  # fmt: skip
