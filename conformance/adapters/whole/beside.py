"""Several inputs, each of a form of its own: states beside actions and times, a batch that is a dict of tensors.

What form each has is found by climbing: the model is run, one input after another gets another form, and the form with
which the model comes furthest (counted in operations) is kept, until it runs to its end.
"""

from __future__ import annotations

import math
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.stated import Shape
from conformance.adapters.whole.names import PLACES, STEPS, called_after
from conformance.adapters.whole.shapes import number_shapes, said_sizes, shapes_told, table_lengths
from conformance.adapters.whole.told import Told
from conformance.places import innermost_line
from conformance.protocol import Array

MAX_SECONDS = 12.0
"""Processor time after which a search is given up."""
MAX_NUMBERS = 2_000_000
"""No input with more numbers is tried: what a model makes of it could fill the memory."""
_NUMBER = re.compile(r"(?<![\w.])\d{1,4}(?![\w.])")
_MOST_NUMBERS = 12
_LONGEST = 1024
"""No longer input is tried where the width of a flattened one tells its length."""
_MOST_APART = 4
_LENGTHS = (6, 7, 9, 11, 13)
_LONGER = 2
_MOST_WIDTHS, _MOST_LENGTHS = 10, 4
_AHEAD = re.compile(r"horizon|(pred|prediction|future|forecast|output|out|label|target|tgt)_?(len(gth)?|steps|window)")
"""Names of lengths that an input beside the main one may have."""
_PADDING = re.compile(r"(^|_)pad(ded|ding)?(_|$)")
"""Names of inputs that are True where there is padding."""
_COUNT = re.compile(r"(n|num)_\w+|\w*(len(gth)?s?|counts?)")
"""Names of inputs that count something: whole numbers."""


@dataclass(frozen=True)
class Form:
    """sizes: without the batch. dtype: as in a Shape."""

    sizes: tuple[int, ...]
    dtype: str = "float"

    def shape(self, name: str, batch: int) -> Shape:
        return Shape(name, (batch, *self.sizes), self.dtype)

    @property
    def numel(self) -> int:
        return math.prod(self.sizes)

    def with_one_of(self, sizes: Sequence[int]) -> Iterator[Form]:
        """The forms with one of these sizes in the place of one of its own; then those in which one of its own is
        longer or shorter by what two of the sizes differ by: the model may have put a token of its own before it."""
        apart = {one - other for one, other in permutations(sizes, 2)}
        for at, size in product(range(len(self.sizes)), sizes):
            yield self._with(at, size)
        for at, more in product(range(len(self.sizes)), sorted(apart, key=abs)):
            if self.sizes[at] + more > 0 and abs(more) <= _MOST_APART:
                yield self._with(at, self.sizes[at] + more)

    def _with(self, at: int, size: int) -> Form:
        return Form((*self.sizes[:at], size, *self.sizes[at + 1 :]), self.dtype)


def beside(shape: Shape) -> Tensor:
    """An input of a shape that is the same for every sample: noise, one, or for each step 1 (True) or 0 in turn, of
    which the first is real where 0 is padding. Of what is called places or steps, each once; of padding there is none,
    and what is told of each number of vectors is true of all."""
    if shape.dtype == "float":
        return numbers(shape.name, shape.sizes).to(torch.get_default_dtype())
    if shape.dtype == "int" and len(shape.sizes) == 2 and PLACES.fullmatch(shape.name.lower()):
        return torch.arange(shape.sizes[1]).expand(*shape.sizes)
    if shape.dtype == "int" and len(shape.sizes) in (2, 3) and STEPS.fullmatch(shape.name.lower()):
        return torch.arange(shape.sizes[1]).view(-1, *[1] * (len(shape.sizes) - 2)).expand(*shape.sizes)
    if shape.dtype == "bool" and _PADDING.search(shape.name.lower()):
        return torch.zeros(*shape.sizes, dtype=torch.bool)
    if shape.dtype == "bool" and len(shape.sizes) == 3 and shape.sizes[1] != shape.sizes[2]:
        return torch.ones(*shape.sizes, dtype=torch.bool)
    steps = (torch.arange(shape.sizes[-1]) + 1) % 2 if len(shape.sizes) > 1 else torch.tensor(1)
    return steps.expand(*shape.sizes).to(torch.bool if shape.dtype == "bool" else torch.int64)


def numbers(name: str, sizes: Sequence[int]) -> Tensor:
    """Noise in float64 that depends on a name, the same for every sample and the same in its beginning for every
    length."""
    return torch.tensor(_noise(name, tuple(sizes[1:])), dtype=torch.float64).expand(*sizes)


@lru_cache(maxsize=32)
def _noise(name: str, sizes: tuple[int, ...]) -> Array:
    """What a search asks for hundreds of times."""
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(sizes)


