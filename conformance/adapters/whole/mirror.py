"""A run of minigrad whose every operation is one of torch: for those who watch torch's operations.

    with Mirror(tensors).interpreting():      # minigrad's parameters, and torch's that have the same numbers
        out = model(ids)                      # each op of minigrad calls torch's operation of the same meaning

So records, lookups, choices and losses of a model on minigrad are seen as those of any model. An op that torch does not
have is run in its parts. tests/conformance/whole/test_mirror.py holds each operation to minigrad's on all samples.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_map

import minigrad as mg
from conformance.protocol import NotProvided
from minigrad import dtypes, kernels
from minigrad.decomposition import decompose
from minigrad.dispatch import Eager
from minigrad.ops.flash import distances, visible
from minigrad.ops.index import thaw
from minigrad.ops.registry import Op
from minigrad.state import eagerly, state
from minigrad.tensor import LITERAL


def is_watched() -> bool:
    """Whether somebody watches torch's operations."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._len_torch_function_stack() > 0


class Mirror(Eager):
    """Calls torch for each op. tensors: minigrad's tensors with torch's of the same numbers in the same memory."""

    def __init__(self, tensors: Sequence[tuple[mg.Tensor, torch.Tensor]]) -> None:
        self.known = {id(own.array): (own.array, theirs) for own, theirs in tensors}

    @contextmanager
    def interpreting(self) -> Iterator[None]:
        """Ops inside go to torch; torch keeps the history, if gradients are on."""
        before, state.interpreter = state.interpreter, self
        try:
            with mg.no_grad():
                yield
        finally:
            state.interpreter = before

    def in_torch(self, tree: Any) -> Any:
        """Nested values with torch's tensors in the place of minigrad's."""
        return tree_map(lambda leaf: self._tensor(leaf) if isinstance(leaf, mg.Tensor) else leaf, tree)

    def in_minigrad(self, tree: Any) -> Any:
        """Nested values with minigrad's tensors in the place of torch's."""
        return tree_map(lambda leaf: self._seen(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)

    def apply(self, op: Op, tensors: Sequence[mg.Tensor], attrs: Mapping[str, Any]) -> Any:
        function = OPERATIONS.get(op.name)
        if function is not None:
            found = function(*map(self._operand, tensors), **attrs)
            results = tuple(map(self._seen, found if isinstance(found, tuple) else (found,)))
        elif op.decomposition is not None:
            results = decompose(op, tensors, attrs)
        else:
            raise NotProvided(f"no operation of torch does what minigrad's {op.name} does")
        if len(results) <= op.aux:  # statistics that only minigrad's derivative needs
            with eagerly():
                outputs = kernels.run(op, [tensor.array for tensor in tensors], attrs)
            results += tuple(map(mg.Tensor, outputs[len(results) :]))
        return results[0] if len(results) == 1 else results

    def write(self, target: mg.Tensor, value: mg.Tensor, root: mg.Tensor, whole: mg.Tensor) -> None:
        self._tensor(target).copy_(self._tensor(value))

    def categories(self, weights: mg.Tensor, num_samples: int, replacement: bool) -> mg.Tensor:
        return self._seen(torch.multinomial(self._tensor(weights), num_samples, replacement))

    def _tensor(self, own: mg.Tensor) -> torch.Tensor:
        found = self.known.get(id(own.array))
        if found is None:
            array = own.array
            sharable = array.flags.writeable and min(array.strides, default=0) >= 0
            found = self.known[id(array)] = array, torch.from_numpy(array if sharable else array.copy())
        return found[1]

    def _operand(self, own: mg.Tensor) -> Any:
        return own.array.item() if own.storage is LITERAL else self._tensor(own)

    def _seen(self, tensor: torch.Tensor) -> mg.Tensor:
        array = tensor.detach().numpy()
        self.known[id(array)] = array, tensor
        return mg.Tensor(array)


# --- the operations -------------------------------------------------------------------------------


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtypes.name(dtype))
    return found


