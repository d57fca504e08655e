"""torch.autograd: gradients of any tensors."""

from __future__ import annotations

from typing import Any

from minigrad.autograd import backward
from minigrad.autograd import grad as _grad
from minigrad.gradmode import enable_grad, no_grad, set_grad_enabled
from minigrad.tensor import Tensor as _Tensor
from minigrad.torch._missing import missing as _missing


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """minigrad.grad; a tuple of gradients, also for one input."""
    found = _grad(
        outputs, inputs, grad_outputs, retain_graph=retain_graph, create_graph=create_graph, allow_unused=allow_unused
    )
    return (found,) if isinstance(inputs, _Tensor) else found


def Variable(data: _Tensor, requires_grad: bool = False, volatile: bool = False) -> _Tensor:
    """What torch before 0.4 made of a tensor: the tensor itself, which learns if `requires_grad`."""
    return data.requires_grad_() if requires_grad else data


__getattr__ = _missing(__name__, globals())
