"""Mask conventions: what True means to a module, and which shapes it takes, found by hiding a key and looking.

Probing adopts whatever hides the key, an inverted mask too; so a convention that a name documents is fixed: a
``key_padding_mask`` marks what is hidden (torch), an ``attention_mask`` what is visible. What a function of the file
such as ``subsequent_mask(size)`` makes is compared: its caller may negate it, so that a contradiction is only a doubt.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from conformance.protocol import NotProvided

ENCODINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "bool, True = may attend": lambda mask: mask,
    "0 and 1, 1 = may attend": lambda mask: mask.float(),
    "bool, True = hidden": lambda mask: ~mask,
    "additive, 0 and -inf": lambda mask: torch.zeros(mask.shape).masked_fill(~mask, float("-inf")),
}
"""The most usual first; to a module that hides what is not 0, numbers to add are True where they hide."""


def _constant(mask: Tensor, dim: int) -> bool:
    return bool((mask == mask.narrow(dim, 0, 1)).all())


SHAPES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "(B, H, Tq, Tk)": ((), lambda mask: mask),
    "(B, 1, Tq, Tk)": ((1,), lambda mask: mask[:, :1]),
    "(B * H, Tq, Tk)": ((), lambda mask: mask.flatten(0, 1)),
    "(B, Tq, Tk)": ((1,), lambda mask: mask[:, 0]),
    "(Tq, Tk)": ((0, 1), lambda mask: mask[0, 0]),
    "(Tq, Tk, B)": ((1,), lambda mask: mask[:, 0].permute(1, 2, 0)),
    "(B, 1, 1, Tk)": ((1, 2), lambda mask: mask[:, :1, :1]),
    "(B, 1, Tk)": ((1, 2), lambda mask: mask[:, 0, :1]),
    "(B, Tk)": ((1, 2), lambda mask: mask[:, 0, 0]),
}
"""Shape -> axes of (B, H, Tq, Tk) along which the mask must not vary, and how it is cut down to the shape."""


def encodings_for(parameter: str) -> tuple[str, ...]:
    """The encodings that the name of a mask parameter leaves open, the most usual first."""
    hidden = "bool, True = hidden"
    if "key_padding_mask" in parameter:
        return (hidden,)
    return tuple(name for name in ENCODINGS if parameter != "attention_mask" or name != hidden)


def opposite_in(scope: Mapping[str, Any], encoding: str) -> str:
    """The function of a file that makes causal masks which mark the opposite of `encoding`; empty if none does."""
    if encoding.startswith("additive"):
        return ""
    size = 4
    visible = torch.ones(size, size, dtype=torch.bool).tril()
    marked = ~visible if encoding.endswith("may attend") else visible
    named = [(name, value) for name, value in scope.items() if "mask" in name.lower() and inspect.isfunction(value)]
    for name, function in named:
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or any(p.default is p.empty for p in parameters[1:]):
            continue
        try:
            made = torch.as_tensor(function(size))
            if torch.equal(made.reshape(size, size).float(), marked.float()):
                return name
        except Exception:  # it makes something else
            continue
    return ""


@dataclass(frozen=True)
class Channel:
    """One mask parameter: its encoding, the shapes that it takes, and how far it hides.

    leak: how much a hidden key still changes the output, relative to a visible one (0: not at all).
    """

    parameter: str
    encoding: str
    shapes: tuple[str, ...]
    leak: float

    def hides(self) -> str:
        """How far it hides, in words."""
        if self.leak < 1e-3:
            return "a hidden key changes nothing"
        if self.leak > 1e3:
            return "turned around: the keys that it shows change nothing, those that it hides do"
        return f"a hidden key leaks ({self.leak:.2g})"

    def encode(self, mask: Tensor) -> Tensor | None:
        """A bool mask (B, H, Tq, Tk) in the parameter's convention; None when no shape that it takes can say it."""
        for shape in self.shapes:
            fixed, cut = SHAPES[shape]
            if all(_constant(mask, dim) for dim in fixed):
                return ENCODINGS[self.encoding](cut(mask))
        return None


def encode(channels: Sequence[Channel], mask: Tensor) -> dict[str, Tensor]:
    """The mask (B, H, Tq, Tk) as arguments: by one parameter, else split into a part for each of two.

    Raises NotProvided when the module's mask parameters cannot express it.
    """
    for channel in channels:
        encoded = channel.encode(mask)
        if encoded is not None:
            return {channel.parameter: encoded}
    of_keys = mask.any(2, keepdim=True).expand_as(mask)
    of_pairs = (mask | ~of_keys).all(0, keepdim=True).expand_as(mask)
    if torch.equal(of_keys & of_pairs, mask):
        for first, second in permutations(channels, 2):
            parts = {first.parameter: first.encode(of_keys), second.parameter: second.encode(of_pairs)}
            if all(part is not None for part in parts.values()):
                return {name: part for name, part in parts.items() if part is not None}
    takes = "; ".join(f"{c.parameter} {', '.join(c.shapes)}" for c in channels) or "no mask"
    raise NotProvided(f"it takes {takes}, which cannot express this mask")


def encode_if_any(channels: Sequence[Channel], mask: Tensor) -> dict[str, Tensor]:
    """The same; nothing where a mask that hides nothing has no parameter. Raises NotProvided."""
    return {} if not channels and bool(mask.all()) else encode(channels, mask)


def probe(parameter: str, leak: Callable[[str, str], float | None]) -> Channel | None:
    """Try every encoding and shape; `leak(encoding, shape)` measures one, None when the module raises or gives NaN.

    The encoding with a shape that does not leak, else the one that leaks least; None when nothing runs.
    """
    measured = {
        (encoding, shape): value
        for encoding in encodings_for(parameter)
        for shape in SHAPES
        if (value := leak(encoding, shape)) is not None
    }
    if not measured:
        return None
    tight = [encoding for (encoding, _), value in measured.items() if value < 1e-3]
    encoding = tight[0] if tight else min(measured, key=lambda key: measured[key])[0]
    least = min(value for (e, _), value in measured.items() if e == encoding)
    shapes = tuple(s for (e, s), value in measured.items() if e == encoding and value < max(1e-3, 1.5 * least))
    return Channel(parameter, encoding, shapes, least)
