"""Mutants of a speech recogniser with CTC: its loss, and the text of its best path."""

from __future__ import annotations

from conformance.mutants.source import SPEECH, changed

changed(
    "CtcOfLogits",
    SPEECH,
    "scores, kept = self(frames, lengths)\n        return F.ctc_loss(scores.transpose(0, 1)",
    "scores, kept = self(frames, lengths)\n        return F.ctc_loss(2 * scores.transpose(0, 1)",
    breaks=("ctc-loss-gets-log-probabilities",),
    defect="What the loss gets is twice the logarithm of a probability.",
)
changed(
    "CtcOfAllFrames",
    SPEECH,
    "targets, kept, target_lengths",
    "targets, torch.full_like(kept, scores.shape[1]), target_lengths",
    breaks=("ctc-loss-counts-the-real-frames",),
    defect="The loss counts the padding behind a short sentence.",
)
changed(
    "CtcDropsBlanksFirst",
    SPEECH,
    "(row[:n].unique_consecutive() for row",
    "(row[:n][row[:n] != 0].unique_consecutive() for row",
    breaks=("ctc-text-merges-repeats-then-drops-blanks",),
    defect="Blanks are dropped before repeats are merged.",
)
changed(
    "CtcOfAnotherBlank",
    SPEECH,
    "target_lengths, blank=0)",
    "target_lengths, blank=11)",
    breaks=("ctc-text-drops-the-blank-of-the-loss",),
    defect="The loss takes a letter for the blank that the text is freed of.",
)
