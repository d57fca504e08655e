"""torch.nn: minigrad's modules; where torch's arguments differ, `_layers`' and `_transformer`'s."""

from __future__ import annotations

from minigrad.nn import (
    GELU,
    BCEWithLogitsLoss,
    Flatten,
    Identity,
    KLDivLoss,
    L1Loss,
    LeakyReLU,
    LogSoftmax,
    Module,
    ModuleDict,
    ModuleList,
    MSELoss,
    Parameter,
    Sequential,
    Sigmoid,
    Softmax,
    Tanh,
)
from minigrad.torch._missing import missing as _missing
from minigrad.torch.nn import functional, init, parameter, utils
from minigrad.torch.nn._layers import (
    ELU,
    GLU,
    BatchNorm1d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    NLLLoss,
    ParameterList,
    ReLU,
    RMSNorm,
    SiLU,
    Softplus,
)
from minigrad.torch.nn._transformer import (
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__getattr__ = _missing(__name__, globals())
