"""What follows the trained weights and is no copy of them: a part that began with random numbers of its own, and
trained weights that were overwritten by their own average."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from conformance.watch.events import Averaged
from conformance.watch.record import Copy
from conformance.watch.updates import parameters_of
from conformance.watch.watcher import Watcher

MOST, SMALLEST, MEASURED = 4, 256, 6
"""So many matrices are measured, of so many numbers at least, in so many steps: independent ones are far from alike."""


class Followers:
    """last: the values of each stranger at the last step. begun: the optimizers that have stepped."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.last: dict[int, Tensor] = {}
        self.begun: set[int] = set()

    def look(self, optimizer: Optimizer) -> None:
        """What has happened since the last step, before this one."""
        stepped = {self.watcher.parameter(p): p for p in parameters_of(optimizer)}
        if self.watcher.run.steps == 0:
            self._begin(stepped)
        elif self.watcher.run.steps <= MEASURED:
            for number in self.last:
                self._follow(number, stepped)
        if id(optimizer) in self.begun:
            self._averaged(stepped)
        self.begun.add(id(optimizer))

    def _begin(self, stepped: dict[int, Tensor]) -> None:
        """Find the matrices of the model that no optimizer steps and that are no copies, and lie beside some of their
        shape."""
        run, shapes = self.watcher.run, {p.shape for p in stepped.values()}
        for number, one in self.watcher.parameters.items():
            is_one = isinstance(one, Tensor) and one.dim() >= 2 and one.numel() >= SMALLEST and one.shape in shapes
            is_free = number not in stepped and number not in run.copies and run.parameters[number].in_model
            if is_one and is_free and len(self.last) < MOST:
                self.last[number] = one.detach().clone()

    def _follow(self, number: int, stepped: dict[int, Tensor]) -> None:
        """Measure how far a matrix went towards one that is stepped."""
        now, was = self.watcher.parameters[number].detach(), self.last[number]
        went = (now - was).double().flatten()
        if float(went.norm()) == 0:
            return
        known = self.watcher.run.strangers.get(number)
        numbers = [known.of] if known else [n for n, p in stepped.items() if p.shape == now.shape]
        for of in numbers:
            to = (stepped[of].detach() - was).double().flatten() if of in stepped else went.new_zeros(1)
            if to.shape == went.shape and float(torch.nn.functional.cosine_similarity(went, to, dim=0)) > 0.999:
                likeness = float(torch.nn.functional.cosine_similarity(was.flatten(), stepped[of].flatten(), dim=0))
                stranger = self.watcher.run.strangers.setdefault(number, Copy(of, likeness=likeness))
                stranger.kept.append(1 - float(went.norm() / to.norm()))
        self.last[number] = now.clone()

    def _averaged(self, stepped: dict[int, Tensor]) -> None:
        """Whether the weights are their own slow average, all that are known, bit by bit."""
        run = self.watcher.run
        slow = {n: one.of for n, one in run.copies.items() if one.of in stepped and is_slow(one)}
        pairs = [(self.watcher.parameters[n], stepped[of]) for n, of in slow.items()]
        if pairs and all(torch.equal(average.detach(), weight.detach()) for average, weight in pairs):
            self.watcher.add(Averaged(of=next(iter(slow.values()))))


def is_slow(copy: Copy) -> bool:
    """Whether a copy has followed in each of the first steps, and kept a part of itself."""
    return len(copy.kept) >= 4 and all(0.05 < share < 0.999999 for share in copy.kept[1:4])
