"""How to call a model is found out by running it: names propose the inputs, the attempt that works decides.

`calling_of(module)` runs the model on a few tokens (or numbers) and watches which table of embeddings reads which
input. That tells the inputs, their vocabularies, the axis of the batch, and the layout of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.stated import Shape
from conformance.adapters.whole.beside import Ran, climb
from conformance.adapters.whole.calling import (
    LENGTHS,
    B,
    Calling,
    Lookups,
    T,
    first_data,
    hides,
    other_words,
    quiet_evaluation,
)
from conformance.adapters.whole.fillers import Beside, constants, of_shape
from conformance.adapters.whole.layout_search import layout_of
from conformance.adapters.whole.layouts import FEWER, ONE_ANSWER, SCORES
from conformance.adapters.whole.names import MAY_BE_LABELS, meaning_of
from conformance.adapters.whole.proposing import FRAMES, Proposals
from conformance.adapters.whole.shapes import table_lengths

_GROWN = 4
"""So many times as long an input has more stretches, where its answer has a row for each."""
_MOST_HINTS = 3
"""So many lengths that the first error speaks of are tried."""


def calling_of(module: nn.Module, given: Sequence[Shape] = (), options: Mapping[str, Any] | None = None) -> Calling:
    """How to call the model. given: the inputs that the user states. options: the arguments that its constructor got,
    which say sizes of numbers.

    Raises Unresolved, with the exception of the attempt that came furthest, when no way was found; StatedError when
    forward takes none of a name that is stated.
    """
    finder = _Finder(module, given, options or {})
    with quiet_evaluation(module):
        return finder.find()


class NotTwoSided(TypeError):
    """The second input is none that the model reads as a sequence: labels, perhaps."""


class ComparesSamples(TypeError):
    """Each sample is compared with the others of its batch: its answer is none of its own."""


class NoAnswer(Unresolved):
    """The model runs, and gives no sample an answer of its own: a loss only, or comparisons of the samples."""


class _Finder:
    """One search: what is proposed, the attempts, and why each failed."""

    def __init__(self, module: nn.Module, given: Sequence[Shape], options: Mapping[str, Any]) -> None:
        self.module = module
        self.options = options
        self.proposals = Proposals(module, given, options)
        self.operations = 0
        self.failures: list[Ran] = []
        """The attempt that came furthest says most."""
        self.only_loss = self.compares = False

    def find(self) -> Calling:
        optional = any(p.meaning == "mask" and not p.required for p in self.proposals.parameters)
        for all_masks in (False, True) if optional else (False,):  # None, the default, is not always taken
            found = self.first_that_runs(all_masks)
            if found is not None:
                return _without_none(found)
        for optional in (False, True) if not self.proposals.given else ():
            if (found := self.as_climbed(optional)) is not None:
                return _without_none(found)
        name = type(self.module).__name__
        if not self.failures:
            raise Unresolved(f"{name}.forward takes no input that is known: say what it takes with --claims-input")
        if self.only_loss or self.compares:
            what = "a loss only" if self.only_loss else "a number for each pair of samples"
            raise NoAnswer(
                f"{name}.forward gives {what}, and no sample an answer of its own; to test a method that does, point "
                "at a class of yours around the model: def forward(self, ids): return self.model.encode(ids)"
            )
        if self.proposals.given and self.proposals.climbed is None:
            raise Unresolved(f"{name} cannot be called with the inputs that --claims-input states: {self.failures[-1]}")
        furthest = max(self.failures, key=lambda ran: ran.operations)
        raise Unresolved(
            f"{name} cannot be called: {furthest}; say what forward takes, e.g. --claims-input '{self.line()}'"
        )

    def line(self) -> str:
        """What the user may write after --claims-input, to be corrected."""
        if self.proposals.climbed is not None:
            return self.proposals.climbed.line()
        return f"{self.proposals.parameters[0].name if self.proposals.parameters else 'x'}=2x16:int"

    def as_climbed(self, optional: bool) -> Calling | None:
        """The calling of a model whose inputs are of forms that are found one by one; None where none are. optional:
        what has no value by default and may be data is an input, too; None where there is no such parameter."""
        parameters = self.proposals.parameters
        inputs = [p.name for p in parameters if p.required and p.meaning not in ("mask", "cache")]
        if optional:
            also = [p.name for p in parameters if not p.required and p.default is None and not p.meaning]
            also = [name for name in also if not MAY_BE_LABELS.fullmatch(name.lower())]
            inputs = [*inputs, *also] if inputs and also else []
        stacked = (nn.ModuleList, nn.Sequential, nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer)
        if not inputs or not any(isinstance(part, stacked) for part in self.module.modules()):
            return None  # nothing, or a component
        furthest: Ran | None = None

        def run(values: Mapping[str, Tensor]) -> Ran:
            nonlocal furthest
            try:
                arguments = Calling((), fixed=constants(values), **self.proposals.packing).arguments({})
                with self.watching():
                    result = self.module(**arguments)
            except Exception as error:
                ran = Ran.raised(self.operations, error)
                furthest = ran if furthest is None or ran.operations > furthest.operations else furthest
                return ran
            axes = [t.ndim for t in tensors_in(result) if t.is_floating_point()]
            self.only_loss = self.only_loss or axes == [0]
            return Ran(self.operations, done=any(axes))

        climbed = climb(self.module, inputs, run, self.options, B, self.proposals.told)
        self.proposals.climbed = climbed
        if not climbed.main:
            at = 0 if len(inputs) > 1 else len(self.failures)  # of two that came as far, that with every input counts
            self.failures[at:at] = [furthest] if furthest is not None else []
            return None
        self.proposals.given = dict(climbed.shapes)
        for main in dict.fromkeys((climbed.main, *climbed.shapes)):
            self.proposals.climbed = replace(climbed, main=main)
            if found := self.first_that_runs(False) or self.first_that_runs(True):
                return replace(found, beside=climbed.shapes)
        return None

    def first_that_runs(self, all_masks: bool) -> Calling | None:
        """The first calling that runs and hides what its masks say, else the first that runs. all_masks: the optional
        masks are given, too."""
        leaking: Calling | None = None
        for sides in self.proposals.sides():
            for calling in self.proposals.callings(sides, all_masks):
                found = self.attempt(calling)
                if found is not None and (not found.masks or hides(self.module, found)):
                    return found
                leaking = leaking or found
            if leaking is not None:
                return leaking
        return None

    def attempt(self, calling: Calling) -> Calling | None:
        """The calling completed by running it, with the first length that works; None when it does not run."""
        numbers = calling.main.meaning == "x"
        lengths = [*LENGTHS, *table_lengths(self.module)]
        if stated := self.proposals.given.get(calling.main.parameter):
            lengths = [T, *stated.sizes[1:2]]
        if numbers and None not in calling.main.shape:
            lengths = [0]
        hinted = 0 in lengths or bool(stated)
        for length in _each_once(lengths):
            if numbers and length in calling.main.shape:  # the two axes could not be told apart
                continue
            try:
                found = self.run(calling, length)
            except Exception as error:
                self.failures.append(Ran.raised(self.operations, error))
                self.compares = self.compares or isinstance(error, ComparesSamples)
                if not hinted and self.failures[-1].operations:  # "must match the size of tensor b (5)"
                    lengths += [size for size in self.failures[-1].numbers if size > B][:_MOST_HINTS]
                    hinted = True
                if not _about_sizes(error):
                    return None
                continue
            if found is not None:
                return self.of_many_frames(calling, found)
        return None

    def of_many_frames(self, calling: Calling, found: Calling) -> Calling:
        """The calling with more numbers in a row, where few give one answer, or fewer are too few: of so few a model
        that shortens its input keeps one, in which nothing is seen of what it attends to."""
        shortens = found.layout in ("(B, 1, V)", "(B, ...)") or (
            found.layout in (FEWER, "(B, V, T)") and found.main.length
        )
        if found.main.meaning != "x" or None not in found.main.shape or not shortens:
            return found
        with suppress(Exception):
            return self.run(calling, self.many_frames()) or found
        return found

    def many_frames(self) -> int:
        """So many numbers in a row that no size of the model is the same: an axis of the answer is told by its size."""
        sizes = {size for one in (*self.module.parameters(), *self.module.buffers()) for size in one.shape}
        return next((n for n in range(FRAMES, 2 * FRAMES, 4) if n not in sizes), FRAMES)

    def run(self, calling: Calling, length: int) -> Calling | None:
        """The calling with its vocabularies, the axis of the batch and the layout of the answer: of orders that run,
        that in which rows stay apart, else the batch first. Raises what the first order raises when neither runs."""
        mixed: Calling | None = None
        failure: Exception | None = None
        can_turn = calling.main.meaning != "x" or calling.main.shape[:1] == (None,)
        try:
            for batch_first in (True, False) if can_turn else (True,):
                try:
                    laid, apart = self.in_order(replace(calling, batch_first=batch_first), length)
                except ComparesSamples:
                    raise
                except Exception as error:
                    failure = failure or error
                    continue
                if apart:
                    return self.said(laid) if laid is not None else None
                mixed = mixed or laid
            if mixed is None and failure is not None:
                raise failure
            return self.said(mixed) if mixed is not None else None
        finally:
            failure = None  # its traceback holds this frame, and with it the tensors of the attempt

    def in_order(self, candidate: Calling, length: int) -> tuple[Calling | None, bool]:
        """The candidate with what its run shows, None where it gives no answer; and whether its rows stay apart."""
        data = first_data(candidate, length)
        arguments = candidate.arguments(data)
        with self.watching() as lookups:
            result = self.module(**arguments)
        read = self.with_vocabularies(candidate, data, lookups, length)
        beside = self.without_parameters(arguments, result)
        told = bool(read.lengths or read.optional_lengths or read.masks or read.optional_masks)
        laid = layout_of(read, data, result, beside, stretches=told)
        if laid is not None and laid.layout == FEWER and not read.lengths and not self.grows(laid, data):
            laid = layout_of(read, data, result, beside, stretches=False)
        if laid is None:
            floating = [t for t in tensors_in(result) if t.is_floating_point()]
            self.only_loss = self.only_loss or (bool(floating) and all(t.ndim == 0 for t in floating))
            return None, False
        laid, data = self.of_one_side(self.of_each_position(laid, length), data)
        if laid.outputs == B and self.compares_samples(laid, length):
            raise ComparesSamples(f"{type(self.module).__name__} answers with a number for each pair of samples")
        laid = self.answering_everywhere(laid, data)
        return laid, self.rows_apart(laid, data)

    def grows(self, calling: Calling, data: Mapping[str, Tensor]) -> bool:
        """Whether an answer in rows has more of them for a longer input: a fixed number of rows are no stretches."""
        one = calling.main
        if one.length is not None or None not in one.shape:
            return False
        with suppress(Exception):
            longer = first_data(calling, _GROWN * data[one.meaning].shape[1])
            more, less = (calling(self.module, x)["out"].shape[1] for x in (longer, data))
            return bool(more > less)
        return False

    def of_each_position(self, calling: Calling, length: int) -> Calling:
        """Of (B, T) numbers, which look like T classes, the calling with a score for each position: with more
        positions they are more."""
        one = calling.main
        is_free = one.length is None and (not one.shape or None in one.shape)
        if calling.layout != "(B, V)" or calling.outputs != length or not is_free:
            return calling
        scores = replace(calling, layout=SCORES, outputs=1)
        with suppress(Exception):
            data = first_data(calling, length + 1)
            if scores.answer(self.module(**scores.arguments(data)), data) is not None:
                return scores
        return calling

    def without_parameters(self, arguments: Mapping[str, Any], result: Any) -> list[int]:
        """Which of several results no parameter reaches, where one reaches another: statistics of the data, masks."""
        if sum(t.is_floating_point() for t in tensors_in(result)) < 2:
            return []
        with torch.enable_grad():
            again = [t for t in tensors_in(self.module(**arguments)) if t.is_floating_point()]
        learned = [t.requires_grad for t in again]
        return [at for at, one in enumerate(learned) if not one] if any(learned) else []

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
        """The calling with what its tables say. Raises NotTwoSided when the second input is read through none, or when
        both must be as long and neither is called a source or a target: words and what is said of each."""
        inputs = []
        for one in calling.inputs:
            vocab = lookups.vocab_of(data[one.meaning]) if one.meaning != "x" else 0
            inputs.append(replace(one, vocab=vocab, length=length if length not in (0, T) else None))
        if calling.two_sided and not all(one.vocab for one in inputs):
            raise NotTwoSided
        named = {meaning_of(one.parameter) for one in inputs} & {"source", "target"}
        if calling.two_sided and length != T and not named and calling.layout not in ONE_ANSWER:
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
            laid = layout_of(everywhere, data, self.module(**everywhere.arguments(data)))
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
        others = self.proposals.climbed.shapes.items() if self.proposals.climbed is not None else ()
        shown += [
            f"{name} = {shape.text}, the same for every sample" for name, shape in others if name in calling.fixed
        ]
        shown = [f"{self.proposals.packed} = {{{', '.join(shown)}}}"] if self.proposals.packed else shown
        order = "(B, T)" if calling.batch_first else "(T, B)"
        masks = [f"{mask.parameter} = {mask.how}" for mask in calling.masks]
        evidence = "found by running it"
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


def _each_once(growing: list[int]) -> Iterator[int]:
    """The numbers of a list, none twice, with those that are added meanwhile."""
    seen: set[int] = set()
    for number in growing:
        if number not in seen:
            seen.add(number)
            yield number


def _about_sizes(error: BaseException) -> bool:
    """Whether an attempt with another length may fare better: not when it cannot take such arguments at all."""
    return not isinstance(error, (TypeError, AttributeError, NotImplementedError, KeyError))
