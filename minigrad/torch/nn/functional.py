"""torch.nn.functional: minigrad's functions; those whose arguments or rules differ from torch's are adapted here."""

from __future__ import annotations

from typing import Any

from ml_dtypes import finfo as _finfo

import minigrad
from minigrad import functional as _functional
from minigrad.functional import (
    embedding,
    gelu,
    kl_div,
    l1_loss,
    layer_norm,
    leaky_relu,
    linear,
    log_softmax,
    mse_loss,
    normalize,
    one_hot,
    sigmoid,
    softmax,
    softplus,
    tanh,
)
from minigrad.tensor import Tensor as _Tensor
from minigrad.torch._missing import missing as _missing
from minigrad.torch._missing import refuse as _refuse


def relu(input: _Tensor, inplace: bool = False) -> _Tensor:
    """max(0, x), in x itself if `inplace`."""
    return input.relu_() if inplace else input.relu()


def silu(input: _Tensor, inplace: bool = False) -> _Tensor:
    """x sigmoid(x). Raises NotImplementedError for inplace."""
    _refuse("nn.functional.silu", ("inplace", inplace, False))
    return _functional.silu(input)


def elu(input: _Tensor, alpha: float = 1.0, inplace: bool = False) -> _Tensor:
    """x above 0, alpha (exp(x) - 1) below. Raises NotImplementedError for inplace."""
    _refuse("nn.functional.elu", ("inplace", inplace, False))
    return minigrad.where(input > 0, input, input.clamp(max=0.0).expm1() * alpha)


def glu(input: _Tensor, dim: int = -1) -> _Tensor:
    """The first half of `dim` times the sigmoid of the second. Raises ValueError where the size is odd."""
    if input.shape[dim] % 2:
        raise ValueError(f"glu: dimension {dim} of {list(input.shape)} has no two halves")
    first, second = input.chunk(2, dim)
    return first * second.sigmoid()


def logsigmoid(input: _Tensor) -> _Tensor:
    """ln sigmoid(x)."""
    return -softplus(-input)


def relu6(input: _Tensor, inplace: bool = False) -> _Tensor:
    """x clamped to [0, 6]. Raises NotImplementedError for inplace."""
    _refuse("nn.functional.relu6", ("inplace", inplace, False))
    return input.clamp(0.0, 6.0)


def cosine_similarity(x1: _Tensor, x2: _Tensor, dim: int = 1, eps: float = 1e-8) -> _Tensor:
    """x1 . x2 over the product of their lengths, each at least eps, along `dim`."""
    lengths = x1.norm(dim=dim).clamp(min=eps) * x2.norm(dim=dim).clamp(min=eps)
    return (x1 * x2).sum(dim) / lengths


def dropout(input: _Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> _Tensor:
    """minigrad.functional.dropout. Raises NotImplementedError for inplace."""
    _refuse("nn.functional.dropout", ("inplace", inplace, False))
    return _functional.dropout(input, p, training)


def rms_norm(input: _Tensor, normalized_shape: Any, weight: _Tensor | None = None, eps: float | None = None) -> _Tensor:
    """x / sqrt(mean(x^2) + eps) weight over the last dimension; eps is the dtype's machine epsilon where None."""
    if tuple(normalized_shape) != tuple(input.shape[-1:]):
        raise NotImplementedError(
            f"minigrad's stand-in for torch has nn.functional.rms_norm over the last dimension only, "
            f"got normalized_shape {tuple(normalized_shape)} for {tuple(input.shape)}"
        )
    return _functional.rms_norm(input, weight, float(_finfo(input.dtype).eps) if eps is None else eps)


def pad(input: _Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> _Tensor:
    """Pad with a constant. Raises NotImplementedError for another mode."""
    _refuse("nn.functional.pad", ("mode", mode, "constant"))
    return _functional.pad(input, tuple(pad), 0.0 if value is None else value)


def cross_entropy(
    input: _Tensor,
    target: _Tensor,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> _Tensor:
    """minigrad.functional.cross_entropy. Raises NotImplementedError for weight."""
    _refuse("nn.functional.cross_entropy", ("weight", weight, None))
    return _functional.cross_entropy(input, target, ignore_index, label_smoothing, reduction)


def nll_loss(
    input: _Tensor, target: _Tensor, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> _Tensor:
    """minigrad.functional.nll_loss. Raises NotImplementedError for weight."""
    _refuse("nn.functional.nll_loss", ("weight", weight, None))
    return _functional.nll_loss(input, target, ignore_index, reduction)


def binary_cross_entropy_with_logits(
    input: _Tensor, target: _Tensor, weight: Any = None, *, reduction: str = "mean"
) -> _Tensor:
    """minigrad.functional.binary_cross_entropy_with_logits. Raises NotImplementedError for weight."""
    _refuse("nn.functional.binary_cross_entropy_with_logits", ("weight", weight, None))
    return _functional.binary_cross_entropy_with_logits(input, target, reduction)


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
    if is_causal and query.shape[-2] != key.shape[-2]:
        attn_mask = minigrad.ones(query.shape[-2], key.shape[-2]).bool().tril()
        is_causal = False
    return _functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )


__getattr__ = _missing(__name__, globals())
