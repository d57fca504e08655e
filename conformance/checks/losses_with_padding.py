"""The check that a loss does not depend on how far a batch is filled up."""

from __future__ import annotations

import re
from typing import Any

from conformance.check import check
from conformance.checks.losses_of_models import CAUSAL, causal_model, padded_runs, together
from conformance.draw import Draw
from conformance.evidence import Evidence, true
from conformance.protocol import NotProvided

FALSE_ITEMS = re.compile(r"neg(atives?)?(_\w+)?", re.I)
"""Names of texts of items that were drawn, which are padding where the history is."""

WORDS, WIDER = 5, 2
"""How many words the texts of a loss have, and how many places of padding are added to them."""


@check("losses-stay-the-same-with-more-padding", roles=CAUSAL)
def more_padding_changes_nothing(impl: Any, draw: Draw) -> Evidence:
    """A loss is the same for a batch that is filled up with more padding, where the model hides padding by itself."""
    subject = causal_model(impl)
    if subject.longest is not None and subject.longest < WORDS + WIDER:
        raise NotProvided("its longest text is too short to fill it up")
    if subject.tokens_compete or subject.draws_anew:
        raise NotProvided("padding takes part in choices among all tokens, or its answers are random")
    runs = {run.name: run for run in padded_runs(subject)}
    wider = {run.name: run for run in subject.loss_runs(True, WIDER)}
    again = {run.name: run for run in _repeated(subject)}
    parts = []
    for name in [name for name in runs if name in wider and name in again]:
        less, more, same = (_value(run[name]) for run in (runs, wider, again))
        if less is None or more is None or less != same or not 0 < abs(less) < float("inf"):
            continue  # it draws by itself
        if not _knows_padding(runs[name], subject) or runs[name].terms or abs(more) == float("inf"):
            continue
        parts.append(_stays(runs[name], less, more, subject.noise))
    return together(parts, "no loss beside forward is repeatable and meets padding")


def _knows_padding(run: Any, subject: Any) -> bool:
    """Whether all that the loss is told of padding is where its texts have it: labels that a caller makes may have a
    mark of their own for what is ignored, and lengths say which words count."""
    of_samples = {bool(FALSE_ITEMS.fullmatch(text)) for text in run.texts} == {True, False}
    labels = any(re.fullmatch(r"\w*labels?|\w*targets?|y|\w+_(y|out)", text) for text in run.texts)
    known = len(run.texts) == 1 or of_samples or (subject.calling.two_sided and len(run.texts) == 2)
    return run.alone and known and not labels


def _value(run: Any) -> float | None:
    return None if run.value is None else float(run.value.detach())


def _repeated(subject: Any) -> list[Any]:
    """The runs with padding once more, of a copy that knows none."""
    other = subject.twin()
    other.known = {name: value for name, value in other.known.items() if not name.startswith("losses")}
    found: list[Any] = other.loss_runs(True)
    return found


def _stays(run: Any, less: float, more: float, noise: float) -> Evidence:
    share = more / less
    diluted = any(abs(share - n / (n + WIDER)) < 1e-4 for n in (WORDS, WORDS - 1))
    what = f"{run.name} of a batch with {WIDER} more places of padding"
    return true(what, abs(share - 1) <= max(1e-5, 10 * noise), expected=less, got=more).saying(
        diagnosis=f"{run.name} leaves padding out of the sum and counts it in the mean: the more padding a batch has, "
        "the less its words count."
        if diluted
        else f"{run.name} changes with the number of places that are padding: it counts them.",
        place=run.place,
        mend="divide by the number of real words" if diluted else "leave padding out of the sum and of the mean",
    )
