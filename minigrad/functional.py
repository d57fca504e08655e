"""Functions without parameters, under torch's names (`import minigrad.functional as F`)."""

from __future__ import annotations

from typing import Any

from minigrad import dtypes, random
from minigrad.ops import rules
from minigrad.ops.activations import gelu as _gelu
from minigrad.ops.activations import gelu_tanh, leaky_relu, silu, softplus
from minigrad.ops.along import one_hot
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.attention import attention_weights, checked
from minigrad.ops.copies import clone, filled, placed
from minigrad.ops.dropout import dropout as _dropout
from minigrad.ops.elementwise import relu, sigmoid, tanh
from minigrad.ops.embedding import embedding
from minigrad.ops.flash import flash_attention, visible
from minigrad.ops.joins import cat, repeat_interleave
from minigrad.ops.loss import cross_entropy
from minigrad.ops.matmul import matmul
from minigrad.ops.normalise import layer_norm as _layer_norm
from minigrad.ops.normalise import log_softmax, logsumexp, rms_norm, softmax
from minigrad.ops.operands import as_operand, cast, floating
from minigrad.ops.projection import linear_cross_entropy
from minigrad.ops.registry import NAMES
from minigrad.ops.rotary import rope
from minigrad.ops.rules import flatten_arguments
from minigrad.ops.selection import where
from minigrad.ops.shape import transpose
from minigrad.ops.stored import stored_linear
from minigrad.tensor import Tensor

__all__ = [
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "gelu_tanh",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "logsumexp",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "relu",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "stored_linear",
    "tanh",
]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b. x ``(..., n_in)``, weight ``(n_out, n_in)``, bias ``(n_out,)``: ``(..., n_out)``.

    Raises ValueError with both sizes where they do not fit.
    """
    if weight.array.ndim < 2:
        raise ValueError(f"linear: the weight must be (n_out, n_in), got shape {list(weight.array.shape)}")
    if not x.array.ndim or x.array.shape[-1] != weight.array.shape[-1]:
        raise ValueError(
            f"linear: the last dimension of the input {list(x.array.shape)} must be {weight.array.shape[-1]}, "
            f"the number of columns of the weight {list(weight.array.shape)}"
        )
    product = matmul(x, transpose(weight, -1, -2))
    return product if bias is None else product + bias


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x Phi(x), exact ("none") or by the tanh formula ("tanh"). Raises ValueError for another name."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return gelu_tanh(x) if approximate == "tanh" else _gelu(x)


def layer_norm(
    x: Tensor,
    normalized_shape: int | tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalisation over the last dimension(s) `normalized_shape` (see `minigrad.ops.normalise`)."""
    shape = flatten_arguments((normalized_shape,))
    if x.array.shape[x.array.ndim - len(shape) :] != shape:
        raise ValueError(f"layer_norm: the input {list(x.array.shape)} does not end in {list(shape)}")
    if len(shape) == 1:
        return _layer_norm(x, weight, bias, eps)
    lead = x.array.shape[: x.array.ndim - len(shape)]
    flat = [None if p is None else p.reshape(-1) for p in (weight, bias)]
    return _layer_norm(x.reshape(*lead, -1), flat[0], flat[1], eps).reshape(x.array.shape)


def dropout(x: Tensor, p: float = 0.5, training: bool = True, generator: random.Generator | None = None) -> Tensor:
    """Zero each element with probability `p` and scale the others by 1/(1-p), in training only.

    Raises ValueError for p outside [0, 1].
    """
    p = rules.number(p, "dropout: the probability")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout: the probability must lie in [0, 1], got {p}")
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0.0
    return _dropout(x, (generator or random.default_generator).take(x.array.size, x.storage.device), p)


