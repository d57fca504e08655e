"""What a script sets up and nothing reads, looked for when watching ends: rates beside the optimizer's groups, tensors
and parts that a model holds and PyTorch does not know, parameters that stay frozen, flags that freeze nothing."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from conformance.watch.details import Loose
from conformance.watch.watcher import Watcher

FLAG = "requires_grad"


def overlooked(watcher: Watcher, given: dict[int, float]) -> None:
    """Add what is overlooked to the run. given: the rate that each optimizer was made with, by its number."""
    run = watcher.run
    run.given_rates = given
    for number in run.optimizers:
        optimizer = watcher.thing("optimizer", number)
        if isinstance(optimizer, Optimizer) and type(optimizer).__module__.startswith("torch."):
            found = _unread_rate(optimizer, given.get(number))
            if found:
                run.unread_rates[number] = found
    for number, parameter in watcher.parameters.items():
        if isinstance(parameter, Tensor) and not parameter.requires_grad:
            run.frozen.add(number)
        if isinstance(parameter, Tensor):
            names = [name for name in vars(parameter) if not name.startswith("_")]
            run.misspelt |= {name for name in names if get_close_matches(name, [FLAG], cutoff=0.85)}
    for module in watcher.modules.values():
        if isinstance(module, nn.Module):
            run.loose += _loose(watcher, module)
            run.flagged += _flagged(module)


def _unread_rate(optimizer: Optimizer, given: float | None) -> str:
    """What of an optimizer of torch was set though it reads its rate from its groups only, which are as they were."""
    rates = {float(group["lr"]) for group in optimizer.param_groups if "lr" in group}
    if given is None or rates != {given}:
        return ""
    if optimizer.defaults.get("lr", given) != given:
        return "defaults"
    for name in ("lr", "learning_rate"):
        if isinstance(vars(optimizer).get(name), float):
            return name
        if any(isinstance(group.get(name), float) for group in optimizer.param_groups) and name != "lr":
            return name
    return ""


def _loose(watcher: Watcher, module: nn.Module) -> Iterator[Loose]:
    """What the parts of a module hold beside parameters, buffers and parts."""
    known = {id(parameter) for parameter in module.parameters()}
    stepped = {n for group in watcher.run.optimizers.values() for n in group.parameters}
    for part in module.modules():
        for name, value in vars(part).items():
            if type(value) is Tensor and value.is_floating_point() and value.dim() and value.numel() > 1:
                yield Loose(type(part), name, bool(value.requires_grad))
            for one in _parts(value):
                own = [p for p in one.parameters() if p.requires_grad and id(p) not in known]
                numbers = {watcher.number("parameter", p) for p in own}
                if own and not numbers & stepped and any(_ran(watcher, n) for n in numbers):
                    yield Loose(type(part), name, True, is_list=True)
                    break


def _flagged(module: nn.Module) -> Iterator[str]:
    """The parts whose attribute `requires_grad` says otherwise than all their parameters: a module has no such flag."""
    for path, part in module.named_modules():
        flag, own = vars(part).get("requires_grad"), [*part.parameters()]
        if isinstance(flag, bool) and own and all(p.requires_grad is not flag for p in own):
            yield path


def _parts(value: Any) -> Iterator[nn.Module]:
    """The modules in a plain list, tuple or dictionary."""
    held = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return (one for one in held if isinstance(one, nn.Module))


def _ran(watcher: Watcher, number: int) -> bool:
    known = watcher.run.parameters.get(number)
    return known is not None and known.used
