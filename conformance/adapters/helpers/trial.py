"""What a kind of helper is, and how a function is called as one."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.functions.arguments import Arguments, Words, read
from conformance.adapters.functions.subjects import file_of, source_of
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.whole.configs import fields_of, is_config
from conformance.seeds import seed_torch

HELPERS: list[Helper] = []
"""All kinds of helpers, in the order in which a function is compared with them."""


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a helper, in words. certain: any author would call it a mistake; else it is a note. at:
    patterns of the line, the likeliest first; mend: in words. Without them an edit is looked for."""

    sentence: str
    expected: Any
    got: Any
    certain: bool = True
    at: tuple[str, ...] = ()
    mend: str = ""


@dataclass(frozen=True)
class Found:
    """What a claim says of a function that trains. trouble: None where it is kept; else with the line, and the mend."""

    claim: str
    function: str
    trouble: Trouble | None = None
    place: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Helper:
    """A kind of helper. claim: what it must keep. named: the names of such functions, as a pattern that is searched.
    words: the meaning of its parameters; needs: the meanings that it must have. trial: gives what is wrong."""

    claim: str
    named: str
    words: Words
    needs: tuple[str, ...]
    trial: Trial

    def fits(self, *names: str) -> bool:
        return any(re.search(self.named, name.lower()) for name in names)

    def subject(self, function: Callable[..., Any]) -> Called:
        """Raises Unresolved when its parameters are not those of this kind."""
        arguments = read(function, self.words, self.needs)
        if missing := [meaning for meaning in self.needs if not arguments.has(meaning)]:
            raise Unresolved(f"{arguments.name} takes no {missing[0]}")
        return Called(function, arguments)


@dataclass(frozen=True)
class Called:
    """A function that is called by the meaning of its parameters, from the same random numbers each time."""

    function: Callable[..., Any]
    arguments: Arguments

    def __call__(self, **values: Any) -> Any:
        return self.from_seed(0, **values)

    def from_seed(self, seed: int, **values: Any) -> Any:
        with seeded(seed):
            return self.arguments.call(self.function, **{name: _copy(value) for name, value in values.items()})

    def has(self, meaning: str) -> bool:
        return self.arguments.has(meaning)

    def takes_text(self, meaning: str) -> bool:
        """Whether its author writes that an argument is one text."""
        parameter = inspect.signature(self.function).parameters.get(self.arguments.parameter_of[meaning])
        return parameter is not None and parameter.annotation in (str, "str")

    @property
    def name(self) -> str:
        return self.arguments.name

    @property
    def says(self) -> str:
        """Its name and its docstring in lower case: what its author says that it does."""
        return f"{self.name} {inspect.getdoc(self.function) or ''}".lower()

    @property
    def source(self) -> str:
        return source_of(self.function)

    @property
    def file(self) -> str:
        return file_of(self.function)

    @property
    def scope(self) -> Mapping[str, Any]:
        """The names of its file."""
        return getattr(inspect.unwrap(getattr(self.function, "__func__", self.function)), "__globals__", {})

    @property
    def settings(self) -> dict[str, Any]:
        """What a method's model, its configs, what these hold, and the file of a function call by a name, in lower
        case: the model's own first, and of one name."""
        owner = getattr(self.function, "__self__", None)
        kept = vars(owner) if owner is not None else getattr(self.function, "configs", {})
        configs = [fields_of(one) for one in kept.values() if isinstance(one, dict) or is_config(one)]
        inner = [fields_of(value) for fields in configs for value in fields.values() if is_dataclass(value)]
        found: dict[str, Any] = {}
        for holder in (kept, *configs, *inner, self.scope):
            for name, value in holder.items():
                found.setdefault(str(name).lower(), value)
        return found

    def number(self, pattern: str, otherwise: int) -> int:
        """The integer setting whose name matches."""
        found = (v for name, v in self.settings.items() if type(v) is int and re.fullmatch(pattern, name))
        return next(found, otherwise)


Trial = Callable[[Called], Iterable[Trouble]]


def helper(claim: str, named: str, words: Words, needs: tuple[str, ...]) -> Callable[[Trial], Trial]:
    """Register what a kind of helper must keep."""

    def register(trial: Trial) -> Trial:
        HELPERS.append(Helper(claim, named, words, needs, trial))
        return trial

    return register


class OtherKind(Exception):
    """What the function gives is nothing that a helper of this kind gives, so it is not judged."""


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """All generators start from the same numbers inside, and go on as if nothing had been drawn."""
    numbers, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(numbers)
            np.random.set_state(numpy_state)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value.copy() if isinstance(value, np.ndarray) else value


def tensor(value: Any) -> Tensor:
    """Numbers in any container as float64. Raises OtherKind for anything else."""
    try:
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
            value = torch.stack(list(value))
        return torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value.detach()).double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise OtherKind(f"it gives no numbers: {error}") from error


def parts(value: Any) -> list[Any]:
    """What a function returned, one by one: the items of a tuple, the values of a dict or of an object."""
    return [part for _, part in named_parts(value)]


def named_parts(value: Any) -> list[tuple[str, Any]]:
    if hasattr(value, "_asdict"):
        return list(value._asdict().items())
    if isinstance(value, Mapping) or (hasattr(value, "data") and isinstance(getattr(value, "data", None), dict)):
        return list((value if isinstance(value, Mapping) else value.data).items())
    if isinstance(value, (tuple, list)):
        return [("", part) for part in value]
    if hasattr(value, "__dataclass_fields__"):
        return list(vars(value).items())
    return [("", value)]


def near(got: Any, expected: Any, tolerance: float = 1e-4) -> bool:
    """Whether numbers are those that were expected, up to the rounding of float32."""
    got, expected = tensor(got), tensor(expected)
    return got.shape == expected.shape and bool(torch.allclose(got, expected, atol=tolerance, rtol=tolerance))


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shown(value: Any) -> str:
    """Numbers in one short line."""
    try:
        found = tensor(value)
    except OtherKind:
        return str(value)[:80]
    flat = [round(number, 4) for number in found.reshape(-1).tolist()]
    flat = [int(number) if number == int(number) else number for number in flat if number == number][:12]
    return ", ".join(map(str, flat))
