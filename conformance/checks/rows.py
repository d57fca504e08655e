"""Checks of a batch: its rows do not see each other, not even by their padding, and one alone has the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.options import with_every_option
from conformance.checks.whole_models import equal, judged
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note
from conformance.protocol import Array, Arrays, NotProvided


def first_rows(inputs: Arrays, row: int) -> Arrays:
    return {name: value[row : row + 1] for name, value in inputs.items()}


@check("model-rows-of-a-batch-are-apart", roles=("module",))
@with_every_option
def rows_are_apart(impl: Any, draw: Draw) -> Evidence:
    """A sentence's answer does not depend on the other sentences of its batch."""
    subject = impl.build("module", {})
    if subject.rows_are_words:
        return note("the rows of its input are the words of one sentence", "it attends among them, and takes no batch")
    if not subject.batched:
        raise NotProvided("its answer has no rows of a batch")
    if subject.takes_statistics_of_its_batch():
        raise NotProvided("it normalises over the rows of a batch, in evaluation, too")
    inputs = subject.example(batch=3, seed=4)
    other = {name: value.copy() for name, value in inputs.items()}
    for name, value in subject.example(batch=3, seed=5).items():
        other[name][1:] = value[1:]
    subject = subject.drawing_alike(inputs, other)
    together = subject(**inputs)["out"]
    changed = subject(**other)["out"]
    draw.bites(not np.array_equal(together[1:], changed[1:]), "the other sentences have other answers")
    parts = [equal("the first sentence's answer among other sentences", subject, changed[0], together[0])]
    one, two = subject.beside(inputs), subject.beside(other)
    names = [name for name in one if name in two and one[name].shape == two[name].shape]
    parts += [equal(f"{name} of the first sentence", subject, two[name][0], one[name][0]) for name in names]
    evidence = judged(subject, all_of(*parts))
    if evidence.ok:
        padded = _beside_padding(subject, inputs)
        return evidence if padded is None else all_of(evidence, padded)
    return evidence.saying(
        diagnosis="Sentences of one batch see each other: other neighbours change a sentence's answer.",
        place=subject.mixing_place(inputs, other) or subject.place(),
    )


def _beside_padding(subject: Any, inputs: dict[str, Array]) -> Evidence | None:
    """Whether the first sentence keeps its answer where the others have padding: masks of rows may be mixed up. None
    where the padding of words is not known."""
    name = subject.calling.main.meaning
    how = subject.padding_of(name) if inputs[name].ndim == 2 and subject.calling.main.vocab else None
    length = inputs[name].shape[1]
    if how not in ("mask", "token") or length < 4:
        return None
    at = slice(0, 2) if subject.counts_from_the_end() else slice(length - 2, None)
    real = np.ones(inputs[name].shape, bool)
    key = "padding" if name in ("ids", "x") else f"{name}_padding"
    whole, padded = ({**inputs, name: inputs[name].copy(), key: real.copy()} for _ in range(2))
    padded[key][1:, at] = False
    if how == "token":
        padded[name][1:, at] = subject.pad_id
    expected, got = subject(**whole)["out"], subject(**padded)["out"]
    if got.shape != expected.shape or not np.isfinite(got[0]).all():
        return None
    return equal("the first sentence's answer beside padded ones", subject, got[0], expected[0], "rounding").saying(
        diagnosis="The padding of other sentences changes a sentence's answer: it gets the mask of another row.",
        place=subject.attention_place() or subject.place(),
        mend="repeat_interleave the mask of a row for its heads, where it was repeated as a whole",
    )


@check("model-answers-one-sentence-as-in-a-batch", roles=("module",))
@with_every_option
def alone_as_in_a_batch(impl: Any, draw: Draw) -> Evidence:
    """A sentence alone gets the answer that it gets in a batch."""
    subject = impl.build("module", {})
    if not subject.batched:
        raise NotProvided("its answer has no rows of a batch")
    if subject.takes_statistics_of_its_batch():
        raise NotProvided("it normalises over the rows of a batch, in evaluation, too")
    inputs = subject.example(batch=3, seed=4)
    together = subject(**inputs)["out"]
    parts = []
    for row in range(3):
        alone = subject(**first_rows(inputs, row))["out"]
        parts.append(equal(f"sentence {row} alone", subject, alone[0], together[row]))
    one, three = subject.beside(first_rows(inputs, 0)), subject.beside(inputs)
    names = [name for name in one if name in three and one[name].shape[1:] == three[name].shape[1:]]
    parts += [equal(f"{name} of sentence 0 alone", subject, one[name][0], three[name][0]) for name in names]
    wrong = next((row for row, part in enumerate(parts[:3]) if not part.ok), 0)
    evidence = judged(subject, all_of(*parts))
    if evidence.ok:
        return evidence
    return evidence.saying(
        diagnosis="A sentence alone gets another answer than in a batch.",
        place=subject.mixing_place(inputs, first_rows(inputs, wrong), wrong) or subject.place(),
    )
