"""What the taps on modules of every library share: who an outermost module is, and how its call is recorded."""

from __future__ import annotations

import re
from typing import Any
from weakref import WeakSet

from conformance.places import line_of
from conformance.watch.events import Forward
from conformance.watch.watcher import Watcher, evaluating

_TEACHER = re.compile(r"(\w+_)?(teacher|reference|ref_model)(_\w+)?", re.IGNORECASE)


class Calls:
    """The base of a library's taps. drops: of each outermost module, the parts that are random in training, by path;
    norms: those that learn statistics then; teachers: those that are named so. ran: the modules that ran.
    outer: the outermost module of the last call, with its number."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.drops: dict[int, list[tuple[str, Any]]] = {}
        self.norms: dict[int, list[tuple[str, Any]]] = {}
        self.teachers: dict[int, list[tuple[str, Any]]] = {}
        self.ran: WeakSet[Any] = WeakSet()
        self.outer: tuple[int, Any] | None = None

    def probability(self, part: Any) -> float | None:
        """How often a part drops in training; None when it is none that could."""
        raise NotImplementedError

    def is_norm(self, part: Any) -> bool:
        """Whether a part learns statistics in training."""
        raise NotImplementedError

    def known(self, module: Any) -> int:
        """The number of an outermost module. The first time its parameters get their names."""
        watcher = self.watcher
        number = watcher.number("module", module)
        if number not in self.drops:
            watcher.look_closely()
            watcher.modules[number] = module
            watcher.run.modules[number] = (type(module).__name__, line_of(type(module).forward))
            self._know(number, module)
        self.outer = (number, module)
        return number

    def _know(self, number: int, module: Any) -> None:
        """Write down the parts of an outermost module, and the names of its parameters."""
        watcher = self.watcher
        parts = list(module.named_modules())
        if next(iter(module.parameters()), None) is not None:
            watcher.run.earlier += [watcher.run.parts[number]] if number in watcher.run.parts else []
            watcher.run.parts[number] = {path: type(part) for path, part in parts}
        self.drops[number] = [(path, part) for path, part in parts if self.probability(part) is not None]
        self.teachers[number] = [(path, part) for path, part in parts if _TEACHER.fullmatch(path.split(".")[-1])]
        self.norms[number] = [(path, part) for path, part in parts if self.is_norm(part)]
        for path, part in parts:
            for name, parameter in part.named_parameters(recurse=False):
                one = watcher.parameter(parameter, f"{path}.{name}".lstrip("."), type(part).__name__)
                watcher.run.parameters[one].in_model, watcher.run.parameters[one].module = True, number

    def own(self, number: int, module: Any) -> None:
        """A module is set to train. Its own parameters are those of a model, also where only its parts are called."""
        for name, parameter in module.named_parameters(recurse=False):
            one = self.watcher.run.parameters[self.watcher.parameter(parameter, name, type(module).__name__)]
            if not one.in_model:
                one.in_model, one.module = True, number

    def begun(self, module: Any, gradients: bool, **more: Any) -> None:
        """Record a call of an outermost module. more: the fields of the record that the library knows."""
        number = self.known(module)
        random = [(path, part) for path, part in self.drops[number] if self.probability(part)]
        self.watcher.last_forward = self.watcher.add(
            Forward(
                module=number,
                training=module.training,
                random=tuple(path for path, part in random if part.training),
                resting=tuple(path for path, part in random if not part.training and not self._is_taught(number, path)),
                normed=tuple(path for path, part in self.norms[number] if part.training),
                learned=tuple(path for path, part in self.norms[number] if part.training and _is_frozen(part)),
                frozen=_is_frozen(module),
                taught=tuple(path for path, part in random if part.training and self._is_taught(number, path)),
                gradients=gradients,
                evaluating=evaluating(),
                **more,
            )
        )

    def _is_taught(self, number: int, path: str) -> bool:
        """Whether a part of a module stands in a frozen part that is named a teacher."""
        return any(path.startswith(f"{name}.") and _is_frozen(part) for name, part in self.teachers[number])

    def use(self, module: Any) -> None:
        """A module runs, and with it its own parameters. One that was put into a known module later is written down."""
        if module not in self.ran:
            self.ran.add(module)
            known = self.watcher.run.parameters
            numbers = [self.watcher.known("parameter", p) for p in module.parameters(recurse=False)]
            is_new = any(n not in known or not known[n].in_model for n in numbers)
            if is_new and self.outer is not None and self.watcher.depth > 1:
                self.watcher.look_closely()
                self._know(*self.outer)
            for parameter in module.parameters(recurse=False):
                self.watcher.run.parameters[self.watcher.parameter(parameter)].used = True


def _is_frozen(module: Any) -> bool:
    """Whether a module has parameters, and none is trained."""
    has_some = False
    for parameter in module.parameters():
        if parameter.requires_grad:
            return False
        has_some = True
    return has_some
