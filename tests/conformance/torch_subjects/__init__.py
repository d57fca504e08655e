"""Small nn.Modules in the layouts and conventions that the field uses: subjects of the inference tests.

The classes of `CORRECT` are right, those of `WRONG` have one planted mistake and name in `breaks` claims that it
breaks; all name the role that they play. They register when their module is imported: `torch_subjects.families`.
"""

from __future__ import annotations

import inspect

from torch import Tensor, nn

CORRECT: dict[str, type[nn.Module]] = {}
WRONG: dict[str, type[nn.Module]] = {}


def correct(cls: type[nn.Module]) -> type[nn.Module]:
    CORRECT[cls.__name__] = cls
    return cls


def wrong(cls: type[nn.Module]) -> type[nn.Module]:
    WRONG[cls.__name__] = cls
    return cls


def specification(name: str) -> str:
    """The `--impl` of a class by its name."""
    return f"{inspect.getfile({**CORRECT, **WRONG}[name])}:{name}"


def split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)
