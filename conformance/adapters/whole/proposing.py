"""Which inputs a forward may take: proposals by the names of its parameters and by what the code says of them.

Nothing is decided here: `searching` runs them in this order.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import Tensor, nn

from conformance.adapters.stated import Shape, StatedError
from conformance.adapters.whole import names
from conformance.adapters.whole.batches import packed_in
from conformance.adapters.whole.beside import Climbed
from conformance.adapters.whole.calling import Calling, Input
from conformance.adapters.whole.chained import has_two_stacks
from conformance.adapters.whole.collating import told_by_batches
from conformance.adapters.whole.fillers import (
    AllOf,
    Beside,
    OfShape,
    OneEach,
    alike,
    counted,
    maker,
    same,
    shapes_stated,
)
from conformance.adapters.whole.masking import Mask, choices, real_tokens
from conformance.adapters.whole.shapes import number_shapes, shapes_told, table_lengths
from conformance.adapters.whole.told import (
    Told,
    called_by_forward,
    computed_with,
    taken_as_they_are,
    told_by_forward,
    used_as_masks,
)
from conformance.adapters.whole.told_by_calls import told_by_calls
from conformance.adapters.whole.usage import surroundings
from conformance.adapters.whole.used_functions import text_of

FRAMES = 48
"""Numbers in a row for a model that shortens them."""
_ANY_LENGTHS = re.compile(r"(seq_?)?(lengths?|lens)|n_(frames|steps)|num_(frames|steps)")
"""Names of lengths that do not say of what."""
_CONDITIONS = 10
"""So many shapes of numbers are tried beside token ids."""


@dataclass
class Parameter:
    """A parameter of forward. meaning: what its name proposes, as `names` has it."""

    name: str
    meaning: str
    required: bool
    default: Any


class Proposals:
    """The parameters of a forward, and the callings that they propose. given: the inputs that the user states, by name;
    climbed: what was found out of several inputs, which is then taken as if the user had stated it.

    Raises StatedError when forward takes none of a name that is stated.
    """

    def __init__(self, module: nn.Module, given: Sequence[Shape], options: Mapping[str, Any]) -> None:
        self.module = module
        self.options = options
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        called = called_by_forward(module)
        self.parameters = [
            Parameter(p.name, "function" if p.name in called else _meaning(p), p.default is p.empty, p.default)
            for p in inspect.signature(module.forward).parameters.values()
            if p.kind not in kinds
        ]
        self.packed, keys, in_order = packed_in(module)
        self.packing: dict[str, Any] = {"packed": self.packed, "in_order": tuple(keys) if in_order else ()}
        if self.packed:
            self.parameters = [
                Parameter(key, names.meaning_of(key), is_required, None) for key, is_required in keys.items()
            ]
        caches = [p for p in self.parameters if p.meaning == "cache" and p.required]
        series = computed_with(module, [p.name for p in caches])
        series += [name for name, said in _told(module, [p.name for p in caches], False).items() if len(said.axes) == 3]
        for p in caches:
            p.meaning = "" if p.name in series else p.meaning  # the past of a series is no cache
        data = [p for p in self.parameters if p.meaning in ("", "source", "target")]
        if not any(p.required for p in data):  # forward(x=None, y=None), where neither can do without a value
            open_ = [p.name for p in data if p.default is None]
            for name in taken_as_they_are(module, open_):
                next(p for p in data if p.name == name).required = True
        self.masks_by_use = used_as_masks(module, [p.name for p in data[1:] if not p.meaning])
        for name in self.masks_by_use:
            next(p for p in data if p.name == name).meaning = "mask"
        required = [p for p in self.parameters if p.required]
        meanings = {p.meaning for p in required}
        if meanings == {"mask"} or (meanings == {"cache"} and not data):
            required[0].meaning = ""  # forward(masked_image), forward(past): what else is the data?
        masks = [p for p in self.parameters if p.meaning == "mask"]
        for p in masks if len(masks) > 1 else ():
            if p.required and names.SCORED.fullmatch(p.name.lower()):
                p.meaning = "scored"
        self.given = self._named(given)
        self.climbed: Climbed | None = None
        self.told = _told(module, [p.name for p in self.parameters], bool(self.packed))

    def _named(self, given: Sequence[Shape]) -> dict[str, Shape]:
        """The stated inputs by the parameters of forward: by name, the nameless ones in order. Raises StatedError."""
        stated = {shape.name: shape for shape in given if shape.name}
        free = [p.name for p in self.parameters if p.name not in stated]
        nameless = [shape for shape in given if not shape.name]
        unknown = [name for name in stated if all(p.name != name for p in self.parameters)]
        if unknown or len(nameless) > len(free):
            takes = f"it takes {', '.join(p.name for p in self.parameters) or 'nothing'}"
            what = f"no parameter {unknown[0]}" if unknown else f"no place for {len(given)} inputs"
            raise StatedError(f"--claims-input: forward of {type(self.module).__name__} has {what}; {takes}")
        return {**dict(zip(free, nameless, strict=False)), **stated}

    def of(self, meaning: str, required: bool | None = None) -> list[Parameter]:
        return [p for p in self.parameters if p.meaning == meaning and required in (None, p.required)]

    def sides(self) -> Iterator[tuple[Parameter, ...]]:
        """Which parameters may be the data: two sides, or one; those that the user states, where there are any."""
        if self.climbed is not None:
            yield (next(p for p in self.parameters if p.name == self.climbed.main),)
            return
        if self.given:
            stated = [p for p in self.parameters if p.name in self.given]
            data = [p for p in stated if p.meaning in ("", "source", "target")] or stated
            if len(data) > 1 and all(self.given[p.name].dtype == "int" for p in data[:2]):
                yield tuple(data[:2])
            yield (data[0],)
            return
        source, target = self.of("source"), self.of("target")
        plain = [p for p in self.parameters if p.meaning == "" and p.required]
        all_open = not any(p.required for p in self.parameters)
        if all_open:  # forward(input_ids=None, ..., decoder_input_ids=None)
            plain = [p for p in self.parameters if p.meaning == "" and p.default is None][:1]
        first = source[:1] or plain[:1]
        if first and not target and len(plain) < 2 and (labels := self.of("labels")) and has_two_stacks(self.module):
            yield first[0], labels[0]  # the decoder reads its labels, behind a sign of the start
        both = (source[:1] or plain[:1]) + (target[:1] or plain[1:2])
        required = [p for p in self.parameters if p.required and p.meaning in ("", "source", "target")]
        if (
            len(both) == 2
            and both[0] is not both[1]
            and all(p.required or all_open or p.meaning in ("source", "target") for p in both)
        ):
            yield tuple(both)
        if len(required) >= 2:
            yield tuple(required[:2])
        candidates = [*required, *(p for p in self.parameters if p.meaning in ("", "source", "target", "types"))]
        for one in dict.fromkeys(p.name for p in candidates[:3]):
            yield (next(p for p in self.parameters if p.name == one),)

    def told_no_words(self) -> bool:
        """Whether the code says of what must be the words of a target that they are none. What it says may be wrong."""
        two_sided = self.of("source", True) and self.of("target", True)
        return bool(two_sided) and any(
            not _may_be_words(self.told.get(p.name, Told())) for p in (*self.of("source"), *self.of("target"))
        )

    def callings(self, sides: tuple[Parameter, ...], all_masks: bool = False) -> Iterator[Calling]:
        """Ways to call with these data: token ids first, numbers where the model reads no table."""
        names_ = [p.name for p in sides]
        rest = [p for p in self.parameters if p.name not in names_]
        meanings = ("src", "tgt") if len(sides) == 2 else ("ids",)
        roles = {
            m: next((p.name for p in rest if p.meaning == m), "")
            for m in ("labels", "cache", "types", "positions", "offset")
        }
        starts = len(sides) == 2 and sides[1].meaning == "labels"
        if self.packed:  # no cache is handed over so
            roles["cache"] = ""
        if not roles["labels"] and len(sides) == 1:
            roles["labels"] = next((p.name for p in rest if names.MAY_BE_LABELS.fullmatch(p.name.lower())), "")
        of_words = [p.name for p in rest if names.WORD_LABELS.fullmatch(p.name.lower())]
        if roles["labels"] and of_words:
            roles["labels"] = of_words[0]
        fixed = {
            p.name: made for p in rest if p.required and (made := maker(p.name, p.meaning, roles["labels"])) is not None
        }
        main = self.given.get(names_[-1])
        if main is not None:
            known = set() if self.climbed else set(fixed)
            others = [
                p for p in rest if p.name in self.given and p.name not in known and p.meaning not in ("mask", "lengths")
            ]
            fixed |= {p.name: OfShape(self.given[p.name], main, self.counted_by(p.name)) for p in others}
        masks_of = [p for p in rest if p.meaning == "mask"]
        required_masks = [p.name for p in masks_of if p.required or all_masks or p.name in self.given]
        each = {p.name: _of_each_number(p.name) for p in rest if self.says_of_each_number(p.name, main)}
        fixed = {name: made for name, made in fixed.items() if name not in each}
        open_ = [p.name for p in masks_of if not (p.required or all_masks)]
        optional = () if each else tuple(open_)  # what is padding is told of each number already
        lengths = [p for p in rest if p.meaning == "lengths"]
        for p in rest if len(sides) == 2 else ():  # src_ext beside src: the same words, numbered in another way
            of = next((m for m, name in zip(meanings, names_, strict=True) if names.called_after(p.name, name)), "")
            if of and p.required and not p.meaning:
                fixed[p.name] = same(of)
        for p in lengths:  # of vectors beside the words, which stay as long as they are
            other = next((o for o in self.given if o not in (p.name, names_[-1]) and names.called_after(p.name, o)), "")
            if other and len(self.given[other].sizes) > 2:
                fixed[p.name] = AllOf(self.steps_of(self.given[other].sizes))
        of_others = {name for name, made in fixed.items() if isinstance(made, AllOf)}
        lengths = [p for p in lengths if p.name not in of_others]
        counts = {p.name: counted(p.name, meanings) for p in lengths if p.name in fixed}
        fixed = {name: maker for name, maker in fixed.items() if name not in counts}
        common: dict[str, Any] = {
            **self.packing,
            "fixed": fixed,
            "optional_masks": optional,
            "lengths": counts,
            "optional_lengths": {p.name: counted(p.name, meanings) for p in lengths if p.name not in counts},
            **roles,
            "starts": starts,
        }
        tokens = tuple(Input(m, p) for m, p in zip(meanings, names_, strict=True))
        told = self.told.get(names_[-1], Told())
        are_words = main.dtype == "int" if main is not None else _may_be_words(told)
        if len(sides) == 1 and main is None and self.may_hold_lists(names_[0], told):
            for masks in choices(self.module, required_masks, meanings):
                yield Calling(tokens, masks=masks, in_lists=True, **common)
        for masks in choices(self.module, required_masks, meanings) if are_words else ():
            yield Calling(tokens, masks=masks, **common)
        unknown = [p.name for p in rest if p.required and p.name not in {*fixed, *counts, *required_masks}]
        if len(unknown) == 1 and len(sides) == 1 and main is None and not required_masks:
            for shape in self.conditions():  # tokens beside numbers: of sound, of a picture
                whole = {name: AllOf(shape[0]) for name in counts if self.counts_steps_of(name, unknown[0])}
                given = {
                    **common,
                    "fixed": {**fixed, unknown[0]: Beside(unknown[0], shape), **whole},
                    "lengths": {name: of for name, of in counts.items() if name not in whole},
                }
                yield Calling(tokens, **given)
        if len(sides) == 1 and (main is None or main.dtype == "float"):
            filled = {*fixed, *counts, *required_masks, *each} - {roles["labels"]}
            also = [p.name for p in rest if p.required and p.name not in filled]
            given_numbers: dict[str, Any] = {**common, "labels": "" if roles["labels"] in also else roles["labels"]}
            given_numbers["lengths"] = dict.fromkeys(counts, "x")
            given_numbers["optional_lengths"] = dict.fromkeys(common["optional_lengths"], "x")
            fillers = (alike, OneEach) if also else (alike,)
            said = shapes_told(told.axes[1:], self.module, self.options) if told.axes else []
            offered = [*said, *number_shapes(self.module, self.options)]
            if names.IMAGES.fullmatch(names_[0].lower()):
                offered.sort(key=lambda shape: len(shape) < 3)
            shapes = list(dict.fromkeys(offered)) if main is None else list(shapes_stated(main))
            for shape, filler in product(shapes, fillers):
                given_numbers["fixed"] = {**fixed, **{name: filler(name) for name in also}}
                for masks in choices(self.module, required_masks, ("x",)):
                    yield Calling((_of_numbers(names_[0], shape),), masks=(*masks, *each.values()), **given_numbers)

    def says_of_each_number(self, name: str, main: Shape | None) -> bool:
        """Whether an input is True or False for each number of the main one: whether that was observed."""
        shape = self.given.get(name)
        return bool(shape and main and shape.dtype == "bool" and shape.sizes == main.sizes and len(main.sizes) == 3)

    def counted_by(self, name: str) -> Shape | None:
        """The stated input whose steps an input counts, by its name: a_len beside a. None where it counts none."""
        of = [shape for other, shape in self.given.items() if other != name and names.called_after(name, other)]
        counts = len(self.given[name].sizes) == 1 and re.search(r"_(len(gth)?s?)$", name.lower())
        return next((shape for shape in of if len(shape.sizes) > 1), None) if counts else None

    def counts_steps_of(self, name: str, other: str) -> bool:
        """Whether a parameter is the lengths of another input: by its name, or as one that is called lengths and stands
        right behind it."""
        order = [p.name for p in self.parameters]
        behind = order[max(order.index(name) - 1, 0)] == other
        return names.called_after(name, other) or (behind and _ANY_LENGTHS.fullmatch(name.lower()) is not None)

    def steps_of(self, sizes: Sequence[int]) -> int:
        """How many steps numbers of these sizes have: (B, T, ...), or (B, C, T) where the first convolution over time
        takes so many channels."""
        taken = next((part.in_channels for part in self.module.modules() if isinstance(part, nn.Conv1d)), 0)
        return sizes[2] if taken == sizes[1] and taken != sizes[2] else sizes[1]

    def may_hold_lists(self, name: str, told: Told) -> bool:
        """Whether a parameter may be ids of lists of texts (B, candidates, T), by what the code says of its axes."""
        text = text_of(type(self.module).forward)
        folds = re.search(names.FOLDED.format(re.escape(name)), text)
        return told.dtype in ("", "int") and (len(told.axes) == 3 or folds is not None)

    def conditions(self) -> Iterator[tuple[int, ...]]:
        """Shapes, without the batch, of numbers that stand beside token ids: as many frames as its tables of positions
        have, or twice as many, where a convolution halves them."""
        lengths = table_lengths(self.module)
        frames = list(dict.fromkeys([*(2 * n for n in lengths), *lengths, FRAMES]))
        for shape in number_shapes(self.module, self.options)[:_CONDITIONS]:
            for length in frames if None in shape else (0,):
                yield tuple(length if size is None else size for size in shape)


def _of_each_number(name: str) -> Mask:
    """What says of each number whether it was observed: all were, but those of padding."""

    def make(inputs: Mapping[str, Any]) -> Tensor:
        return real_tokens(inputs, "x")[..., None].expand(inputs["x"].shape)

    return Mask(name, make, "bool, True = observed, (B, T, d)", encoding="bool, True = may attend", axes=3, keys="x")


def _meaning(parameter: inspect.Parameter) -> str:
    """What its name proposes: no switch, where its annotation says that it is a tensor."""
    meaning = names.meaning_of(parameter.name)
    return "" if meaning == "flag" and "Tensor" in str(parameter.annotation) else meaning


def _may_be_words(told: Told) -> bool:
    return told.dtype in ("", "int") and len(told.axes) < 3


def _of_numbers(name: str, shape: tuple[int | None, ...]) -> Input:
    """The input of numbers in this shape."""
    if len(shape) == 2 and shape[1] is None:
        return Input("x", name, shape=(None, shape[0]), channels_first=True)
    return Input("x", name, shape=shape)


def _told(module: nn.Module, parameters: Sequence[str], packed: bool) -> dict[str, Told]:
    """What the code says of the inputs: the forward itself, else the user's calls, else, where they are packed in a
    mapping, what makes batches."""
    said = told_by_forward(module, parameters)
    home = sys.modules.get(type(module).__module__)
    if home is None or type(module).__module__.startswith("torch."):
        return said
    others = [told_by_calls(module, surroundings(home), parameters)]
    others += [told_by_batches(type(module), parameters)] if packed else []
    for shown in others:
        said = {name: said.get(name, Told()).over(shown.get(name, Told())) for name in {**said, **shown}}
    return said
