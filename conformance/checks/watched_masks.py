"""Checks of a training run: what the model sees, by calls that were made again."""

from __future__ import annotations

import ast
from typing import Any

from conformance.check import check
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided

MOVED = 1e-3
"""Answers are equal where they differ by at most this share of the largest: far above rounding in float32."""


def probed(run: Any, what: str) -> list[Any]:
    from conformance.watch.events import Probe

    return [one for one in run.of(Probe) if one.what == what]


@check("run-future-is-hidden", roles=RUN)
def future_hidden(impl: Any, draw: Draw) -> Evidence:
    """Where labels are the next tokens, a token changes no answer before it."""
    run = run_of(impl)
    found = probed(run, "future")
    if not found:
        raise NotProvided("no model whose labels are its own next tokens could be called again")
    worst = max(found, key=lambda one: one.error)
    if worst.error <= MOVED:
        return kept("how far earlier answers move with the last token", worst.error)
    return broken(
        worst,
        "how far earlier answers move with the last token",
        0,
        f"{worst.error:.2g} of the largest answer",
        at=lambda lines: lines.hides(run, worst),
        diagnosis="The model sees the tokens that it is asked for: its training call does not hide the future.",
        mend="give it the causal mask in training, too: torch.ones(T, T).triu(1).bool() hides",
    )


@check("run-padding-is-hidden", roles=RUN)
def padding_hidden(impl: Any, draw: Draw) -> Evidence:
    """Where a call tells which places are padding, the words there change no answer for the others."""
    run = run_of(impl)
    found = probed(run, "padding")
    if not found:
        raise NotProvided("no call with padded tokens and a mask that tells them could be made again")
    worst = max(found, key=lambda one: one.error)
    if worst.error <= MOVED:
        return kept("how far answers move with the words in padded places", worst.error)
    return broken(
        worst,
        "how far answers move with the words in padded places",
        0,
        f"{worst.error:.2g} of the largest answer",
        at=lambda lines: lines.first(worst.unmasked, lines.hides(run, worst, lines.PADS)),
        diagnosis="The words in padded places change the answers for the others: "
        "the mask is not used everywhere, or is turned round.",
        mend="pass the mask on to attention and to pooling, and look at which of its values hides",
    )


@check("run-rows-are-apart", roles=RUN)
def rows_apart(impl: Any, draw: Draw) -> Evidence:
    """The rows of a batch are answered alike wherever they stand in it."""
    from conformance.watch import stated

    run = run_of(impl)
    found = probed(run, "rows")
    if not found:
        raise NotProvided("no call could be made again whose inputs and answers have one row for each row of the batch")
    worst = max(found, key=lambda one: one.error)
    if worst.error <= MOVED:
        return kept("how far answers move with the place of their row in the batch", worst.error)
    compete = any("capacity" in ast.unparse(source.tree) for source in stated.sources(run))
    return broken(
        worst,
        "how far answers move with the place of their row in the batch",
        0,
        f"{worst.error:.2g} of the largest answer",
        at=lambda lines: lines.first(lines.along_the_batch(run), worst.place),
        diagnosis="The answer to a row depends on its place in the batch, or on its neighbours: something runs along "
        "the batch, as a recurrent layer without batch_first, or positions.",
        mend="batch_first=True, and x.size(1) for the length of what is batch first",
        is_certain=not compete,
    )
