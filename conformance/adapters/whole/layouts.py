"""How the answers of a model lie in what its forward gives: their layouts, and the one that a result shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from torch import Tensor

from conformance.adapters.inference.calls import tensors_in

if TYPE_CHECKING:
    from conformance.adapters.whole.calling import Calling

ONE_ANSWER = ("(B, 1, V)", "(B, V)", "(V)", "(B, ...)", "(B)")
"""Layouts of one answer a sample: of "(B, ...)", such as an image, all numbers stand in one row; "(B)" is a score."""

SCORES = "(B, T)"
"""The layout of one number for each position, as where an answer begins; it is told from (B, V) by another length."""

FEWER = "(B, S, V)"
"""The layout of an answer with a row for each of S stretches of the time, as behind convolutions with strides."""

LAYOUTS = ("(B, T, V)", "(T, B, V)", "(B, V, T)", "(B * T, V)", FEWER, *ONE_ANSWER)


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
    }
    if layout == "(B, ...)":
        fits = tensor.ndim > 2 and len(tensor) == batch and tensor.numel() == batch * outputs
        return tensor.reshape(batch, outputs) if fits else None
    if tuple(tensor.shape) != shapes[layout]:
        return None
    if layout == "(T, B, V)":
        return tensor.transpose(0, 1)
    if layout == "(B, V, T)":
        return tensor.transpose(1, 2)
    if layout in ("(B)", SCORES):
        return tensor.unsqueeze(-1)
    return tensor.reshape(batch, length, outputs) if layout == "(B * T, V)" else tensor


def layout_of(calling: Calling, data: dict[str, Tensor], result: Any, without: Collection[int] = ()) -> Calling | None:
    """The calling with the layout of the answer that the result shows. without: the results that are no answers."""
    main = data[calling.main.meaning]
    batch, length = main.shape[0], main.shape[1]
    floating = [t for t in tensors_in(result) if t.is_floating_point()]
    vocabs = [one.vocab for one in reversed(calling.inputs) if one.vocab]
    orders: tuple[str, ...] = LAYOUTS if calling.batch_first else ("(T, B, V)", *LAYOUTS)
    if length == 1 and calling.main.meaning == "x":  # the one channel of a picture: what has no positions
        orders = tuple(layout for layout in orders if "T" not in layout)
    named = _called_logits(result)
    offered = [pair for pair in enumerate(floating) if pair[0] not in without]
    chosen = [pair for pair in offered if pair[1] is named]
    for wanted, layout in product((True, False), orders):
        for at, tensor in chosen or offered:
            if tensor.ndim == 0 or (layout == "(B, ...)" and calling.main.meaning != "x"):
                continue
            if layout == FEWER and not (calling.lengths and calling.main.meaning == "x" and tensor.ndim == 3):
                continue
            outputs = tensor.shape[1] if layout == "(B, V, T)" and tensor.ndim > 1 else tensor.shape[-1]
            outputs = tensor.numel() // batch if layout in ("(B, ...)", "(B)") else outputs
            if (outputs in vocabs) != wanted or laid_out(tensor, layout, batch, length, outputs) is None:
                continue
            return replace(calling, layout=layout, outputs=outputs, answer_at=at)
    return None


def _called_logits(result: Any) -> Tensor | None:
    """What a result with names calls its logits: it is the answer, whatever else is beside it."""
    held = result if isinstance(result, Mapping) else getattr(result, "__dict__", {})
    found = held.get("logits") if isinstance(held, Mapping) else None
    return found if isinstance(found, Tensor) else None
