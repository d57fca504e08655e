"""How to call a model is found out by running it: names propose the inputs, the attempt that works decides.

`calling_of(module)` runs the model on a few tokens (or numbers) and watches which table of embeddings reads which
input. That tells the inputs, their vocabularies, the axis of the batch, and the layout of the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.stated import Shape, StatedError
from conformance.adapters.whole import names
from conformance.adapters.whole.batches import packed_in
from conformance.adapters.whole.beside import Climbed, climb
from conformance.adapters.whole.calling import (
    FEWER,
    LAYOUTS,
    LENGTHS,
    ONE_ANSWER,
    B,
    Calling,
    Input,
    Lookups,
    T,
    first_data,
    hides,
    laid_out,
    other_words,
    quiet_evaluation,
)
from conformance.adapters.whole.fillers import (
    Beside,
    alike,
    constants,
    counted,
    maker,
    of_shape,
    one_each,
    shapes_stated,
)
from conformance.adapters.whole.masking import choices
from conformance.adapters.whole.shapes import number_shapes, table_lengths
from conformance.places import innermost_line

FRAMES = 48
"""Numbers in a row for a model that shortens them."""
_CONDITIONS = 10
"""So many shapes of numbers are tried beside token ids."""


def calling_of(module: nn.Module, given: Sequence[Shape] = (), options: Mapping[str, Any] | None = None) -> Calling:
    """How to call the model. given: the inputs that the user states. options: the arguments that its constructor got,
    which say sizes of numbers.

    Raises Unresolved, with the exception of the attempt that came furthest, when no way was found; StatedError when
    forward takes none of a name that is stated.
    """
    finder = _Finder(module, given, options or {})
    with quiet_evaluation(module):
        return finder.find()


@dataclass
class _Parameter:
    name: str
    meaning: str
    required: bool
    default: Any


class NotTwoSided(TypeError):
    """The second input is none that the model reads as a sequence: labels, perhaps."""


class ComparesSamples(TypeError):
    """Each sample is compared with the others of its batch: its answer is none of its own."""


class NoAnswer(Unresolved):
    """The model runs, and gives no sample an answer of its own: a loss only, or comparisons of the samples."""


class _Finder:
    """One search: the parameters of forward, the attempts, and why each failed."""

    def __init__(self, module: nn.Module, given: Sequence[Shape], options: Mapping[str, Any]) -> None:
        self.module = module
        self.options = options
        self.operations = 0
        self.errors: list[tuple[int, Exception]] = []
        """(how many operations ran before, what was raised): the attempt that came furthest says most."""
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        self.parameters = [
            _Parameter(p.name, names.meaning_of(p.name), p.default is p.empty, p.default)
            for p in inspect.signature(module.forward).parameters.values()
            if p.kind not in kinds
        ]
        self.packed, keys, in_order = packed_in(module)
        self.packing: dict[str, Any] = {"packed": self.packed, "in_order": tuple(keys) if in_order else ()}
        if self.packed:
            self.parameters = [
                _Parameter(key, names.meaning_of(key), is_required, None) for key, is_required in keys.items()
            ]
        required = [p for p in self.parameters if p.required]
        if required and all(p.meaning == "mask" for p in required):  # forward(masked_image): what else is the data?
            required[0].meaning = ""
        self.given = self._named(given)
        self.only_loss = False
        self.climbed: Climbed | None = None
        """What was found out of several inputs, which is then taken as if the user had stated it."""

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

    def of(self, meaning: str, required: bool | None = None) -> list[_Parameter]:
        return [p for p in self.parameters if p.meaning == meaning and required in (None, p.required)]

    def find(self) -> Calling:
        optional = any(p.meaning == "mask" and not p.required for p in self.parameters)
        for all_masks in (False, True) if optional else (False,):  # None, the default, is not always taken
            found = self.first_that_runs(all_masks)
            if found is not None:
                return _without_none(found)
        if not self.given and (found := self.as_climbed()) is not None:
            return _without_none(found)
        name = type(self.module).__name__
        if not self.errors:
            raise Unresolved(f"{name}.forward takes no input that is known: say what it takes with --claims-input")
        if self.only_loss or any(isinstance(error, ComparesSamples) for _, error in self.errors):
            what = "a loss only" if self.only_loss else "a number for each pair of samples"
            raise NoAnswer(
                f"{name}.forward gives {what}, and no sample an answer of its own; to test a method that does, point "
                "at a class of yours around the model: def forward(self, ids): return self.model.encode(ids)"
            )
        _, error = self.errors[-1] if self.given else max(self.errors, key=lambda failed: failed[0])
        place = innermost_line(error)
        if self.given:
            raise Unresolved(
                f"{name} cannot be called with the inputs that --claims-input states: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:200]}{f' at {place}' if place else ''}"
            )
        raise Unresolved(
            f"{name} cannot be called: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            f"{f' at {place}' if place else ''}; say what forward takes, e.g. --claims-input '{self.line()}'"
        )

    def line(self) -> str:
        """What the user may write after --claims-input, to be corrected."""
        if self.climbed is not None:
            return self.climbed.line()
        return f"{self.parameters[0].name if self.parameters else 'x'}=2x16:int"

    def as_climbed(self) -> Calling | None:
        """The calling of a model that takes several inputs, whose forms are found one by one; None where none are."""
        several = [p for p in self.parameters if p.required and p.meaning not in ("mask", "cache")]
        stacked = (nn.ModuleList, nn.Sequential, nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer)
        if len(several) < 2 or not any(isinstance(part, stacked) for part in self.module.modules()):
            return None  # nothing, or a component
        furthest, failure = -1, None

        def run(values: Mapping[str, Tensor]) -> tuple[int, bool]:
            nonlocal furthest, failure
            try:
                arguments = Calling((), fixed=constants(values), **self.packing).arguments({})
                with self.watching():
                    result = self.module(**arguments)
            except Exception as error:
                if self.operations > furthest:
                    furthest, failure = self.operations, error
                return self.operations, False
            axes = [t.ndim for t in tensors_in(result) if t.is_floating_point()]
            self.only_loss = self.only_loss or axes == [0]
            return self.operations, any(axes)

        self.climbed = climb(self.module, [p.name for p in several], run, self.options, B)
        if not self.climbed.main:
            if failure is not None:
                self.errors.insert(0, (furthest, failure))
            return None
        self.given = dict(self.climbed.shapes)
        found = self.first_that_runs(False) or self.first_that_runs(True)
        return replace(found, beside=self.climbed.shapes) if found is not None else None

    def first_that_runs(self, all_masks: bool) -> Calling | None:
        """The first calling that runs and hides what its masks say, else the first that runs. all_masks: the optional
        masks are given, too."""
        leaking: Calling | None = None
        for sides in self.sides():
            for calling in self.callings(sides, all_masks):
                found = self.attempt(calling)
                if found is not None and (not found.masks or hides(self.module, found)):
                    return found
                leaking = leaking or found
            if leaking is not None:
                return leaking
        return None

    def sides(self) -> Iterator[tuple[_Parameter, ...]]:
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
        both = (source[:1] or plain[:1]) + (target[:1] or plain[1:2])
        required = [p for p in self.parameters if p.required and p.meaning in ("", "source", "target")]
        if (
            len(both) == 2
            and both[0] is not both[1]
            and all(p.required or p.meaning in ("source", "target") for p in both)
        ):
            yield tuple(both)
        if len(required) >= 2:
            yield tuple(required[:2])
        candidates = [*required, *(p for p in self.parameters if p.meaning in ("", "source", "target", "types"))]
        for one in dict.fromkeys(p.name for p in candidates[:3]):
            yield (next(p for p in self.parameters if p.name == one),)

    def callings(self, sides: tuple[_Parameter, ...], all_masks: bool = False) -> Iterator[Calling]:
        """Ways to call with these data: token ids first, numbers where the model reads no table."""
        names_ = [p.name for p in sides]
        rest = [p for p in self.parameters if p.name not in names_]
        meanings = ("src", "tgt") if len(sides) == 2 else ("ids",)
        roles = {
            m: next((p.name for p in rest if p.meaning == m), "")
            for m in ("labels", "cache", "types", "positions", "offset")
        }
        if self.packed:  # no cache is handed over so
            roles["cache"] = ""
        if not roles["labels"] and len(sides) == 1:
            roles["labels"] = next((p.name for p in rest if names.MAY_BE_LABELS.fullmatch(p.name.lower())), "")
        fixed = {
            p.name: made for p in rest if p.required and (made := maker(p.name, p.meaning, roles["labels"])) is not None
        }
        main = self.given.get(names_[-1])
        if main is not None:
            known = set() if self.climbed else set(fixed)
            others = [p for p in rest if p.name in self.given and p.name not in known and p.meaning != "mask"]
            fixed |= {p.name: of_shape(self.given[p.name], main) for p in others}
        masks_of = [p for p in rest if p.meaning == "mask"]
        required_masks = [p.name for p in masks_of if p.required or all_masks or p.name in self.given]
        optional = tuple(p.name for p in masks_of if not (p.required or all_masks))
        counts = {p.name: counted(p.name, meanings) for p in rest if p.meaning == "lengths" and p.name in fixed}
        fixed = {name: maker for name, maker in fixed.items() if name not in counts}
        common: dict[str, Any] = {
            **self.packing,
            "fixed": fixed,
            "optional_masks": optional,
            "lengths": counts,
            **roles,
        }
        tokens = tuple(Input(m, p) for m, p in zip(meanings, names_, strict=True))
        for masks in choices(self.module, required_masks, meanings) if main is None or main.dtype == "int" else ():
            yield Calling(tokens, masks=masks, **common)
        unknown = [p.name for p in rest if p.required and p.name not in {*fixed, *counts, *required_masks}]
        if len(unknown) == 1 and len(sides) == 1 and main is None and not required_masks:
            for shape in self.conditions():  # tokens beside numbers: of sound, of a picture
                given = {**common, "fixed": {**fixed, unknown[0]: Beside(unknown[0], shape)}}
                yield Calling(tokens, **given)
        if len(sides) == 1 and (main is None or main.dtype == "float"):
            filled = {*fixed, *counts, *required_masks} - {roles["labels"]}
            also = [p.name for p in rest if p.required and p.name not in filled]
            given_numbers: dict[str, Any] = {**common, "labels": "" if roles["labels"] in also else roles["labels"]}
            given_numbers["lengths"] = dict.fromkeys(counts, "x")
            fillers = (alike, one_each) if also else (alike,)
            shapes = number_shapes(self.module, self.options) if main is None else shapes_stated(main)
            for shape, filler in product(shapes, fillers):
                given_numbers["fixed"] = {**fixed, **{name: filler(name) for name in also}}
                for masks in choices(self.module, required_masks, ("x",)):
                    yield Calling((Input("x", names_[0], shape=shape),), masks=masks, **given_numbers)

    def conditions(self) -> Iterator[tuple[int, ...]]:
        """Shapes, without the batch, of numbers that stand beside token ids: as many frames as its tables of positions
        have, or twice as many, where a convolution halves them."""
        lengths = table_lengths(self.module)
        frames = list(dict.fromkeys([*(2 * n for n in lengths), *lengths, FRAMES]))
        for shape in number_shapes(self.module, self.options)[:_CONDITIONS]:
            for length in frames if None in shape else (0,):
                yield tuple(length if size is None else size for size in shape)

    def attempt(self, calling: Calling) -> Calling | None:
        """The calling completed by running it, with the first length that works; None when it does not run."""
        numbers = calling.main.meaning == "x"
        lengths: tuple[int, ...] = (*LENGTHS, *table_lengths(self.module))
        if stated := self.given.get(calling.main.parameter):
            lengths = (T, *stated.sizes[1:2])
        if numbers and None not in calling.main.shape:
            lengths = (0,)
        for length in dict.fromkeys(lengths):
            if numbers and length in calling.main.shape:  # the two axes could not be told apart
                continue
            try:
                found = self.run(calling, length)
            except Exception as error:
                self.errors.append((self.operations, error))
                if not _about_sizes(error):
                    return None
                continue
            if found is not None:
                return self.of_many_frames(calling, found)
        return None

    def of_many_frames(self, calling: Calling, found: Calling) -> Calling:
        """The calling with more numbers in a row, where few give one answer: of so few a model that shortens its input
        keeps one, in which nothing is seen of what it attends to."""
        shortens = found.layout in ("(B, 1, V)", "(B, ...)")
        if found.main.meaning != "x" or None not in found.main.shape or not shortens:
            return found
        with suppress(Exception):
            return self.run(calling, FRAMES) or found
        return found

    def run(self, calling: Calling, length: int) -> Calling | None:
        """The calling with its vocabularies, the axis of the batch and the layout of the answer: of orders that run,
        that in which rows stay apart, else the batch first. Raises what the first order raises when neither runs."""
        mixed: Calling | None = None
        failure: Exception | None = None
        can_turn = calling.main.meaning != "x" or calling.main.shape[:1] == (None,)
        for batch_first in (True, False) if can_turn else (True,):
            candidate = replace(calling, batch_first=batch_first)
            data = first_data(calling, length)
            try:
                arguments = candidate.arguments(data)
                with self.watching() as lookups:
                    result = self.module(**arguments)
                read = self.with_vocabularies(candidate, data, lookups, length)
                laid = _layout(read, data, result)
                if laid is None:
                    floating = [t for t in tensors_in(result) if t.is_floating_point()]
                    self.only_loss = self.only_loss or (bool(floating) and all(t.ndim == 0 for t in floating))
                    continue
                laid, data = self.of_one_side(laid, data)
                if laid.outputs == B and self.compares_samples(laid, length):
                    raise ComparesSamples(
                        f"{type(self.module).__name__} answers with a number for each pair of samples"
                    )
                laid = self.answering_everywhere(laid, data)
                if self.rows_apart(laid, data):
                    return self.said(laid)
            except ComparesSamples:
                raise
            except Exception as error:
                failure = failure or error
                continue
            mixed = mixed or laid
        if mixed is None and failure is not None:
            raise failure
        return self.said(mixed) if mixed is not None else None

    def of_one_side(self, calling: Calling, data: dict[str, Tensor]) -> tuple[Calling, dict[str, Tensor]]:
        """Of two sides that get an answer each, as a query and a document do, the calling with the main one and its
        answer only, and its data; the other side is then the same for every sample."""
        if not calling.two_sided or calling.layout not in ONE_ANSWER:
            return calling, data

        def answers(x: Mapping[str, Tensor]) -> list[Tensor]:
            return [t for t in tensors_in(self.module(**calling.arguments(x))) if t.is_floating_point()]

        source, main = calling.inputs
        before = answers(data)
        of_main, of_source = (
            [not torch.equal(a, b) for a, b in zip(before, answers({**data, m: other_words(data[m])}), strict=True)]
            for m in (main.meaning, source.meaning)
        )
        alike = [at for at, one in enumerate(before) if one.shape == before[calling.answer_at].shape]
        at = next((at for at in alike if of_main[at]), calling.answer_at)
        if of_source[at]:
            return replace(calling, answer_at=at), data
        one = Shape(main.parameter, tuple(data[main.meaning].shape), "int")
        other = Shape(source.parameter, tuple(data[source.meaning].shape), "int")
        fixed = {**calling.fixed, source.parameter: of_shape(other, one)}
        alone = replace(calling, inputs=(replace(main, meaning="ids"),), fixed=fixed, answer_at=at)
        return alone, {"ids": data[main.meaning]}

    def compares_samples(self, calling: Calling, length: int) -> bool:
        """Whether a larger batch gets more numbers a sample: each is compared with all, as in a contrastive loss."""
        data = {name: torch.cat([x, x[:1]]) for name, x in first_data(calling, length).items()}
        found = [t for t in tensors_in(self.module(**calling.arguments(data))) if t.is_floating_point()]
        return found[calling.answer_at].shape[-1:] == (B + 1,)

    @contextmanager
    def watching(self) -> Iterator[Lookups]:
        lookups = Lookups()
        try:
            with lookups:
                yield lookups
        finally:
            self.operations = lookups.operations

    def with_vocabularies(self, calling: Calling, data: Mapping[str, Tensor], lookups: Lookups, length: int) -> Calling:
        """The calling with what its tables say. Raises NotTwoSided when the second input is read through none."""
        inputs = []
        for one in calling.inputs:
            vocab = lookups.vocab_of(data[one.meaning]) if one.meaning != "x" else 0
            inputs.append(replace(one, vocab=vocab, length=length if length not in (0, T) else None))
        if calling.two_sided and not all(one.vocab for one in inputs):
            raise NotTwoSided
        return replace(calling, inputs=tuple(inputs))

    def answering_everywhere(self, calling: Calling, data: dict[str, Tensor]) -> Calling:
        """A model that answers for the last position only, and for all when it is given labels, is given them."""
        one = calling.main
        last_only = calling.layout in ("(B, V)", "(B, 1, V)") and calling.outputs == one.vocab > 0
        if not last_only or not calling.labels or calling.two_sided:
            return calling
        labels = {calling.labels: lambda inputs: inputs.get("labels", inputs[one.meaning])}
        everywhere = replace(calling, fixed={**calling.fixed, **labels})
        try:
            laid = _layout(everywhere, data, self.module(**everywhere.arguments(data)))
        except Exception:
            return calling
        return laid if laid is not None and laid.layout not in ("(B, V)", "(B, 1, V)") else calling

    def rows_apart(self, calling: Calling, data: dict[str, Tensor]) -> bool:
        """Whether a change of the first sentence leaves the second's answer as it was."""
        before = calling(self.module, data).get("out")
        changed = dict(data)
        for one in calling.inputs:
            x = data[one.meaning].clone()
            x[0] = torch.roll(x[0], 1, 0) + (0 if one.vocab else 1)
            changed[one.meaning] = x
        after = calling(self.module, changed).get("out")
        if before is None or after is None or not before.numel() or before.shape[0] != B or before.shape != after.shape:
            return False
        apart = float((before[1] - after[1]).abs().max()) <= 1e-5 * float(before.abs().max() + 1e-9)
        return apart and not torch.equal(before[0], after[0])

    def said(self, calling: Calling) -> Calling:
        shown = []
        for one in calling.inputs:
            what = f"token ids of {one.vocab}" if one.vocab else f"numbers {one.shape}"
            shown.append(f"{one.parameter} = {what}")
        beside = [make for make in calling.fixed.values() if isinstance(make, Beside)]
        shown += [f"{make.name} = numbers {make.shape}, the same for every sample" for make in beside]
        others = self.climbed.shapes.items() if self.climbed is not None else ()
        shown += [
            f"{name} = {shape.text}, the same for every sample" for name, shape in others if name in calling.fixed
        ]
        shown = [f"{self.packed} = {{{', '.join(shown)}}}"] if self.packed else shown
        order = "(B, T)" if calling.batch_first else "(T, B)"
        masks = [f"{mask.parameter} = {mask.how}" for mask in calling.masks]
        evidence = "it was run so"
        return replace(
            calling,
            facts=(
                Fact("call", ", ".join([*shown, *masks]), evidence),
                Fact("layout", f"{order} in, {calling.layout} out, V = {calling.outputs}", evidence),
            ),
        )


