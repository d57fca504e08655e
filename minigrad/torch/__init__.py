"""torch's names on minigrad: a file written for PyTorch runs on it, unchanged.

    python -m minigrad.torch script.py [arguments]      # `import torch` in the script gives this package
    import minigrad.torch as torch                      # or this one line in place of `import torch`

Nearly every name is minigrad's own (an alias); where torch's arguments differ there is a shim beside it. What is
missing raises an AttributeError, what an option lacks a NotImplementedError, that names it. What differs: shapes are
tuples and dtypes numpy's, so they print otherwise; random numbers are minigrad's own, so a seed gives others than in
torch; bool masks hide all keys of a row without NaN.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType as _Module
from typing import Any, NoReturn

import numpy as np
from ml_dtypes import finfo, iinfo

import minigrad as _minigrad
from minigrad.device import Device as device
from minigrad.random import bernoulli, manual_seed
from minigrad.torch import autograd, backends, cuda, nn, optim, utils
from minigrad.torch._arithmetic import (
    add,
    addbmm,
    addcdiv,
    addcmul,
    addmm,
    addmv,
    atan,
    baddbmm,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    clamp_max,
    clamp_min,
    cosh,
    exp2,
    fix,
    fmod,
    frac,
    isclose,
    lerp,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    mv,
    nan_to_num,
    positive,
    rsub,
    sinh,
    sub,
    tan,
    trunc,
)  # fmt: skip
from minigrad.torch._creation import (
    FloatTensor,
    Generator,
    LongTensor,
    Tensor,
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from minigrad.torch._functions import give_methods as _give_methods
from minigrad.torch._functions import zero_
from minigrad.torch._missing import missing as _missing
from minigrad.torch._shapes import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_shapes,
    broadcast_tensors,
    column_stack,
    diag,
    diag_embed,
    dstack,
    fliplr,
    flipud,
    hstack,
    index_add,
    index_copy,
    index_fill,
    movedim,
    ravel,
    select,
    swapaxes,
    take,
    take_along_dim,
    tensor_split,
    tile,
    tril_indices,
    triu_indices,
    vstack,
)  # fmt: skip
from minigrad.torch._statistics import (
    bincount,
    count_nonzero,
    cummax,
    cummin,
    cumprod,
    diff,
    isin,
    masked_select,
    median,
    multinomial,
    nonzero,
    searchsorted,
    std_mean,
    unique,
    var_mean,
)  # fmt: skip
from minigrad.version import __version__ as __version__

# what torch has not, or not under this name
_ELSEWHERE = ("Tensor", "Graph", "Node", "backward", "composite", "compile", "functional", "grad", "one_hot", "trace")
for _name, _value in vars(_minigrad).items():
    if _name[0] != "_" and _name not in (*_ELSEWHERE, *globals()) and not isinstance(_value, _Module):
        globals()[_name] = _value  # torch's own name
float, double, half = _minigrad.float32, _minigrad.float64, _minigrad.float16
long, int, short = _minigrad.int64, _minigrad.int32, _minigrad.int16
dtype, Size = np.dtype, tuple
concat = concatenate = _minigrad.cat
clip, absolute, negative = _minigrad.clamp, _minigrad.abs, _minigrad.neg
multiply, divide, true_divide, subtract = _minigrad.mul, _minigrad.div, _minigrad.div, sub
swapdims, moveaxis, row_stack, arctan, arctan2 = swapaxes, movedim, vstack, atan, _minigrad.atan2
inference_mode = _minigrad.no_grad
_give_methods()
inf, nan, pi = np.inf, np.nan, np.pi


def is_tensor(value: Any) -> Any:
    return isinstance(value, Tensor)


def numel(x: Tensor) -> Any:
    return x.numel()


def compile(model: Any = None, **options: Any) -> Any:
    """`model` itself: compilation changes speed, never results, and minigrad.compile compiles whole steps."""
    return model if model is not None else (lambda function: function)


def save(value: Any, file: Any) -> NoReturn:
    """Raises NotImplementedError: torch's file format is not written here."""
    raise NotImplementedError(
        "torch.save: minigrad does not write torch's files; use minigrad.io.save_file(model.state_dict(), path)"
    )


def load(file: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: torch's file format is not read here."""
    raise NotImplementedError(
        "torch.load: minigrad does not read torch's files; use minigrad.io.load_file(path) on a safetensors file"
    )


def install() -> None:
    """Make this package what `import torch` gives in this process. Raises RuntimeError where torch is imported."""
    if "torch" in sys.modules and sys.modules["torch"] is not sys.modules[__name__]:
        raise RuntimeError("torch is already imported in this process: install the stand-in before the first import")
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {name: module for name, module in sys.modules.items() if f"{name}.".startswith(f"{__name__}.")}
    sys.modules.update({name.removeprefix("minigrad."): module for name, module in ours.items()})


__getattr__ = _missing(__name__, globals())
