"""Tensor: an array, its storage, and the node that made it. What is computed with one stands in `minigrad.methods`.

`array` is the numpy view; `storage` is shared by all views of one memory and carries the version counter that
in-place changes advance. Only ops, kernels and this file touch `array`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad import dtypes
from minigrad.device import CPU, Device
from minigrad.node import Edge, Node, here
from minigrad.state import state

if TYPE_CHECKING:
    from minigrad.methods import Methods
else:
    Methods = object  # they need ops, which need Tensor: that file gives them to this class


class Storage:
    """One piece of memory. version counts in-place changes; abstract memory (while tracing) holds no values.

    What most have in common lives in the class, so that one costs nothing to make.
    """

    version = 0
    device = "cpu"
    abstract = False

    def __init__(self, device: str = "cpu", abstract: bool = False) -> None:
        if device != "cpu":
            self.device = device
        if abstract:
            self.abstract = True


_fresh = partial(object.__new__, Storage)  # Storage(), in a quarter of the time
LITERAL = Storage()  # of every number that a program writes: x * 2


class Tensor(Methods):
    """An n-dimensional array that remembers how it was made.

    base, seen: a view's base tensor, and the storage version at which `node` was true for it.
    """

    __slots__ = ("__weakref__", "array", "base", "index", "needs_grad", "node", "seen", "storage")

    array: np.ndarray
    storage: Storage
    node: Node | None
    base: Tensor | None
    __array_priority__ = 1000  # numpy defers to our operators

    def __init__(
        self,
        array: np.ndarray,
        storage: Storage | None = None,
        node: Node | None = None,
        index: int = 0,
        needs_grad: bool = False,
    ) -> None:
        self.array = array
        self.storage = _fresh() if storage is None else storage
        self.node = node
        self.index = index
        self.needs_grad = needs_grad
        self.base = None
        self.seen = 0

    # --- what it is ---------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """The element type, numpy's: see `minigrad.dtypes`."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.array.ndim

    @property
    def device(self) -> Device:
        """Where it lives: "cpu" or "cuda:0"."""
        return CPU if self.storage.device == "cpu" else Device(self.storage.device)

    @property
    def is_cuda(self) -> Any:
        """Does it live on a GPU?"""
        return self.storage.device != "cpu"

    def dim(self) -> int:
        """The number of dimensions."""
        return self.array.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self.array.size

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.array.itemsize

    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def is_contiguous(self) -> bool:
        """Do the elements lie in row-major order without gaps?"""
        return self.array.flags.c_contiguous

    def is_floating_point(self) -> bool:
        """Is the dtype float16, bfloat16, float32 or float64?"""
        return dtypes.is_floating(self.array.dtype)

    def __len__(self) -> int:
        if not self.array.ndim:
            raise TypeError("a tensor without dimensions has no length")
        return self.array.shape[0]

    # --- values -------------------------------------------------------------------------------------

    def _values(self, what: str) -> np.ndarray:
        if self.storage.abstract:
            raise RuntimeError(
                f"{what} needs the values of a tensor that is only being traced (shape {list(self.array.shape)}): "
                "a trace records the same steps for all values, so Python must not look at them; use where() "
                "instead of if"
            )
        return self.array if self.storage.device == "cpu" else self.array.numpy()  # type: ignore[attr-defined]

    def item(self) -> Any:
        """The only element as a Python number. Raises ValueError for more or less than one."""
        if self.array.size != 1:
            raise ValueError(f"item() needs exactly one element, this tensor has shape {list(self.array.shape)}")
        return self._values("item()").item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; a number for a tensor without dimensions."""
        return self._values("tolist()").tolist()

    def numpy(self) -> np.ndarray:
        """The values as a numpy array that shares memory; from a GPU a copy, which waits for it.

        Raises RuntimeError where a gradient is recorded.
        """
        if self.requires_grad:
            raise RuntimeError("numpy() on a tensor that requires a gradient would lose it: use .detach().numpy()")
        return self._values("numpy()")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array = self.numpy()
        return np.array(array, dtype) if copy else np.asarray(array, dtype)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if dtypes.is_floating(self.array.dtype):
            raise TypeError("only an integer tensor of one element can be used as an index")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.array.size != 1:
            raise ValueError(
                f"the truth of a tensor of shape {list(self.array.shape)} is ambiguous: use .any() or .all()"
            )
        return bool(self._values("bool()"))

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if specification and self.array.size == 1 else repr(self)

    def __repr__(self) -> str:
        if self.storage.abstract:
            return f"tensor(traced {dtypes.name(self.array.dtype)}{list(self.array.shape)})"
        values = self._values("repr()")
        values = values.astype(dtypes.float32) if dtypes.is_half(values.dtype) else values
        text = np.array2string(values, separator=", ", precision=4, prefix="tensor(")
        notes = (
            ""
            if self.array.dtype in (dtypes.DEFAULT, dtypes.int64, dtypes.bool_)
            else f", dtype={dtypes.name(self.array.dtype)}"
        )
        if self.is_cuda:
            notes += f", device={self.storage.device!r}"
        if self.requires_grad:
            notes += ", requires_grad=True" if self.is_leaf else f", made_by={edge_of(self)[0].op}"
        return f"tensor({text}{notes})"

    __hash__ = object.__hash__  # tensors are told apart by identity, though == compares values

    # --- gradients ----------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> Any:
        """Is a gradient wanted? (A view asks its base again if that changed in place.)"""
        if self.base is not None and self.seen != self.storage.version:
            self.follow_base()
        return self.needs_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, value: bool = True) -> Tensor:
        """Ask for a gradient (or not). Raises RuntimeError for integers, and for a result that has a history."""
        if value and not dtypes.is_floating(self.array.dtype):
            raise RuntimeError(
                f"only floating tensors can require a gradient, this one is {dtypes.name(self.array.dtype)}"
            )
        if not value and not self.is_leaf:
            raise RuntimeError("requires_grad can only be taken from a leaf: use .detach()")
        if value and not self.needs_grad:
            self.base = None  # a leaf of its own: it no longer follows the history of what it was a view of
        self.needs_grad = bool(value)
        return self

    @property
    def is_leaf(self) -> bool:
        """Made by the user, not by a recorded op."""
        return not self.requires_grad or self.node is None or self.node.op == "leaf"

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient, None before the first backward pass."""
        state.interpreter.reads_gradient(self)
        if self.node is None or self.node.grads is None:
            return None
        return self.node.grads.get(self.index)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"a gradient is a tensor or None, got {type(value).__name__}")
        if value is not None and value.array.shape != self.array.shape:
            raise ValueError(f"a gradient of shape {list(value.array.shape)} does not fit {list(self.array.shape)}")
        if value is None and self.node is None:
            state.interpreter.forgets_gradient(self)
            return
        node, index = edge_of(self)
        state.interpreter.replaces_gradient(node)
        node.grads = {**(node.grads or {}), index: value}

    def retain_grad(self) -> None:
        """Keep this tensor's gradient in `.grad` though it is not a leaf (after the next backward pass)."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad() needs a tensor that requires a gradient")
        node, index = edge_of(self)
        node.grads = node.grads or {}
        node.grads.setdefault(index, None)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Call `hook(gradient)` when this tensor's gradient is complete; what it returns replaces it.

        Returns a function that removes the hook.
        """
        if not self.requires_grad:
            raise RuntimeError("a hook needs a tensor that requires a gradient")
        node, index = edge_of(self)
        node.hooks = node.hooks or {}
        hooks = node.hooks.setdefault(index, [])
        hooks.append(hook)
        return lambda: hooks.remove(hook) if hook in hooks else None

    # --- copies -------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        if not self.is_leaf:
            raise RuntimeError("only leaves can be copied or pickled: detach() the tensor first")
        return _rebuild, (type(self), self._values("pickling").copy(), self.needs_grad, self.storage.device)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("only leaves can be deep-copied: detach() the tensor first")
        copy = memo[id(self)] = _made(type(self), self.array.copy(), self.needs_grad, self.storage.device)
        return copy


def edge_of(tensor: Tensor) -> Edge:
    """Where gradients of `tensor` flow to; a leaf gets its node when it is first used."""
    if tensor.base is not None and tensor.seen != tensor.storage.version:
        tensor.follow_base()
    if tensor.node is None:
        tensor.node = Node("leaf", {}, (), ((tensor.array.shape, tensor.array.dtype),), where=here())
        state.interpreter.made_a_leaf(tensor)
    return tensor.node, tensor.index


def _rebuild(kind: type[Tensor], array: np.ndarray, needs_grad: Any, device: str = "cpu") -> Tensor:
    """What was pickled, on the device where it was."""
    home = Tensor(array).to(device)
    return _made(kind, home.array, needs_grad, home.storage.device)


def _made(kind: type[Tensor], array: np.ndarray, needs_grad: Any, device: str) -> Tensor:
    tensor = kind.__new__(kind)
    Tensor.__init__(tensor, array, Storage(device), needs_grad=needs_grad)
    return tensor
