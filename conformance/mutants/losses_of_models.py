"""Mutants of whole models whose losses are wrong, in forward and beside it."""

from __future__ import annotations

from conformance.mutants.source import (
    ALIBI,
    BERT,
    LLAMA,
    MASKED_IMAGES,
    MIXTURE,
    PREFIX,
    RECOMMENDER,
    SPANS,
    TAGGER,
    TRANSLATOR,
    VIT,
    changed,
)

FITS = "losses-get-what-they-are-made-for"
RETURNED = "losses-that-are-computed-are-returned"
NEXT = "losses-teach-the-next-word"
EVERY = "losses-teach-every-word"
PADDING = "losses-teach-no-padding"
MEAN = "losses-leave-padding-out-of-the-mean"
MARKED = "losses-count-the-words-that-a-mask-marks"

CROSS_ENTROPY = "F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=self.tgt_pad_idx)"

changed(
    "SoftmaxBeforeTheLossBeside",
    TRANSLATOR,
    CROSS_ENTROPY,
    CROSS_ENTROPY.replace("logits.", "logits.softmax(-1)."),
    breaks=(FITS,),
    defect="The cross-entropy beside forward is given probabilities.",
)
changed(
    "LogLikelihoodOfLogits",
    TRANSLATOR,
    CROSS_ENTROPY,
    CROSS_ENTROPY.replace("cross_entropy", "nll_loss"),
    breaks=(FITS,),
    defect="The negative log-likelihood is given logits.",
)
changed(
    "SecondLossIsLost",
    LLAMA,
    "return logits, each / (wanted != -100).sum()",
    "further = F.cross_entropy(logits[:, :-2].flatten(0, 1), labels[:, 2:].flatten())\n"
    "        return logits, each / (wanted != -100).sum()",
    breaks=(RETURNED,),
    defect="The loss of the token after the next is computed and not added.",
)
changed(
    "LossOfTheWordsThatWereRead",
    TRANSLATOR,
    "tgt[:, 1:].flatten()",
    "tgt[:, :-1].flatten()",
    breaks=(NEXT, EVERY),
    defect="Each position is taught the word that it has just read.",
)
changed(
    "LossInTwoOrders",
    TRANSLATOR,
    "logits.flatten(0, 1), tgt",
    "logits.transpose(0, 1).flatten(0, 1), tgt",
    breaks=(NEXT,),
    defect="Logits are flattened positions first, labels sentences first.",
)
changed(
    "LossWithoutTheEnd",
    TRANSLATOR,
    CROSS_ENTROPY,
    CROSS_ENTROPY.replace("logits.", "logits[:, :-1].").replace("1:]", "1:-1]"),
    breaks=(EVERY,),
    defect="The last word of a sentence is never taught.",
)
changed(
    "LossOfPadding",
    TRANSLATOR,
    ", ignore_index=self.tgt_pad_idx)",
    ")",
    breaks=(PADDING,),
    defect="Padding is taught as if it were words.",
)
changed(
    "LossDilutedByPadding",
    TRANSLATOR,
    CROSS_ENTROPY,
    CROSS_ENTROPY.replace("_idx)", '_idx, reduction="sum")') + " / tgt[:, 1:].numel()",
    breaks=(MEAN,),
    defect="The sum over real words is divided by the number of all words.",
)
changed(
    "BalanceSubtracted",
    MIXTURE,
    "loss + 0.01 * aux_loss",
    "loss - 0.01 * aux_loss",
    breaks=("losses-for-balance-are-added",),
    defect="The loss for the balance of experts is subtracted.",
)
changed(
    "NormsDecayToo",
    MIXTURE,
    '"params": vectors, "weight_decay": 0.0',
    '"params": vectors, "weight_decay": weight_decay',
    breaks=("model-optimizer-treats-norms-apart",),
    defect="Norms and biases have a group of their own, and decay as matrices do.",
)
changed(
    "LossCountedTwice",
    BERT,
    "return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100), scores",
    "loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)\n"
    "        return loss + F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100), scores",
    breaks=("losses-are-added-once",),
    defect="The loss is computed a second time and added.",
)
changed(
    "FirstWordBehindThePrefixIsLeftOut",
    PREFIX,
    ">= prefix_len[:, None]",
    "> prefix_len[:, None]",
    breaks=(EVERY,),
    defect="The first word behind the prefix is not taught.",
)
changed(
    "MeanOverThePrefix",
    PREFIX,
    "/ counts.sum()",
    "/ each.numel()",
    breaks=(MEAN,),
    defect="The prefix is left out of the sum and counted in the mean.",
)
changed(
    "BalanceWithoutGradient",
    MIXTURE,
    "* scores.softmax(-1)",
    "* scores.detach().softmax(-1)",
    breaks=("losses-for-balance-teach-the-router", "losses-add-no-terms-without-a-gradient"),
    defect="The loss for balance is computed of detached scores.",
)
changed(
    "BalanceCountsPadding",
    MIXTURE,
    "F.one_hot(chosen[kept], ",
    "F.one_hot(chosen, ",
    breaks=("losses-for-balance-leave-padding-out-altogether",),
    defect="The choices of padded words are counted, and their probabilities are not.",
)
changed(
    "CountsThePaddingOfGivenItems",
    RECOMMENDER,
    "return (each * real).sum() / real.sum()",
    "return each.mean()",
    breaks=("losses-of-samples-leave-padding-out",),
    defect="A loss of given items counts places of padding.",
)
changed(
    "MeanOverAllPlaces",
    RECOMMENDER,
    "(each * real).sum() / real.sum()",
    "(each * real).mean()",
    breaks=("losses-stay-the-same-with-more-padding",),
    defect="The loss of pairs leaves padding out of the sum, and counts it in the mean.",
)
changed(
    "PairsOfPadding",
    RECOMMENDER,
    "real = positives != 0",
    "real = torch.ones_like(positives)",
    breaks=("losses-stay-the-same-with-more-padding",),
    defect="The loss of pairs counts the places of padding as if they were items.",
)
changed(
    "FalseItemsPushedUp",
    RECOMMENDER,
    "F.softplus(worse)",
    "F.softplus(-worse)",
    breaks=("losses-of-samples-prefer-the-true-item",),
    defect="The scores of false items are pushed up, as those of true ones.",
)
changed(
    "DrawnItemsPushedUp",
    RECOMMENDER,
    "F.logsigmoid(-false)",
    "F.logsigmoid(false)",
    breaks=("losses-of-samples-prefer-the-true-item",),
    defect="The scores of drawn items are pushed up, as those of true ones.",
)
changed(
    "DrawnItemsAtPadding",
    RECOMMENDER,
    "counts = (read != 0) & (positives != 0)",
    "counts = torch.ones_like(read)",
    breaks=("losses-of-samples-leave-padding-out",),
    defect="A loss that draws its false items teaches them at places of padding.",
)
changed(
    "MeanOverAllDrawn",
    RECOMMENDER,
    "* counts).sum() / counts.sum()",
    "* counts).mean()",
    breaks=("losses-of-samples-leave-padding-out",),
    defect="A loss that draws its false items counts padding in its mean.",
)
changed(
    "DrawnItemsMayBeTrue",
    RECOMMENDER,
    "torch.randint(1, n_items",
    "torch.randint(0, n_items",
    breaks=("drawn-false-items-are-false",),
    defect="An item that is drawn as a false one may be the true one.",
)
changed(
    "MaskOfTheWordsThatWereRead",
    ALIBI,
    "loss_mask[:, 1:]",
    "loss_mask[:, :-1]",
    breaks=(MARKED,),
    defect="The mask of the loss is not shifted with the labels.",
)
changed(
    "MarkedWordsAndAMeanOverAll",
    ALIBI,
    "(each * counted).sum() / counted.sum()",
    "(each * counted).mean()",
    breaks=(MEAN,),
    defect="Words that are not marked count in the mean.",
)
changed(
    "FalseItemsForgotten",
    RECOMMENDER,
    "F.softplus(-better) + F.softplus(worse)",
    "F.softplus(-better)",
    breaks=("losses-of-samples-prefer-the-true-item",),
    defect="The loss takes false items and lowers no score of theirs.",
)
changed(
    "MaskIsShuffled",
    MASKED_IMAGES,
    "mask = (back >= count)",
    "mask = (order >= count)",
    breaks=("masks-tell-which-patches-are-hidden",),
    defect="The mask is put in order by the shuffle, and not by its inverse.",
)
changed(
    "HiddenPatchesAreRead",
    MASKED_IMAGES,
    "blank = self.blank.expand(len(x), x.shape[1] - count, -1)",
    "blank = self.blank + picked(x, order[:, count:])",
    breaks=("hidden-patches-are-not-seen",),
    defect="The tokens of hidden patches hold what is hidden.",
)
changed(
    "PlacesAfterPicking",
    MASKED_IMAGES,
    "picked(x + self.pos_embedding, kept)",
    "picked(x, kept) + self.pos_embedding[:, :count]",
    breaks=("visible-patches-keep-their-places",),
    defect="Positions are added after the visible patches were picked.",
)
changed(
    "MixedInImagesHaveNoLabel",
    VIT,
    "F.cross_entropy(scores, labels[order])",
    "F.cross_entropy(scores, labels)",
    breaks=("losses-of-mixed-samples-teach-both-labels",),
    defect="Both terms of a mixed loss are taught the labels of the first images.",
)
changed(
    "EndsAreTaughtTheStart",
    SPANS,
    "F.cross_entropy(end, end_positions)",
    "F.cross_entropy(end, start_positions)",
    breaks=("losses-of-spans-teach-both-ends",),
    defect="The scores of the end are taught where the span starts.",
)
changed(
    "EndsInThePlaceOfStarts",
    SPANS,
    "F.cross_entropy(start, start_positions) + F.cross_entropy(end, end_positions)",
    "F.cross_entropy(start, end_positions) + F.cross_entropy(end, start_positions)",
    breaks=("losses-of-spans-teach-both-ends",),
    defect="The scores of the start are taught the end, and those of the end the start.",
)
changed(
    "ClassesInThePlaceOfTags",
    TAGGER,
    "losses.append(F.cross_entropy(classes, labels))",
    "losses = [F.cross_entropy(classes, labels)]",
    breaks=("losses-of-several-labels-teach-each",),
    defect="Where both are given, the loss of the text takes the place of that of its words.",
)
changed(
    "ScoresOfTagsAreCutAnew",
    TAGGER,
    "F.cross_entropy(tags.flatten(0, 1), token_labels.flatten(), ignore_index=-100)",
    "F.cross_entropy(tags.reshape(len(tags), -1, tags.shape[1]), token_labels, ignore_index=-100)",
    breaks=("losses-get-scores-that-are-turned",),
    defect="Classes go before places by another shape, and not by a transpose.",
)
changed(
    "StatesAreNormalisedOverTheSteps",
    RECOMMENDER,
    'torch.einsum("ntd,ntkd->ntk", self.states(read), tables)',
    'torch.einsum("ntd,ntkd->ntk", F.normalize(self.states(read)), tables)',
    breaks=("losses-compare-vectors-of-length-one",),
    defect="States are normalised along the second axis, which is the time.",
)
