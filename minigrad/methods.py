"""The ops that are methods: ``x.sum(0)`` is ``minigrad.sum(x, 0)``, the same function.

`minigrad.tensor` takes all of `Methods` over into `Tensor` once the ops exist, which need tensors themselves; to the
type checker it is the base class of `Tensor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from minigrad import random
from minigrad.dispatch import write
from minigrad.ops import elementwise, index, normalise, reduce, shape
from minigrad.ops import matmul as products
from minigrad.tensor import Tensor

P = ParamSpec("P")


def _reflected(function: Callable[[Any, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """``b op a`` for a left operand that is no tensor."""

    def call(a: Tensor, b: Any) -> Tensor:
        return function(b, a)

    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__ = f"`{function.__name__}` of the operands the other way round."
    return call


def _in_place(function: Callable[Concatenate[Tensor, P], Tensor]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """`function`, its result written back into the tensor's own memory."""

    @functools.wraps(function)
    def call(x: Tensor, *args: P.args, **keywords: P.kwargs) -> Tensor:
        return write(x, function(x, *args, **keywords))

    call.__name__ = call.__qualname__ = function.__name__ + "_"
    call.__doc__ = f"`{function.__name__}` in place: see `minigrad.dispatch.write` for what it raises."
    return call


class Methods:
    """Operators, functions and in-place functions of a tensor."""

    __slots__ = ()

    # --- operators ------------------------------------------------------------------------------------

    __add__ = elementwise.add
    __radd__ = _reflected(elementwise.add)
    __iadd__ = _in_place(elementwise.add)
    __sub__ = elementwise.sub
    __rsub__ = _reflected(elementwise.sub)
    __isub__ = _in_place(elementwise.sub)
    __mul__ = elementwise.mul
    __rmul__ = _reflected(elementwise.mul)
    __imul__ = _in_place(elementwise.mul)
    __truediv__ = elementwise.true_divide
    __rtruediv__ = _reflected(elementwise.true_divide)
    __itruediv__ = _in_place(elementwise.true_divide)
    __floordiv__ = elementwise.floor_divide
    __rfloordiv__ = _reflected(elementwise.floor_divide)
    __ifloordiv__ = _in_place(elementwise.floor_divide)
    __mod__ = elementwise.remainder
    __rmod__ = _reflected(elementwise.remainder)
    __imod__ = _in_place(elementwise.remainder)
    __pow__ = elementwise.pow
    __rpow__ = _reflected(elementwise.pow)
    __ipow__ = _in_place(elementwise.pow)
    __and__ = elementwise.bitwise_and
    __rand__ = _reflected(elementwise.bitwise_and)
    __iand__ = _in_place(elementwise.bitwise_and)
    __or__ = elementwise.bitwise_or
    __ror__ = _reflected(elementwise.bitwise_or)
    __ior__ = _in_place(elementwise.bitwise_or)
    __xor__ = elementwise.bitwise_xor
    __rxor__ = _reflected(elementwise.bitwise_xor)
    __ixor__ = _in_place(elementwise.bitwise_xor)
    __matmul__ = products.matmul
    __rmatmul__ = _reflected(products.matmul)
    __lt__ = elementwise.lt
    __le__ = elementwise.le
    __gt__ = elementwise.gt
    __ge__ = elementwise.ge
    __neg__ = elementwise.neg
    __abs__ = elementwise.abs
    __invert__ = elementwise.bitwise_not
    __getitem__ = index.getitem
    __setitem__ = index.setitem

    # --- elementwise ----------------------------------------------------------------------------------

    mul = elementwise.mul
    div = elementwise.div
    pow = elementwise.pow
    remainder = elementwise.remainder
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    eq = elementwise.eq
    ne = elementwise.ne
    lt = elementwise.lt
    le = elementwise.le
    gt = elementwise.gt
    ge = elementwise.ge
    isnan = elementwise.isnan
    isinf = elementwise.isinf
    isfinite = elementwise.isfinite
    neg = elementwise.neg
    abs = elementwise.abs
    sign = elementwise.sign
    floor = elementwise.floor
    ceil = elementwise.ceil
    round = elementwise.round
    exp = elementwise.exp
    expm1 = elementwise.expm1
    log = elementwise.log
    log1p = elementwise.log1p
    log2 = elementwise.log2
    log10 = elementwise.log10
    sqrt = elementwise.sqrt
    rsqrt = elementwise.rsqrt
    reciprocal = elementwise.reciprocal
    square = elementwise.square
    sin = elementwise.sin
    cos = elementwise.cos
    atan2 = elementwise.atan2
    tanh = elementwise.tanh
    sigmoid = elementwise.sigmoid
    erf = elementwise.erf
    relu = elementwise.relu
    masked_fill = elementwise.masked_fill
    clamp = elementwise.clamp
    type_as = elementwise.type_as

    # --- products, reductions, scans, sorting, drawing ------------------------------------------------

    matmul = products.matmul
    outer = products.outer
    dot = products.dot
    sum = reduce.sum
    mean = reduce.mean
    var = reduce.var
    std = reduce.std
    prod = reduce.prod
    amax = reduce.amax
    amin = reduce.amin
    all = reduce.all
    any = reduce.any
    equal = reduce.equal
    allclose = reduce.allclose
    norm = reduce.norm
    max = reduce.max
    min = reduce.min
    argmax = reduce.argmax
    argmin = reduce.argmin
    cumsum = reduce.cumsum
    argsort = reduce.argsort
    sort = reduce.sort
    topk = reduce.topk
    softmax = normalise.softmax
    log_softmax = normalise.log_softmax
    logsumexp = normalise.logsumexp
    multinomial = random.multinomial

    # --- shape, gathering and scattering --------------------------------------------------------------

    reshape = shape.reshape
    view = shape.view
    view_as = shape.view_as
    permute = shape.permute
    expand = shape.expand
    expand_as = shape.expand_as
    repeat = shape.repeat
    flip = shape.flip
    transpose = shape.transpose
    unsqueeze = shape.unsqueeze
    squeeze = shape.squeeze
    flatten = shape.flatten
    diagonal = shape.diagonal
    unfold = shape.unfold
    unflatten = shape.unflatten
    roll = shape.roll
    narrow = shape.narrow
    split = shape.split
    chunk = shape.chunk
    unbind = shape.unbind
    repeat_interleave = shape.repeat_interleave
    tril = shape.tril
    triu = shape.triu
    detach = shape.detach
    clone = shape.clone
    contiguous = shape.contiguous
    gather = index.gather
    scatter = index.scatter
    scatter_add = index.scatter_add
    index_select = index.index_select

    # --- in place -------------------------------------------------------------------------------------

    exp_ = _in_place(elementwise.exp)
    log_ = _in_place(elementwise.log)
    sqrt_ = _in_place(elementwise.sqrt)
    tanh_ = _in_place(elementwise.tanh)
    sigmoid_ = _in_place(elementwise.sigmoid)
    relu_ = _in_place(elementwise.relu)
    neg_ = _in_place(elementwise.neg)
    abs_ = _in_place(elementwise.abs)
    round_ = _in_place(elementwise.round)
    floor_ = _in_place(elementwise.floor)
    ceil_ = _in_place(elementwise.ceil)
    mul_ = _in_place(elementwise.mul)
    div_ = _in_place(elementwise.div)
    pow_ = _in_place(elementwise.pow)
    masked_fill_ = _in_place(elementwise.masked_fill)
    clamp_ = _in_place(elementwise.clamp)
    scatter_ = _in_place(index.scatter)
    scatter_add_ = _in_place(index.scatter_add)
