"""Slow copies of weights: a target or momentum encoder that a method moves, and classes that keep an average.

They are moved once, with an original that differs. What they are then tells by how much they follow: one number for all
their weights, near to what is set, and above a half.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.used_functions import text_of
from conformance.protocol import NotProvided

_COPIES = re.compile(r"target|teacher|ema(_|$)|momentum|moving|key|slow|average|shadow|polyak|soft")
_MOVES = re.compile(r"update|step|move|sync|(^|_)ema$")
_CLASSES = re.compile(r"\w*(ema|exponential_?moving_?average|moving_?average|weight_?average|averaged_?model)\w*", re.I)
_DECAY = re.compile(r"(ema_?|target_?|teacher_?|base_?|momentum_?)*(decay|momentum|beta|m|alpha|rate|tau)")
_SLOW = re.compile(r"(ema|target|teacher|shadow|slow|averaged?|momentum)(_?(model|net|network|module|encoder|copy))?")
_UPDATES = re.compile(r"_?(update|step)(_\w+)?|__call__")
_VARIES = re.compile(r"warm|num_updates|n_?updates|cos\(|min\(|max\(|step\b|bias_correct|progress", re.I)
"""Words of code whose decay is another one from step to step."""
DECAY = 0.9
_WARM = 100
"""So many updates with weights that stay go before, where the first ones keep less: (1 + n) / (10 + n)."""


@dataclass(frozen=True)
class Followed:
    """What one update does. name, place: of it. keeps: which part of a slow weight stays; None where it is not one for
    all. asked: which part was set to stay; None where the code varies it, or nothing tells it. turned: it is the
    learner that moved. left: a slow weight that did not move."""

    name: str
    place: str
    keeps: float | None
    asked: float | None
    turned: bool = False
    left: str = ""


class FollowerProbes(RunningModel):
    """The experiments with slow copies, of a running model."""

    def followers(self) -> list[Followed]:
        """One for each method of the model that moves a slow copy, and each class of its file that keeps an average.
        Raises NotProvided where there is none."""
        if "followers" not in self.known:
            self.known["followers"] = [*_of_methods(self), *_of_classes(self)]
        found: list[Followed] = self.known["followers"]
        if not found:
            raise NotProvided("nothing of its moves a slow copy of weights")
        return found


def _of_methods(subject: RunningModel) -> Iterator[Followed]:
    for name, function in inspect.getmembers(type(subject.module), inspect.isfunction):
        if function.__module__.startswith("torch.") or not _moves_a_copy(name.lower()):
            continue
        with suppress(Exception):  # it asks for what nothing here shows
            module = subject.twin().module
            before = _weights(module)
            given, asked = _given(function, copy=_other(subject))
            if copies := [one for one in given.values() if isinstance(one, nn.Module)]:
                yield _of_a_copy(module, copies[0], name, function, given, asked)
                continue
            getattr(module, name)(**given)
            after = _weights(module)
            moved = {n for n in before if not torch.equal(before[n], after[n])}
            trained = {n for n, p in module.named_parameters() if p.requires_grad}
            pairs = list(_pairs(moved, set(before) - moved, before))
            if asked is None:
                asked = _kept_by(module, function)
            keeps = _share([(before[slow], before[fast], after[slow]) for slow, fast in pairs])
            turned = bool(moved) and moved <= trained and not any(fast in trained for _, fast in pairs)
            if pairs:
                yield Followed(name, _line(function), keeps, asked, turned, _left(moved, before, trained))


def _other(subject: RunningModel) -> nn.Module:
    """A copy of the model with other weights."""
    copy = subject.twin().module
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.add_(torch.randn_like(parameter))
    return copy


def _of_a_copy(
    module: nn.Module, copy: nn.Module, name: str, function: FunctionType, given: dict[str, Any], asked: float | None
) -> Followed:
    """What a method does that is handed the slow copy of the whole model. Raises NotProvided where nothing moves."""
    slow, fast = _weights(copy), _weights(module)
    getattr(module, name)(**given)
    after, turned = _weights(copy), _weights(module)
    if all(torch.equal(slow[n], after[n]) for n in slow):
        learner_moves = any(not torch.equal(fast[n], turned[n]) for n in fast)
        if not learner_moves:
            raise NotProvided("nothing moves")
        return Followed(
            name, _line(function), _share([(fast[n], slow[n], turned[n]) for n in fast]), asked, turned=True
        )
    return Followed(name, _line(function), _share([(slow[n], fast[n], after[n]) for n in slow]), asked)


def _moves_a_copy(name: str) -> bool:
    return _COPIES.search(name) is not None and _MOVES.search(name) is not None


def _of_classes(subject: RunningModel) -> Iterator[Followed]:
    own = type(subject.module).__module__
    for name, cls in vars(sys.modules.get(own, object())).items():
        if not (isinstance(cls, type) and cls.__module__ == own and _CLASSES.fullmatch(name)):
            continue
        updates = [(n, f) for n, f in inspect.getmembers(cls, inspect.isfunction) if _UPDATES.fullmatch(n)]
        for update, function in updates[:1]:
            with suppress(Exception):
                module = subject.twin().module
                given, asked = _given(cls.__init__, module)  # type: ignore[misc]
                keeper, source = cls(**given), text_of(function) + text_of(cls.__init__)  # type: ignore[misc]
                moved = [module] if len(inspect.signature(function).parameters) > 1 else []
                for _ in range(_WARM if _VARIES.search(source) else 0):
                    getattr(keeper, update)(*moved)
                old = _weights(module)
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter.add_(torch.randn_like(parameter))
                new = _weights(module)
                getattr(keeper, update)(*moved)
                held = _held(keeper, new)
                triples = [(old[n], new[n], held[n]) for n in held if not torch.equal(old[n], new[n])]
                if len(triples) > 1:
                    asked = None if _VARIES.search(source) else asked
                    yield Followed(f"{name}.{update}", _line(function), _share(triples), asked)


def _weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters() if p.is_floating_point()}


def _given(
    function: FunctionType, module: nn.Module | None = None, copy: nn.Module | None = None
) -> tuple[dict[str, Any], float | None]:
    """Arguments by their names, and the part that is asked to stay; None where none is told. copy: is handed to a
    parameter whose name says that it is a slow copy. Raises NotProvided."""
    given: dict[str, Any] = {}
    asked: float | None = None
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        name = parameter.name.lower()
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if _DECAY.fullmatch(name):
            given[parameter.name] = 1 - DECAY if "tau" in name else DECAY
            asked = DECAY
        elif module is not None and re.fullmatch(r"\w*(model|net|module|parameters|params)", name):
            given[parameter.name] = list(module.parameters()) if "param" in name else module
        elif copy is not None and _SLOW.fullmatch(name):
            given[parameter.name] = copy
        elif parameter.default is parameter.empty:
            raise NotProvided(f"{parameter.name} means nothing here")
    return given, None if _VARIES.search(text_of(function)) else asked


def _kept_by(module: nn.Module, function: FunctionType) -> float | None:
    """The part that an attribute which its code reads says shall stay; None where the code varies it."""
    source = text_of(function)
    if _VARIES.search(source):
        return None
    for name in re.findall(r"\bself\.(\w+)", source):
        value = getattr(module, name, None)
        if type(value) is float and 0 < value < 1 and _DECAY.fullmatch(name.lower()):
            return 1 - value if "tau" in name.lower() else value
    return None


def _pairs(slow: set[str], fast: set[str], weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Each slow weight with the one that it follows: of its shape, and of the longest common end of their names."""
    for name in sorted(slow):
        ends = name.split(".")[1:]
        alike = [n for n in fast if n.split(".")[1:] == ends and weights[n].shape == weights[name].shape]
        if ends and len(alike) == 1 and not torch.equal(weights[name], weights[alike[0]]):
            yield name, alike[0]