@dataclass(frozen=True)
class Climbed:
    """How far it came. shapes: what each input was given last. main: the input to be judged by, empty where the model
    did not run to its end."""

    shapes: Mapping[str, Shape]
    main: str

    def line(self) -> str:
        """What to write after --claims-input."""
        return ",".join(f"{name}={shape.text}" for name, shape in self.shapes.items())


@dataclass(frozen=True)
class Ran:
    """One attempt: how many operations ran, whether to the end; what was raised, in words and where. No exception is
    kept: its traceback would hold the tensors of every attempt."""

    operations: int
    done: bool = False
    words: str = ""
    place: str = ""

    @classmethod
    def raised(cls, operations: int, error: Exception) -> Ran:
        """An attempt that failed."""
        return cls(
            operations, False, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", innermost_line(error)
        )

    def __str__(self) -> str:
        return f"{self.words}{f' at {self.place}' if self.place else ''}"

    @property
    def numbers(self) -> list[int]:
        """The sizes that its error speaks of."""
        said = _NUMBER.findall(self.words)[:_MOST_NUMBERS]
        return [size for size in dict.fromkeys(map(int, said)) if size]


def climb(
    module: nn.Module,
    parameters: Sequence[str],
    run: Callable[[Mapping[str, Tensor]], Ran],
    options: Mapping[str, Any],
    batch: int,
    told: Mapping[str, Told],
) -> Climbed:
    """The forms of these inputs. told: what the code says of them, which is tried first; then what forms the model
    suggests, then those with a size that the last error spoke of."""
    best: tuple[int, dict[str, Form]] = (-1, {})
    until = time.thread_time() + MAX_SECONDS
    is_told = any(one.axes for one in told.values())
    for as_told in (True, False) if is_told else (False,):  # what is told may be wrong
        lengths, furthest = _lengths(module, options), dict[int, Ran]()
        for length in lengths:
            general = list(dict.fromkeys(_forms(module, length, options)))
            forms = {
                name: _told_first(told.get(name, Told()), general, module, length, options, name) for name in parameters
            }

            def fits(name: str, form: Form, strict: bool = as_told) -> bool:
                axes = told.get(name, Told()).axes
                return form.numel * batch <= MAX_NUMBERS and not (strict and axes and len(form.sizes) != len(axes) - 1)

            def tried(forms: Mapping[str, Form]) -> Ran:
                return run({key: _filled(key, forms, batch) for key in forms})

            chosen = {name: own[0] for name, own in forms.items()}
            reached, hints, heard, before = -1, list[int](), list[int](), -2
            while reached > before and time.thread_time() < until:
                before = reached
                for name in parameters:
                    rows = [Form((size,), dtype) for size in heard for dtype in ("float", "int")]
                    rows += [Form(other.sizes, told.get(name, Told()).dtype or "float") for other in chosen.values()]
                    filling = _filling(name, chosen, tried, furthest.get(length))
                    for form in dict.fromkeys([*forms[name], *rows, *chosen[name].with_one_of(hints), *filling]):
                        trial = {**chosen, name: form}
                        if not fits(name, form) or time.thread_time() > until:
                            continue
                        ran = tried(trial)
                        if ran.operations > reached or ran.done:
                            furthest[length] = ran
                            reached, chosen, hints = ran.operations, trial, ran.numbers
                            heard = list(dict.fromkeys([*hints, *heard]))[:_MOST_NUMBERS]
                        if ran.done:
                            return _climbed(chosen, length, batch, tried)
                for trial in _together(chosen, tried, furthest.get(length)):
                    ran = tried(trial)
                    if ran.done and all(form.sizes[1:] != (length,) for form in trial.values()):
                        return _climbed(trial, length, batch, tried)
                    if ran.done:  # as wide as it is long: what is a position, and what a feature?
                        lengths += [length + 1] * (length + 1 not in lengths)
                    elif ran.operations > reached:
                        furthest[length] = ran
                        reached, chosen, hints = ran.operations, trial, ran.numbers
            best = max(best, (reached, chosen), key=lambda pair: pair[0])
            lengths += _more_lengths(furthest, length, lengths)
    return Climbed(_shapes(best[1], batch), "")


def _climbed(
    chosen: Mapping[str, Form], length: int, batch: int, tried: Callable[[Mapping[str, Form]], Ran]
) -> Climbed:
    """The forms with which the model ran. Numbers of steps, such as times, that need not be as long as the main input
    get another length: they stay as they are where that one grows."""
    main = _main(chosen, length)
    for name, form in chosen.items():
        if name != main and form == Form((length,)):
            other = {**chosen, name: Form((length + _LONGER,))}
            chosen = other if tried(other).done else chosen
    return Climbed(_shapes(chosen, batch), main)


def _filled(name: str, forms: Mapping[str, Form], batch: int) -> Tensor:
    """What an input holds; of lengths of another, that all of that is real."""
    form = forms[name]
    of = next((one for key, one in forms.items() if key != name and called_after(name, key)), None)
    if of is not None and of.sizes and form == Form((), "int") and name.lower().endswith(("length", "lengths", "lens")):
        return torch.full((batch,), min(of.sizes))
    return beside(form.shape(name, batch))


