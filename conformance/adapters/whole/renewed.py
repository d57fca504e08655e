"""Layers that a model makes anew in every call, as ``nn.Linear(d, d)(x)`` in its forward does: their weights are drawn
each time, and nothing that they learn is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from conformance.adapters.whole.watching import Watching

_DRAWS = (torch.ops.aten.uniform_.default, torch.ops.aten.normal_.default)


@dataclass(frozen=True)
class Renewed:
    """A layer that a call makes: its class, and file:line of where."""

    name: str
    place: str


class _Made(Watching):
    """Which layers draw their first weights in a run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Renewed] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _DRAWS and (layer := _layer_being_made()) is not None and layer not in self.seen:
            self.seen.append(layer)
        return func(*args, **(kwargs or {}))


def _layer_being_made() -> Renewed | None:
    """The outermost layer whose constructor runs now, and the line that calls it; None where none does."""
    frame, layer = sys._getframe(1), ""
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
        if isinstance(owner, nn.Module):
            layer = type(owner).__name__
        elif layer and "/torch/" not in frame.f_code.co_filename:
            return Renewed(layer, f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return None


def renewed_in(run: Callable[[], Any]) -> tuple[Renewed, ...]:
    """The layers that every run makes; () where no run draws numbers. What the first run makes and keeps is none."""
    before = torch.get_rng_state()
    run()
    if torch.equal(before, torch.get_rng_state()):
        return ()
    with _Made() as made:
        run()
    return tuple(made.seen)
