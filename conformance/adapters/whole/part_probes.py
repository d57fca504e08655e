"""Which parts of a model run, which the user's files use elsewhere, and which are about positions."""

from __future__ import annotations

import re
import sys

import torch
from torch import nn

from conformance.adapters.whole.class_source import chosen_by_arguments
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.usage import surroundings

_POSITIONS = re.compile(
    r"pos(?!ition_?wise|_?wise|_?ff|itive|t|e)|(?<![a-z])pe(?![a-z])|rope|rotary|freqs|inv_freq|(?<![a-z])(cos|sin)|alibi|slopes|relative"
)

_MODEL = r"(model|net|former)"
"""What other files call a model."""


class PartProbes(RunningModel):
    """The parts, of a running model."""

    def called_paths(self) -> list[str]:
        """The paths of the parts that run, in the order in which they are called."""
        called: list[str] = []
        hooks = [
            part.register_forward_pre_hook(lambda *_, path=path: called.append(path))
            for path, part in self.module.named_modules()
        ]
        try:
            with self.mode(False), torch.no_grad():
                self.run(self.example())
        finally:
            for hook in hooks:
                hook.remove()
        return called

    def stands_in_what_runs(self, path: str) -> bool:
        """Whether the part around this one runs: the model itself, or one that is no list of parts."""
        around = path.rpartition(".")[0]
        while isinstance(self.module.get_submodule(around), (nn.ModuleList, nn.ModuleDict)):
            around = around.rpartition(".")[0]
        return not around or around in self.called_paths()

    def is_used_elsewhere(self, name: str) -> bool:
        """Whether the user's file, or another of a model, calls a part of it outside of its forward: a head that the
        loss applies."""
        module = sys.modules.get(type(self.module).__module__)
        if not name or module is None:
            return False
        around, called = surroundings(module), re.compile(rf"{_MODEL}\.{name}\(")
        here = re.search(rf"(?<!self)\.{name}\(", around.own.text)
        return bool(here) or any(name in source.text and called.search(source.text) for source in around.sources)

    def is_handed_on(self, path: str) -> bool:
        """Whether a file of the repository hands a part to something else: `loss_of(model.generator, ...)`. What lies
        deeper than the model's own parts is its owner's to use."""
        module = sys.modules.get(type(self.module).__module__)
        if not path or "." in path or module is None:
            return False
        handed = re.compile(rf"[(,=]\s*[\w.]*{_MODEL}\.{path}\s*[,)]")
        return any(path in source.text and handed.search(source.text) for source in surroundings(module).sources)

    def is_of_a_choice(self, path: str) -> bool:
        """Whether the part at a path is one of several in an nn.ModuleDict of which an argument chooses."""
        owner = path.rpartition(".")[0]
        holder, _, name = owner.rpartition(".")
        around: type = type(self.module.get_submodule(holder))
        return isinstance(self.module.get_submodule(owner), nn.ModuleDict) and name in chosen_by_arguments(around)

    def position_parts(self) -> list[str]:
        """The paths of what is called after positions: parameters, buffers and parts."""
        stored = [n for n, _ in (*self.module.named_parameters(), *self.module.named_buffers())]
        parts = [
            path
            for path, part in self.module.named_modules()
            if path and _POSITIONS.search(type(part).__name__.lower())
        ]
        return [*parts, *(name for name in stored if _POSITIONS.search(name.lower()))]