def _without_none(calling: Calling) -> Calling:
    """The calling with required masks that may be None among the optional ones: what they mark is found out later."""
    open_ = [mask.parameter for mask in calling.masks if mask.how == "None"]
    return replace(
        calling,
        masks=tuple(mask for mask in calling.masks if mask.parameter not in open_),
        optional_masks=(*calling.optional_masks, *open_),
        fixed={**calling.fixed, **dict.fromkeys(open_, lambda inputs: None)},
    )


def _about_sizes(error: BaseException) -> bool:
    """Whether an attempt with another length may fare better: not when it cannot take such arguments at all."""
    return not isinstance(error, (TypeError, AttributeError, NotImplementedError, KeyError))


def _layout(calling: Calling, data: dict[str, Tensor], result: Any) -> Calling | None:
    """The calling with the layout of the answer that the result shows."""
    main = data[calling.main.meaning]
    batch, length = main.shape[0], main.shape[1]
    floating = [t for t in tensors_in(result) if t.is_floating_point()]
    vocabs = [one.vocab for one in reversed(calling.inputs) if one.vocab]
    orders = LAYOUTS if calling.batch_first else ("(T, B, V)", *LAYOUTS)
    named = _called_logits(result)
    offered = list(enumerate(floating))
    chosen = [pair for pair in offered if pair[1] is named]
    for wanted, layout in product((True, False), orders):
        for at, tensor in chosen or offered:
            if tensor.ndim == 0 or (layout == "(B, ...)" and calling.main.meaning != "x"):
                continue
            if layout == FEWER and not (calling.lengths and calling.main.meaning == "x" and tensor.ndim == 3):
                continue
            outputs = tensor.shape[1] if layout == "(B, V, T)" and tensor.ndim > 1 else tensor.shape[-1]
            outputs = tensor.numel() // batch if layout in ("(B, ...)", "(B)") else outputs
            if (outputs in vocabs) != wanted or laid_out(tensor, layout, batch, length, outputs) is None:
                continue
            return replace(calling, layout=layout, outputs=outputs, answer_at=at)
    return None


def _called_logits(result: Any) -> Tensor | None:
    """What a result with names calls its logits: it is the answer, whatever else is beside it."""
    held = result if isinstance(result, Mapping) else getattr(result, "__dict__", {})
    found = held.get("logits") if isinstance(held, Mapping) else None
    return found if isinstance(found, Tensor) else None
