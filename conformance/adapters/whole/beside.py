"""Several inputs, each of a form of its own: states beside actions and times, a batch that is a dict of tensors.

What form each has is found by climbing: the model is run, one input after another gets another form, and the form with
which the model comes furthest (counted in operations) is kept, until it runs to its end.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.stated import Shape
from conformance.adapters.whole.shapes import number_shapes, said_sizes, table_lengths

MAX_SECONDS = 12.0
"""Processor time after which a search is given up."""
_LENGTHS = (6, 7, 9, 11, 13)
_MOST_WIDTHS, _MOST_LENGTHS = 10, 4
_AHEAD = re.compile(r"horizon|(pred|prediction|future|forecast|output|out|label|target|tgt)_?(len(gth)?|steps|window)")
"""Names of lengths that an input beside the main one may have."""


@dataclass(frozen=True)
class Form:
    """sizes: without the batch. dtype: as in a Shape."""

    sizes: tuple[int, ...]
    dtype: str = "float"

    def shape(self, name: str, batch: int) -> Shape:
        return Shape(name, (batch, *self.sizes), self.dtype)


def beside(shape: Shape) -> Tensor:
    """An input of a shape that is the same for every sample: noise, one, or for each step 0 (False) or 1 in turn."""
    if shape.dtype == "float":
        return numbers(shape.name, shape.sizes).to(torch.get_default_dtype())
    steps = torch.arange(shape.sizes[-1]) % 2 if len(shape.sizes) > 1 else torch.tensor(1)
    return steps.expand(*shape.sizes).to(torch.bool if shape.dtype == "bool" else torch.int64)


def numbers(name: str, sizes: Sequence[int]) -> Tensor:
    """Noise in float64 that depends on a name, the same for every sample and the same in its beginning for every
    length."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(sizes[1:]))
    return torch.tensor(noise, dtype=torch.float64).expand(*sizes)


@dataclass(frozen=True)
class Climbed:
    """How far it came. shapes: what each input was given last. main: the input to be judged by, empty where the model
    did not run to its end."""

    shapes: Mapping[str, Shape]
    main: str

    def line(self) -> str:
        """What to write after --claims-input."""
        return ",".join(f"{name}={shape.text}" for name, shape in self.shapes.items())


def climb(
    module: nn.Module,
    parameters: Sequence[str],
    run: Callable[[Mapping[str, Tensor]], tuple[int, bool]],
    options: Mapping[str, Any],
    batch: int,
) -> Climbed:
    """The forms of these inputs. run: how many operations ran with these values, and whether to the end."""
    best: tuple[int, dict[str, Form]] = (-1, {})
    until = time.thread_time() + MAX_SECONDS
    for length in _lengths(module, options):
        forms = list(dict.fromkeys(_forms(module, length, options)))
        chosen = dict.fromkeys(parameters, forms[0])
        reached, done = -1, False
        while not done and time.thread_time() < until:
            before = reached
            for name in parameters:
                for form in forms:
                    trial = {**chosen, name: form}
                    count, done = run({key: beside(value.shape(key, batch)) for key, value in trial.items()})
                    if count > reached or done:
                        reached, chosen = count, trial
                    if done:
                        return Climbed(_shapes(chosen, batch), _main(chosen, length))
            if reached == before:
                break
        best = max(best, (reached, chosen), key=lambda pair: pair[0])
    return Climbed(_shapes(best[1], batch), "")


def _shapes(chosen: Mapping[str, Form], batch: int) -> dict[str, Shape]:
    return {name: form.shape(name, batch) for name, form in chosen.items()}


def _main(chosen: Mapping[str, Form], length: int) -> str:
    """The input to be judged by: a sequence of vectors, else of numbers, else of ids, else the first."""
    of_length = {name: form for name, form in chosen.items() if form.sizes[:1] == (length,)}
    vectors = [name for name, form in of_length.items() if len(form.sizes) == 2]
    numbered = [name for name, form in of_length.items() if form.dtype == "float"]
    images = [name for name, form in chosen.items() if len(form.sizes) == 3]
    return next(iter([*vectors, *images, *numbered, *of_length, *chosen]))


def _lengths(module: nn.Module, options: Mapping[str, Any]) -> list[int]:
    """Lengths of the sequences: one that is no width, then those of the tables of positions."""
    taken = set(_widths(module))
    free = next((length for length in _LENGTHS if length not in taken), _LENGTHS[0])
    return list(dict.fromkeys([free, *table_lengths(module)]))[:_MOST_LENGTHS]


def _widths(module: nn.Module) -> list[int]:
    """How many numbers the maps and convolutions of the model take, the first first."""
    found = [part.in_features for part in module.modules() if isinstance(part, nn.Linear)]
    found += [part.in_channels for part in module.modules() if isinstance(part, nn.Conv1d)]
    return list(dict.fromkeys(found))[:_MOST_WIDTHS]


def _forms(module: nn.Module, length: int, options: Mapping[str, Any]) -> Iterator[Form]:
    """Forms that an input may have, the likeliest first."""
    widths = _widths(module) or [1]
    yield from (Form((length, width)) for width in widths)
    yield from (Form((length,)), Form((length,), "int"), Form((), "int"), Form(()), Form((length,), "bool"))
    yield from (Form((width,)) for width in widths)
    ahead = [size for name, size in said_sizes(module, options).items() if _AHEAD.fullmatch(name)]
    for steps in [size for size in dict.fromkeys(ahead) if size != length][:2]:
        yield from (Form((steps, width)) for width in widths)
        yield from (Form((steps,)), Form((steps,), "int"))
    images = [shape for shape in number_shapes(module, options) if len(shape) == 3 and None not in shape]
    yield from (Form(tuple(size or 0 for size in shape)) for shape in images[:2])
