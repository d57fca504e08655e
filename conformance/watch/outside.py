"""Parameters that a loss is learned through, and that no optimizer holds: `Outside`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from conformance.watch.updates import parameters_of
from conformance.watch.watcher import Watcher

LARGEST = 2**22
"""So many numbers of such parameters are kept at most, to see whether anything else changes them."""


class Outside:
    """given: the optimizers that were made. found: the parameters that had a gradient and were not stepped, by number,
    with their values then. loaded: the parameters that state was loaded into, which may be that of another run. random:
    what modules gave as their state before any optimizer stepped and any state was loaded."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.given: list[Optimizer] = []
        self.found: dict[int, Tensor] = {}
        self.loaded, self.random = WeakIdKeyDictionary(), WeakIdKeyDictionary()
        self.room = LARGEST
        self.steps = False
        watcher.around(nn.Module, "load_state_dict", self.load)
        watcher.around(nn.Module, "state_dict", self.give)
        watcher.endings.append(self.finish)

    def give(self, original: Any, module: nn.Module, *rest: Any, **keywords: Any) -> Any:
        result = original(module, *rest, **keywords)
        with self.watcher.looking():
            if not self.steps and not any(one in self.loaded for one in module.parameters()):
                self.random.update((one, True) for one in result.values() if isinstance(one, Tensor))
        return result

    def load(self, original: Any, module: nn.Module, *rest: Any, **keywords: Any) -> Any:
        result = original(module, *rest, **keywords)
        with self.watcher.looking():
            state = keywords["state_dict"] if "state_dict" in keywords else rest[0]
            if not all(one in self.random for one in state.values() if isinstance(one, Tensor)):
                self.loaded.update((one, True) for one in module.parameters())
        return result

    def look(self, optimizer: Optimizer) -> None:
        """Before a step: which parameters of modules have a gradient that it does not use."""
        self.steps = True
        mine = {id(parameter) for parameter in parameters_of(optimizer)}
        known = self.watcher.run.parameters
        partly_frozen = {known[n].module for n, one in self.watcher.parameters.items() if not one.requires_grad}
        for number, parameter in self.watcher.parameters.items():
            if number in self.found or id(parameter) in mine or not isinstance(parameter, nn.Parameter):
                continue
            if parameter in self.loaded and known[number].module not in partly_frozen:
                continue  # who freezes what shall rest wants the rest to learn
            if (
                known[number].in_model
                and parameter.grad is not None
                and parameter.grad.any()
                and self.room >= parameter.numel()
            ):
                self.room -= parameter.numel()
                self.found[number] = parameter.detach().clone()

    def finish(self) -> None:
        """Those that stayed as they were, also by what was loaded since, are trainable to the end, and are in no
        optimizer at all; and those that rested first, are trainable at the end, and are in none either."""
        held = {id(one) for optimizer in self.given for one in parameters_of(optimizer)}
        for number, now in self.watcher.parameters.items() if held else ():
            first = self.watcher.run.parameters[number]
            if first.in_model and not first.needs and now.requires_grad and id(now) not in held:
                self.watcher.run.outside.add(number)
        for number, before in self.found.items():
            now = self.watcher.parameters[number]
            if id(now) not in held and now.requires_grad and torch.equal(now.detach(), before):
                self.watcher.run.outside.add(number)
