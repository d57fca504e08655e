"""minigrad: a tensor autograd engine to study. Names and semantics are torch's; the computation is a graph.

import minigrad as mg
x = mg.randn(2, 3, requires_grad=True)
(x * x).sum().backward()
print(x.grad, mg.trace(lambda x: (x * x).sum())(x))
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from minigrad import requirements as _requirements  # first: without them nothing below can be imported
from minigrad.version import __version__ as __version__

from minigrad import dtypes as _dtypes  # isort: skip
from minigrad.tensor import Tensor  # isort: skip
from minigrad import dispatch as _dispatch
from minigrad import later as _later
from minigrad import methods as _methods
from minigrad.autograd import backward, grad
from minigrad.creation import (
    arange,
    as_tensor,
    empty,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from minigrad.gradmode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from minigrad.node import Node
from minigrad.ops.along import gather, index_select, one_hot, scatter, scatter_add
from minigrad.ops.copies import flip, tril, triu
from minigrad.ops.elementwise import (
    abs,
    add,
    atan2,
    ceil,
    cos,
    div,
    erf,
    exp,
    expm1,
    floor,
    floor_divide,
    log,
    log1p,
    log2,
    log10,
    maximum,
    minimum,
    mul,
    neg,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    sub,
    tanh,
)
from minigrad.ops.joins import cat, chunk, narrow, repeat_interleave, roll, split, stack, unbind
from minigrad.ops.logic import eq, ge, gt, isfinite, isinf, isnan, le, lt, ne
from minigrad.ops.matmul import dot, einsum, matmul, outer
from minigrad.ops.normalise import log_softmax, logsumexp, softmax
from minigrad.ops.reduce import (
    all,
    allclose,
    amax,
    amin,
    any,
    argmax,
    argmin,
    argsort,
    cumsum,
    equal,
    max,
    mean,
    min,
    norm,
    prod,
    sort,
    std,
    sum,
    topk,
    var,
)
from minigrad.ops.registry import NAMES as _NAMES
from minigrad.ops.selection import clamp, masked_fill, where
from minigrad.ops.shape import broadcast_to, diagonal, flatten, permute, reshape, squeeze, transpose, unsqueeze

if _TYPE_CHECKING:
    from minigrad import functional, random
    from minigrad.compiler import compile
    from minigrad.composites import composite
    from minigrad.graph import Graph
    from minigrad.random import (
        Generator,
        bernoulli,
        manual_seed,
        multinomial,
        rand,
        rand_like,
        randint,
        randn,
        randn_like,
        randperm,
    )
    from minigrad.tracing import trace

float16, float32, float64, bfloat16 = _dtypes.float16, _dtypes.float32, _dtypes.float64, _dtypes.bfloat16
int8, int16, int32, int64, uint8 = _dtypes.int8, _dtypes.int16, _dtypes.int32, _dtypes.int64, _dtypes.uint8
bool = _dtypes.bool_
mm = bmm = matmul
globals().update(_NAMES["mg"])  # of all ops that ask for it; above are those that type checkers know

_RANDOM = "Generator bernoulli manual_seed multinomial rand rand_like randint randn randn_like randperm"
_AT_FIRST_USE = {
    "Graph": "minigrad.graph:Graph",
    "compile": "minigrad.compiler:compile",
    "composite": "minigrad.composites:composite",
    "cuda": "minigrad.cuda",
    "functional": "minigrad.functional",
    "nn": "minigrad.nn",
    "optim": "minigrad.optim",
    "random": "minigrad.random",
    "trace": "minigrad.tracing:trace",
    **{name: f"minigrad.random:{name}" for name in _RANDOM.split()},
}


def __getattr__(name: str) -> _Any:
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module 'minigrad' has no attribute {name!r}")
    found = globals()[name] = _later.load(_AT_FIRST_USE[name])
    return found


def __dir__() -> list[str]:
    return [*globals(), *_AT_FIRST_USE]
