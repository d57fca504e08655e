"""What a run keeps beside the parameters that its optimizer steps: copies that follow them, and state that stays.

A copy is a matrix that begins with the values of one that the optimizer steps, or near them where a run goes on: a
momentum encoder, a teacher, a moving average. It is measured from step to step how much of itself it keeps.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from conformance.watch.followers import is_slow
from conformance.watch.record import Copy
from conformance.watch.tensors import tensors
from conformance.watch.updates import parameters_of
from conformance.watch.watcher import Watcher

MEASURED, LARGEST, SOME = 12, 2**24, 4
"""In so many steps copies are measured; so many numbers are kept for it at most. So many copies are compared with what
they follow in each evaluation."""


class Copies:
    """starts: what is no optimizer's, by name, with its values at the first step. last: the values of each copy at the
    last step. own: a stepped matrix by number, and what the last step made of it. until: the last step of the run after
    which they are measured."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.starts: dict[str, tuple[Tensor, Tensor]] = {}
        self.last: dict[int, Tensor] = {}
        self.own: tuple[int, Tensor | None] = (-1, None)
        self.until = 0
        watcher.around(nn.Module, "load_state_dict", self.load)
        watcher.around(torch, "save", self.save)
        watcher.on_close(nn.modules.module.register_module_forward_pre_hook(self.call).remove)
        gc.freeze()  # what is there before the script begins is none of its own, and is not looked through
        watcher.endings += [self.finish, gc.unfreeze]

    def begin(self, optimizer: Optimizer) -> None:
        """Find the copies, before the first step of an optimizer; of a later one those that nothing trains."""
        watcher, room = self.watcher, LARGEST
        is_later, self.until = self.until > 0, watcher.run.steps + MEASURED
        stepped = {watcher.parameter(p): p for p in parameters_of(optimizer) if _tells(p)}
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, parameter in stepped.items():
            alike[_key(parameter)].append(number)
        for number, parameter in watcher.parameters.items():
            if number in stepped or not isinstance(parameter, Tensor) or not _tells(parameter):
                continue
            if is_later and (parameter.requires_grad or number in watcher.run.copies):
                continue
            of = next((n for n in alike[_key(parameter)] if torch.equal(stepped[n], parameter)), None)
            of = _rounded(parameter, stepped) if of is None else of
            room -= parameter.numel()
            if of is not None and parameter.data_ptr() != stepped[of].data_ptr() and room > 0:
                self._found(parameter, of)
        shapes = {one.shape for one in stepped.values()}
        known = {id(one) for one in watcher.parameters.values()}
        for tensor in _elsewhere(shapes, known):
            if is_later and tensor.requires_grad:
                continue
            of = next((n for n in alike.get(_key(tensor), ()) if torch.equal(stepped[n], tensor)), None)
            of = _nearest(tensor, stepped) if of is None and room > 0 else of
            room -= tensor.numel()
            if of is not None and room > 0:
                watcher.parameter(tensor, f"a copy of {watcher.run.parameters[of].name}")
                self._found(tensor, of, tensor.data_ptr() == stepped[of].data_ptr())
        for module in watcher.modules.values():
            frozen = ((name, p) for name, p in module.named_parameters() if not p.requires_grad)
            for name, one in [*module.named_buffers(), *frozen]:
                room -= one.numel()
                if room > 0:
                    self.starts.setdefault(name, (one, one.detach().clone()))
        if not is_later:
            self.own = next(((n, p.detach().clone()) for n, p in stepped.items() if p.numel() <= LARGEST), (-1, None))

    def _found(self, tensor: Tensor, of: int, is_alias: bool = False) -> None:
        number = self.watcher.parameter(tensor)
        copies = self.watcher.run.aliases if is_alias else self.watcher.run.copies
        copies[number] = Copy(of)
        self.last[number] = tensor.detach().clone()

    def look(self) -> None:
        """Measure what share of itself each copy has kept since the last step."""
        watcher = self.watcher
        if watcher.run.steps > self.until:
            return
        for number, copy in watcher.run.copies.items():
            now, of = watcher.parameters[number].detach(), watcher.parameters[copy.of].detach()
            was, far = (self.last[number] - of).double(), (now - of).double()
            size = float((was * was).sum())
            is_apart = size > ROUNDING * float((of.double() * of.double()).sum())
            share = float((was * far).sum()) / size if is_apart else 1.0
            if is_apart and float((far - share * was).norm()) < 0.05 * size**0.5:
                copy.kept.append(share)
            self.last[number] = now.clone()
        for number, alias in watcher.run.aliases.items():
            now, was = watcher.parameters[alias.of].detach().double(), self.last[number].double()
            alias.kept.append(_share(now, was))
        own, before = self.own
        if before is not None and watcher.run.steps:
            watcher.run.kept.append(_share(watcher.parameters[own].detach().double(), before.double()))

    def stepped(self) -> None:
        """Keep what a step made of matrices that something else shares, to see whether that stays."""
        watcher = self.watcher
        for number, alias in watcher.run.aliases.items() if watcher.run.steps <= self.until else ():
            self.last[number] = watcher.parameters[alias.of].detach().clone()
        if self.own[1] is not None and watcher.run.steps <= self.until:
            self.own = (self.own[0], watcher.parameters[self.own[0]].detach().clone())

    # --- who asks a copy --------------------------------------------------------------------------

    def load(self, original: Any, module: nn.Module, state: Mapping[str, Any], *rest: Any, **keywords: Any) -> Any:
        with self.watcher.looking():
            self._asked(state)
        return original(module, state, *rest, **keywords)

    def save(self, original: Any, saved: Any, *rest: Any, **keywords: Any) -> Any:
        with self.watcher.looking():
            self._asked(saved)
        return original(saved, *rest, **keywords)

    def _asked(self, given: Any) -> None:
        """Write down which copies are among what is given."""
        run = self.watcher.run
        if run.copies:
            places = {one.data_ptr() for one in tensors(given, 4)}
            run.asked |= {n for n in run.copies if self.watcher.parameters[n].data_ptr() in places}

    def call(self, module: nn.Module, _: Any) -> None:
        """An evaluation asks a copy where the weights of the model are those of the copy."""
        watcher, copies = self.watcher, self.watcher.run.copies
        if not copies or torch.is_grad_enabled() or watcher.is_blind() or watcher.known("module", module) < 0:
            return
        with watcher.looking():
            self._asked([*module.parameters()])
            self._compare()

    def _compare(self) -> None:
        """Write down which copies the trained weights are equal to."""
        run, known = self.watcher.run, self.watcher.parameters
        for number, copy in [*run.copies.items()][:SOME]:
            if number not in run.asked and torch.equal(known[number].detach(), known[copy.of].detach()):
                run.asked.add(number)

    def finish(self) -> None:
        """Which of it all has changed."""
        self._compare()
        self.watcher.run.still |= {name for name, (one, value) in self.starts.items() if torch.equal(one, value)}
        slow = {number for number, copy in self.watcher.run.copies.items() if is_slow(copy)}
        for number, module in self.watcher.modules.items():
            numbers = {self.watcher.known("parameter", one) for one in module.parameters()}
            norms = [part for part in module.modules() if isinstance(part, _NORMS) and part.running_mean is not None]
            if norms and numbers & slow and not any(map(_has_learned, norms)):
                self.watcher.run.without_statistics.append(number)


