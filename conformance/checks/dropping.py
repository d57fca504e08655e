"""Checks of what a model drops in training: whether its option says how much, and whether the stream goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, note, true
from conformance.protocol import NotProvided

_DROPS_A_SUM = r"(?i)\.\w*(drop_?path|stochastic)\w*\(\s*\w+ \+"
"""A line that drops the sum of the stream and a branch."""


@check("model-keeps-the-stream-where-branches-are-dropped", roles=("module",))
def keeps_the_stream(impl: Any, draw: Draw) -> Evidence:
    """Where a block drops what it adds, as stochastic depth does, what it adds it to goes on."""
    subject = impl.build("module", {})
    path = subject.stream_is_dropped()
    return true("what goes on where all branches are dropped", not path, expected="the stream", got="nothing").saying(
        diagnosis=f"Where what {path or 'a block'} adds is dropped, its stream is dropped with it: nothing of what it "
        "gets goes on.",
        place=(subject.line_of(_DROPS_A_SUM) or subject.made_at(path)) if path else "",
        mend="x = x + self.drop_path(branch(x)), and not self.drop_path(x + branch(x))",
    )


@check("model-dropout-is-what-its-option-says", roles=("module",))
def dropout_option(impl: Any, draw: Draw) -> Evidence:
    """dropout=0 drops nothing, and another rate reaches the dropout."""
    subject = impl.build("module", {})
    if not subject.takes_option("dropout") and not (subject.is_whole and subject.speaks_of_dropping()):
        raise NotProvided("its own constructor takes no dropout rate")
    rate = 0.37
    none, some = subject.fresh(2, dropout=0.0), subject.fresh(2, dropout=rate)
    if not subject.is_whole and some.raised_in_training(some.example()):
        raise NotProvided("in training it takes more than in evaluation, which its model hands it")
    left = none.own_dropouts(True)
    if left:
        return true("with dropout 0 nothing is dropped", False, expected="no dropout", got=left[0].what).saying(
            diagnosis=f"With dropout 0 something is dropped ({left[0].what}): a rate is written into the code.",
            place=left[0].place,
            mend="use the option's rate",
        )
    dropped, still = some.own_dropouts(True), some.active_dropouts(False)
    if still and not some.asks_for_dropout():
        return true(f"with dropout {rate} nothing is dropped in evaluation", False, got=still[0].what).saying(
            diagnosis=f"With a dropout rate above 0 something is dropped in evaluation mode, too ({still[0].what}).",
            place=still[0].place,
            mend="use nn.Dropout in an nn.Module, or hand training=self.training to F.dropout",
        )
    if not dropped and not some.dropout_rates():
        passes = [some.in_training(seed, **some.example())["out"] for seed in range(6)]
        if some.draws() or any(not np.array_equal(one, passes[0]) for one in passes[1:]):
            return note("it leaves out whole parts at random in training, and no single numbers", "no dropout")
        if by := subject.told_to_drop():
            raise NotProvided(f"the caller of forward says by {by} whether it drops")
        return true(f"with dropout {rate} something is dropped", False, expected=f"dropout {rate}", got="none").saying(
            diagnosis="The dropout option reaches nothing: no dropout acts in training mode.", place=subject.place()
        )
    others = [
        d for d in dropped if d.rate is not None and abs(d.rate - rate) > 1e-6 and abs(d.rate - (1 - rate)) > 1e-6
    ]
    if others and any(abs((d.rate or 0) - (1 - rate)) < 1e-6 for d in dropped):
        return note("a dropout keeps its own rate", others[0].what)
    wrong = [d for d in dropped if d.rate is not None and abs(d.rate - (1 - rate)) <= 1e-6]
    if wrong:
        return true("the rate is the share that is dropped", False, expected=rate, got=wrong[0].rate).saying(
            diagnosis="The dropout rate is turned round: it drops what it should keep.", place=wrong[0].place
        )
    return note("a dropout keeps its own rate", others[0].what) if others else true("the rates are the option's", True)