def _left(moved: set[str], before: Mapping[str, Tensor], trained: set[str]) -> str:
    """A weight of a slow copy that stays where the others of its copy move; "" without one."""
    copies = {name.partition(".")[0] for name in moved}
    return next((n for n in before if n.partition(".")[0] in copies and n not in moved | trained), "")


def _share(triples: list[tuple[Tensor, Tensor, Tensor]]) -> float | None:
    """m where every slow weight became m * itself + (1 - m) * the other; None where no number does it for all."""
    away = torch.cat([(old - new).flatten() for old, new, _ in triples]).double()
    got = torch.cat([(now - new).flatten() for _, new, now in triples]).double()
    keeps = float(away @ got / (away @ away).clamp(min=1e-30))
    return keeps if bool((got - keeps * away).abs().max() <= 1e-4 * away.abs().max()) else None


def _held(keeper: Any, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that an object keeps, by the names that they have in the model."""
    for value in vars(keeper).values():
        if isinstance(value, nn.Module):
            value = {n.removeprefix("module."): p for n, p in value.named_parameters()}
        if isinstance(value, (list, tuple)) and len(value) == len(like):
            value = dict(zip(like, value, strict=True))
        if isinstance(value, Mapping) and len(names := value.keys() & like.keys()) > 1:
            return {n: value[n].detach() for n in like if n in names}
    return {}


def _line(function: FunctionType) -> str:
    """file:line of the mixture in its text; else of its first line."""
    function = inspect.unwrap(function)
    start, lines = function.__code__.co_firstlineno, text_of(function).splitlines()
    found = (n for n, line in enumerate(lines) if re.search(r"\.lerp_?\(|\.mul_?\(|copy_\(|\*", line.partition("#")[0]))
    return f"{function.__code__.co_filename}:{start + next(found, 0)}"
