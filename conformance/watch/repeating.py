"""A call of the model that can be made again when watching is over (`Call`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from conformance.watch.tensors import tensors


@dataclass
class Call:
    """A call of an outermost module. learned: the tokens whose next ones were its labels, where that was seen; asked:
    those that were its labels themselves."""

    number: int
    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    learned: Tensor | None = field(default=None)
    asked: Tensor | None = field(default=None)

    def given(self) -> list[Tensor]:
        return list(tensors((self.arguments, dict(self.keywords)), 3))

    def answers(self, old: Tensor | None = None, new: Tensor | None = None) -> list[Tensor]:
        """The tensors of numbers that it gives, with `new` in the place of the input `old`. What it draws is the same
        each time."""
        return self.answers_with((lambda x: new if x is old else x) if old is not None else (lambda x: x))

    def answers_with(self, change: Callable[[Tensor], Tensor | None], seed: int = 0) -> list[Tensor]:
        """The same with each input as `change` gives it. seed: what it draws begins there."""
        torch.manual_seed(seed)
        result = self.module(*_mapped(self.arguments, change), **_mapped(dict(self.keywords), change))
        return [tensor for tensor in tensors(result, 3) if tensor.is_floating_point() and tensor.dim() >= 2]

    def look_into(
        self, parts: Iterable[nn.Module], look: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
    ) -> None:
        """Call it once more; `look` is shown each of the parts that runs, with its arguments and keywords."""
        hooks = [part.register_forward_pre_hook(look, with_kwargs=True) for part in parts]
        try:
            self.answers()
        finally:
            for hook in hooks:
                hook.remove()


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, change) for item in value)
    return value
