"""Mutants of whole models whose mistake the text of their file shows by itself."""

from __future__ import annotations

from conformance.mutants import slip_texts
from conformance.mutants.source import ALIBI, LLAMA, QUANTILES, RELATIVE, TAGGER, TRANSLATOR, VIT, changed


def beside(name: str, text: str, claim: str, defect: str) -> None:
    """Register a tagger with a function of this text in front of its class."""
    changed(name, TAGGER, "class Tagger(", f"{text.lstrip()}\n\nclass Tagger(", breaks=(claim,), defect=defect)


changed(
    "LowestForTheMiddle",
    QUANTILES,
    "(self.levels - 0.5).abs().argmin()",
    "(self.levels - 0.5).argmin()",
    breaks=("results-that-are-nearest-are-chosen-by-distance",),
    defect="The lowest level is taken for the one in the middle.",
)
beside(
    "NumbersOfOneProcess",
    """
def number(word, words=50):
    return hash(word) % words
""",
    "results-stay-the-same-in-every-process",
    "Words get their numbers from Python's hash, which is another one in every process.",
)
beside(
    "LabelsOfTheOtherEnd",
    """
def cut(ids, labels, longest=512):
    ids, labels = ids[-longest:], labels[:longest]
    return ids, labels
""",
    "results-stay-beside-their-tokens",
    "Of long texts the words keep their end, and the labels their beginning.",
)
beside(
    "LastGroupOfTexts",
    """
def groups_of(texts, most=64):
    groups, group = [], []
    for text in texts:
        if len(group) + len(text) > most:
            groups.append(group)
            group = []
        group.append(text)
    return groups
""",
    "results-of-the-last-group-are-kept",
    "The last group of texts is handed on to nobody.",
)
beside(
    "OnePlaceMoreOfARank",
    """
def hits(scores, own, k=5):
    rank = (scores > own[:, None]).sum(1)
    return rank <= k
""",
    "results-of-ranks-count-the-first-k",
    "A rank that counts from 0 is a hit at k, too.",
)
changed(
    "HeadsStayWhereTheyStand",
    RELATIVE,
    "(weights @ v).transpose(1, 2).reshape(batch, length, width)",
    "(weights @ v).reshape(batch, length, width)",
    breaks=("attention-moves-its-heads-back",),
    defect="The heads are joined where they stand, and each position gets parts of others.",
)
beside(
    "EndOfLongTexts",
    """
EOS = 2


def answer_of(ids, longest=512):
    return (ids + [EOS])[:longest]
""",
    "results-of-long-texts-have-their-end",
    "Texts are cut when the sign of their end stands behind them.",
)
changed(
    "WindowWithItsTarget",
    QUANTILES,
    "class QuantileForecaster(",
    "def window(series, t, length, horizon):\n    past = series[t - length + 1 : t + 1]\n"
    "    future = series[t : t + horizon]\n    return past, future\n\n\nclass QuantileForecaster(",
    breaks=("results-of-windows-end-before-their-target",),
    defect="The window of the past holds the first step of what is to be forecast.",
)
changed(
    "LevelsOfTheOtherSide",
    QUANTILES,
    "class QuantileForecaster(",
    "def pinball(pred, target, q):\n    error = pred - target[..., None]\n"
    "    return torch.maximum(q * error, (q - 1) * error).mean()\n\n\nclass QuantileForecaster(",
    breaks=("results-of-levels-weigh-errors-by-their-sign",),
    defect="The error of a quantile loss has the other sign.",
)
changed(
    "SharesOfShares",
    VIT,
    "        return self.head(self.norm(x[:, 0]))\n",
    "        return self.head(self.norm(x[:, 0])).softmax(-1)\n\n"
    "    def predict(self, images):\n        return self(images).softmax(-1)\n",
    breaks=("results-of-shares-meet-one-softmax",),
    defect="forward gives shares, and what predicts takes a softmax of them.",
)
changed(
    "StartsWrittenOver",
    ALIBI,
    "                nn.init.normal_(weight, std=(2 * n_layers * d_model) ** -0.5)\n",
    "                nn.init.normal_(weight, std=(2 * n_layers * d_model) ** -0.5)\n        self.apply(self._start)\n\n"
    "    def _start(self, part):\n        if isinstance(part, nn.Linear):\n"
    "            nn.init.normal_(part.weight, std=part.in_features**-0.5)\n",
    breaks=("results-of-first-numbers-are-kept",),
    defect="What adds to the stream is made to start smaller, and gets other numbers afterwards.",
)
beside(
    "PerplexityOfBaseTwo",
    """
def perplexity(logits, labels):
    loss = nn.functional.cross_entropy(logits, labels)
    return 2**loss
""",
    "results-of-perplexities-have-the-base-of-their-loss",
    "The perplexity is two to a loss of natural logarithms.",
)
beside(
    "MarginOfTwoAnswers",
    slip_texts.MARGIN_OF_TWO_ANSWERS,
    "results-of-margins-are-of-one-answer",
    "The rejected answer is compared with what the reference says of the chosen one.",
)
beside(
    "BeamsOfTheLastWord",
    slip_texts.BEAMS_OF_THE_LAST_WORD,
    "results-of-beams-add-their-scores",
    "Beams are ranked by their last word alone.",
)
beside(
    "PairsOfABatchOnce",
    slip_texts.PAIRS_COUNTED_ONCE,
    "results-of-pairs-count-each-time",
    "A label and a prediction that meet twice in a batch count once.",
)
beside(
    "GainsOfTheNaturalLogarithm",
    slip_texts.GAINS_OF_A_NATURAL_LOGARITHM,
    "results-of-gains-use-the-logarithm-of-two",
    "A gain is divided by a natural logarithm.",
)
beside(
    "SortedOnceMore",
    slip_texts.RESULTS_LEFT_SORTED,
    "results-of-rows-return-to-their-order",
    "What is made of sorted rows is sorted once more, and belongs to other rows.",
)
beside(
    "WarmUpOfAHalf",
    slip_texts.WARM_UP_OF_A_ROOT,
    "results-of-warm-ups-meet-their-fall",
    "The rate rises with the root of the warm-up, far above where it falls.",
)
beside(
    "MaskingIsThrownAway",
    slip_texts.FILLING_THROWN_AWAY,
    "results-of-methods-are-kept",
    "What masked_fill gives is thrown away.",
)
beside(
    "CrossEntropyOfShares",
    """
def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits.softmax(-1), labels)
""",
    "results-of-cross-entropies-are-of-logits",
    "A cross-entropy is given a softmax.",
)
beside(
    "SpansAreLeftOpen",
    slip_texts.LAST_SPAN_LEFT_OPEN,
    "results-of-last-spans-are-closed",
    "A span that goes on to the last tag is never put down.",
)
beside(
    "MissedIsFalse",
    slip_texts.ERRORS_UNDER_TWO_NAMES,
    "results-missed-and-false-are-counted-apart",
    "What is missed is counted as what is found wrongly.",
)
beside(
    "ScoredBehindTheTarget",
    slip_texts.BEST_BEHIND_THE_TARGET,
    "results-of-writing-are-the-models-own",
    "BLEU is that of the best words behind the words of the target.",
)
beside(
    "DecisionsAreRanked",
    slip_texts.DECISIONS_RANKED,
    "results-of-ranks-are-of-scores",
    "AUC is that of decisions, and not of scores.",
)
beside(
    "NatsTimesALogarithm",
    slip_texts.BITS_MULTIPLIED,
    "results-of-bits-divide-by-the-logarithm-of-two",
    "Nats are multiplied by the logarithm of 2.",
)
beside(
    "CommonCountsTwice",
    slip_texts.UNION_WITH_ALL_TWICE,
    "results-of-unions-count-each-once",
    "A union has what is common to both twice.",
)
beside(
    "TableReadAcross",
    slip_texts.TABLE_ALONG_THE_OTHER_AXIS,
    "results-of-tables-are-read-as-filled",
    "Predictions are the rows of a table whose rows are read as the truth.",
)
beside(
    "RiseInWholeNumbers",
    slip_texts.WARM_UP_IN_WHOLE_NUMBERS,
    "results-of-warm-ups-rise-by-shares",
    "The rate is 0 until the warm-up is over.",
)
beside(
    "WorstStandsFirst",
    slip_texts.WORST_FIRST,
    "results-of-measures-count-from-the-best",
    "Scores are sorted from the worst on.",
)
beside(
    "ShortIsRewarded",
    slip_texts.BREVITY_TURNED_ROUND,
    "results-of-short-answers-weigh-less",
    "What is too short is rewarded.",
)
beside(
    "HotIsSure",
    slip_texts.TEMPERATURE_MULTIPLIED,
    "results-of-draws-divide-by-the-temperature",
    "Logits are multiplied by the temperature.",
)
beside(
    "ChannelsTakenForFrames",
    slip_texts.AXES_OUT_OF_ORDER,
    "results-of-new-shapes-keep-the-order-of-axes",
    "Channels and frames change places by a new shape, without a transposition.",
)
beside(
    "CopiesOfOneBeam",
    slip_texts.BEAMS_BEGIN_AS_COPIES,
    "results-of-beams-begin-with-one",
    "All beams begin with a score of nought.",
)
beside(
    "TaughtWhatWasRead",
    slip_texts.LABELS_NOT_MOVED,
    "results-of-next-words-have-labels-moved-on",
    "Logits and labels are both cut at their end.",
)
changed(
    "StatisticsLost",
    TAGGER,
    "            nn.init.normal_(part.weight, std=0.02)\n",
    "            nn.init.normal_(part.weight, std=0.02)\n"
    "        self.register_buffer('length_mean', torch.ones(1), persistent=False)\n\n"
    "    def fit_lengths(self, texts):\n"
    "        self.length_mean.copy_(texts.float().mean())\n",
    breaks=("results-of-fitted-statistics-are-saved",),
    defect="A mean that is fitted to the data is kept in a buffer that is not saved.",
)
beside(
    "ColumnsShareRows",
    slip_texts.COLUMNS_OVERLAP,
    "results-of-columns-have-rows-of-their-own",
    "The first rows of columns are counted without their rows for what is missing.",
)
beside(
    "LengthsMultiply",
    slip_texts.LENGTHS_MULTIPLY,
    "results-of-long-answers-divide-by-their-length",
    "A score is multiplied by its length penalty.",
)
beside(
    "EndsAreIgnored",
    slip_texts.ENDS_NOT_TAUGHT,
    "results-of-ends-are-taught",
    "Labels that are the sign of the end are ignored.",
)
beside(
    "OneTermScaled",
    slip_texts.TERMS_SCALED_APART,
    "results-of-terms-have-one-scale",
    "Only the term by contents is scaled.",
)
beside(
    "HiddenByATinyNumber",
    slip_texts.HIDDEN_BY_NOUGHT,
    "results-of-hidden-scores-are-minus-infinity",
    "Hidden scores are 1e-9 before the softmax.",
)
beside(
    "PlacesColumnByColumn",
    slip_texts.GRID_IN_TWO_ORDERS,
    "results-of-grids-have-one-order",
    "Patches stand row by row, and their places column by column.",
)
beside(
    "BoxesScaledByHeightFirst",
    slip_texts.BOXES_OF_THE_OTHER_SIDE,
    "results-of-boxes-scale-x-by-the-width",
    "Boxes are scaled by height, width, height, width.",
)
beside(
    "StartsBehindTheirPieces",
    slip_texts.STARTS_BEHIND_PIECES,
    "results-of-words-start-at-their-first-piece",
    "The start of a word is noted behind its pieces.",
)
beside(
    "AccuracyOfWhatWasAnswered",
    slip_texts.ACCURACY_OF_ANSWERED,
    "results-of-accuracies-are-of-their-class",
    "The accuracy of a class is a mean over what was answered with it.",
)
beside(
    "OldestAreKept",
    slip_texts.NEWEST_CUT_OFF,
    "results-of-long-rows-keep-their-newest",
    "Long rows keep their oldest entries.",
)
beside(
    "RanksFromOneDiscountedTwice",
    slip_texts.GAINS_OFF_BY_ONE,
    "results-of-gains-begin-with-one",
    "Ranks from one are discounted as if they began with nought.",
)
beside(
    "LabelsBehindTheMask",
    slip_texts.LABELS_BEHIND_THE_MASK,
    "results-of-labels-are-read-before-hiding",
    "The mask is written into the words that the labels are read from.",
)
beside(
    "EndsLeftOutWithPadding",
    slip_texts.ENDS_LEFT_OUT_WITH_PADDING,
    "results-of-ends-are-no-padding",
    "Padding has the number of the sign of the end, and labels of it are left out.",
)
beside(
    "PenaltyBelowNought",
    slip_texts.PENALTY_BELOW_NOUGHT,
    "results-of-penalties-favour-nothing",
    "Logits below 0 are divided by the penalty, too.",
)
changed(
    "ScaleOfAPlainTensor",
    LLAMA,
    "nn.Parameter(torch.ones(dim))",
    "torch.ones(dim)",
    breaks=("results-of-scales-are-learned",),
    defect="The scale of a norm is a plain tensor.",
)
beside(
    "ReturnsOfAWindow",
    slip_texts.RETURNS_OF_A_WINDOW,
    "results-of-returns-reach-the-end",
    "Returns to go are summed over a window.",
)
beside(
    "WantedFromTheBeginning",
    slip_texts.WANTED_FROM_THE_BEGINNING,
    "results-of-wanted-returns-fall",
    "The return that is wanted is the first one less the last reward.",
)
beside(
    "NewestByACount",
    slip_texts.NEWEST_BY_A_COUNT,
    "results-of-histories-are-of-their-newest",
    "The newest entry of a history that is filled up in front is looked for at the number of real ones.",
)
beside(
    "MasksOfAllSamplesAHead",
    slip_texts.MASKS_BY_HEADS_FIRST,
    "results-of-what-hides-stays-with-its-sample",
    "Masks of all samples are repeated as a whole for the heads.",
)
beside(
    "KeptLettersAreCompared",
    slip_texts.KEPT_LETTERS_COMPARED,
    "results-of-paths-are-merged-first",
    "A letter is left out that is the last one that was kept.",
)
beside(
    "ScaledInPart",
    slip_texts.SCALED_IN_PART,
    "results-of-scores-have-one-temperature",
    "Only the similarities to positives are divided by the temperature.",
)
beside(
    "ReciprocalOfAMean",
    slip_texts.RECIPROCAL_OF_A_MEAN,
    "results-of-reciprocal-ranks-are-meant",
    "One is divided by the mean rank.",
)
changed(
    "CausalMaskTheOtherWay",
    TRANSLATOR,
    "class FeedForward(nn.Module):",
    f"{slip_texts.FUTURE_SHOWN.lstrip()}\n\nclass FeedForward(nn.Module):",
    breaks=("results-of-futures-are-hidden-as-read",),
    defect="A causal mask is true for what is hidden, and attention hides what is false.",
)
beside(
    "WeightsOverSeeds",
    slip_texts.WEIGHTS_OVER_SEEDS,
    "results-of-pooling-are-means",
    "Weights of a pooling sum to one over its seeds, and not over what is pooled.",
)
beside(
    "QueuedBeforeTheLoss",
    slip_texts.QUEUED_BEFORE_COMPARED,
    "results-of-queues-come-behind-the-loss",
    "A batch is put into the queue before its loss.",
)
beside(
    "ZTermAsItIs",
    slip_texts.Z_AS_IT_IS,
    "results-of-z-terms-are-squares",
    "A z-term is the log itself.",
)
beside(
    "DrawnByEitherSign",
    slip_texts.DRAWN_BY_EITHER_SIGN,
    "results-behind-a-draft-follow-the-model",
    "Behind a draft that is refused, words are drawn by the difference without its sign.",
)
beside(
    "KnownOfTheFirstRound",
    slip_texts.READ_FROM_THE_BEGINNING,
    "results-of-rounds-read-their-own-stretch",
    "Each round of a rolling forecast reads what is known of the first one.",
)
beside(
    "WindowsCountedAgain",
    slip_texts.WINDOWS_COUNTED_AGAIN,
    "results-of-windows-count-what-is-new",
    "How far the last window came is kept and never read.",
)
beside(
    "PositionsStretched",
    slip_texts.POSITIONS_STRETCHED,
    "results-of-longer-texts-have-known-angles",
    "Positions are multiplied by the factor of length.",
)
beside(
    "PathsEndInPadding",
    slip_texts.PATHS_END_IN_PADDING,
    "results-of-paths-end-with-their-row",
    "The end of a path is that of the last column.",
)
beside(
    "LargestForTheEnd",
    slip_texts.LARGEST_FOR_END,
    "results-of-texts-are-read-at-their-end",
    "The end of a text is looked for as its largest id.",
)
beside(
    "PlacesOfPadding",
    slip_texts.PLACES_OF_PADDING,
    "results-of-places-begin-behind-padding",
    "The first word reads the row of padding.",
)
beside(
    "ColumnsOfATableShareRows",
    slip_texts.SLOTS_LEFT_OUT,
    "results-of-columns-share-no-rows",
    "Columns share rows of a table.",
)
beside(
    "PlacesFromTheEdge",
    slip_texts.PLACES_FROM_THE_EDGE,
    "results-of-places-begin-with-the-text",
    "Places are counted from the edge where padding stands.",
)
beside(
    "OldestKept",
    slip_texts.OLDEST_KEPT,
    "results-of-long-rows-have-their-last-steps",
    "Of a long history the oldest items are kept.",
)
beside(
    "PastForTheFuture",
    slip_texts.PAST_FOR_FUTURE,
    "results-of-the-future-are-of-its-times",
    "The calendar of the future is that of the past.",
)
beside(
    "WindowsByPlainCounts",
    slip_texts.PLAIN_COUNTS,
    "results-of-joined-windows-are-means",
    "Weighted windows are divided by how many there are.",
)
beside(
    "TokensForBytes",
    slip_texts.TOKENS_FOR_BYTES,
    "results-of-bits-a-byte-count-bytes",
    "The number of bytes is that of tokens.",
)
beside(
    "PaddedBehindInWriting",
    slip_texts.PADDED_BEHIND,
    "results-are-written-behind-words",
    "Texts are filled up behind, and written on.",
)
beside(
    "NeighboursTwice",
    slip_texts.NEIGHBOURS_TWICE,
    "results-of-merging-hold-all-neighbours",
    "One of four neighbours is taken twice.",
)
beside(
    "PictureShiftedTwice",
    slip_texts.SHIFTED_TWICE,
    "results-of-shifts-are-undone",
    "A picture is shifted twice the same way.",
)
beside(
    "MasksInAnotherOrder",
    slip_texts.MASKS_IN_ANOTHER_ORDER,
    "results-of-folded-rows-keep-what-hides",
    "A mask is repeated as a whole for rows that are folded sample by sample.",
)
beside(
    "RegroupedInAnotherOrder",
    slip_texts.REGROUPED,
    "results-of-lists-stay-with-their-query",
    "Scores are grouped in another order than rows were flattened.",
)
beside(
    "SpansBehindTheirEnds",
    slip_texts.BEHIND_THEIR_ENDS,
    "results-of-spans-end-behind-their-start",
    "Spans that end before they begin may be the best.",
)
beside(
    "SidesOfSpansExchanged",
    slip_texts.SIDES_EXCHANGED,
    "results-of-sides-have-their-own-labels",
    "The scores of starts are compared with ends.",
)
beside(
    "EdgesAtOneSide",
    slip_texts.EDGES_AT_ONE_SIDE,
    "results-of-runs-reach-both-edges",
    "Runs that last to the end are lost.",
)
beside(
    "SharesForLogs",
    slip_texts.SHARES_FOR_LOGS,
    "results-of-mixtures-are-shares",
    "A softmax is taken of a mixture of shares.",
)
beside(
    "PaddingToldInVain",
    slip_texts.PADDING_IN_VAIN,
    "results-of-losses-read-what-is-padding",
    "Padding is told and taught.",
)
beside(
    "ScoresOfOtherBeams",
    slip_texts.OTHER_BEAMS,
    "results-of-beams-keep-their-scores",
    "Beams get the scores of others.",
)
