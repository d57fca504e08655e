"""The softmaxes that a loss takes: of scores, or of what a softmax has given already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from conformance.adapters.whole.losses import is_squashed
from conformance.adapters.whole.watching import argument, user_line

WRITTEN_OUT = ("log_softmax", "logsumexp")
"""The functions by which a loss is written out that takes a softmax."""


@dataclass(frozen=True)
class Softmax:
    """A softmax of a loss. name: of the function; place: file:line; twice: whether it is given the shares that another
    softmax gave along the same axis."""

    name: str
    place: str
    twice: bool


class Softmaxes(TorchFunctionMode):
    """Records the softmaxes that functions of these names take."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.seen: list[Softmax] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in self.names:
            given = argument(args, kwargs, 0, "input", None)
            axis = 1 if name == "cross_entropy" else argument(args, kwargs, 1, "dim", None)
            if isinstance(given, Tensor) and given.requires_grad and given.dim() > 1:
                self.seen.append(Softmax(name, user_line(), is_squashed(given) and _are_shares(given.detach(), axis)))
        return func(*args, **kwargs)


def _are_shares(given: Tensor, axis: Any) -> bool:
    """Whether the numbers along an axis are none below zero, and add up to one."""
    if not isinstance(axis, int):
        axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else None
    if axis is None or given.shape[axis] < 2:
        return False
    sums = given.double().sum(axis)
    return bool((given >= 0).all()) and bool(((sums - 1).abs() < 1e-5).all())
