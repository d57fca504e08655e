"""torch.nn.functional: minigrad's functions; those whose arguments or rules differ from torch's are adapted here."""

from __future__ import annotations

import warnings as _warnings
from typing import Any

import numpy as _np
from ml_dtypes import finfo as _finfo

import minigrad
from minigrad import dtypes as _dtypes
from minigrad import functional as _functional
from minigrad import inplace as _inplace
from minigrad.functional import gelu, layer_norm, leaky_relu, linear, one_hot, sigmoid, tanh
from minigrad.ops.registry import NAMES as _NAMES
from minigrad.tensor import Tensor as _Tensor
from minigrad.torch._missing import missing as _missing
from minigrad.torch._missing import refuse as _refuse
from minigrad.torch.nn._losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    linear_cross_entropy,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)


def _in(input: _Tensor, result: _Tensor, inplace: bool) -> _Tensor:
    return _inplace.write(input, result) if inplace else result


# --- activations -------------------------------------------------------------------------------------------


def relu(input: _Tensor, inplace: bool = False) -> _Tensor:
    """max(0, x), in x itself if `inplace`."""
    return input.relu_() if inplace else input.relu()


def silu(input: _Tensor, inplace: bool = False) -> _Tensor:
    """x sigmoid(x)."""
    return _in(input, _functional.silu(input), inplace)