def _dropout(x: torch.Tensor, key: Any, *residual: torch.Tensor, p: float) -> torch.Tensor:
    dropped = F.dropout(x, p, True)
    return residual[0] + dropped if residual else dropped


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *rest: torch.Tensor,
    scale: float,
    causal: bool = False,
    window: int = 0,
    slopes: Sequence[float] = (),
    dropout: float = 0.0,
) -> torch.Tensor:
    rows, columns = query.shape[-2], key.shape[-2]
    if key.ndim > 2 and key.shape[-3] != query.shape[-3]:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    mask = rest[0] if len(rest) > bool(dropout) else None
    if causal or window:
        seen = torch.from_numpy(visible(rows, columns, causal, window))
        mask = seen if mask is None else mask & seen
    if slopes:
        far = -np.multiply.outer(np.asarray(slopes), np.abs(distances(rows, columns)))
        bias = torch.from_numpy(far).to(query.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)


def _cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, *, ignore_index: int | None, label_smoothing: float, reduction: str
) -> torch.Tensor:
    ignored = -100 if ignore_index is None else ignore_index
    return F.cross_entropy(logits, targets, ignore_index=ignored, label_smoothing=label_smoothing, reduction=reduction)


def _put(x: torch.Tensor, value: torch.Tensor, *indices: torch.Tensor, index: Any) -> torch.Tensor:
    result = x.clone()
    result[thaw(index, indices)] = value
    return result


def _cast(x: Any, *, dtype: np.dtype) -> torch.Tensor:
    return torch.as_tensor(x).to(_torch_dtype(dtype))


_SAME = (
    "abs", "argsort", "atan2", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clone", "cos",
    "cumsum", "detach", "diagonal", "erf", "exp", "expm1", "flip", "floor", "floor_divide", "isfinite", "isinf",
    "isnan", "log", "log10", "log1p", "log2", "log_softmax", "matmul", "maximum", "minimum", "neg", "permute",
    "reciprocal", "relu", "remainder", "reshape", "round", "rsqrt", "sigmoid", "sign", "sin", "softmax", "sqrt",
    "square", "tanh", "tril", "triu", "where",
)  # fmt: skip

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in _SAME},
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "alias": lambda x: x.view(x.shape),
    "amax": lambda x, dims, keepdim: torch.amax(x, dims, keepdim),
    "amin": lambda x, dims, keepdim: torch.amin(x, dims, keepdim),
    "argmax": lambda x, dim, keepdim: torch.argmax(x, dim, keepdim),
    "argmin": lambda x, dim, keepdim: torch.argmin(x, dim, keepdim),
    "attention": lambda *inputs, **options: (_attention(*inputs, **options),),
    "cast": _cast,
    "cat": lambda *tensors, dim: torch.cat(tensors, dim),
    "cross_entropy": _cross_entropy,
    "dropout": _dropout,
    "embedding": lambda weight, ids, padding_idx: F.embedding(ids, weight, padding_idx),
    "expand": lambda x, shape: x.expand(shape),
    "flash_attention": _attention,
    "gather": lambda x, index, dim: torch.gather(x, dim, index),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "layer_norm": lambda x, weight, bias, eps: F.layer_norm(x, x.shape[-1:], weight, bias, eps),
    "put": _put,
    "random_uniform": lambda key, shape, dtype: torch.rand(shape, dtype=_torch_dtype(dtype)),
    "scatter": lambda x, src, index, dim: x.scatter(dim, index, src),
    "scatter_add_zeros": lambda src, index, dim, shape: src.new_zeros(shape).scatter_add(dim, index, src),
    "silu": F.silu,
    "slice": lambda x, index: x[(*thaw(index), ...)],
    "sum": lambda x, dims, keepdim: x.sum(dims, keepdim),
    "take": lambda x, *indices, index: x[thaw(index, indices)],
    "within": lambda index, **_: index,
}  # fmt: skip
"""The name of an op of minigrad -> torch's operation on tensors and the op's attributes."""
