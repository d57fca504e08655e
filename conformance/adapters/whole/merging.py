"""Adapters that a model merges into its weights, and takes out of them again."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.protocol import Array, NotProvided

_WHAT = r"(_?(all|weights?|lora|adapters?|deltas?|parameters))*"
_MERGES, _PARTS = re.compile(rf"(?i)(merge|fuse|fold|bake){_WHAT}"), re.compile(rf"(?i)(un_?merge|un_?fuse){_WHAT}")


@dataclass(frozen=True)
class Merged:
    """Answers to the same inputs: before, merged, and with the adapters taken out again (None where no
    method does that). place: the line of the method that merges; back: of the one that takes out."""

    before: Array
    merged: Array
    again: Array | None
    place: str
    back: str


class MergeProbes(PlaceProbes):
    """The experiment, of a running model."""

    def merged(self) -> Merged:
        """What it answers when its adapters are merged. Raises NotProvided where no method without arguments does."""
        twin, inputs = self.twin(), self.example(2, seed=73)
        holders = [twin.module] if any(_methods(twin.module, _MERGES)) else list(twin.module.modules())
        merge = [method for part in holders for method in _methods(part, _MERGES)]
        if not merge:
            raise NotProvided("no method of it merges adapters")
        before = twin(**inputs)["out"]
        _call(merge)
        merged = twin(**inputs)["out"]
        apart = [method for part in holders for method in _methods(part, _PARTS)]
        _call(apart)
        again = twin(**inputs)["out"] if apart else None
        return Merged(before, merged, again, self._line(merge), self._line(apart))

    def _line(self, methods: list[Callable[[], object]]) -> str:
        return self.line_of(rf"def {methods[0].__name__}\b") if methods else ""


def _methods(part: nn.Module, names: re.Pattern[str]) -> Iterator[Callable[[], object]]:
    """The methods of a part that are called so and need no argument."""
    for name, function in inspect.getmembers(type(part), inspect.isfunction):
        if not names.fullmatch(name) or function.__module__.startswith("torch."):
            continue
        if all(p.default is not p.empty for p in list(inspect.signature(function).parameters.values())[1:]):
            yield getattr(part, name)


def _call(methods: list[Callable[[], object]]) -> None:
    for method in methods:
        if method() is not None:
            raise NotProvided("merging gives another model")