def softmax(input: _Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> _Tensor:
    """e^x / sum e^x along `dim`; without it along the dimension that torch before 0.3 took, with torch's warning."""
    return _functional.softmax(input, _old_dim("softmax", input, dim), dtype)


def log_softmax(input: _Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> _Tensor:
    """The logarithm of `softmax`."""
    return _functional.log_softmax(input, _old_dim("log_softmax", input, dim), dtype)


def softmin(input: _Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> _Tensor:
    """softmax of -x."""
    return _functional.softmax(-input, _old_dim("softmin", input, dim), dtype)


def _old_dim(name: str, input: _Tensor, dim: int | None) -> int:
    if dim is not None:
        return dim
    old = 0 if input.ndim in (0, 1, 3) else 1
    _warnings.warn(f"{name} without a dimension takes dimension {old} here: name it with dim=", UserWarning, 3)
    return old


def elu(input: _Tensor, alpha: float = 1.0, inplace: bool = False) -> _Tensor:
    """x above 0, alpha (exp(x) - 1) below."""
    return _in(input, minigrad.where(input > 0, input, input.clamp(max=0.0).expm1() * alpha), inplace)


def glu(input: _Tensor, dim: int = -1) -> _Tensor:
    """The first half of `dim` times the sigmoid of the second. Raises ValueError where the size is odd."""
    if not input.ndim or input.shape[dim] % 2:
        raise ValueError(f"glu: dimension {dim} of {list(input.shape)} has no two halves")
    first, second = input.chunk(2, dim)
    return first * second.sigmoid()


def logsigmoid(input: _Tensor) -> _Tensor:
    """ln sigmoid(x)."""
    return -_functional.softplus(-input.contiguous())


def softplus(input: _Tensor, beta: float = 1.0, threshold: float = 20.0) -> _Tensor:
    """ln(1 + e^(beta x)) / beta; x itself where beta x is above the threshold."""
    scaled = input if beta == 1 else input * beta
    smooth = _functional.softplus(scaled)
    return minigrad.where(scaled > threshold, input, smooth if beta == 1 else smooth / beta)


def hardtanh(input: _Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> _Tensor:
    """x limited to [min_val, max_val]. Raises ValueError where there is nothing between them."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} is above max_val {max_val}")
    if not _dtypes.is_floating(input.dtype):
        min_val, max_val = int(min_val), int(max_val)
    return _in(input, input.clamp(min_val, max_val), inplace)


def relu6(input: _Tensor, inplace: bool = False) -> _Tensor:
    """x clamped to [0, 6]; its derivative at both ends is 0."""
    low, high = (0.0, 6.0) if _dtypes.is_floating(input.dtype) else (0, 6)
    inside = minigrad.where(input <= low, low, minigrad.where(input >= high, high, input))
    return _in(input, inside, inplace)


def cosine_similarity(x1: _Tensor, x2: _Tensor, dim: int = 1, eps: float = 1e-8) -> _Tensor:
    """x1 . x2 over the product of their lengths, each at least eps, along `dim` of the shape that both broadcast to."""
    shape = _np.broadcast_shapes(x1.shape, x2.shape)
    one, two = minigrad.broadcast_to(x1, shape), minigrad.broadcast_to(x2, shape)
    first, second = (x / x.norm(dim=dim, keepdim=True).clamp(min=eps) for x in (one, two))
    return (first * second).sum(dim)


# --- layers ------------------------------------------------------------------------------------------------


def embedding(
    input: _Tensor,
    weight: _Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> _Tensor:
    """Rows of `weight`; sparse gradients are dense. Raises NotImplementedError for max_norm, scale_grad_by_freq."""
    options = ("max_norm", max_norm, None), ("scale_grad_by_freq", scale_grad_by_freq, False)
    _refuse("nn.functional.embedding", *options)
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    return _functional.embedding(input, weight, padding_idx)


def dropout(input: _Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> _Tensor:
    """minigrad.functional.dropout."""
    return _in(input, _functional.dropout(input, p, training), inplace)


def rms_norm(input: _Tensor, normalized_shape: Any, weight: _Tensor | None = None, eps: float | None = None) -> _Tensor:
    """x / sqrt(mean(x^2) + eps) weight over the last dimensions; eps is the dtype's machine epsilon where None.

    Raises ValueError where the input does not end in `normalized_shape`.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ValueError(f"rms_norm: the input {list(input.shape)} does not end in {list(shape)}")
    if weight is not None and tuple(weight.shape) != shape:
        raise ValueError(f"rms_norm: the weight {list(weight.shape)} is not of shape {list(shape)}")
    flat = input.reshape(*input.shape[: input.ndim - len(shape)], -1)
    scale = None if weight is None else weight.reshape(-1)
    least = float(_finfo(input.dtype).eps) if eps is None else eps
    return _functional.rms_norm(flat, scale, least).reshape(input.shape)


def group_norm(
    input: _Tensor,
    num_groups: int,
    weight: _Tensor | None = None,
    bias: _Tensor | None = None,
    eps: float = 1e-5,
) -> _Tensor:
    """Each of `num_groups` groups of channels of ``(N, C, ...)`` normalised, then scaled and shifted by channel.

    Raises ValueError where C is not a multiple of the groups.
    """
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(f"group_norm: {list(input.shape)} has no channels that {num_groups} groups divide")
    size = int(_np.prod(input.shape[1:])) // num_groups
    normal = layer_norm(input.reshape(input.shape[0], num_groups, size), size, eps=eps).reshape(input.shape)
    shape = [-1 if d == 1 else 1 for d in range(input.ndim)]
    normal = normal if weight is None else normal * weight.reshape(shape)
    return normal if bias is None else normal + bias.reshape(shape)


def normalize(input: _Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> _Tensor:
    """x divided by its p-norm along `dim` (at least eps)."""
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps).expand_as(input)


def pad(input: _Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> _Tensor:
    """Pads (before, after) of the last dimension, then of the one before it, ...; negative ones cut.

    mode "constant" pads with `value`, "reflect" with the mirrored inside, "replicate" with the edge, "circular" with
    the other end. Raises ValueError for another mode, and for pads that do not fit.
    """
    pads = tuple(pad)
    if len(pads) % 2 or len(pads) > 2 * input.ndim:
        raise ValueError(f"pad: {pads} must be pairs (before, after), at most one a dimension of {list(input.shape)}")
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise ValueError(f"pad: mode must be constant, reflect, replicate or circular, got {mode!r}")
    if mode != "constant" and value not in (None, 0):
        raise ValueError(f"pad: mode {mode!r} takes no value, got {value}")
    if mode != "constant" and len(pads) // 2 not in (input.ndim - 1, input.ndim - 2):
        raise ValueError(f"pad: mode {mode!r} pads all dimensions but one or two, got {pads} for {list(input.shape)}")
    result = input
    for i in range(len(pads) // 2):
        dim, before, after = input.ndim - 1 - i, pads[2 * i], pads[2 * i + 1]
        size = input.shape[dim]
        if size + before + after < 0 or (mode != "constant" and size + before + after < 1):
            raise ValueError(f"pad: {pads} leave nothing of dimension {dim} of {list(input.shape)}")
        if mode in ("constant", "circular") and min(before, after) < 0:
            kept = size + min(before, 0) + min(after, 0)
            result = result.narrow(dim, min(-min(before, 0), size), max(kept, 0))
            size, before, after = max(kept, 0), max(before, 0), max(after, 0)
        if mode != "constant":
            result = result.index_select(dim, minigrad.from_numpy(_places(mode, size, before, after)))
    if mode != "constant":
        return result if result is not input else result.clone()
    grown = tuple(max(n, 0) for n in pads)
    padded = _functional.pad(result, grown, 0.0 if value is None else value)
    return padded if padded.base is None and padded is not input else padded.clone()


def _places(mode: str, size: int, before: int, after: int) -> _np.ndarray:
    """Which elements of a dimension stand in its padded form."""
    most = {"reflect": size - 1, "replicate": before + after + size, "circular": size}[mode]
    if max(before, after) > max(most, 0) or not size:
        raise ValueError(f"pad: mode {mode!r} cannot pad a dimension of size {size} by {before} and {after}")
    i = _np.arange(-before, size + after)
    if mode == "reflect":
        last = max(size - 1, 1)
        return last - _np.abs(last - _np.abs(i))
    return _np.clip(i, 0, size - 1) if mode == "replicate" else i % size


def scaled_dot_product_attention(
    query: _Tensor,
    key: _Tensor,
    value: _Tensor,
    attn_mask: _Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> _Tensor:
    """minigrad's, but with torch's causal mask, which is aligned at the first key (query i sees keys 0 to i).

    enable_gqa: each head of key and value serves as many consecutive heads of the query as there are more of those.
    Raises ValueError for a mask together with is_causal, as torch does.
    """
    if is_causal and attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: give attn_mask or is_causal, not both")
    lead = tuple(x.shape[:-2] for x in (query, key, value))
    if not enable_gqa and len(set(lead)) > 1 and min(x.ndim for x in (query, key, value)) > 1:
        shape = _np.broadcast_shapes(*lead)
        query, key, value = (minigrad.broadcast_to(x, (*shape, *x.shape[-2:])) for x in (query, key, value))
    if is_causal and query.shape[-2] != key.shape[-2]:
        attn_mask = minigrad.ones(query.shape[-2], key.shape[-2]).bool().tril()
        is_causal = False
    return _functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )


for _name, _function in _NAMES["functional"].items():  # of all ops that ask for it
    globals().setdefault(_name, _function)
__getattr__ = _missing(__name__, globals())
