"""torch.nn: minigrad's modules; those whose arguments differ from torch's are derived here.

The shims call this package's `functional`, so that a program that changes it changes them.
"""

from __future__ import annotations

from typing import Any

import minigrad.nn as _nn
from minigrad.nn import (
    GELU,
    BatchNorm1d,
    BCEWithLogitsLoss,
    Embedding,
    Flatten,
    Identity,
    KLDivLoss,
    L1Loss,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    Module,
    ModuleDict,
    ModuleList,
    MSELoss,
    Parameter,
    RMSNorm,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from minigrad.tensor import Tensor as _Tensor
from minigrad.torch._missing import missing as _missing
from minigrad.torch._missing import refuse as _refuse
from minigrad.torch.nn import functional, init, parameter, utils


class ReLU(_nn.ReLU):
    """max(0, x), in x itself if `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: _Tensor) -> _Tensor:
        return functional.relu(x, self.inplace)


class Dropout(_nn.Dropout):
    """minigrad.nn.Dropout. Raises NotImplementedError for inplace."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        _refuse("nn.Dropout", ("inplace", inplace, False))
        super().__init__(p)

    def forward(self, x: _Tensor) -> _Tensor:
        return functional.dropout(x, self.p, self.training)


class CrossEntropyLoss(_nn.CrossEntropyLoss):
    """minigrad.nn.CrossEntropyLoss. Raises NotImplementedError for weight."""

    def __init__(
        self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        _refuse("nn.CrossEntropyLoss", ("weight", weight, None))
        super().__init__(ignore_index, reduction, label_smoothing)


class NLLLoss(_nn.NLLLoss):
    """minigrad.nn.NLLLoss. Raises NotImplementedError for weight."""

    def __init__(self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        _refuse("nn.NLLLoss", ("weight", weight, None))
        super().__init__(ignore_index, reduction)


__getattr__ = _missing(__name__, globals())
