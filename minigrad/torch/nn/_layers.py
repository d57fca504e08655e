"""Layers whose arguments differ from minigrad's: torch's `device`, and options that are refused by name.

They call this package's `functional`, so that a program that changes it changes them.
"""

from __future__ import annotations

from typing import Any

import minigrad
import minigrad.nn as _nn
from minigrad import Tensor
from minigrad.torch._creation import check_device
from minigrad.torch._missing import refuse
from minigrad.torch.nn import functional


class Linear(_nn.Linear):
    """minigrad.nn.Linear on `device`. Raises ValueError for any but the CPU, as all layers do."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        check_device("nn.Linear", device)
        super().__init__(in_features, out_features, bias, dtype)


class Softmax(_nn.Module):
    """e^x / sum e^x along `dim`; see `functional.softmax` for none."""

    _function = "softmax"

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return getattr(functional, self._function)(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of `Softmax`."""

    _function = "log_softmax"


class Softmin(Softmax):
    """`Softmax` of -x."""

    _function = "softmin"


class Embedding(_nn.Embedding):
    """minigrad.nn.Embedding on `device`; `sparse` gradients are dense. Raises NotImplementedError for max_norm."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_device("nn.Embedding", device)
        refuse("nn.Embedding", ("max_norm", max_norm, None), ("scale_grad_by_freq", scale_grad_by_freq, False))
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """A table of these rows, learned further unless `freeze`."""
        rows, width = embeddings.shape
        layer = cls(rows, width, padding_idx, dtype=embeddings.dtype)
        layer.weight = _nn.Parameter(embeddings.detach(), requires_grad=not freeze)
        return layer


class LayerNorm(_nn.LayerNorm):
    """minigrad.nn.LayerNorm on `device`."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_device("nn.LayerNorm", device)
        super().__init__(normalized_shape, eps, elementwise_affine, bias, dtype)


class RMSNorm(_nn.Module):
    """Division by the root mean square of the last dimensions, `normalized_shape`, then a learnt scale."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_device("nn.RMSNorm", device)
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self.weight = _nn.Parameter(minigrad.ones(*shape, dtype=dtype)) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_nn.Module):
    """Groups of channels of ``(N, C, ...)`` normalised, then scaled and shifted by channel."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_device("nn.GroupNorm", device)
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_groups} groups do not divide {num_channels} channels")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.weight = _nn.Parameter(minigrad.ones(num_channels, dtype=dtype)) if affine else None
        self.bias = _nn.Parameter(minigrad.zeros(num_channels, dtype=dtype)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class BatchNorm1d(_nn.BatchNorm1d):
    """minigrad.nn.BatchNorm1d on `device`. Raises NotImplementedError for track_running_stats=False."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_device("nn.BatchNorm1d", device)
        refuse("nn.BatchNorm1d", ("track_running_stats", track_running_stats, True))
        super().__init__(num_features, eps, momentum, affine, dtype)


class ReLU(_nn.ReLU):
    """max(0, x), in x itself if `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x, self.inplace)


class Dropout(_nn.Dropout):
    """minigrad.nn.Dropout, in x itself if `inplace`."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__(p)
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.p, self.training, self.inplace)


class SiLU(_nn.SiLU):
    """x sigmoid(x), in x itself if `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(x, self.inplace)


class Softplus(_nn.Module):
    """ln(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        return functional.softplus(x, self.beta, self.threshold)


class ELU(_nn.Module):
    """x above 0, alpha (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        return functional.elu(x, self.alpha, self.inplace)


class GLU(_nn.Module):
    """The first half of `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return functional.glu(x, self.dim)


class _Loss(_nn.Module):
    """A loss of this package's `functional` with its options; a `weight` is a buffer."""

    name = ""

    def __init__(self, reduction: str = "mean", **options: Any) -> None:
        super().__init__()
        self.reduction = reduction
        self.given = tuple(options)
        for option, value in options.items():
            if isinstance(value, Tensor) or option in ("weight", "pos_weight"):
                self.register_buffer(option, value)
            else:
                setattr(self, option, value)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = {option: getattr(self, option) for option in self.given}
        return getattr(functional, self.name)(input, target, reduction=self.reduction, **options)


class CrossEntropyLoss(_Loss):
    """See `functional.cross_entropy`."""

    name = "cross_entropy"

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing)


class NLLLoss(_Loss):
    """See `functional.nll_loss`."""

    name = "nll_loss"

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight, ignore_index=ignore_index)


class BCELoss(_Loss):
    """See `functional.binary_cross_entropy`."""

    name = "binary_cross_entropy"

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


class BCEWithLogitsLoss(_Loss):
    """See `functional.binary_cross_entropy_with_logits`."""

    name = "binary_cross_entropy_with_logits"

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction, weight=weight, pos_weight=pos_weight)


class MSELoss(_Loss):
    """See `functional.mse_loss`."""

    name = "mse_loss"


class L1Loss(_Loss):
    """See `functional.l1_loss`."""

    name = "l1_loss"


class SmoothL1Loss(_Loss):
    """See `functional.smooth_l1_loss`."""

    name = "smooth_l1_loss"

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction, beta=beta)


class HuberLoss(_Loss):
    """See `functional.huber_loss`."""

    name = "huber_loss"

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction, delta=delta)


class ParameterList(_nn.Module):
    """Parameters by number."""

    def __init__(self, values: Any = ()) -> None:
        super().__init__()
        for value in values:
            self.append(value)

    def append(self, value: Any) -> ParameterList:
        given = value if isinstance(value, _nn.Parameter) else _nn.Parameter(value)
        self.register_parameter(str(len(self)), given)
        return self

    def __len__(self) -> int:
        return sum(1 for _ in self.parameters(recurse=False))

    def __iter__(self) -> Any:
        return iter([getattr(self, str(i)) for i in range(len(self))])

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]