def mse_loss(x: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    """The squared difference: its mean, sum, or each ("none"). Raises ValueError where shapes differ."""
    target = as_operand(target, x)
    if target.array.shape != x.array.shape:
        raise ValueError(f"mse_loss: shapes {list(x.array.shape)} and {list(target.array.shape)} differ")
    difference = floating(x - target)
    return _reduced(difference * difference, reduction)


def nll_loss(log_probs: Tensor, targets: Tensor, ignore_index: int | None = -100, reduction: str = "mean") -> Tensor:
    """-log_probs[n, t_n] ``(N, V)``, ``(N,)``; ignored targets count neither in the sum nor in the mean."""
    ignore_index = None if ignore_index is None else rules.integer(ignore_index, "nll_loss: ignore_index")
    kept = targets == targets if ignore_index is None else targets != ignore_index
    picked = log_probs.gather(1, where(kept, targets, 0).unsqueeze(1)).squeeze(1)
    each = where(kept, -picked, 0.0)
    if reduction == "mean":
        return each.sum() / cast(kept.sum(), dtype=each.array.dtype)
    return _reduced(each, reduction)


def l1_loss(x: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    """The absolute difference: its mean, sum, or each ("none"). Raises ValueError where shapes differ."""
    target = as_operand(target, x)
    if target.array.shape != x.array.shape:
        raise ValueError(f"l1_loss: shapes {list(x.array.shape)} and {list(target.array.shape)} differ")
    return _reduced(floating(x - target).abs(), reduction)


def kl_div(log_probs: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target (ln target - log_probs), 0 where the target is 0; "batchmean" divides the sum by the first size.

    target holds probabilities (NaN for a negative one), or their logarithms if `log_target`; "mean" divides by the
    number of elements.
    """
    if log_target:
        each = target.exp() * (target - log_probs)
    else:
        some = target != 0
        each = where(some, target * where(some, target, 1.0).log(), 0.0) - target * log_probs
    return each.sum() / each.array.shape[0] if reduction == "batchmean" else _reduced(each, reduction)


def binary_cross_entropy_with_logits(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """-(t ln p + (1 - t) ln(1 - p)) with p = sigmoid(x), without overflow. Raises ValueError where shapes differ."""
    if target.array.shape != x.array.shape:
        raise ValueError(
            f"binary_cross_entropy_with_logits: shapes {list(x.array.shape)} and {list(target.array.shape)} differ"
        )
    return _reduced(softplus(x) - x * target, reduction)


def _reduced(each: Tensor, reduction: str) -> Tensor:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction {reduction!r} is not one of mean, sum, none")
    return each.mean() if reduction == "mean" else each.sum() if reduction == "sum" else each


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its Euclidean norm along `dim` (at least eps)."""
    if p != 2.0:
        raise ValueError(f"normalize: only p = 2 is supported, got {p}")
    return x / x.norm(dim=dim, keepdim=True).clamp(min=eps)


def pad(x: Tensor, pads: tuple[int, ...], value: float = 0.0) -> Tensor:
    """Pad with a constant; `pads` are (before, after) of the last dimension, then of the one before it, ..."""
    pads = flatten_arguments((pads,))
    if not any(pads):
        return clone(x)
    if len(pads) % 2 or len(pads) > 2 * x.array.ndim:
        raise ValueError(f"pad: {pads} must be pairs (before, after), at most one a dimension")
    for i in range(len(pads) // 2):
        dim = x.array.ndim - 1 - i
        before, after = pads[2 * i], pads[2 * i + 1]
        shape = list(x.array.shape)
        parts = [x]
        for count, place in ((before, 0), (after, 2)):
            if count < 0:
                raise ValueError(f"pad: sizes must not be negative, got {pads}")
            if count:
                size = (*shape[:dim], count, *shape[dim + 1 :])
                block = filled(size, value, x.array.dtype, x.storage.device)
                parts.insert(0 if place == 0 else len(parts), block)
        x = cat(parts, dim) if len(parts) > 1 else x
    return x


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale Q K^T over visible keys) V; see `minigrad.ops.flash`. A fully hidden row gives zeros.

    attn_mask bool (True = may attend) or additive floating; is_causal hides key j from query i where j - i > Tk - Tq
    (aligned at the end, so that one query sees all cached keys); dropout_p drops attention weights; enable_gqa: a head
    of key and value serves as many consecutive heads of the query as there are more of those.
    """
    if min(query.array.ndim, key.array.ndim) < 2:
        checked(query, key, value, None)
    shared = query.array.ndim > 2 and key.array.ndim > 2 and query.array.shape[-3] != key.array.shape[-3]
    if shared and not enable_gqa:
        checked(query, key, value, None)
    additive = attn_mask is not None and dtypes.is_floating(attn_mask.array.dtype)
    if not additive and dropout_p < 1.0:
        return flash_attention(query, key, value, attn_mask, is_causal, scale, dropout=dropout_p)
    if shared:
        groups = query.array.shape[-3] // key.array.shape[-3]
        key, value = repeat_interleave(key, groups, -3), repeat_interleave(value, groups, -3)
    factor = max(query.array.shape[-1], 1) ** -0.5 if scale is None else scale
    mask = attn_mask
    if is_causal:
        causal = placed(visible(query.array.shape[-2], key.array.shape[-2]), query.storage.device)
        mask = causal if mask is None else mask & causal
    if mask is not None and dtypes.is_floating(mask.array.dtype):
        weights = softmax(matmul(query, key.transpose(-1, -2)) * factor + mask, -1)
    else:
        weights = attention_weights(query, key, mask, factor)
    return matmul(dropout(weights, dropout_p), value)


for _name, _function in NAMES["functional"].items():  # of all ops that ask for it
    if _name not in globals():
        globals()[_name] = _function
        __all__.append(_name)
expect_tensors(globals())
