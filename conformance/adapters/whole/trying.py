"""One attempt to call a model: it runs once, and that tells the calling's vocabularies, orders and layout (`Trial`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.stated import Shape
from conformance.adapters.whole.calling import B, Calling, Lookups, T, first_data, other_words
from conformance.adapters.whole.fillers import OfShape
from conformance.adapters.whole.layout_search import layout_of
from conformance.adapters.whole.layouts import FEWER, FEWER_FIRST, ONE_ANSWER, SCORES, STRETCHES
from conformance.adapters.whole.names import meaning_of
from conformance.adapters.whole.shapes import table_lengths

_GROWN = 4
"""So many times as long an input has more stretches, where its answer has a row for each."""


def _more_answers(calling: Calling, result: Any, length: int) -> int:
    """How many more positions than there are words have scores of words in a result: -1 where forward leaves the last
    word out, 1 where it puts a sign of the start before them; 0 for neither, or where that is known."""
    if calling.drops_last or calling.answers_for_start or not calling.main.vocab:
        return 0
    for more in (-1, 1):
        rows = (B, length + more) if calling.batch_first else (length + more, B)
        shapes = ((*rows, calling.main.vocab), (B * (length + more), calling.main.vocab))
        if any(tuple(t.shape) in shapes for t in tensors_in(result)):
            return more
    return 0


class NotTwoSided(TypeError):
    """The second input is none that the model reads as a sequence: labels, perhaps."""


class ComparesSamples(TypeError):
    """Each sample is compared with the others of its batch: its answer is none of its own. calling: how it ran."""

    def __init__(self, message: str, calling: Calling) -> None:
        super().__init__(message)
        self.calling = calling


class Trial:
    """Runs callings of a model. until: the processor time at which a run is given up. operations: of the last run, as
    far as it came. only_loss: whether a run gave one number and nothing else."""

    def __init__(self, module: nn.Module, until: float = math.inf) -> None:
        self.module, self.until = module, until
        self.operations = 0
        self.only_loss = False

    def run(self, calling: Calling, length: int, batch_first: bool = False) -> Calling | None:
        """The calling with its vocabularies, the axis of the batch and the layout of the answer: of orders that run,
        that in which rows stay apart, else the batch first. Raises what the first order raises when neither runs.
        batch_first: no other order is tried."""
        mixed: Calling | None = None
        failure: Exception | None = None
        can_turn = not batch_first and (calling.main.meaning != "x" or calling.main.shape[:1] == (None,))
        try:
            for batch_first in (True, False) if can_turn else (True,):
                try:
                    laid, apart = self.in_order(replace(calling, batch_first=batch_first), length)
                except (ComparesSamples, ImportError):  # a package that is not here is missed in any order
                    raise
                except Exception as error:
                    failure = failure or error
                    continue
                if apart:
                    return laid
                mixed = mixed or laid
            if mixed is None and failure is not None:
                raise failure
            return mixed
        finally:
            failure = None  # its traceback holds this frame, and with it the tensors of the attempt

    def in_order(self, candidate: Calling, length: int) -> tuple[Calling | None, bool]:
        """The candidate with what its run shows, None where it gives no answer; and whether its rows stay apart."""
        data = first_data(candidate, length)
        arguments = candidate.arguments(data)
        with self.watching() as lookups:
            listed = self.module(**arguments)
        if not candidate.treats_places_alike(listed, B):
            raise TypeError("the places of what would be a list have different answers")
        if candidate.starts and lookups.read_before_one_more(data[candidate.main.meaning]):
            return self.in_order(replace(candidate, starts=False), length)
        target = data.get(candidate.main.meaning) if candidate.two_sided and not candidate.starts else None
        if target is not None and target.ndim == 2 and lookups.read_shifted(target):
            return self.in_order(replace(candidate, starts=True), length)
        result = candidate.unlisted(listed, B)
        read = self.with_vocabularies(candidate, data, lookups, length)
        if read.in_lists and not read.main.vocab:
            raise TypeError("no table reads what would be lists of ids")
        beside = self.without_parameters(arguments, result)
        told = bool(read.lengths or read.optional_lengths or read.masks or read.optional_masks)
        laid = layout_of(read, data, result, beside, stretches=told)
        if laid is not None and laid.layout in STRETCHES and not read.lengths and not self.grows(laid, data):
            laid = layout_of(read, data, result, beside, stretches=False)
        if laid is None and (more := _more_answers(read, result, length)):
            return self.in_order(replace(candidate, drops_last=more < 0, led=more > 0), length)
        if laid is None:
            floating = [t for t in tensors_in(result) if t.is_floating_point()]
            self.only_loss = self.only_loss or (bool(floating) and all(t.numel() == 1 for t in floating))
            return None, False
        laid = self.reached_by_the_main(laid, data)
        laid, data = self.of_one_side(self.of_each_position(laid, length), data)
        if laid.outputs == B and self.compares_samples(laid, length):
            said = f"{type(self.module).__name__} answers with a number for each pair of samples"
            raise ComparesSamples(said, laid)
        if laid.masks:
            self.with_more_samples(laid, length)
        if laid.answers_for_start and laid.layout in ONE_ANSWER:
            return None, False
        if laid.layout == "(B, ...)" and not self.has_rows(laid, length):
            return None, False
        if laid.layout == FEWER and not self.has_rows(laid, length):
            laid = replace(laid, layout=FEWER_FIRST)  # as many stretches as samples
        laid, data = self.reading_whole_texts(self.answering_everywhere(laid, data), data)
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

    def answers(self, calling: Calling, data: Mapping[str, Tensor]) -> list[Tensor]:
        """The floating tensors that a calling gives."""
        return [t for t in tensors_in(self.module(**calling.arguments(data))) if t.is_floating_point()]

    def reached_by_the_main(self, calling: Calling, data: Mapping[str, Tensor]) -> Calling:
        """Of answers that look alike, as of a picture and its text, the calling with one that the main input reaches.
        Where there are two sides, `of_one_side` sees to it."""
        if calling.two_sided or not calling.main.vocab or calling.layout not in ONE_ANSWER:
            return calling
        before = self.answers(calling, data)
        alike = [at for at, one in enumerate(before) if one.shape == before[calling.answer_at].shape]
        if len(alike) < 2:
            return calling
        after = self.answers(calling, {**data, calling.main.meaning: other_words(data[calling.main.meaning])})
        reached = [at for at in alike if not torch.equal(before[at], after[at])]
        return calling if calling.answer_at in reached or not reached else replace(calling, answer_at=reached[0])

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

        source, main = calling.inputs
        before = self.answers(calling, data)
        of_main, of_source = (
            [not torch.equal(a, b) for a, b in zip(before, self.answers(calling, changed), strict=True)]
            for changed in ({**data, m: other_words(data[m])} for m in (main.meaning, source.meaning))
        )
        alike = [at for at, one in enumerate(before) if one.shape == before[calling.answer_at].shape]
        at = next((at for at in alike if of_main[at]), calling.answer_at)
        if of_source[at]:
            return replace(calling, answer_at=at), data
        one = Shape(main.parameter, tuple(data[main.meaning].shape), "int")
        other = Shape(source.parameter, tuple(data[source.meaning].shape), "int")
        fixed: dict[str, Callable[[Mapping[str, Tensor]], Any]] = {
            **calling.fixed,
            source.parameter: OfShape(other, one),
        }
        alone = replace(calling, inputs=(replace(main, meaning="ids"),), fixed=fixed, answer_at=at)
        return alone, {"ids": data[main.meaning]}

    def with_more_samples(self, calling: Calling, length: int) -> None:
        """Runs it with one more sample: a mask of a wrong shape may fit so many samples by chance. Raises what that
        raises."""
        data = {name: torch.cat([x, x[:1]]) for name, x in first_data(calling, length).items()}
        self.module(**calling.arguments(data))

    def has_rows(self, calling: Calling, length: int) -> bool:
        """Whether one more sample gets one more answer: another axis may have as many rows as the batch by chance."""
        data = {name: torch.cat([x, x[:1]]) for name, x in first_data(calling, length).items()}
        with suppress(Exception):  # it takes so many samples only
            return calling.answer(self.module(**calling.arguments(data)), data) is not None
        return True

    def compares_samples(self, calling: Calling, length: int) -> bool:
        """Whether a larger batch gets more numbers a sample: each is compared with all, as in a contrastive loss."""
        data = {name: torch.cat([x, x[:1]]) for name, x in first_data(calling, length).items()}
        return self.answers(calling, data)[calling.answer_at].shape[-1:] == (B + 1,)

    @contextmanager
    def watching(self) -> Iterator[Lookups]:
        lookups = Lookups(self.until)
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
            raise NotTwoSided("no table reads its second input")
        if calling.starts and not lookups.read_behind_a_start(data[calling.main.meaning]):
            raise NotTwoSided("no table reads its labels behind a sign of the start")
        named = {meaning_of(one.parameter) for one in inputs} & {"source", "target"}
        if calling.two_sided and length != T and not named and calling.layout not in ONE_ANSWER:
            raise NotTwoSided("both of its inputs must be as long, and neither is called a source or a target")
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

    def reading_whole_texts(self, calling: Calling, data: dict[str, Tensor]) -> tuple[Calling, dict[str, Tensor]]:
        """A model that counts from where a text goes on, and hides the future only where it is given labels, takes one
        word at a time without them: it is given labels, and a length that it takes with them."""
        one = calling.main
        writes = calling.layout == "(B, T, V)" and calling.outputs == one.vocab > 0
        if not (writes and calling.labels and calling.offset) or not self.sees_the_future(calling, data):
            return calling, data
        labels = {calling.labels: lambda inputs: inputs.get("labels", inputs[one.meaning])}
        whole = replace(calling, fixed={**calling.fixed, **labels})
        for length in (one.length, *table_lengths(self.module)):
            input_ = replace(one, length=length)
            longer = replace(whole, inputs=(input_,))
            with suppress(Exception):
                more = first_data(longer, length or T)
                if not self.sees_the_future(longer, more):
                    return longer, more
        return calling, data

    def sees_the_future(self, calling: Calling, data: dict[str, Tensor]) -> bool:
        """Whether another last word changes the answers before it."""
        words = data[calling.main.meaning].clone()
        words[:, -1] = other_words(words[:, -1])
        before, after = (calling(self.module, x)["out"][:, :-1] for x in (data, {**data, calling.main.meaning: words}))
        return not torch.allclose(before, after, atol=1e-5 * float(before.abs().max() + 1e-9))

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
