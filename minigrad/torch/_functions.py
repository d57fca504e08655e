"""torch's functions that minigrad lacks, composed of its ops. METHODS of them are given to tensors, too.

A tensor of the stand-in is a minigrad tensor, so importing `minigrad.torch` adds these methods to that class; what
minigrad itself has stays as it is.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad import Tensor, dispatch, dtypes
from minigrad.torch import _creation


def _dims(x: Tensor, dim: Any) -> list[int]:
    return [d % x.ndim for d in ((dim,) if isinstance(dim, int) else dim)]


# --- logic and comparison ---------------------------------------------------------------------------


def logical_not(x: Tensor) -> Tensor:
    return ~x.bool()


def logical_and(x: Tensor, other: Tensor) -> Tensor:
    return x.bool() & other.bool()


def logical_or(x: Tensor, other: Tensor) -> Tensor:
    return x.bool() | other.bool()


def logical_xor(x: Tensor, other: Tensor) -> Tensor:
    return x.bool() ^ other.bool()


def isin(x: Tensor, test_elements: Any) -> Tensor:
    """Which elements are among `test_elements`."""
    return minigrad.from_numpy(np.isin(x.detach().numpy(), np.asarray(test_elements)))


def isclose(x: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    return minigrad.from_numpy(np.isclose(x.detach().numpy(), other.detach().numpy(), rtol, atol, equal_nan))


def count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    return x.bool().sum(dim)


# --- choosing by value: shapes depend on values, so none of these can be traced -----------------------


def nonzero(x: Tensor, as_tuple: bool = False) -> Any:
    """The indices of what is not zero, int64 ``(n, dims)``; a tensor for each dimension with `as_tuple`."""
    found = np.nonzero(x.detach().numpy())
    if as_tuple:
        return tuple(minigrad.from_numpy(indices.astype(np.int64)) for indices in found)
    return minigrad.from_numpy(np.stack(found, 1).astype(np.int64).reshape(-1, x.ndim))


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask`, one after the other."""
    shape = np.broadcast_shapes(x.shape, mask.shape)
    return minigrad.broadcast_to(x, shape)[minigrad.broadcast_to(mask, shape)]


def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The different elements in order; with their places and their counts if asked for."""
    values, inverse, counts = np.unique(x.detach().numpy(), return_inverse=True, return_counts=True)
    found = [values, *([inverse.reshape(x.shape)] if return_inverse else []), *([counts] if return_counts else [])]
    tensors = [minigrad.from_numpy(array) for array in found]
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, ... occurs, or the sum of its weights."""
    given = None if weights is None else weights.detach().numpy()
    return minigrad.from_numpy(np.bincount(x.numpy(), given, minlength))


# --- shape -------------------------------------------------------------------------------------------


