"""Terms that a part of a model computes, that are added to its loss, and that teach nothing: they have no gradient.

A number that a part hands out beside its result, without a gradient, is made larger. Where the loss grows with it and
no gradient of any parameter changes, it is a term that stands alone: what it measures is never made smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.loss_texts import Texts
from conformance.adapters.whole.losses import LossProbes, loss_candidates, partial_of
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

Loss = Callable[[Mapping[str, Any]], Tensor]


class VainTermProbes(LossProbes):
    """The experiment, of a running model."""

    def terms_in_vain(self) -> list[tuple[str, str]]:
        """(loss, path of the part) of each term without a gradient that a loss adds. Raises NotProvided where no part
        hands out a number that a loss could add."""
        found: list[tuple[str, str]] = []
        asked = False
        for name, function, method in loss_candidates(self):
            twin = self.twin()
            with suppress(Exception):  # it asks for what nothing here shows
                given = Texts(twin, False, False, 0, False).arguments(function, True)
                call = partial_of(function, twin.module, method)
                numbers = _Numbers(twin.module, call, given)
                with twin.mode(True), torch.enable_grad(), default_dtype(twin.torch_dtype):
                    numbers.run(given)
                    asked = asked or bool(numbers.handed)
                    found += [(name, path) for path in dict.fromkeys(numbers.handed) if numbers.in_vain(path)]
        if not asked:
            raise NotProvided("no part of it hands out a number beside its result")
        return found


class _Numbers:
    """A loss whose parts hand out numbers. handed: these numbers by the path of the part, in the last run."""

    def __init__(self, module: nn.Module, call: Callable[..., Any], given: Mapping[str, Any]) -> None:
        self.module, self.call, self.given = module, call, given
        self.handed: dict[str, list[Tensor]] = {}

    def run(self, given: Mapping[str, Any], more: str = "") -> Tensor | None:
        """The loss; the numbers of the part `more` without a gradient are larger by one."""
        self.handed = {}
        handles = [
            part.register_forward_hook(self._hook(path, path == more))
            for path, part in self.module.named_modules()
            if path and any(p.requires_grad for p in part.parameters())
        ]
        seed_torch(5)
        try:
            return loss_in(self.call(**given))
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, path: str, add: bool) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(_: nn.Module, __: Any, result: Any) -> Any:
            leaves = [one for one in tree_leaves(result) if isinstance(one, Tensor) and one.is_floating_point()]
            if not any(one.requires_grad and one.numel() > 1 for one in leaves):
                return None
            numbers = [one for one in leaves if one.dim() == 0]
            if numbers:
                self.handed[path] = numbers
            if not add:
                return None
            return tree_map(lambda one: one + 1 if isinstance(one, Tensor) and _is_loose(one) else one, result)

        return hook

    def in_vain(self, path: str) -> bool:
        """Whether the loss grows with the numbers of a part that have no gradient, and no gradient changes."""
        value = self.run(self.given)
        loose = [float(one) for one in self.handed[path] if _is_loose(one)]
        if value is None or not value.requires_grad or not loose:
            return False
        slopes = self._slopes(value)
        larger = self.run(self.given, path)
        if larger is None or float((larger - value).detach().abs()) <= 1e-9:
            return False
        again = self._slopes(larger)
        same = all(torch.allclose(one, other, rtol=1e-6, atol=1e-12) for one, other in zip(slopes, again, strict=True))
        self.run({name: _turned(one) for name, one in self.given.items()})
        return same and loose != [float(one) for one in self.handed.get(path, []) if _is_loose(one)]

    def _slopes(self, value: Tensor) -> list[Tensor]:
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        return [torch.zeros(()) if one is None else one for one in found]


def _is_loose(number: Tensor) -> bool:
    return number.is_floating_point() and number.dim() == 0 and not number.requires_grad


def _turned(value: Any) -> Any:
    """Texts with their words in the other order."""
    return value.flip(-1) if isinstance(value, Tensor) and value.dim() > 1 and not value.is_floating_point() else value
