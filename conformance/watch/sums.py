"""Which losses go into the sum that a backward pass begins with."""

from __future__ import annotations

from typing import Any, NamedTuple

from conformance.watch.events import Backward, Loss, Step
from conformance.watch.pointing.common import learned, own_line


class Part(NamedTuple):
    """A loss of a sum, and whether it was recorded for a gradient."""

    loss: Loss
    has_gradient: bool


PASSES = 3
"""So many backward passes behind several losses are looked at."""


def parts_of_sums(run: Any) -> list[Part]:
    """The losses behind the first backward passes, where there are several: those whose own statement stands among the
    lines that computed what the pass begins with. A call that has a gradient at other times is left out: it serves an
    evaluation, too."""

    graded = {_call(loss) for loss in run.of(Loss) if loss.gradients}
    found, seen = [], 0
    for back in run.of(Backward):
        start = max((e.order for e in run.events[: back.order] if isinstance(e, (Backward, Step))), default=-1)
        losses = [one for one in run.between(start, back.order, Loss) if one.value is not None and one.stack]
        if len(losses) < 2 or seen == PASSES:
            continue
        seen, lines = seen + 1, learned(back)
        behind = [one for one in losses if any(line in lines for line in own_line(one))]
        parts = [Part(one, one.gradients) for one in behind if one.gradients or _call(one) not in graded]
        found += parts if len(parts) > 1 else []
    return found


def _call(loss: Loss) -> Any:
    """Which call of the user's code a loss is."""
    return (loss.stack[0].code, loss.stack[0].instruction) if loss.stack else loss.place