_NORMS = (nn.modules.batchnorm._BatchNorm,)


def _has_learned(norm: Any) -> bool:
    """Whether a norm over the batch has other statistics than those that it was made with."""
    return bool(norm.running_mean.any()) or bool((norm.running_var != 1).any())


ROUNDING = 1e-12
"""Of its square, so far a copy is from what it follows by rounding alone."""

NEAR, SMALLEST = 0.7, 64
"""An average that goes on from a checkpoint is so near to what it follows, by the cosine; of matrices with so many
numbers, others are far."""


def _nearest(tensor: Tensor, stepped: dict[int, Tensor]) -> int | None:
    """The stepped matrix that another one is near to, by the cosine of their directions; None where there is none."""
    if tensor.numel() < SMALLEST or not tensor.is_floating_point():
        return None
    alike = {n: one.detach().double().flatten() for n, one in stepped.items() if one.shape == tensor.shape}
    own = tensor.detach().double().flatten()
    close = {n: float(torch.nn.functional.cosine_similarity(own, one, dim=0)) for n, one in alike.items()}
    best = max(close, key=lambda n: close[n], default=None)
    return best if best is not None and close[best] > NEAR else None


def _elsewhere(shapes: set[torch.Size], known: set[int]) -> list[Tensor]:
    """The matrices of some shapes that the script keeps anywhere else, as an average of weights does in a dictionary of
    its own."""
    found = [one for one in gc.get_objects() if type(one) in (Tensor, nn.Parameter) and id(one) not in known]
    return [one for one in found if one.shape in shapes and one.grad_fn is None and not one.is_sparse and _tells(one)]


def _rounded(tensor: Tensor, stepped: dict[int, Tensor]) -> int | None:
    """The stepped matrix whose values another one has but for rounding, as an average of equal values has."""
    alike = (n for n, one in stepped.items() if one.shape == tensor.shape and one.dtype == tensor.dtype)
    return next((n for n in alike if torch.allclose(stepped[n], tensor, rtol=1e-5, atol=1e-8)), None)


def _share(now: Tensor, was: Tensor) -> float:
    """By what a matrix was multiplied; 1 where it was changed in another way."""
    share = float((was * now).sum() / (was * was).sum().clamp(min=1e-30))
    return share if torch.allclose(now, share * was, rtol=1e-5, atol=1e-9) else 1.0


def _tells(parameter: Tensor) -> bool:
    """Whether the values of a matrix are its own: no constant."""
    return parameter.dim() >= 2 and parameter.numel() > 1 and bool(parameter.min() < parameter.max())


def _key(parameter: Tensor) -> tuple[object, ...]:
    return tuple(parameter.shape), parameter.dtype, float(parameter.detach().double().sum())
