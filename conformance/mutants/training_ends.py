"""Mutants of training scripts whose text shows where it goes wrong at the edges: ends and first places of rows, rounds
and windows of a long series, the axis that weights sum over."""

from __future__ import annotations

from conformance.mutants import slip_texts
from conformance.mutants.script import TRAINER, script
from conformance.mutants.training_texts import beside

beside(
    "ScriptWeighsOverSeeds",
    slip_texts.WEIGHTS_OVER_SEEDS,
    "run-weights-sum-to-one-where-they-sum",
    "Weights of a pooling sum to one over its seeds, and not over what is pooled.",
)
beside(
    "ScriptQueuesBeforeTheLoss",
    slip_texts.QUEUED_BEFORE_COMPARED,
    "run-queues-are-filled-behind-the-loss",
    "A batch is put into the queue before its loss.",
)
beside(
    "ScriptTakesZAsItIs",
    slip_texts.Z_AS_IT_IS,
    "run-z-terms-are-squares",
    "A z-term is the log itself.",
)
beside(
    "ScriptDrawsByEitherSign",
    slip_texts.DRAWN_BY_EITHER_SIGN,
    "run-drafts-are-replaced-by-the-rest",
    "Behind a draft that is refused, words are drawn by the difference without its sign.",
)
beside(
    "ScriptReadsTheFirstRound",
    slip_texts.READ_FROM_THE_BEGINNING,
    "run-rounds-read-their-own-stretch",
    "Each round of a rolling forecast reads what is known of the first one.",
)
beside(
    "ScriptCountsWindowsAgain",
    slip_texts.WINDOWS_COUNTED_AGAIN,
    "run-windows-count-what-is-new",
    "How far the last window came is kept and never read.",
)
beside(
    "ScriptStretchesPositions",
    slip_texts.POSITIONS_STRETCHED,
    "run-longer-texts-have-known-angles",
    "Positions are multiplied by the factor of length.",
)
beside(
    "ScriptEndsPathsInPadding",
    slip_texts.PATHS_END_IN_PADDING,
    "run-paths-end-with-their-row",
    "The end of a path is that of the last column.",
)
beside(
    "ScriptTakesTheLargestForTheEnd",
    slip_texts.LARGEST_FOR_END,
    "run-texts-are-read-at-their-end",
    "The end of a text is looked for as its largest id.",
)
beside(
    "ScriptPlacesWordsOnPadding",
    slip_texts.PLACES_OF_PADDING,
    "run-places-begin-behind-padding",
    "The first word reads the row of padding.",
)
beside(
    "ScriptLetsColumnsShareRows",
    slip_texts.SLOTS_LEFT_OUT,
    "run-columns-share-no-rows",
    "Columns share rows of a table.",
)
beside(
    "TrainingReachesIntoValidation",
    slip_texts.PARTS_THAT_OVERLAP,
    "run-training-ends-where-judging-begins",
    "The training part reaches into the validation.",
)
beside(
    "RowsDrawnWithoutTheirGroup",
    slip_texts.ROWS_WITHOUT_GROUPS,
    "run-groups-are-drawn-for-the-parts",
    "Rows of one patient are in several parts.",
)
beside(
    "ScriptCountsPlacesFromTheEdge",
    slip_texts.PLACES_FROM_THE_EDGE,
    "run-places-begin-with-the-text",
    "Places are counted from the edge where padding stands.",
)
beside(
    "ScriptKeepsTheOldest",
    slip_texts.OLDEST_KEPT,
    "run-long-rows-have-their-last-steps",
    "Of a long history the oldest items are kept.",
)
beside(
    "ScriptTakesThePastForTheFuture",
    slip_texts.PAST_FOR_FUTURE,
    "run-what-is-known-is-of-the-future",
    "The calendar of the future is that of the past.",
)
beside(
    "ScriptJoinsByPlainCounts",
    slip_texts.PLAIN_COUNTS,
    "run-joined-windows-are-means",
    "Weighted windows are divided by how many there are.",
)
beside(
    "ScriptCountsTokensForBytes",
    slip_texts.TOKENS_FOR_BYTES,
    "run-bits-a-byte-count-bytes",
    "The number of bytes is that of tokens.",
)
beside(
    "DropsInEveryMode",
    slip_texts.MODES_NEVER_READ,
    "run-layers-that-drop-ask-for-the-mode",
    "A layer drops in evaluation, too.",
)
beside(
    "EachRowAGroup",
    slip_texts.EACH_ROW_A_GROUP,
    "run-groups-hold-what-belongs-together",
    "Rows are grouped by their own number.",
)
beside(
    "WholeBehindItsParts",
    slip_texts.WHOLE_BEHIND_PARTS,
    "run-rows-that-teach-are-of-the-training-part",
    "The first rows of the whole are learned from, which are those of the validation.",
)
script(
    "ScriptPadsBehindInWriting",
    TRAINER,
    ("def main():\n", f"{slip_texts.PADDED_BEHIND.lstrip()}\n\ndef main():\n"),
    breaks=("run-texts-are-written-on-behind-words",),
    defect="Texts are filled up behind, and written on.",
)
beside(
    "PromptsAreTaught",
    slip_texts.PROMPTS_TAUGHT,
    "run-labels-are-those-of-the-reply",
    "Labels of the prompt are taught, too.",
)
beside(
    "ScriptMergesNeighboursTwice",
    slip_texts.NEIGHBOURS_TWICE,
    "run-merged-patches-hold-all-neighbours",
    "One of four neighbours is taken twice.",
)
beside(
    "ScriptShiftsTwice",
    slip_texts.SHIFTED_TWICE,
    "run-shifts-are-undone",
    "A picture is shifted twice the same way.",
)
beside(
    "ScriptRepeatsMasksInAnotherOrder",
    slip_texts.MASKS_IN_ANOTHER_ORDER,
    "run-folded-rows-keep-their-masks",
    "A mask is repeated as a whole for rows that are folded sample by sample.",
)
beside(
    "ScriptRegroupsInAnotherOrder",
    slip_texts.REGROUPED,
    "run-lists-stay-with-their-query",
    "Scores are grouped in another order than rows were flattened.",
)
beside(
    "ScriptFindsSpansBehindTheirEnds",
    slip_texts.BEHIND_THEIR_ENDS,
    "run-best-spans-end-behind-their-start",
    "Spans that end before they begin may be the best.",
)
beside(
    "ScriptExchangesSides",
    slip_texts.SIDES_EXCHANGED,
    "run-sides-of-spans-have-their-own-labels",
    "The scores of starts are compared with ends.",
)
beside(
    "ScriptPadsOneSide",
    slip_texts.EDGES_AT_ONE_SIDE,
    "run-stretches-reach-both-edges",
    "Runs that last to the end are lost.",
)
beside(
    "ScriptTakesSharesForLogs",
    slip_texts.SHARES_FOR_LOGS,
    "run-mixtures-are-shares",
    "A softmax is taken of a mixture of shares.",
)
beside(
    "ScriptTellsPaddingInVain",
    slip_texts.PADDING_IN_VAIN,
    "run-losses-read-what-is-padding",
    "Padding is told and taught.",
)
beside(
    "ScriptTakesScoresOfOtherBeams",
    slip_texts.OTHER_BEAMS,
    "run-beams-keep-their-scores",
    "Beams get the scores of others.",
)
