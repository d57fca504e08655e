"""Mutants of a decision transformer: actions that are seen before they are predicted."""

from __future__ import annotations

from conformance.mutants.source import DECIDER, changed

BEFORE = "actions-are-predicted-before-they-are-seen"

changed(
    "ActionsPredictThemselves",
    DECIDER,
    "x[:, :, 1]",
    "x[:, :, 2]",
    breaks=(BEFORE,),
    defect="The token of the action itself predicts it.",
)
changed(
    "ReturnsPredictActions",
    DECIDER,
    "x[:, :, 1]",
    "x[:, :, 0]",
    breaks=(BEFORE,),
    defect="The token of the return predicts the action, before the state is seen.",
)
changed(
    "DecisionsSeeTheFuture",
    DECIDER,
    "(q, k, v, is_causal=True)",
    "(q, k, v)",
    breaks=(BEFORE,),
    defect="Attention has no causal mask.",
)
