"""Modules with parameters, under torch's names and with torch's defaults (`from minigrad import nn`)."""

from minigrad.nn import init as init
from minigrad.nn import utils as utils
from minigrad.nn.containers import ModuleDict, ModuleList, Sequential
from minigrad.nn.layers import (
    GELU,
    BatchNorm1d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Identity,
    LayerNorm,
    Linear,
    MSELoss,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Tanh,
)
from minigrad.nn.module import Module, Parameter

__all__ = [
    "GELU",
    "BatchNorm1d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Identity",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Tanh",
    "init",
    "utils",
]
