"""Checks of writers that are given texts with padding: it changes nothing of what they write."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.generation import alike, script, writers
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import Array, Arrays, NotProvided

SHORT, LONG, NEW = 4, 6, 3
"""How long the first source is with and without padding, and how many tokens are written."""


@check("generate-hides-the-padding-of-sources", roles=("sequence_to_sequence",))
def hides_padding(impl: Any, draw: Draw) -> Evidence:
    """What a writer chooses from for a source with padding is what it chooses from for the source alone, where forward
    hides padding."""
    subject = impl.build("sequence_to_sequence", {})
    how = subject.padding_of("src")
    if how not in ("token", "mask") or subject.tokens_compete or not subject.free_length:
        raise NotProvided("its forward hides no padding of the source")
    words = subject.example(2, LONG, 78, src=LONG)["src"]
    if words.ndim != 2 or words.shape[1] != LONG:
        raise NotProvided("its sources are no words")
    real = np.ones((2, LONG), bool)
    real[0, SHORT:] = False
    padded = {"src": np.where(real, words, 0 if subject.pad_id is None else subject.pad_id)}
    if how == "mask":
        padded["src_padding"] = real
    short = {"src": words[:, :SHORT]}
    target = script(subject, 2, NEW)
    own, hidden = (subject(**{subject.calling.main.meaning: target}, **data)["out"][:1] for data in (short, padded))
    if not np.allclose(own, hidden, atol=1e-6 * max(float(np.abs(own).max()), 1e-9)):
        raise NotProvided("its forward lets padding of the source change the answer")
    parts = []
    for writer in writers(subject):
        if writer.form != "(B, T)" or writer.beam or (how == "mask" and not _takes_its_mask(subject, writer, padded)):
            continue  # it writes for one source at a time, which needs no padding
        alone, beside = (writer.write(subject, data, NEW, script=target) for data in (short, padded))
        parts.append(_same(writer, alone.steps, beside.steps, max(alone.noise, 1e-6)))
    if not parts:
        raise NotProvided("no function of its writes for several sources at a time")
    return all_of(*parts)


def _takes_its_mask(subject: Any, writer: Any, data: dict[str, Array]) -> bool:
    """Whether it is handed the mask of the source."""
    masks = {mask.parameter for mask in subject.calling.masks if mask.padding}
    return bool(masks & set(writer.arguments(subject, data, None, NEW, {})))


def written_behind_padding(subject: Any, alone: Arrays, padded: Arrays) -> Evidence | None:
    """Whether writers that are handed a mask choose from the same scores for a sentence and for it behind padding; None
    where none takes both."""
    parts, target = [], script(subject, 1, NEW)
    with suppress(NotProvided):
        for writer in writers(subject):
            if writer.form != "(B, T)" or writer.beam or not _takes_its_mask(subject, writer, padded):
                continue
            own, behind = (writer.write(subject, data, NEW, script=target) for data in (alone, padded))
            apart = [alike(one.scores, other.scores) for one, other in zip(own.steps, behind.steps, strict=False)]
            if not apart:
                continue  # what it chooses from was not seen
            same = all(far <= 10 * max(own.noise, 1e-6) for far in apart)
            what = f"what {writer.name} chooses from behind padding"
            parts.append(
                true(what, same, expected="as for the sentence alone", got="otherwise").saying(
                    diagnosis=f"Padding in front of a sentence changes what {writer.name} writes, and not what forward "
                    "answers: words that are written stand at other places, or see the padding.",
                    place=writer.line_of(r"(?i)\b\w*(pos|place)\w*\s*=", r"(?i)mask\w*\s*="),
                    mend="count the places of new words from the mask: mask.sum(1) - 1",
                )
            )
    return all_of(*parts) if parts else None


def _same(writer: Any, alone: list[Any], beside: list[Any], noise: float) -> Evidence:
    """Whether the first row of each step's scores is that without padding."""
    apart = [alike(one.scores[:1], other.scores[:1]) for one, other in zip(alone, beside, strict=False)]
    at = next((n for n, far in enumerate(apart) if far > 10 * noise), None)
    what = f"what {writer.name} chooses from for a source with padding"
    return true(what, at is None, expected="as for the source alone", got="otherwise").saying(
        diagnosis=f"Padding of the source changes what {writer.name} writes, and nothing of what forward answers: it "
        "runs a part of the model without the mask of the source.",
        place=writer.line_of(r"(?i)decod\w*\((?!.*(mask|pad))", r"(?i)(en|de)cod\w*\("),
        mend="hand the mask of the source to encoder and decoder, as forward does",
    )
