"""Mutants of functions that stand beside models: batches, pooling, losses, metrics, schedules, decoding."""

from __future__ import annotations

from conformance.mutants.source import HELPERS, changed

changed(
    "UnshiftedBatch",
    HELPERS,
    "data[i + 1 : i + 1 + block_size]",
    "data[i : i + block_size]",
    breaks=("batches-of-text-are-labelled-with-the-next-word",),
    defect="The labels of a batch are its inputs.",
)
changed(
    "TornRows",
    HELPERS,
    ".reshape(batch_size, columns)",
    ".reshape(columns, batch_size).t()",
    breaks=("rows-of-a-long-text-are-contiguous",),
    defect="Rows hold every n-th word of the text.",
)
changed(
    "ShiftedLeft",
    HELPERS,
    "moved[:, 1:] = labels[:, :-1]",
    "moved[:, :-1] = labels[:, 1:]",
    breaks=("decoder-inputs-are-the-labels-one-place-later",),
    defect="The labels are shifted to the left.",
)
changed(
    "PositionsCountedAlongTheBatch",
    HELPERS,
    "torch.cumsum(real, 1)",
    "torch.cumsum(real, 0)",
    breaks=("numbers-of-positions-count-the-real-words",),
    defect="Positions are counted along the batch.",
)
changed(
    "LabelsWhereNothingIsMasked",
    HELPERS,
    "labels[~chosen] = -100",
    "labels[chosen] = -100",
    breaks=("masked-words-are-what-is-taught",),
    defect="The words that were not masked are taught.",
)
changed(
    "SpecialWordsMasked",
    HELPERS,
    ".masked_fill(ids < SPECIAL, 0.0)",
    "",
    breaks=("masked-words-are-what-is-taught",),
    defect="Special words are masked, too.",
)
changed(
    "HalvesOverlap",
    HELPERS,
    "(relative_position > 0).long() * num_buckets",
    "(relative_position > 0).long()",
    breaks=("relative-buckets-are-those-of-t5",),
    defect="Keys behind and before share buckets.",
)
changed(
    "FrequentClassesWeighMore",
    HELPERS,
    "len(labels) / (n_classes * counts)",
    "n_classes * counts / len(labels)",
    breaks=("weights-of-classes-favour-the-rare",),
    defect="Classes weigh more, the more often they occur.",
)
changed(
    "KeyHeadsRepeatedAsAWhole",
    HELPERS,
    "x.repeat_interleave(n_rep, dim=1)",
    "x.repeat(1, n_rep, 1, 1)",
    breaks=("key-heads-are-repeated-in-place",),
    defect="Key heads are repeated as a whole.",
)
changed(
    "FutureOverlapsThePast",
    HELPERS,
    "series[s + context : s + context + horizon]",
    "series[s + context - 1 : s + context + horizon - 1]",
    breaks=("windows-are-followed-by-their-future",),
    defect="The future begins with the last step of the past.",
)
changed(
    "TestedOnValidation",
    HELPERS,
    "series[a:b], series[b:]",
    "series[a:b], series[a:]",
    breaks=("parts-of-a-series-are-in-order-and-apart",),
    defect="The test part holds the validation part.",
)
changed(
    "RewardsSoFar",
    HELPERS,
    "reversed(range(len(rewards)))",
    "range(len(rewards))",
    breaks=("returns-to-go-are-sums-of-later-rewards",),
    defect="The rewards so far are summed.",
)
changed(
    "FastAverage",
    HELPERS,
    "decay * slow + (1 - decay) * new",
    "(1 - decay) * slow + decay * new",
    breaks=("averaged-weights-follow-slowly",),
    defect="Old and new weights have each other's share.",
)
changed(
    "PutBackInTheWrongOrder",
    HELPERS,
    "x * std + mean",
    "(x + mean) * std",
    breaks=("what-was-normalised-is-put-back",),
    defect="The mean is scaled, too.",
)
changed(
    "PooledOverPadding",
    HELPERS,
    "/ weight.sum(1).clamp(min=1e-9)",
    "/ hidden.size(1)",
    breaks=("pooling-leaves-padding-out",),
    defect="The mean divides by the padded length.",
)
changed(
    "TemperatureMultiplied",
    HELPERS,
    "a @ b.t() / temperature",
    "a @ b.t() * temperature",
    breaks=("contrastive-losses-prefer-the-own-partner",),
    defect="Similarities are multiplied by the temperature.",
)
changed(
    "OneSideNormalised",
    HELPERS,
    "a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)",
    "a = F.normalize(a, dim=-1)",
    breaks=("contrastive-losses-prefer-the-own-partner",),
    defect="One side is not normalised.",
)
changed(
    "MaskOfPadding",
    HELPERS,
    "[[1] * len(text) + [0] *",
    "[[0] * len(text) + [1] *",
    breaks=("padded-batches-keep-their-texts",),
    defect="The mask marks padding as real.",
)
changed(
    "TypesOneOff",
    HELPERS,
    "[0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)",
    "[1] * (len(tokens_a) + 2) + [0] * (len(tokens_b) + 1)",
    breaks=("pairs-of-texts-have-types-of-their-own",),
    defect="The types are exchanged.",
)
changed(
    "PaddingInTheError",
    HELPERS,
    "/ mask.sum()",
    "/ mask.numel()",
    breaks=("masked-errors-are-means-over-what-is-real",),
    defect="Masked steps are counted in the mean.",
)
changed(
    "PinballOfTheWrongSign",
    HELPERS,
    "(level - 1) * error",
    "(1 - level) * error",
    breaks=("quantile-losses-are-lowest-at-the-quantile",),
    defect="An error above has a negative cost.",
)
changed(
    "SoftLossOverTheClasses",
    HELPERS,
    "logits.log_softmax(-1)).sum(-1).mean()",
    "logits.log_softmax(-1)).mean()",
    breaks=("soft-labels-are-weighed-by-their-share",),
    defect="The loss is divided by the number of classes, too.",
)
changed(
    "FalseItemsTaught",
    HELPERS,
    "F.softplus(neg_logits[real])",
    "F.softplus(-neg_logits[real])",
    breaks=("losses-of-pairs-prefer-the-true-one",),
    defect="False items are taught as true.",
)
changed(
    "BalanceOfTheMean",
    HELPERS,
    "router_probs.mean(0)",
    "router_probs.mean()",
    breaks=("balance-losses-grow-with-imbalance",),
    defect="The mean probability is one over all experts.",
)
changed(
    "ZLossOverTokens",
    HELPERS,
    "logits.logsumexp(-1)",
    "logits.logsumexp(0)",
    breaks=("z-losses-are-squared-log-sums",),
    defect="The log-sum-exp runs over the tokens.",
)
changed(
    "CosineUpwards",
    HELPERS,
    "(1 + math.cos(math.pi * share))",
    "(1 - math.cos(math.pi * share))",
    breaks=("schedules-rise-in-warm-up-and-then-fall",),
    defect="The cosine goes up.",
)
changed(
    "SquaresMixed",
    HELPERS,
    ".permute(0, 2, 4, 1, 3, 5)",
    ".permute(0, 2, 3, 1, 4, 5)",
    breaks=("patchify-gives-pieces-of-the-image",),
    defect="A patch holds pixels of several squares.",
)
changed(
    "PatchesTurned",
    HELPERS,
    "x.permute(0, 3, 1, 4, 2, 5)",
    "x.permute(0, 3, 1, 5, 2, 4)",
    breaks=("patches-are-put-back-where-they-were",),
    defect="Patches are transposed when they are put back.",
)
changed(
    "SharesExchanged",
    HELPERS,
    "y, y[perm], lam",
    "y[perm], y, lam",
    breaks=("mixed-samples-have-mixed-labels",),
    defect="The labels have each other's share.",
)
changed(
    "BranchesNotScaledUp",
    HELPERS,
    "x * keep / (1 - p)",
    "x * keep",
    breaks=("dropped-branches-keep-the-mean",),
    defect="What is kept is not scaled up.",
)
changed(
    "BlanksDoNotSeparate",
    HELPERS,
    "            before = word\n        texts",
    "            before = word if word != blank else before\n        texts",
    breaks=("paths-of-ctc-merge-repeats-and-drop-blanks",),
    defect="A blank does not separate equal letters.",
)
changed(
    "PenaltyShrinks",
    HELPERS,
    "((5 + length) / 6) ** alpha\n\n\ndef rep",
    "((5 + length) / 6) ** -alpha\n\n\ndef rep",
    breaks=("penalties-for-length-grow-with-it",),
    defect="The penalty falls with the length.",
)
changed(
    "NegativeLogitsRise",
    HELPERS,
    "torch.where(seen > 0, seen / penalty, seen * penalty)",
    "seen / penalty",
    breaks=("penalties-for-repetition-lower-what-was-written",),
    defect="Negative logits rise.",
)
changed(
    "CrossingWordDropped",
    HELPERS,
    "probs.cumsum(-1) - probs >= p",
    "probs.cumsum(-1) >= p",
    breaks=("filters-keep-the-best-words",),
    defect="The word that crosses p is dropped.",
)
changed(
    "OldestItemsKept",
    HELPERS,
    "history[-maxlen:]",
    "history[:maxlen]",
    breaks=("histories-keep-the-last-items",),
    defect="The oldest items are kept.",
)
changed(
    "NegativesSeen",
    HELPERS,
    "item not in seen",
    "item in seen",
    breaks=("negative-items-were-never-seen",),
    defect="Only seen items are drawn.",
)
changed(
    "ExampleUnshifted",
    HELPERS,
    "left_pad(items[1:], maxlen))",
    "left_pad(items[:-1], maxlen))",
    breaks=("examples-are-labelled-with-the-next-item",),
    defect="The labels are the history itself.",
)
changed(
    "MasksJoinedByOr",
    HELPERS,
    "(tgt != pad).unsqueeze(-2) & torch",
    "(tgt != pad).unsqueeze(-2) | torch",
    breaks=("masks-of-targets-hide-padding-and-the-future",),
    defect="A word is seen that is real or not ahead, and not both.",
)
changed(
    "ListsOverQueries",
    HELPERS,
    "scores.log_softmax(-1)).sum(-1)",
    "scores.log_softmax(0)).sum(-1)",
    breaks=("losses-of-lists-keep-queries-apart",),
    defect="The softmax of a loss of lists runs over the queries.",
)
changed(
    "OrdersForRanks",
    HELPERS,
    "scores.argsort(-1, descending=True).argsort(-1)",
    "scores.argsort(-1, descending=True)",
    breaks=("losses-of-lists-do-not-mind-their-order",),
    defect="The numbers of the candidates in their order are taken for their ranks.",
)
changed(
    "MissingCandidatesShareTheSoftmax",
    HELPERS,
    "scores.masked_fill(~present, low).log_softmax(-1)",
    "scores.log_softmax(-1)",
    breaks=("losses-of-lists-leave-missing-candidates-out",),
    defect="The softmax of the scores runs over missing candidates, too.",
)
changed(
    "NothingWeighsAsMuch",
    HELPERS,
    "weight[n_classes] = 0.1",
    "weight[0] = 0.1",
    breaks=("losses-of-sets-do-not-mind-their-order",),
    defect="The small weight is that of the first class, and not of what is nothing.",
)
changed(
    "LabelsOfOtherObjects",
    HELPERS,
    'target["labels"][at]',
    'target["labels"][0]',
    breaks=("losses-of-sets-do-not-mind-their-order",),
    defect="All queries that have an object get the class of the first one.",
)
changed(
    "StudentGivesProbabilities",
    HELPERS,
    "F.log_softmax(student_logits / temperature",
    "F.softmax(student_logits / temperature",
    breaks=("distillation-is-lowest-at-the-teacher",),
    defect="The divergence is given the student's probabilities where it takes their logarithms.",
)
changed(
    "NegativesAreDrawnNear",
    HELPERS,
    "F.pairwise_distance(anchor, positive) - F.pairwise_distance(anchor, negative)",
    "F.pairwise_distance(anchor, negative) - F.pairwise_distance(anchor, positive)",
    breaks=("triplets-draw-the-positive-near",),
    defect="The negatives of triplets are drawn near, the positives away.",
)
changed(
    "SureAnswersWeighMore",
    HELPERS,
    "(1 - (-each).exp()) ** gamma",
    "(-each).exp() ** gamma",
    breaks=("focal-losses-weigh-what-is-known-less",),
    defect="The focal loss weighs sure answers more.",
)
changed(
    "BoxesOfTwiceTheSize",
    HELPERS,
    "centre - 0.5 * size, centre + 0.5 * size",
    "centre - size, centre + size",
    breaks=("boxes-are-the-same-in-every-form",),
    defect="The corners lie a whole size from the centre.",
)
changed(
    "BoxesFarApartOverlap",
    HELPERS,
    "(high - low).clamp(min=0).prod(-1)",
    "(high - low).prod(-1)",
    breaks=("overlaps-of-boxes-are-shares-of-their-union",),
    defect="Two boxes that lie apart along both sides share something.",
)
changed(
    "HullOverTheUnion",
    HELPERS,
    "(hull - union) / hull",
    "(hull - union) / union",
    breaks=("overlaps-of-boxes-are-shares-of-their-union",),
    defect="The empty part of the hull is divided by the union.",
)
changed(
    "RepeatWithoutABlank",
    HELPERS,
    "add(grown, (*text, word), 0.0, in_blank * p)",
    "add(grown, (*text, word), 0.0, whole)",
    breaks=("beams-of-ctc-find-the-likeliest-text",),
    defect="A letter is repeated without a blank between.",
)
changed(
    "NormOverAllTokens",
    HELPERS,
    "x.pow(2).mean(-1, keepdim=True)",
    "x.pow(2).mean((1, 2), keepdim=True)",
    breaks=("functions-that-normalise-take-each-token-alone",),
    defect="All tokens of a row are divided by one number.",
)
changed(
    "ChannelsLeftInFront",
    HELPERS,
    "return image.permute(0, 2, 3, 1).reshape(grid * grid, -1)",
    "return image.reshape(grid * grid, -1)",
    breaks=("resized-positions-keep-their-features",),
    defect="The resized map is read with its features in front of its places.",
)
changed(
    "BadEpochsAddUp",
    HELPERS,
    "self.best, self.bad = val_loss, 0",
    "self.best = val_loss",
    breaks=("early-stopping-counts-in-a-row",),
    defect="The count of bad epochs never begins again.",
)
changed(
    "BestStateGoesOn",
    HELPERS,
    "value.detach().clone() for name, value in model",
    "value.detach() for name, value in model",
    breaks=("early-stopping-keeps-the-best-state-as-it-was",),
    defect="The best state shares its memory with the weights.",
)
changed(
    "PaddingOfLabelsIsTaught",
    HELPERS,
    "torch.full((len(texts), longest), -100)",
    "torch.full((len(texts), longest), PAD)",
    breaks=("labels-are-padded-with-what-the-loss-ignores",),
    defect="Labels are padded with a word that counts in the loss.",
)
changed(
    "TargetsWithoutAnEnd",
    HELPERS,
    "[bos_id, *other, eos_id]",
    "[bos_id, *other]",
    breaks=("targets-of-a-batch-have-their-end",),
    defect="No end sign stands behind the targets.",
)
changed(
    "MaskOfTheWordsBefore",
    HELPERS,
    "masked_fill(attention_mask[:, 1:] == 0, -100)",
    "masked_fill(attention_mask[:, :-1] == 0, -100)",
    breaks=("masks-of-losses-are-shifted-with-the-labels",),
    defect="The mask of a loss is not shifted with its labels.",
)
changed(
    "AnswersFromTheirSecondWord",
    HELPERS,
    "places >= prompt_lengths[:, None]",
    "places > prompt_lengths[:, None]",
    breaks=("losses-of-answers-begin-behind-the-prompt",),
    defect="The first word of each answer is not taught.",
)
changed(
    "AnswersByAllPlaces",
    HELPERS,
    "(lost * keep).sum() / keep.sum()",
    "(lost * keep).mean()",
    breaks=("losses-of-answers-begin-behind-the-prompt",),
    defect="The loss of the answers is divided by all places, prompts and padding too.",
)
changed(
    "DataHiddenForGood",
    HELPERS,
    "out = frames.clone()",
    "out = frames",
    breaks=("augmented-data-are-copies-where-said",),
    defect="The frames are zeroed in place: the data of later epochs are destroyed.",
)
changed(
    "LastButOneIsTrainedOn",
    HELPERS,
    "one[:-2] for user",
    "one[:-1] for user",
    breaks=("held-out-items-are-not-trained-on",),
    defect="The item for validation is trained on, too.",
)
changed(
    "SentinelsBehindTheirSpans",
    HELPERS,
    "[sentinel, *tokens[start:end]]",
    "[*tokens[start:end], sentinel]",
    breaks=("sentinels-stand-for-what-is-behind-them",),
    defect="The targets give a span before its sentinel, and so behind that of another.",
)
changed(
    "EndsCutOff",
    HELPERS,
    "[self.START, *ids[: self.max_length - 2], self.END]",
    "[self.START, *ids, self.END][: self.max_length]",
    breaks=("long-texts-keep-their-end",),
    defect="A text is cut behind its end sign, which is lost.",
)
