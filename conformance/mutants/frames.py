"""Mutants of models that read frames with lengths, or images of several sizes."""

from __future__ import annotations

from conformance.mutants.source import CONFORMER, SPEECH, VIT, changed

PADDING = "encoder-padding-changes-nothing"
LEFT_OUT = "encoder-lengths-leave-out-no-real-frame"
KEPT = "results-of-methods-are-kept"
RESIZED = "resized-positions-follow-rows-and-columns"

changed(
    "ConvolutionReadsPadding",
    CONFORMER,
    "x = x.masked_fill(padding[..., None], 0.0)\n        x = self.depthwise",
    "x = self.depthwise",
    breaks=(PADDING,),
    defect="The convolution of a block reads what the layers before it made of padding.",
)
changed(
    "PaddingFilledForNothing",
    CONFORMER,
    "x = x.masked_fill(padding[..., None], 0.0)",
    "x.masked_fill(padding[..., None], 0.0)",
    breaks=(PADDING, KEPT),
    defect="The frames without padding are a new tensor, which is thrown away.",
)
changed(
    "UtteranceCountsPadding",
    CONFORMER,
    "count = real.sum(1, keepdim=True)",
    "count = frames.shape[1]",
    breaks=(PADDING,),
    defect="Mean and variance of an utterance are divided by the padded length.",
)
changed(
    "LengthsRoundedDown",
    CONFORMER,
    "lengths = (lengths - 1) // 2 + 1",
    "lengths = lengths // 2",
    breaks=(LEFT_OUT,),
    defect="The last row of an odd number of frames is hidden as if it were padding.",
)
changed(
    "LengthsOfFourRoundedDown",
    SPEECH,
    "lengths = (lengths + 3) // 4",
    "lengths = lengths // 4",
    breaks=(LEFT_OUT,),
    defect="Behind two strides the last row is hidden where the frames are no multiple of 4.",
)
changed(
    "ResizedRowsAreColumns",
    VIT,
    "grid.permute(0, 2, 3, 1).flatten(1, 2)",
    "grid.permute(0, 3, 2, 1).flatten(1, 2)",
    breaks=(RESIZED,),
    defect="The resized table of positions is read with rows and columns exchanged.",
)
changed(
    "ResizedToTheTransposedImage",
    VIT,
    "(rows, columns), mode",
    "(columns, rows), mode",
    breaks=(RESIZED,),
    defect="The table of positions is resized to the transposed image.",
)
changed(
    "SeenFramesAreTaught",
    CONFORMER,
    "(errors * hidden).sum() / hidden.sum()",
    "errors.mean()",
    breaks=("losses-of-masked-places-teach-no-others",),
    defect="The loss of hidden frames counts those that were seen, too.",
)
