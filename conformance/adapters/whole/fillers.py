"""What the parameters of forward are given that are not the data to be judged by: makers, of the inputs by meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.stated import Shape
from conformance.adapters.whole import names
from conformance.adapters.whole.beside import beside, numbers

AHEAD = 2
"""So many steps, or pieces of them, are asked of a model that is told how far to look ahead."""


_SIDES = {"source": "src", "target": "tgt"}


def maker(name: str, meaning: str, labels: str) -> Callable[[Mapping[str, Tensor]], Any] | None:
    """What a required parameter that is no data gets; None where nothing is known. labels: the parameter of these."""

    def shape_of(inputs: Mapping[str, Tensor]) -> Tensor:
        return next(inputs[m] for m in ("ids", "tgt", "src", "x") if m in inputs)

    makers: dict[str, Callable[[Mapping[str, Tensor]], Any]] = {
        "types": lambda inputs: torch.zeros(shape_of(inputs).shape[:2], dtype=torch.int64),
        "positions": lambda inputs: torch.arange(
            inputs.get(_SIDES.get(names.side_of(name), ""), shape_of(inputs)).shape[1]
        ),
        "chosen": lambda inputs: torch.arange(shape_of(inputs).shape[1]).repeat(shape_of(inputs).shape[0], 1),
        "offset": lambda inputs: 0,
        "cache": lambda inputs: None,
        "lengths": lambda inputs: torch.full((shape_of(inputs).shape[0],), shape_of(inputs).shape[1]),
        "marks": lambda inputs: _parts_of_time(name, shape_of(inputs).shape[:2]),
        "scored": lambda inputs: torch.ones(shape_of(inputs).shape[:2], dtype=torch.bool),
        "ahead": lambda inputs: AHEAD,
        "flag": lambda inputs: False,
        "function": lambda inputs: _of_each_number,
    }
    if name == labels:
        return lambda inputs: inputs.get("labels", shape_of(inputs))
    if not meaning and names.TIMES.fullmatch(name.lower()):
        return Times(torch.int64)
    return makers.get(meaning)


def _of_each_number(value: Tensor, *_: Any, **__: Any) -> Tensor:
    """A sublayer that changes each number alone, and is none that a Transformer has."""
    return torch.sin(value)


def _parts_of_time(name: str, sizes: Sequence[int]) -> Tensor:
    """Four numbers between 0 and 1 for each step, as an hour or a day is handed in: as whole numbers they are 0."""
    return numbers(name, (*sizes, 4)).sigmoid().to(torch.get_default_dtype())


def counted(name: str, meanings: Sequence[str]) -> str:
    """The input whose real tokens a parameter counts."""
    if len(meanings) == 1:
        return meanings[0]
    return "tgt" if names.side_of(name) == "target" else "src"


def alike(name: str) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """Other numbers of the shape of the main input: keys and values beside queries. They are the same for every sample
    and in every precision, so that a sample has one answer wherever it stands."""
    return lambda inputs: numbers(name, inputs["x"].shape).to(inputs["x"].dtype)


@dataclass(frozen=True)
class Beside:
    """What makes numbers beside token ids, the same for every sample. shape: without the batch."""

    name: str
    shape: tuple[int, ...]

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return numbers(self.name, (len(inputs["ids"]), *self.shape)).to(torch.get_default_dtype())


@dataclass(frozen=True)
class Times:
    """What says when each step of a sequence was, `apart` from the one before it: what stands behind padding is as far
    apart as without it."""

    dtype: torch.dtype
    apart: int = 1

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        rows, steps = next(inputs[m] for m in ("ids", "x") if m in inputs).shape[:2]
        return (torch.arange(steps) * self.apart).to(self.dtype).repeat(rows, 1)


@dataclass(frozen=True)
class AllOf:
    """What says that every step of numbers beside token ids is real: their length, for each sample."""

    length: int

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return torch.full((len(inputs["ids"]),), self.length)


def constants(values: Mapping[str, Tensor]) -> dict[str, Callable[[Mapping[str, Tensor]], Any]]:
    return {name: partial(_as_it_is, value) for name, value in values.items()}


def _as_it_is(value: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    return value


@dataclass(frozen=True)
class OfShape:
    """What makes a stated input that is not the data: its batch and positions follow those of the main one. counted:
    the input whose steps it counts; all are real."""

    shape: Shape
    main: Shape
    counted: Shape | None = None

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        data = next(inputs[m] for m in ("ids", "tgt", "src", "x") if m in inputs)
        now = dict(zip(self.main.sizes[1:2], data.shape[1:2], strict=False))
        if self.counted is not None:
            return torch.full((data.shape[0],), now.get(self.counted.sizes[1], self.counted.sizes[1]))
        sizes = [data.shape[0] if at == 0 else now.get(size, size) for at, size in enumerate(self.shape.sizes)]
        return beside(Shape(self.shape.name, tuple(sizes), self.shape.dtype))


def are_numbers(make: object) -> bool:
    """Whether it makes numbers beside the words, an image or a recording, and no further words, masks or counts."""
    return isinstance(make, Beside) or (isinstance(make, OfShape) and make.shape.dtype == "float")


def shapes_stated(main: Shape) -> Iterator[tuple[int | None, ...]]:
    """Shapes of numbers, without the batch, of a stated input: of sequences (B, T, d) the length is free."""
    yield (None, main.sizes[2]) if len(main.sizes) == 3 else main.sizes[1:]


def same(meaning: str) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """The words of another input."""
    return lambda inputs: inputs[meaning]


@dataclass(frozen=True)
class OneEach:
    """What makes a whole number for each sample, the same for all: its class, or its step in time."""

    name: str

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return torch.ones(len(inputs["x"]), dtype=torch.int64)
