"""Gradient clipping: by the global norm, or element by element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minigrad.creation import zeros
from minigrad.gradmode import no_grad
from minigrad.ops import rules
from minigrad.state import scope
from minigrad.tensor import Tensor


def _gradients(name: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """Those that there are. Raises TypeError for what is no tensor and no series of them."""
    one = isinstance(parameters, Tensor) or not rules.several(parameters)
    tensors: list[Any] = [parameters] if one else list(parameters)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            among = "" if tensor is parameters else " among them"
            raise TypeError(
                f"{name}: parameters must be tensors, got {type(tensor).__name__}{among}: pass model.parameters()"
            )
    return [tensor.grad for tensor in tensors if tensor.grad is not None]


@no_grad()
@scope("clip", "clip_grad_norm_")
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, *, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients, in place, by min(1, max_norm / (norm + 1e-6)); returns their norm before, a scalar tensor.

    The norm is that of all entries of all gradients together (document 000 section 2.13.4). Where it is infinite the
    factor is 0 (infinite entries become NaN), where it is NaN everything becomes NaN; with `error_if_nonfinite` both
    raise RuntimeError instead and change nothing. Raises ValueError for a negative max_norm.
    """
    if not rules.number(max_norm, "clip_grad_norm_: max_norm") >= 0:
        raise ValueError(f"clip_grad_norm_: max_norm must not be negative, got {max_norm}")
    gradients = _gradients("clip_grad_norm_", parameters)
    if not gradients:
        return zeros(())
    squares = [gradient.square().sum() for gradient in gradients]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    norm = total.sqrt()
    if error_if_nonfinite and not norm.isfinite().item():
        raise RuntimeError(
            f"clip_grad_norm_: the global norm of the gradients is {norm.item()}, so it cannot be clipped"
        )
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


@no_grad()
@scope("clip", "clip_grad_value_")
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient to [-clip_value, clip_value], in place. Raises ValueError for a negative clip_value."""
    if not rules.number(clip_value, "clip_grad_value_: clip_value") >= 0:
        raise ValueError(f"clip_grad_value_: clip_value must not be negative, got {clip_value}")
    for gradient in _gradients("clip_grad_value_", parameters):
        gradient.clamp_(-clip_value, clip_value)
