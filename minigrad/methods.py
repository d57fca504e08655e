"""What is computed with a tensor: ``x.sum(0)`` is ``minigrad.sum(x, 0)``, the same function.

Ops need tensors, so `Tensor` stands below them; the last lines of this file give it all of `Methods`. To the type
checker `Methods` is the base class of `Tensor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from minigrad import autograd, dtypes, inplace
from minigrad.inplace import write
from minigrad.kernels import usable
from minigrad.later import load, method
from minigrad.ops import along, copies, elementwise, index, joins, logic, normalise, operands, reduce, selection, shape
from minigrad.ops import matmul as products
from minigrad.ops.rules import normalise_dim
from minigrad.state import state
from minigrad.tensor import Tensor

if TYPE_CHECKING:
    from minigrad.random import Generator

P = ParamSpec("P")
OPERANDS = (Tensor, bool, int, float, np.ndarray, np.number, np.bool_)


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
    call.__doc__ = f"`{function.__name__}` in place: see `minigrad.inplace.write` for what it raises."
    return call


def _as(dtype: np.dtype) -> Callable[[Any], Tensor]:
    def call(self: Any) -> Tensor:
        return operands.cast(self, dtype=dtype)

    call.__name__ = dtypes.name(dtype)
    call.__doc__ = f"As {dtypes.name(dtype)}."
    return call


class Methods:
    """Operators, functions and in-place functions of a tensor."""

    __slots__ = ()

    _repr_html_ = method("minigrad.viz.tablefile:tensor_html", "For notebooks: small tensors as tinted tables.")

    # --- asking ---------------------------------------------------------------------------------------

    def size(self: Any, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.array.shape if dim is None else self.array.shape[normalise_dim(dim, self.array.ndim)]

    def __iter__(self: Any) -> Iterator[Tensor]:
        return iter(joins.unbind(self))

    def __contains__(self: Any, value: Any) -> bool:
        return bool(logic.eq(self, value).any())

    def __eq__(self: Any, other: Any) -> Any:
        return logic.eq(self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ne__(self: Any, other: Any) -> Any:
        return logic.ne(self, other) if isinstance(other, OPERANDS) else NotImplemented

    # --- gradients ------------------------------------------------------------------------------------

    follow_base = inplace.follow_base

    def backward(
        self: Any, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Accumulate gradients in the leaves: see `minigrad.autograd.backward`."""
        autograd.backward_from([self], gradient, retain_graph, create_graph)

    @property
    def data(self: Any) -> Tensor:
        """The same memory, without a history."""
        return shape.detach(self)

    @data.setter
    def data(self: Any, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data must be a tensor, got {type(value).__name__}: make it one with mg.tensor(...)")
        if state.interpreter.tracing:
            shape.detach(self).copy_(shape.detach(value))
            return
        if (value.array.shape, value.array.dtype) != (self.array.shape, self.array.dtype):
            self.node = None  # it describes the old values
        self.array, self.storage, self.base = value.array, value.storage, None

    # --- memory -------------------------------------------------------------------------------------

    def to(
        self: Any, *args: Any, dtype: np.dtype | None = None, device: str | None = None, non_blocking: Any = False
    ) -> Tensor:
        """In another dtype or on another device: `t.to(float64)`, `t.to("cuda")`, `t.to(other)`.

        non_blocking is taken for programs that say it; every copy is complete when this returns. Raises ValueError for
        a device that does not exist, CudaError where CUDA cannot be used.
        """
        for argument in args:
            if argument is None:  # np.dtype(None) is float64
                continue
            if isinstance(argument, Tensor):
                dtype, device = argument.array.dtype, argument.storage.device
            elif isinstance(argument, str) and not hasattr(dtypes, argument):
                device = argument
            else:
                dtype = dtypes.resolve(argument)
        moved = self if device is None else copies.to_device(self, usable(device))
        return moved if dtype is None else operands.cast(moved, dtype=dtype)

    def cpu(self: Any) -> Tensor:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self: Any) -> Tensor:
        """On the GPU. Raises CudaError where CUDA cannot be used."""
        return self.to("cuda")

    float = _as(dtypes.float32)
    double = _as(dtypes.float64)
    half = _as(dtypes.float16)
    bfloat16 = _as(dtypes.bfloat16)
    long = _as(dtypes.int64)
    int = _as(dtypes.int32)

    def bool(self: Any) -> Tensor:
        """True where an element is not zero."""
        return self != 0 if self.array.dtype != dtypes.bool_ else self

    # --- shared with other libraries ----------------------------------------------------------------

    def __dlpack__(self: Any, *, stream: Any = None, **_: Any) -> Any:
        """The same memory as a DLPack capsule: see `minigrad.exchange`."""
        return load("minigrad.exchange:to_dlpack")(self, stream)

    def __dlpack_device__(self: Any) -> tuple[Any, Any]:
        """(kind, number): (1, 0) on the CPU, (2, 0) on a CUDA device."""
        kind: tuple[Any, Any] = load("minigrad.exchange:dlpack_device")(self)
        return kind

    @property
    def __cuda_array_interface__(self: Any) -> dict[str, Any]:
        """The same memory for Numba, CuPy and others. Raises AttributeError on the CPU and for bfloat16."""
        interface: dict[str, Any] = load("minigrad.exchange:cuda_array_interface")(self)
        return interface

    # --- changes in place ---------------------------------------------------------------------------

    def copy_(self: Any, source: Any) -> Tensor:
        """Take the values of `source`, broadcast and cast."""
        source = copies.to_device(operands.as_operand(source, self), self.storage.device)
        value = operands.cast(source, dtype=self.array.dtype)
        return write(self, copies.clone(shape.broadcast_to(value, self.array.shape)))

    def fill_(self: Any, value: Any) -> Tensor:
        """`value` everywhere."""
        return self.copy_(value)

    def zero_(self: Any) -> Tensor:
        """0 everywhere."""
        return self.copy_(0)

    def normal_(self: Any, mean: Any = 0.0, std: Any = 1.0, generator: Generator | None = None) -> Tensor:
        """Independent normal numbers."""
        if std < 0:
            raise ValueError(f"normal_: the standard deviation must not be negative, got {std}")
        drawn = load("minigrad.random:randn")(*self.array.shape, generator=generator, device=self.storage.device)
        return self.copy_(drawn * std + mean)

    def uniform_(self: Any, low: Any = 0.0, high: Any = 1.0, generator: Generator | None = None) -> Tensor:
        """Independent uniform numbers in [low, high)."""
        if not low <= high:
            raise ValueError(f"uniform_: there is no number from {low} to {high}")
        drawn = load("minigrad.random:rand")(*self.array.shape, generator=generator, device=self.storage.device)
        return self.copy_(drawn * (high - low) + low)

    # --- methods with arguments of their own ----------------------------------------------------------

    def add(self: Any, other: Any, alpha: Any = 1) -> Tensor:
        """a + alpha b, with broadcasting."""
        return elementwise.add(self, other if alpha == 1 else other * alpha)

    def sub(self: Any, other: Any, alpha: Any = 1) -> Tensor:
        """a - alpha b, with broadcasting."""
        return elementwise.sub(self, other if alpha == 1 else other * alpha)

    def add_(self: Any, other: Any, alpha: Any = 1) -> Tensor:
        """`add` in place."""
        return write(self, self.add(other, alpha))

    def sub_(self: Any, other: Any, alpha: Any = 1) -> Tensor:
        """`sub` in place."""
        return write(self, self.sub(other, alpha))

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """This tensor where `condition` (bool) holds, else `other`; all broadcast."""
        return selection.where(condition, self, other)

    def t(self: Any) -> Tensor:
        """A matrix transposed; a vector as it is. Raises ValueError for more dimensions."""
        if self.array.ndim > 2:
            raise ValueError(f"t() needs at most 2 dimensions, got {self.array.ndim}: use .transpose() or .mT")
        return shape.transpose(self, 0, -1)

    @property
    def T(self: Any) -> Tensor:
        """The dimensions in reverse order."""
        return shape.permute(self, *reversed(range(self.array.ndim)))

    @property
    def mT(self: Any) -> Tensor:
        """Matrices transposed: the last two dimensions exchanged."""
        return shape.transpose(self, -1, -2)

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
    __and__ = logic.bitwise_and
    __rand__ = _reflected(logic.bitwise_and)
    __iand__ = _in_place(logic.bitwise_and)
    __or__ = logic.bitwise_or
    __ror__ = _reflected(logic.bitwise_or)
    __ior__ = _in_place(logic.bitwise_or)
    __xor__ = logic.bitwise_xor
    __rxor__ = _reflected(logic.bitwise_xor)
    __ixor__ = _in_place(logic.bitwise_xor)
    __matmul__ = products.matmul
    __rmatmul__ = _reflected(products.matmul)
    __lt__ = logic.lt
    __le__ = logic.le
    __gt__ = logic.gt
    __ge__ = logic.ge
    __neg__ = elementwise.neg
    __abs__ = elementwise.abs
    __invert__ = logic.bitwise_not
    __getitem__ = index.getitem
    __setitem__ = inplace.setitem

    # --- elementwise ----------------------------------------------------------------------------------

    mul = elementwise.mul
    div = elementwise.div
    pow = elementwise.pow
    remainder = elementwise.remainder
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    eq = logic.eq
    ne = logic.ne
    lt = logic.lt
    le = logic.le
    gt = logic.gt
    ge = logic.ge
    isnan = logic.isnan
    isinf = logic.isinf
    isfinite = logic.isfinite
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
    masked_fill = selection.masked_fill
    clamp = selection.clamp
    type_as = operands.type_as

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
    multinomial = method("minigrad.random:multinomial", "Categories drawn in proportion: see `minigrad.multinomial`.")

    # --- shape, gathering and scattering --------------------------------------------------------------

    reshape = shape.reshape
    view = shape.view
    view_as = shape.view_as
    permute = shape.permute
    expand = shape.expand
    expand_as = shape.expand_as
    repeat = joins.repeat
    flip = copies.flip
    transpose = shape.transpose
    unsqueeze = shape.unsqueeze
    squeeze = shape.squeeze
    flatten = shape.flatten
    diagonal = shape.diagonal
    unfold = shape.unfold
    unflatten = shape.unflatten
    roll = joins.roll
    narrow = joins.narrow
    split = joins.split
    chunk = joins.chunk
    unbind = joins.unbind
    repeat_interleave = joins.repeat_interleave
    tril = copies.tril
    triu = copies.triu
    detach = shape.detach
    clone = copies.clone
    contiguous = copies.contiguous
    gather = along.gather
    scatter = along.scatter
    scatter_add = along.scatter_add
    index_select = along.index_select

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
    masked_fill_ = _in_place(selection.masked_fill)
    clamp_ = _in_place(selection.clamp)
    scatter_ = _in_place(along.scatter)
    scatter_add_ = _in_place(along.scatter_add)


for _name, _method in vars(Methods).items():
    if _name not in vars(Tensor):
        setattr(Tensor, _name, _method)
