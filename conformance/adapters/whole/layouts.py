"""How the answers of a model lie in what its forward gives: the layouts that there are."""

from __future__ import annotations

from torch import Tensor

ONE_ANSWER = ("(B, 1, V)", "(B, V)", "(V)", "(B, ...)", "(B)")
"""Layouts of one answer a sample: of "(B, ...)", such as an image, all numbers stand in one row; "(B)" is a score."""

SCORES = "(B, T)"
"""The layout of one number for each position, as where an answer begins; it is told from (B, V) by another length."""

FEWER = "(B, S, V)"
"""The layout of an answer with a row for each of S stretches of the time, as behind convolutions with strides."""

FEWER_FIRST = "(S, B, V)"
"""The same with the stretches first, as torch's CTC loss takes them."""

STRETCHES = (FEWER, FEWER_FIRST)

OF_PLACES = ("(B, T, V)", "(T, B, V)", "(B, V, T)", "(B * T, V)")
"""Layouts of an answer for each position."""

LAYOUTS = (*OF_PLACES, *STRETCHES, *ONE_ANSWER)


def laid_out(tensor: Tensor, layout: str, batch: int, length: int, outputs: int) -> Tensor | None:
    """The tensor as (B, T, V), (B, 1, V) or (B, V); None when it does not have that layout."""
    shapes: dict[str, tuple[int, ...]] = {
        "(B, T, V)": (batch, length, outputs),
        "(T, B, V)": (length, batch, outputs),
        "(B, V, T)": (batch, outputs, length),
        "(B * T, V)": (batch * length, outputs),
        "(B, 1, V)": (batch, 1, outputs),
        "(B, V)": (batch, outputs),
        "(V)": (outputs,) if batch == 1 else (-1,),
        "(B)": (batch,),
        SCORES: (batch, length),
        FEWER: (batch, tensor.shape[1] if tensor.ndim == 3 else -1, outputs),
        FEWER_FIRST: (len(tensor) if tensor.ndim == 3 else -1, batch, outputs),
    }
    if layout == "(B, ...)":
        fits = tensor.ndim > 2 and len(tensor) == batch and tensor.numel() == batch * outputs
        return tensor.reshape(batch, outputs) if fits else None
    if tuple(tensor.shape) != shapes[layout]:
        return None
    if layout in ("(T, B, V)", FEWER_FIRST):
        return tensor.transpose(0, 1)
    if layout == "(B, V, T)":
        return tensor.transpose(1, 2)
    if layout in ("(B)", SCORES):
        return tensor.unsqueeze(-1)
    return tensor.reshape(batch, length, outputs) if layout == "(B * T, V)" else tensor


_BARRED = -9e8


def without_barred(answer: Tensor) -> Tensor:
    """The answer with 0 for a class that is barred everywhere, by minus infinity or another number that large: beside
    it no change of another class would be seen."""
    if answer.ndim < 2:
        return answer
    barred = (answer <= _BARRED).flatten(0, -2).all(0)
    return answer.masked_fill(barred, 0.0) if barred.any() and not barred.all() else answer
