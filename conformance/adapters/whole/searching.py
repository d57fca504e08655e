"""How to call a model is found out by running it: names propose the inputs, the attempt that works decides.

`calling_of(module)` runs the model on a few tokens (or numbers) and watches which table of embeddings reads which
input. That tells the inputs, their vocabularies, the axis of the batch, and the layout of the answer.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.stated import Shape
from conformance.adapters.whole import names
from conformance.adapters.whole.beside import Climbed, Ran, climb, sizes_that_fill
from conformance.adapters.whole.calling import (
    LENGTHS,
    B,
    Calling,
    T,
    hides,
    quiet_evaluation,
)
from conformance.adapters.whole.fillers import Beside, OneEach, Times, constants
from conformance.adapters.whole.layouts import STRETCHES
from conformance.adapters.whole.masking import NONE, Unread, choosing, unread
from conformance.adapters.whole.names import MAY_BE_LABELS
from conformance.adapters.whole.proposing import FRAMES, Proposals
from conformance.adapters.whole.shapes import table_lengths
from conformance.adapters.whole.told import Told, names_the_batch_first
from conformance.adapters.whole.trying import ComparesSamples, Trial

SECONDS, LEFT = 20.0, 3.0
"""Of processor time, after which no other way to call is tried: a large model runs slowly, and should be told why.
LEFT: after a run that gave a loss only."""

_MANY_TIMES = 8
"""So many times the least that a model takes, where that gives few answers."""

_MOST_LENGTHS_OF_MASKS = 2
_MOST_HINTS = 3
"""So many lengths that the first error speaks of are tried."""

_SEVERAL = 2
"""More inputs than these are found one by one at once, where the code tells the axes of all."""

_NO_SIZES = re.compile(
    "must have the same dtype|must share same datatype|one of the following scalar types|multi-target not supported"
)
"""How torch refuses a dtype (integers for a map, numbers for a table), and a label a word where it wants one a text."""


def calling_of(
    module: nn.Module,
    given: Sequence[Shape] = (),
    options: Mapping[str, Any] | None = None,
    known: Climbed | None = None,
) -> Calling:
    """How to call the model. given: the inputs that the user states. options: the arguments that its constructor got,
    which say sizes of numbers. known: the inputs with which it ran, of which those that may be words are judged.

    Raises Unresolved, with the exception of the attempt that came furthest, when no way was found; StatedError when
    forward takes none of a name that is stated.
    """
    finder = _Finder(module, given, options or {})
    with quiet_evaluation(module):
        return finder.find() if known is None else finder.find_words(known)


_OF_TOKENS = re.compile(r"pad|keep|key|visib|allow|attend|hid|ok$|present|observed|blank|empty|word|token")
"""Names of what says which tokens are real, though it may be used wrongly."""


def _apart(known: Climbed, words: Sequence[str]) -> Climbed:
    """The same inputs, with vectors that have other lengths than words have: what is as long as these grows with
    them. Sound is some times as long as its words."""
    lengths = {known.shapes[name].sizes[1] for name in words}
    other = 6 * max(lengths, default=0) + 1
    shapes = {
        name: replace(shape, sizes=(shape.sizes[0], other, *shape.sizes[2:]))
        if shape.dtype == "float" and len(shape.sizes) == 3 and shape.sizes[1] in lengths
        else shape
        for name, shape in known.shapes.items()
    }
    return replace(known, shapes=shapes)


_OF_LABELS = re.compile(r"target|label|gold")


class NoAnswer(Unresolved):
    """The model runs, and gives no sample an answer of its own: a loss only, or comparisons of the samples. pairs: how
    it is called where it compares them. climbed: the inputs with which it ran, where they were found one by one."""

    pairs: Calling | None = None
    climbed: Climbed | None = None


class _Finder:
    """One search: what is proposed, the attempts, and why each failed."""

    def __init__(self, module: nn.Module, given: Sequence[Shape], options: Mapping[str, Any]) -> None:
        self.module = module
        self.options = options
        self.proposals = Proposals(module, given, options)
        self.batch_first = names_the_batch_first(module)
        """Whether the code names the batch first: numbers are then given in no other order."""
        self.table_lengths = table_lengths(module)
        self.end = time.process_time() + SECONDS
        self.trial = Trial(module, self.end + SECONDS)
        self.failures: list[Ran] = []
        """The attempt that came furthest says most."""
        self.compares: Calling | None = None
        """How the samples are compared."""

    def find(self) -> Calling:
        optional = any(p.meaning == "mask" and not p.required for p in self.proposals.parameters)
        unread: Calling | None = None
        if self.all_are_told():
            if (found := self.as_climbed(False)) is not None and found.reads_its_data:
                return _without_none(found)
            self.proposals.climbed, self.proposals.given = None, {}
        ways = (False, True) if optional else (False,)  # None, the default, is not always taken
        for all_masks, as_told in product(ways, (True, False) if self.proposals.told_no_words() else (True,)):
            told, self.proposals.told = self.proposals.told, self.proposals.told if as_told else {}
            found = self.first_that_runs(all_masks)
            self.proposals.told = told
            if found is not None and found.reads_its_data:
                return self.with_times(_without_none(found))
            unread = unread or found
        for optional in (False, True) if not self.proposals.given else ():
            if optional and self.compares:
                break  # with more inputs it compares them, too
            if (found := self.as_climbed(optional)) is not None:
                return _without_none(found)
        if unread is not None:
            return self.with_times(_without_none(unread))
        name = type(self.module).__name__
        if not self.failures:
            raise Unresolved(f"{name}.forward takes no input that is known: say what it takes with --claims-input")
        if self.trial.only_loss or self.compares:
            what = "a loss only" if self.trial.only_loss else "a number for each pair of samples"
            error = NoAnswer(
                f"{name}.forward gives {what}, and no sample an answer of its own; to test a method that does, point "
                "at a class of yours around the model: def forward(self, ids): return self.model.encode(ids)"
            )
            error.pairs, error.climbed = self.compares, self.proposals.climbed
            raise error
        if self.proposals.given and self.proposals.climbed is None:
            raise Unresolved(f"{name} cannot be called with the inputs that --claims-input states: {self.failures[-1]}")
        furthest = max(self.failures, key=lambda ran: ran.operations)
        raise Unresolved(
            f"{name} cannot be called: {furthest}; say what forward takes, e.g. --claims-input '{self.line()}'"
        )

    def all_are_told(self) -> bool:
        """Whether the code tells the axes of each of several series that forward requires: no other forms are tried
        first."""
        required = [p for p in self.proposals.parameters if p.required]
        told = [self.proposals.told.get(p.name, Told()) for p in required]
        return not self.proposals.given and len(told) > _SEVERAL and all(len(one.axes) > 2 for one in told)

    def with_times(self, calling: Calling) -> Calling:
        """The calling that also says when each step was, where forward can be told: without it all steps are of one
        time, and what depends on the time between two does nothing. Any time must do: no row of a table."""
        may_be_left_out = [p for p in self.proposals.parameters if not p.required and p.default is None]
        for p in may_be_left_out if not calling.two_sided and not self.proposals.packed else ():
            if not names.TIMES.fullmatch(p.name.lower()) or p.name in calling.fixed:
                continue
            for dtype in (torch.int64, torch.get_default_dtype()):
                far, near = (
                    replace(calling, fixed={**calling.fixed, p.name: Times(dtype, apart)}) for apart in (1000, 1)
                )
                with suppress(Exception):
                    if self.trial.run(far, calling.main.length or T) is not None:
                        calling = self.said(near)
                        break
        return calling

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
        documented = len(inputs) > 1 and all((told := self.proposals.told.get(name)) and told.axes for name in inputs)
        if not inputs or not (documented or any(isinstance(part, stacked) for part in self.module.modules())):
            return None  # nothing, or a component that says nothing of its inputs
        furthest: Ran | None = None
        masks = [p.name for p in parameters if p.required and p.meaning == "mask"]

        def run(values: Mapping[str, Tensor]) -> Ran:
            """The run that comes furthest with a way to fill the masks that forward requires: all is real."""
            best = Ran(-1)
            for mask in _all_real(values) if masks else (None,):
                ran = run_once({**values, **dict.fromkeys(masks, mask)})
                best = ran if ran.done or ran.operations > best.operations else best
                if best.done:
                    break
            return best

        def run_once(values: Mapping[str, Tensor]) -> Ran:
            nonlocal furthest
            try:
                arguments = Calling((), fixed=constants(values), **self.proposals.packing).arguments({})
                with self.trial.watching():
                    result = self.module(**arguments)
            except Exception as error:
                ran = Ran.raised(self.trial.operations, error)
                furthest = ran if furthest is None or ran.operations > furthest.operations else furthest
                return ran
            many = [t.numel() > 1 for t in tensors_in(result) if t.is_floating_point()]
            self.trial.only_loss = self.trial.only_loss or (bool(many) and not any(many))
            self.look_no_longer()
            return Ran(self.trial.operations, done=bool(many))

        climbed = climb(self.module, inputs, run, self.options, B, self.proposals.told)
        self.proposals.climbed = climbed
        if not climbed.main:
            at = 0 if len(inputs) > 1 else len(self.failures)  # of two that came as far, that with every input counts
            self.failures[at:at] = [furthest] if furthest is not None else []
            return None
        return self.with_one_of(climbed, dict.fromkeys((climbed.main, *climbed.shapes)))

    def with_one_of(self, climbed: Climbed, mains: Iterable[str]) -> Calling | None:
        """The calling with inputs of these forms, of which the first that serves is the main one: words whose scores it
        gives, if there are such beside numbers; else one whose data can be drawn."""
        unread: Calling | None = None
        self.proposals.given = dict(climbed.shapes)
        numbers = any(shape.dtype == "float" for shape in climbed.shapes.values())
        ways = [*((main, True) for main in (_words(climbed) if numbers else ())), *((main, False) for main in mains)]
        for main, scored in ways:
            self.proposals.climbed = replace(climbed, main=main)
            found = self.first_that_runs(False) or self.first_that_runs(True)
            if found is None or (scored and not found.scores_its_words):
                continue
            if self.takes_more_samples(found):
                found = replace(found, beside=climbed.shapes)
                if found.reads_its_data:
                    return found
                unread = unread or found
        return unread

    def find_words(self, known: Climbed) -> Calling:
        """The calling with inputs with which the model ran, judged by ids that are no labels. Raises Unresolved."""
        words = _words(known)
        found = self.with_one_of(_apart(known, words), words) or self.with_one_of(known, words)
        if found is None:
            raise Unresolved("none of its inputs is known to be words")
        return _without_none(found)

    def look_no_longer(self) -> None:
        """Where a run gave a loss only, others will: the search ends soon."""
        if self.trial.only_loss:
            self.end = min(self.end, time.process_time() + LEFT)

    def takes_more_samples(self, found: Calling) -> bool:
        """Whether a calling with inputs of several forms runs with one sample more: what stands beside the main input,
        such as the edges of a graph, may belong to so many samples."""
        try:
            self.trial.with_more_samples(found, found.main.length or T)
        except Exception as error:
            self.failures.append(Ran.raised(self.trial.operations, error))
            return False
        return True

    def first_that_runs(self, all_masks: bool) -> Calling | None:
        """The first calling that runs, reads its data and hides what its masks say, else the first that runs.
        all_masks: the optional masks are given, too."""
        leaking: Calling | None = None
        unread: Calling | None = None
        as_said = False  # it hides, and its answer is of an odd layout
        for sides in self.proposals.sides():
            before: _Failed | None = None
            for calling in self.proposals.callings(sides, all_masks):
                if (self.failures or self.trial.only_loss) and time.process_time() > self.end:
                    return leaking or unread
                if before is not None and self.fails_alike(calling, before):
                    continue
                start = len(self.failures)
                found = self.attempt(calling)
                self.look_no_longer()
                if before is None or not before.differs_in_masks(calling):
                    before = _Failed(calling, self.failures[start:]) if found is None else None
                if found is not None and not found.reads_its_data:
                    unread = unread or found
                    continue
                hidden = found is not None and (not found.masks or hides(self.module, found))
                is_odd = found is not None and found.masks and found.layout == "(B, ...)"
                if hidden and not is_odd:  # a mask with too many axes gives it more
                    return found
                if leaking is None or (hidden and not as_said):
                    leaking, as_said = found, hidden
            if leaking is not None:
                return self.without_padding(leaking)
        return unread

    def without_padding(self, leaking: Calling) -> Calling:
        """The calling whose masks say nothing of padding, where they hide none, and neither their names nor anything
        else but their use says that they are masks: they choose among the answers."""
        by_use = [name for name in self.proposals.masks_by_use if not _OF_TOKENS.search(name.lower())]
        masks = (replace(one, padding=False) if one.parameter in by_use else one for one in leaking.masks)
        return replace(leaking, masks=tuple(masks))

    def fails_alike(self, calling: Calling, before: _Failed) -> bool:
        """Whether a calling fails as the one before it, from which it differs in its masks only: that one came to its
        end before it read them. The first such calling shows that, with masks that nothing may ask."""
        if not before.differs_in_masks(calling) or before.reads_masks:
            return False
        if before.reads_masks is None:
            start, Unread.asked = len(self.failures), False
            found = self.attempt(replace(calling, masks=tuple(map(unread, calling.masks))))
            again = self.failures[start:]
            del self.failures[start:]
            before.reads_masks = Unread.asked or found is not None or again != before.failures
            if before.reads_masks:
                return False
        self.failures += before.failures
        return True

    def attempt(self, calling: Calling) -> Calling | None:
        """The calling completed by running it, with the first length that works; None when it does not run."""
        numbers = calling.main.meaning == "x"
        lengths = [*LENGTHS, *self.table_lengths]
        if stated := self.proposals.given.get(calling.main.parameter):
            lengths = [T, *stated.sizes[1:2]]
        if numbers and None not in calling.main.shape:
            lengths = [0]
        hinted = 0 in lengths or bool(stated)
        flat: dict[int, Ran] = {}
        for length in _each_once(lengths):
            if numbers and length in calling.main.shape:  # the two axes could not be told apart
                continue
            try:
                found = self.run(calling, length)
            except ModuleNotFoundError as error:  # another form would be judged that only happens not to want it
                raise Unresolved(f"{type(self.module).__name__} cannot be called: {error}; install it") from error
            except Exception as error:
                self.failures.append(Ran.raised(self.trial.operations, error))
                if chosen := choosing(calling.masks, error):
                    return self.attempt(replace(calling, masks=chosen))
                if isinstance(error, ComparesSamples):
                    only = replace(error.calling.main, length=length if length not in (0, T) else None)
                    at = replace(error.calling, inputs=(*error.calling.inputs[:-1], only))
                    self.compares = self.compares or at
                if not hinted and self.failures[-1].operations:  # "must match the size of tensor b (5)"
                    lengths += [size for size in self.failures[-1].numbers if size > B][:_MOST_HINTS]
                    hinted = True
                flat[length] = self.failures[-1]
                lengths += sizes_that_fill(flat)
                if not _about_sizes(error):
                    return None
                continue
            guessed = any(isinstance(make, OneEach) for make in calling.fixed.values())
            if found is not None and (not guessed or self.takes_more_samples(found)):
                return self.of_many_frames(calling, found)
        return None

    def of_many_frames(self, calling: Calling, found: Calling) -> Calling:
        """The calling with more numbers in a row, where few give one answer, or fewer are too few: of so few a model
        that shortens its input keeps one, in which nothing is seen of what it attends to."""
        shortens = found.layout in ("(B, 1, V)", "(B, ...)") or (
            found.layout in (*STRETCHES, "(B, V, T)") and found.main.length
        )
        if found.main.meaning != "x" or None not in found.main.shape or not shortens:
            return found
        for least in (FRAMES, _MANY_TIMES * (found.main.length or 0)):  # a spectrum takes many numbers at once
            with suppress(Exception):
                return self.run(calling, self.many_frames(least)) or found if least else found
        return found

    def many_frames(self, least: int) -> int:
        """So many numbers in a row that no size of the model is the same: an axis of the answer is told by its size."""
        sizes = {size for one in (*self.module.parameters(), *self.module.buffers()) for size in one.shape}
        return next((n for n in range(least, 2 * least, 4) if n not in sizes), least)

    def run(self, calling: Calling, length: int) -> Calling | None:
        """The calling completed by running it once, with what is said of it; None where it gives no answer."""
        found = self.trial.run(calling, length, self.batch_first and calling.main.meaning == "x")
        return self.said(found) if found is not None else None

    def said(self, calling: Calling) -> Calling:
        shown = []
        for one in calling.inputs:
            what = (
                f"token ids of {one.vocab}" if one.vocab else f"numbers {one.shape[:: -1 if one.channels_first else 1]}"
            )
            shown.append(f"{one.parameter} = {what}")
        beside = [make for make in calling.fixed.values() if isinstance(make, Beside)]
        shown += [f"{make.name} = numbers {make.shape}, the same for every sample" for make in beside]
        times = [name for name, make in calling.fixed.items() if isinstance(make, Times)]
        shown += [f"{name} = the numbers of the steps" for name in times]
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


@dataclass
class _Failed:
    """A calling that failed, and how. reads_masks: whether it comes to its masks; None where nobody has looked yet."""

    calling: Calling
    failures: list[Ran]
    reads_masks: bool | None = None

    def differs_in_masks(self, other: Calling) -> bool:
        """Whether another calling has other masks, all of which are there, and all else alike."""
        there = all(mask.how != NONE for one in (self.calling, other) for mask in one.masks)
        return there and bool(other.masks) and replace(self.calling, masks=()) == replace(other, masks=())


def _all_real(values: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """Masks that hide nothing in some convention: (B, T) for the lengths that most inputs have, then one number for all
    rows of scores."""
    lengths = Counter(value.shape[1] for value in values.values() if value.ndim > 1)
    for length, _ in lengths.most_common(_MOST_LENGTHS_OF_MASKS):
        yield from (torch.ones(B, length, dtype=torch.bool), torch.ones(B, length))
        yield torch.zeros(B, length, dtype=torch.bool)
    yield from (torch.ones(1, 1, 1, dtype=torch.bool), torch.zeros(1, 1, 1, dtype=torch.bool))


def _words(known: Climbed) -> list[str]:
    """The inputs that may be words, and are no labels."""
    return [
        name
        for name, shape in known.shapes.items()
        if shape.dtype == "int" and len(shape.sizes) == 2 and not _OF_LABELS.search(name.lower())
    ]


def _without_none(calling: Calling) -> Calling:
    """The calling with required masks that may be None among the optional ones: what they mark is found out later."""
    open_ = [mask.parameter for mask in calling.masks if mask.how == NONE]
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
    """Whether an attempt with another length may fare better: not when it cannot take such arguments at all, nor when
    an operation refuses their dtype or the axes of labels."""
    return not isinstance(error, (TypeError, AttributeError, NotImplementedError, KeyError)) and (
        _NO_SIZES.search(str(error)) is None
    )
