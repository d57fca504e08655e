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
    "dtype=torch.bool).tril()",
    "dtype=torch.bool)",
    breaks=(BEFORE,),
    defect="Attention has no causal mask.",
)
changed(
    "StepsAreCountedInTheWindow",
    DECIDER,
    "self.times(timesteps)",
    "self.times(torch.arange(steps)[None])",
    breaks=(BEFORE,),
    defect="The time of a step is its place in the window, and not that in its episode.",
)
changed(
    "MaskOfOtherRows",
    DECIDER,
    "real[:, None, None, :] |",
    "real.flip(0)[:, None, None, :] |",
    breaks=("decisions-leave-out-the-steps-of-padding",),
    defect="A trajectory gets the mask of another one.",
)
changed(
    "MaskOfStepsIsTiled",
    DECIDER,
    "repeat_interleave(3, 1)",
    "repeat(1, 3)",
    breaks=("decisions-leave-out-the-steps-of-padding",),
    defect="The mask of the steps is repeated as a whole, and the tokens of a step stand side by side.",
)
changed(
    "HistoryIsMaskedOnTheWrongSide",
    DECIDER,
    "torch.cat((torch.zeros(max(missing, 0)), torch.ones(len(states))))",
    "torch.cat((torch.ones(len(states)), torch.zeros(max(missing, 0))))",
    breaks=("decisions-leave-out-the-steps-of-padding",),
    defect="A history is filled up at its start, and masked at its end.",
)
