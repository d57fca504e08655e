"""In which layout a result of forward holds the answer, and which of its tensors is the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import Calling
from conformance.adapters.whole.layouts import LAYOUTS, STRETCHES, laid_out


def layout_of(
    calling: Calling, data: dict[str, Tensor], result: Any, without: Collection[int] = (), stretches: bool = True
) -> Calling | None:
    """The calling with the layout of the answer that the result shows. without: the results that are no answers;
    stretches: whether its rows may be stretches of the time."""
    main = data[calling.main.meaning]
    batch, length = main.shape[0], main.shape[1] + calling.answers_for_start
    floating = [t for t in tensors_in(result) if t.is_floating_point()]
    vocabs = [one.vocab for one in reversed(calling.inputs) if one.vocab]
    orders: tuple[str, ...] = LAYOUTS if calling.batch_first else ("(T, B, V)", *LAYOUTS)
    if length == 1 and calling.main.meaning == "x":  # the one channel of a picture: what has no positions
        orders = tuple(layout for layout in orders if "T" not in layout)
    named = _called_logits(result)
    offered = [pair for pair in enumerate(floating) if pair[0] not in without]
    offered = offered[-_of_the_last(result) :] if not without else offered
    offered = [pair for pair in offered if not _are_weights(pair[1], length)] or offered
    chosen = [pair for pair in offered if pair[1] is named]
    for wanted, layout in product((True, False), orders):
        for at, tensor in chosen or offered:
            if tensor.ndim == 0 or (layout == "(B, ...)" and calling.main.meaning != "x"):
                continue
            if layout in STRETCHES and not (stretches and calling.main.meaning == "x" and tensor.ndim == 3):
                continue
            if layout == "(B, V, T)" and not wanted and tensor.ndim == 3 and tensor.shape[2] in vocabs:
                continue  # its scores are of words, and stand last
            outputs = tensor.shape[1] if layout == "(B, V, T)" and tensor.ndim > 1 else tensor.shape[-1]
            outputs = tensor.numel() // batch if layout in ("(B, ...)", "(B)") else outputs
            if (outputs in vocabs) != wanted or laid_out(tensor, layout, batch, length, outputs) is None:
                continue
            return replace(calling, layout=layout, outputs=outputs, answer_at=at)
    return None


def _are_weights(tensor: Tensor, length: int) -> bool:
    """Whether a tensor is a map of attention: for each word a share of each word, which stands beside an answer."""
    if tensor.ndim < 3 or tuple(tensor.shape[-2:]) != (length, length) or length < 2:
        return False
    return bool((tensor >= 0).all()) and bool(((tensor.sum(-1) - 1).abs() < 1e-3).all())


def _of_the_last(result: Any) -> int:
    """How many floating tensors the last entry of a list has whose entries are alike: what each layer of a decoder
    answers, the last one best. 0 where the result is no such list. Tensors alone are so in a list, and not in a
    tuple, whose entries may be anything."""
    entries = result if isinstance(result, (list, tuple)) and not hasattr(result, "_fields") else ()
    if type(result) is list and len(entries) > 1 and all(isinstance(entry, Tensor) for entry in entries):
        return int(all(entry.shape == entries[0].shape and entry.is_floating_point() for entry in entries))
    if len(entries) < 2 or any(isinstance(entry, Tensor) for entry in entries):
        return 0
    shapes = [[t.shape for t in tensors_in(entry) if t.is_floating_point()] for entry in entries]
    return len(shapes[0]) if all(one == shapes[0] for one in shapes) else 0


def _called_logits(result: Any) -> Tensor | None:
    """What a result with names calls its logits: it is the answer, whatever else is beside it."""
    held = result if isinstance(result, Mapping) else getattr(result, "__dict__", {})
    found = held.get("logits") if isinstance(held, Mapping) else None
    return found if isinstance(found, Tensor) else None
