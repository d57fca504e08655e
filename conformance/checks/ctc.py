"""Checks of models with CTC: what the loss is given, and how a path becomes a text."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import NotProvided


@check("ctc-loss-gets-log-probabilities", roles=("model",))
def loss_gets_log_probabilities(impl: Any, draw: Draw) -> Evidence:
    """What ctc_loss is given are logarithms of probabilities of the letters, for each frame."""
    parts = []
    for call in impl.build("model", {}).ctc_calls():
        sums = call.scores.double().exp().sum(-1)
        off = float((sums - 1).abs().max())
        parts.append(
            true("the probabilities of a frame sum to one", off < 1e-4, expected=1.0, got=float(sums.max())).saying(
                diagnosis="ctc_loss is given numbers that are no logarithms of probabilities of the letters.",
                place=call.place,
                mend="give it logits.log_softmax(-1), as (T, B, V)",
            )
        )
    return all_of(*parts)


@check("ctc-loss-counts-the-real-frames", roles=("model",))
def loss_counts_real_frames(impl: Any, draw: Draw) -> Evidence:
    """A sentence of half the frames has about half the rows in the loss, and the labels that its length says."""
    parts = []
    for call in impl.build("model", {}).ctc_calls():
        rows = call.scores.shape[0]
        frames = call.frames.reshape(-1).tolist()
        if len(frames) != 2:
            continue
        right = 0 < frames[1] <= rows // 2 + 2 and frames[0] <= rows
        parts.append(
            true("rows of the shorter sentence", right, expected=f"about {rows // 2} of {rows}", got=frames[1]).saying(
                diagnosis=f"The loss counts {frames[1]} of {rows} rows for a sentence of half the frames: padding is "
                "taught, or most of the sentence is not.",
                place=call.place,
                mend="give it the lengths behind the convolutions",
            )
        )
        if call.counts is None or len(counts := call.counts.reshape(-1).tolist()) != 2:
            continue
        parts.append(
            true("labels of the sentences", counts == [3, 2], expected=[3, 2], got=counts).saying(
                diagnosis="The loss counts other labels than the lengths of the labels say.",
                place=call.place,
                mend="give it the lengths of the labels last",
            )
        )
    if not parts:
        raise NotProvided("its CTC loss has no lengths of its own for each sentence")
    return all_of(*parts)


@check("ctc-text-merges-repeats-then-drops-blanks", roles=("model",))
def text_merges_then_drops(impl: Any, draw: Draw) -> Evidence:
    """The text of the path a a - a b b - is a a b."""
    parts = []
    for reading in impl.build("model", {}).readings():
        if reading.got is None:
            continue
        ok = reading.got == reading.expected
        merged_late = reading.got == [key for key, _ in groupby(reading.expected)]
        parts.append(
            true(f"the text that {reading.name} writes", ok, expected=reading.expected, got=reading.got).saying(
                diagnosis=f"{reading.name} drops blanks before it merges repeats: a letter that is said twice is lost."
                if merged_late
                else f"{reading.name} does not merge repeats and then drop blanks.",
                place=reading.place,
                mend="merge equal neighbours first, then drop the blanks",
            )
        )
    if not parts:
        raise NotProvided("what its methods write are no numbers of letters")
    return all_of(*parts)


@check("ctc-text-drops-the-blank-of-the-loss", roles=("model",))
def text_drops_the_blank_of_the_loss(impl: Any, draw: Draw) -> Evidence:
    """The number that the loss takes for no letter is not written, where another number of the path is left out."""
    model = impl.build("model", {})
    calls = {call.blank: call.place for call in model.ctc_calls()}
    parts = []
    for reading in model.readings():
        if reading.kept is None or reading.blank not in calls:
            continue
        merged = [key for key, _ in groupby(reading.kept)]
        dropped = [one for one in reading.given if one not in merged]
        if not dropped:
            continue
        parts.append(
            true(
                f"{reading.name} drops the blank", reading.blank in dropped, expected=[reading.blank], got=dropped
            ).saying(
                diagnosis=f"The loss takes {reading.blank} for no letter, and {reading.name} writes it: it drops "
                f"{', '.join(map(str, dropped))} instead.",
                place=calls[reading.blank],
                mend="give ctc_loss the blank that the text is freed of: blank=...",
            )
        )
    if not parts:
        raise NotProvided("no method of it drops a number of a path")
    return all_of(*parts)
