"""Layers and losses: the modules around `minigrad.functional`, with torch's arguments and initialisation."""

from __future__ import annotations

import math

import numpy as np
from ml_dtypes import finfo

from minigrad import functional as F
from minigrad.creation import empty, ones, tensor, zeros
from minigrad.gradmode import no_grad
from minigrad.nn import init
from minigrad.nn.module import Module, Parameter
from minigrad.ops.embedding import embedding, padding_row
from minigrad.random import Generator
from minigrad.tensor import Tensor


class Identity(Module):
    """x."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """y = x W^T + b. x ``(..., in_features)``, weight ``(out_features, in_features)``; y ``(..., out_features)``.

    Both start from U(-1/sqrt(in_features), 1/sqrt(in_features)).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: np.dtype | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype))
        self.bias = Parameter(empty(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1.0 / math.sqrt(max(self.in_features, 1))
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a table: ids ``(...)`` int to ``(..., embedding_dim)``. The table starts from N(0, 1).

    The row `padding_idx` starts at zero and gets no gradient. Raises IndexError for an id outside the table.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, dtype: np.dtype | None = None
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_row(padding_idx, num_embeddings)
        self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        self.zero_padding()

    @no_grad()
    def zero_padding(self) -> None:
        """Set the row of the padding token to zero (again, after another initialisation)."""
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0.0

    def forward(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class LayerNorm(Module):
    """(x - mean) / sqrt(biased variance + eps) * weight + bias over the last dimension(s) `normalized_shape`."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: np.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        self.bias = Parameter(zeros(self.normalized_shape, dtype=dtype)) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang and Sennrich 2019).

    eps: the machine epsilon of the input's dtype where None, as in torch; the documents' model uses 1e-6.
    """

    def __init__(
        self,
        normalized_shape: int,
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: np.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = normalized_shape
        self.eps = eps
        self.weight = Parameter(ones(normalized_shape, dtype=dtype)) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight, float(finfo(x.dtype).eps) if self.eps is None else self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class BatchNorm1d(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, each channel over the batch (Ioffe and Szegedy 2015).

    x ``(N, C)`` or ``(N, C, L)``. In training the statistics are the batch's (biased variance), and the running ones
    move towards them by `momentum` (None: their plain average so far; the variance unbiased); in evaluation the running
    ones are used. Raises ValueError for another shape, and in training for a single value a channel.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        dtype: np.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = Parameter(ones(num_features, dtype=dtype)) if affine else None
        self.bias = Parameter(zeros(num_features, dtype=dtype)) if affine else None
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype))
        self.register_buffer("running_var", ones(num_features, dtype=dtype))
        self.register_buffer("num_batches_tracked", tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (2, 3) or x.shape[1] != self.num_features:
            raise ValueError(
                f"BatchNorm1d: expected (N, {self.num_features}) or (N, {self.num_features}, L), got {list(x.shape)}"
            )
        column = (1, self.num_features, 1)[: x.ndim]
        if self.training:
            dims = (0, 2)[: x.ndim - 1]
            mean, variance = x.mean(dims, keepdim=True), x.var(dims, unbiased=False, keepdim=True)
            self._track(x.numel() // self.num_features, mean, variance)
        else:
            mean, variance = self.running_mean.reshape(column), self.running_var.reshape(column)
        normal = (x - mean) * (variance + self.eps).rsqrt()
        if self.weight is None or self.bias is None:
            return normal
        return normal * self.weight.reshape(column) + self.bias.reshape(column)

    @no_grad()
    def _track(self, count: int, mean: Tensor, variance: Tensor) -> None:
        if count < 2:
            raise ValueError("BatchNorm1d: in training a channel needs more than one value, so use a larger batch")
        self.num_batches_tracked.add_(1)
        share = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.mul_(1.0 - share).add_(mean.reshape(-1) * share)
        self.running_var.mul_(1.0 - share).add_(variance.reshape(-1) * (share * count / (count - 1)))

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class Dropout(Module):
    """In training, zero each element with probability `p` and scale the others by 1/(1-p); else x.

    generator: where its random numbers come from; the default generator if None.
    """

    def __init__(self, p: float = 0.5, generator: Generator | None = None) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout: the probability must lie in [0, 1], got {p}")
        self.p = p
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training, self.generator)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class ReLU(Module):
    """max(0, x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class GELU(Module):
    """x Phi(x); approximate: "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Sigmoid(Module):
    """1 / (1 + e^-x)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class Tanh(Module):
    """tanh x."""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope x."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Softmax(Module):
    """e^x / sum e^x along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """ln softmax along `dim`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, self.dim)


class Flatten(Module):
    """The dimensions from `start_dim` to `end_dim` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class MSELoss(Module):
    """The squared difference: its mean, sum, or each ("none")."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(x, target, self.reduction)


class L1Loss(Module):
    """The absolute difference: its mean, sum, or each ("none")."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(x, target, self.reduction)


class BCEWithLogitsLoss(Module):
    """Binary cross-entropy of logits; see `minigrad.functional.binary_cross_entropy_with_logits`."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(x, target, self.reduction)


class KLDivLoss(Module):
    """Kullback-Leibler divergence of log-probabilities from a target; see `minigrad.functional.kl_div`."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__()
        self.reduction, self.log_target = reduction, log_target

    def forward(self, log_probs: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(log_probs, target, self.reduction, self.log_target)


class NLLLoss(Module):
    """Minus the log-probability of each target ``(N,)`` in ``(N, V)``; see `minigrad.functional.nll_loss`."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        return F.nll_loss(log_probs, targets, self.ignore_index, self.reduction)


class CrossEntropyLoss(Module):
    """Cross-entropy of logits ``(N, V, ...)`` and class ids ``(N, ...)``; see `minigrad.functional.cross_entropy`."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, self.ignore_index, self.label_smoothing, self.reduction)
