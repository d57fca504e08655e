"""Layers whose arguments differ from minigrad's: torch's `device`, and options that are refused by name.

They call this package's `functional`, so that a program that changes it changes them.
"""

from __future__ import annotations

from typing import Any

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


class RMSNorm(_nn.RMSNorm):
    """minigrad.nn.RMSNorm on `device`. Raises NotImplementedError for more than the last dimension."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_device("nn.RMSNorm", device)
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        refuse("nn.RMSNorm", ("normalized_shape", shape, shape[-1:]))
        super().__init__(shape[0], eps, elementwise_affine, dtype)


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
    """minigrad.nn.Dropout. Raises NotImplementedError for inplace."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        refuse("nn.Dropout", ("inplace", inplace, False))
        super().__init__(p)

    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.p, self.training)


class SiLU(_nn.SiLU):
    """x sigmoid(x). Raises NotImplementedError for inplace."""

    def __init__(self, inplace: bool = False) -> None:
        refuse("nn.SiLU", ("inplace", inplace, False))
        super().__init__()


class Softplus(_nn.Module):
    """ln(1 + exp(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.softplus(x)


class ELU(_nn.Module):
    """x above 0, alpha (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        refuse("nn.ELU", ("inplace", inplace, False))
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return functional.elu(x, self.alpha)


class GLU(_nn.Module):
    """The first half of `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return functional.glu(x, self.dim)


class CrossEntropyLoss(_nn.CrossEntropyLoss):
    """minigrad.nn.CrossEntropyLoss of inputs ``(N, C, ...)``. Raises NotImplementedError for weight."""

    def __init__(
        self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        refuse("nn.CrossEntropyLoss", ("weight", weight, None))
        super().__init__(ignore_index, reduction, label_smoothing)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(
            logits,
            targets,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_nn.NLLLoss):
    """minigrad.nn.NLLLoss. Raises NotImplementedError for weight."""

    def __init__(self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        refuse("nn.NLLLoss", ("weight", weight, None))
        super().__init__(ignore_index, reduction)


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
