"""Checks of models that make fewer rows of frames than there are: what padding does, and which rows are answered."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.whole_models import equal
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import Array, NotProvided

REAL, LENGTHS = 16, (64, 61)
"""How many frames of the first row are real, of how many: of a multiple of the usual strides, and of an odd number."""
ODD = range(33, 42)
"""Lengths of which some are no multiple of the strides."""


def padded_frames_equal(subject: Any, name: str, draw: Draw) -> Evidence:
    """Of frames behind convolutions in strides: neither numbers far in the padding nor more padding change an answer to
    real frames. What stands next to the last real frame may, where only the first kernels reach it."""
    subject = subject.of_any_length()
    if not all(subject.takes(length) for length in (REAL - 3, REAL, *LENGTHS)):
        raise NotProvided("it takes one length only")
    draw.bites(True, "padding")
    parts = [_far(subject, name, real, length) for real, length in zip((REAL, REAL - 3), LENGTHS, strict=True)]
    found = all_of(*parts)
    if found.ok:
        return _near(subject, name)
    other = subject.without_norms_over_time()
    if other is not None and _far(other, name, REAL, LENGTHS[0]).ok:
        return note("a norm of channels over the time counts padding", "as the first layers of wav2vec 2.0 do")
    return found.saying(
        diagnosis="Padding changes the answer for real frames: it is not hidden everywhere, or it is counted.",
        place=_counted_at(subject, name) or subject.attention_place() or subject.place(),
        mend="hide the frames behind each row's own length from every attention, and leave them out of means",
    )


def _padded(subject: Any, name: str, real: int, length: int) -> tuple[dict[str, Array], Array]:
    """Two rows of frames of which the first ends early, with zeros behind it, and which are real."""
    inputs: dict[str, Array] = subject.example(2, length, seed=24)
    inputs[name][0, real:] = 0.0
    shown = np.ones((2, length), bool)
    shown[0, real:] = False
    return inputs, shown


def _rows(subject: Any, real: int) -> int:
    """How many rows the answer to so many frames has."""
    alone = subject.example(1, real, seed=24)
    return int(subject(**alone, padding=np.ones((1, real), bool))["out"].shape[1])


def _with_more(data: dict[str, Array], name: str) -> dict[str, Array]:
    """The same frames with as many more behind them, all of padding in the first row."""
    longer = {key: np.concatenate([value, np.zeros_like(value)], 1) for key, value in data.items() if key == name}
    shown = np.concatenate([data["padding"], np.repeat(data["padding"][:, -1:], data[name].shape[1], 1)], 1)
    return {**data, **longer, "padding": shown}


def _counted_at(subject: Any, name: str) -> str:
    inputs, shown = _padded(subject, name, REAL, LENGTHS[0])
    less = {**inputs, "padding": shown}
    return str(subject.padding_counted_at(less, _with_more(less, name)))


def _far(subject: Any, name: str, real: int, length: int) -> Evidence:
    inputs, shown = _padded(subject, name, real, length)
    moved = {**inputs, name: inputs[name].copy()}
    moved[name][0, 3 * REAL :] = subject.example(1, length, seed=25)[name][0, 3 * REAL :]
    rows = _rows(subject, real)
    still, other = (subject(**data, padding=shown)["out"][0, :rows] for data in (inputs, moved))
    parts = [equal("the answer to real frames, with other padding", subject, other, still, "rounding")]
    if subject.free_length and subject.takes(2 * length):
        other = subject(**_with_more({**inputs, "padding": shown}, name))["out"][0, :rows]
        parts.append(equal("the answer to real frames, with more padding", subject, other, still, "rounding"))
    return all_of(*parts)


def _near(subject: Any, name: str) -> Evidence:
    """What stands right behind the last real frame changes no answer, where the model empties padding elsewhere or
    leaves it out of attention: a convolution behind those that shorten the time is to read none of it."""
    inputs, shown = _padded(subject, name, REAL, LENGTHS[0])
    inputs[name][0, REAL:] = subject.example(1, LENGTHS[0], seed=25)[name][0, REAL:]
    rows = _rows(subject, REAL)
    alone = {other: value[:1] for other, value in inputs.items()} | {name: inputs[name][:1, :REAL]}
    got = subject(**inputs, padding=shown)["out"][0, :rows]
    expected = subject(**alone, padding=np.ones((1, REAL), bool))["out"][0]
    found = equal("the answer to padded frames beside the frames alone", subject, got, expected, "rounding")
    seen = None if found.ok else subject.padding_convolved(inputs, shown)
    if seen is None:
        return true("padding changes no answer but through the kernels of the first convolutions", True)
    return found.saying(
        diagnosis=f"Padding changes the answer for the last real frames: {seen.words}.",
        place=str(seen.place or "") or subject.place(),
        mend="empty it first: x = x.masked_fill(padding[:, None], 0.0)",
    )


@check("encoder-lengths-leave-out-no-real-frame", roles=("encoder_model",))
def no_frame_left_out(impl: Any, draw: Draw) -> Evidence:
    """Attention hides no row that convolutions make of frames without padding, of whatever length."""
    subject = impl.build("encoder_model", {}).of_any_length()
    if not subject.answers_stretches or not subject.free_length:
        raise NotProvided("its answer has no row for each stretch of the time")
    name = subject.calling.main.meaning
    if subject.padding_of(name) is None:
        raise NotProvided("it takes no lengths and no mask of padding")
    parts, place = [], ""
    for length in ODD:
        found = subject.rows_left_out(length) if subject.takes(length) else None
        if found is None:
            continue
        left_out, counted = found
        what = f"attention to {length} frames, none of which is padding, sees every row"
        parts.append(true(what, not left_out, got=f"row {left_out[:1]} is hidden"))
        place = place or str(counted.place or "")
    if not parts:
        raise NotProvided("the rows of its attention are not made by convolutions in strides alone")
    return all_of(*parts).saying(
        diagnosis="The last row of real frames is hidden as if it were padding: behind a stride too few are counted.",
        place=place or subject.place(),
        mend="count as the convolution does: (lengths + 2 * padding - kernel) // stride + 1",
    )
