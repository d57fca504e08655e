"""torch.nn: minigrad's modules; where torch's arguments differ, `_layers`' and `_transformer`'s."""

from __future__ import annotations

from minigrad.nn import (
    GELU,
    Flatten,
    Identity,
    KLDivLoss,
    LeakyReLU,
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    Sequential,
    Sigmoid,
    Tanh,
)
from minigrad.torch._missing import missing as _missing
from minigrad.torch.nn import functional, init, parameter, utils
from minigrad.torch.nn._layers import (
    ELU,
    GLU,
    BatchNorm1d,
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    GroupNorm,
    HuberLoss,
    L1Loss,
    LayerNorm,
    Linear,
    LogSoftmax,
    MSELoss,
    NLLLoss,
    ParameterList,
    ReLU,
    RMSNorm,
    SiLU,
    SmoothL1Loss,
    Softmax,
    Softmin,
    Softplus,
)
from minigrad.torch.nn._recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from minigrad.torch.nn._transformer import (
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__getattr__ = _missing(__name__, globals())