_MISFIT = re.compile(r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)")


def _filling(
    name: str, chosen: Mapping[str, Form], tried: Callable[[Mapping[str, Form]], Ran], before: Ran | None
) -> Iterator[Form]:
    """An input with the width that fills what several inputs, or steps, are put together to: by how wide that was with
    two other widths."""
    form = chosen[name]
    if before is None or not _MISFIT.search(before.words) or len(form.sizes) < 2:
        return
    *rest, width = form.sizes
    forms = {size: Form((*rest, size), form.dtype) for size in (width, width + 1)}
    ran = {size: tried({**chosen, name: other}) for size, other in forms.items()}
    yield from (Form((*rest, size), form.dtype) for size in sizes_that_fill(ran))


def _together(
    chosen: Mapping[str, Form], tried: Callable[[Mapping[str, Form]], Ran], before: Ran | None
) -> Iterator[dict[str, Form]]:
    """All inputs that are as wide as one another, vectors and what is told of each of their numbers, with the width
    that fills what they are put together to."""
    if before is None or not _MISFIT.search(before.words):
        return
    widths = Counter(form.sizes[-1] for form in chosen.values() if len(form.sizes) > 1)

    def widened(width: int, size: int) -> dict[str, Form]:
        return {
            name: Form((*form.sizes[:-1], size), form.dtype) if form.sizes[1:] and form.sizes[-1] == width else form
            for name, form in chosen.items()
        }

    for width in (one for one, times in widths.items() if times > 1):
        ran = {size: tried(widened(width, size)) for size in (width, width + 1)}
        yield from (widened(width, size) for size in sizes_that_fill(ran))


def _more_lengths(furthest: Mapping[int, Ran], length: int, tried: Sequence[int]) -> list[int]:
    """The length that fills what is flattened, or, where that is not told yet, another one that tells it."""
    found = sizes_that_fill(furthest) or [length + 1] * any(_MISFIT.search(ran.words) for ran in furthest.values())
    return [one for one in found if one not in tried and len(tried) < _MOST_LENGTHS + 2]


def sizes_that_fill(ran: Mapping[int, Ran]) -> list[int]:
    """The size with which what was flattened is as wide as the map behind it takes, by how wide it was with two other
    sizes; none where these do not tell. One more has several numbers."""
    told = {size: match for size, one in ran.items() if size and (match := _MISFIT.search(one.words))}
    for (one, first), (other, second) in combinations(told.items(), 2):
        wide, grown = (int(second[1]) - int(first[1])) // (other - one), int(first[2]) - int(first[1])
        if first[2] == second[2] and wide > 1 and grown % wide == 0 and 0 < one + grown // wide <= _LONGEST:
            return [one + grown // wide]
    return []


def _told_first(
    told: Told, general: Sequence[Form], module: nn.Module, length: int, options: Mapping[str, Any], name: str
) -> list[Form]:
    """The forms of one input: those that the code says, those with as many axes, the rest."""
    counts = _COUNT.fullmatch(name.lower()) is not None
    first = ("int", "float", "bool") if counts else ("float", "int", "bool")
    dtypes = (told.dtype,) if told.dtype else first
    shapes = shapes_told(told.axes[1:], module, options) if told.axes else []
    said = [Form(tuple(length if n is None else n for n in shape), d) for d in dtypes for shape in shapes]

    def unlike(form: Form) -> int:
        is_no_count = counts and not told.axes and (form.dtype != "int" or bool(form.sizes))
        return (bool(told.axes) and len(form.sizes) != len(told.axes) - 1) + (form.dtype not in dtypes) + is_no_count

    return list(dict.fromkeys([*said, *sorted(general, key=unlike)]))


def _shapes(chosen: Mapping[str, Form], batch: int) -> dict[str, Shape]:
    return {name: form.shape(name, batch) for name, form in chosen.items()}


def _main(chosen: Mapping[str, Form], length: int) -> str:
    """The input to be judged by: a sequence of vectors, else of numbers, else of ids, else the first."""
    of_length = {name: form for name, form in chosen.items() if form.sizes[:1] == (length,)}
    of_length = {name: form for name, form in of_length.items() if form.sizes != (length, length)}  # not of pairs
    vectors = [name for name, form in of_length.items() if len(form.sizes) == 2 and form.dtype == "float"]
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
    yield from (Form((length, length), dtype) for dtype in ("float", "int", "bool"))  # of pairs
    ahead = [size for name, size in said_sizes(module, options).items() if _AHEAD.fullmatch(name)]
    for steps in [size for size in dict.fromkeys(ahead) if size != length][:2]:
        yield from (Form((steps, width)) for width in widths)
        yield from (Form((steps,)), Form((steps,), "int"))
    images = [shape for shape in number_shapes(module, options) if len(shape) == 3 and None not in shape]
    yield from (Form(tuple(size or 0 for size in shape)) for shape in images[:2])