def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimension(s) `source` at the place(s) `destination`, the others in their order."""
    sources, places = _dims(x, source), _dims(x, destination)
    rest = iter([d for d in range(x.ndim) if d not in sources])
    return x.permute(*[sources[places.index(d)] if d in places else next(rest) for d in range(x.ndim)])


def swapaxes(x: Tensor, axis0: int, axis1: int) -> Tensor:
    return x.transpose(axis0, axis1)


def tile(x: Tensor, *dims: Any) -> Tensor:
    """As repeat; missing leading counts are 1."""
    counts = list(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else list(dims)
    return x.repeat(*[1] * (x.ndim - len(counts)), *counts)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements with index i along `dim1` and i + offset along `dim2`, in a last dimension of their own; a copy."""
    moved = movedim(x, (dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    i = np.arange(builtins.max(0, builtins.min(rows + builtins.min(offset, 0), columns - builtins.max(offset, 0))))
    return moved[
        ..., minigrad.from_numpy(i - builtins.min(offset, 0)), minigrad.from_numpy(i + builtins.max(offset, 0))
    ]


def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix."""
    if x.ndim == 2:
        return _diagonal(x, diagonal)
    size = x.shape[0] + builtins.abs(diagonal)
    i = np.arange(x.shape[0])
    rows, columns = i - builtins.min(diagonal, 0), i + builtins.max(diagonal, 0)
    result = minigrad.zeros(size, size, dtype=x.dtype)
    result[minigrad.from_numpy(rows), minigrad.from_numpy(columns)] = x
    return result


_diagonal = diagonal


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    return minigrad.cat(tensors, 0 if tensors[0].ndim < 2 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    return minigrad.cat([x.reshape(1, -1) if x.ndim < 2 else x for x in tensors], 0)


def tril_indices(row: int, col: int, offset: int = 0, device: Any = None) -> Tensor:
    """The places (rows, columns) ``(2, n)`` on and below a diagonal."""
    _creation.check_device("tril_indices", device)
    return minigrad.from_numpy(np.stack(np.tril_indices(row, offset, col)).astype(np.int64))


def triu_indices(row: int, col: int, offset: int = 0, device: Any = None) -> Tensor:
    """The places (rows, columns) ``(2, n)`` on and above a diagonal."""
    _creation.check_device("triu_indices", device)
    return minigrad.from_numpy(np.stack(np.triu_indices(row, offset, col)).astype(np.int64))


# --- arithmetic --------------------------------------------------------------------------------------


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta input + alpha (mat1 @ mat2)."""
    product = mat1 @ mat2
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


baddbmm = addmm


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight (end - input)."""
    return input + (end - input) * weight


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value tensor1 tensor2."""
    return input + tensor1 * tensor2 * value


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value tensor1 / tensor2."""
    return input + tensor1 / tensor2 * value


def cumprod(x: Tensor, dim: int) -> Tensor:
    """Running products along `dim`."""
    done: list[Tensor] = []
    for part in x.unbind(dim):
        done.append(part if not done else done[-1] * part)
    return minigrad.stack(done, dim)


# --- gathering and filling -----------------------------------------------------------------------------


def take_along_dim(x: Tensor, indices: Tensor, dim: int) -> Tensor:
    """As gather, with sizes broadcast but along `dim`."""
    dim %= x.ndim
    lead = np.broadcast_shapes(*[(*t.shape[:dim], 1, *t.shape[dim + 1 :]) for t in (x, indices)])

    def spread(t: Tensor) -> Tensor:
        return minigrad.broadcast_to(t, (*lead[:dim], t.shape[dim], *lead[dim + 1 :]))

    return spread(x).gather(dim, spread(indices))


def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`value` at the indices `index` ``(n,)`` along `dim`."""
    hit = minigrad.from_numpy(np.isin(np.arange(x.shape[dim]), index.numpy()))
    return x.masked_fill(hit.reshape(*[-1 if d == dim % x.ndim else 1 for d in range(x.ndim)]), value)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """The slices of `source` added, times alpha, at the indices `index` ``(n,)`` along `dim`."""
    shape = [-1 if d == dim % x.ndim else 1 for d in range(x.ndim)]
    everywhere = minigrad.broadcast_to(index.long().reshape(*shape), source.shape)
    return x.scatter_add(dim, everywhere, source if alpha == 1 else source * alpha)


# --- creation from a tensor ------------------------------------------------------------------------------


def _like(make: Any) -> Any:
    def method(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        made = make(*size, dtype=dtype or self.dtype, device=device)
        return made.requires_grad_(requires_grad)

    return method


def new_full(
    self: Tensor, size: Any, fill_value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    return _creation.full(size, fill_value, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


def new_tensor(self: Tensor, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    return _creation.tensor(data, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


def type_(self: Tensor, dtype: Any) -> Tensor:
    """In another dtype. (Its name, without an argument, is not given: write .dtype.)"""
    return self.to(dtype)


FUNCTIONS = (
    logical_not, logical_and, logical_or, logical_xor, isclose, count_nonzero, nonzero, masked_select, unique, bincount,
    movedim, swapaxes, tile, diagonal, diag, addmm, lerp, addcmul, addcdiv, cumprod, take_along_dim,
    index_fill, index_add,
)  # fmt: skip
METHODS: dict[str, Any] = {function.__name__: function for function in FUNCTIONS}
METHODS |= {
    "new_zeros": _like(_creation.zeros),
    "new_ones": _like(_creation.ones),
    "new_empty": _like(_creation.empty),
    "new_full": new_full,
    "new_tensor": new_tensor,
    "baddbmm": baddbmm,
    "swapdims": swapaxes,
    "type": type_,
    "short": lambda self: self.to(dtypes.int16),
    "nelement": Tensor.numel,
    "ndimension": Tensor.dim,
    "bmm": Tensor.matmul,
    "mm": Tensor.matmul,
}


def _in_place(function: Any) -> Any:
    def method(self: Tensor, *args: Any, **keywords: Any) -> Tensor:
        return dispatch.write(self, function(self, *args, **keywords))

    return method


METHODS |= {
    f"{function.__name__}_": _in_place(function) for function in (lerp, addcmul, addcdiv, index_fill, index_add)
}


def give_methods() -> None:
    """Add METHODS to the class of tensors, where it has no method of that name."""
    for name, method in METHODS.items():
        if not hasattr(Tensor, name):
            setattr(Tensor, name, method)
