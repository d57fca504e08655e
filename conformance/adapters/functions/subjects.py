"""What the roles of functions share: what was found of one (`Served`), its subject, and the text around it."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.inference.facts import Fact
from conformance.adapters.torch_subject import TorchSubject
from conformance.places import line_of

Compute = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Served:
    """A function in one role.

    make: of the settings, what computes the role's outputs from (training, **inputs as tensors); it raises NotProvided
    for settings that the function has not. facts: its conventions. fits: whether it is the formula in some convention;
    None where the role has none to compare with.
    """

    role: str
    make: Callable[[Mapping[str, Any]], Compute]
    facts: list[Fact]
    fits: bool | None = True
    attributes: Mapping[str, Any] = field(default_factory=dict)


class FunctionSubject(TorchSubject):
    """A function in a role, for one configuration. It has no parameters."""

    def __init__(self, served: Served, config: Mapping[str, Any], found: Any) -> None:
        super().__init__(served.role, config)
        self.compute = served.make(self.config)
        self.attributes = dict(served.attributes)
        self.function = found

    def forward(self, **inputs: Any) -> dict[str, Any]:
        return self.compute(self.training, **inputs)

    @property
    def place(self) -> str:
        """Where the function begins; of a class, what it computes with."""
        if isinstance(self.function, type):
            own = [value for value in vars(self.function).values() if isinstance(value, FunctionType)]
            named = [f for f in own if f.__name__ in ("forward", "__call__", "rate", "get_lr", "step")]
            return line_of(next(iter([*named, *own]), None))
        return line_of(inspect.unwrap(self.function))


def source_of(found: Any) -> str:
    """The text of a function or class; empty where there is none."""
    code: Any = inspect.unwrap(found) if callable(found) else type(found)
    try:
        return _source(code)
    except (OSError, TypeError):
        return ""


_source = lru_cache(4096)(inspect.getsource)


def file_of(found: Any) -> str:
    """The text of the file that a function or class stands in; empty where there is none."""
    try:
        return inspect.getsource(sys.modules[found.__module__])
    except (OSError, TypeError, KeyError):  # it may be taken out of a file
        code = getattr(inspect.unwrap(found) if callable(found) else found, "__code__", None)
        return "".join(linecache.getlines(code.co_filename)) if code is not None else ""


def constants(found: Any, pattern: str) -> dict[str, int]:
    """The integers of a function's file whose names match, by name."""
    scope = vars(sys.modules.get(getattr(found, "__module__", ""), object()))
    return {
        name: value
        for name, value in scope.items()
        if isinstance(value, int) and not isinstance(value, bool) and re.fullmatch(pattern, name.lower())
    }


def first_tensor(value: Any) -> Tensor:
    """A tensor, or the first one in what a function returned. Raises TypeError when there is none."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (tuple, list)):
        for item in value:
            if isinstance(item, Tensor):
                return item
    if isinstance(value, (int, float)):
        return torch.tensor(float(value))
    raise TypeError(f"it returns a {type(value).__name__}, which is no tensor")


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def agrees(got: Tensor, expected: Tensor, tolerance: float = 2e-5) -> bool:
    """Whether two results are equal up to the rounding of float32."""
    if got.shape != expected.shape:
        return False
    got, expected = got.double(), expected.double()
    return bool(torch.allclose(got, expected, atol=tolerance, rtol=tolerance))
