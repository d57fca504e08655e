"""Mutants of sequence-to-sequence models, encoders and classifiers: who sees whom, and what padding does."""

from __future__ import annotations

from conformance.mutants.source import BERT, CLASSIFIER, TAGGER, TRANSLATOR, VIT, changed

TARGET_CAUSAL = "sequence-model-target-is-causal"
TARGET_EARLIER = "sequence-model-target-sees-every-earlier-token"
SOURCE = "sequence-model-every-source-token-reaches-every-answer"
TARGET_PREFIX = "sequence-model-target-prefix-has-the-same-logits"
SOURCE_PADDING = "sequence-model-source-padding-changes-nothing"
TARGET_PADDING = "sequence-model-target-padding-changes-nothing"
SIDES = "sequence-model-takes-lengths-and-vocabularies-apart"
TWO_WAYS = "encoder-every-word-reaches-every-word"
ENCODER_PADDING = "encoder-padding-changes-nothing"
CLASSIFIER_PADDING = "classifier-padding-changes-nothing"
EVERY_PART = "classifier-every-part-of-the-input-counts"
MASKED_LOSS = "masked-language-model-loss-counts-masked-labels-only"

changed(
    "TargetMaskOverwritten",
    TRANSLATOR,
    "return (tgt != self.tgt_pad_idx)[:, None, None, :] & past",
    "return (tgt != self.tgt_pad_idx)[:, None, None, :].expand(-1, -1, length, -1)",
    breaks=(TARGET_CAUSAL, TARGET_PREFIX),
    defect="The target's padding mask takes the place of its causal mask.",
)
changed(
    "TargetSeesItselfOnly",
    TRANSLATOR,
    "torch.ones(length, length, dtype=torch.bool).tril()",
    "torch.eye(length, dtype=torch.bool)",
    breaks=(TARGET_EARLIER,),
    defect="A target token sees itself only.",
)
changed(
    "FirstSourceWordCut",
    TRANSLATOR,
    "self.encode(src, src_mask), src_mask, tgt_mask)",
    "self.encode(src[:, 1:], src_mask[..., 1:]), src_mask[..., 1:], tgt_mask)",
    breaks=(SOURCE,),
    defect="The first word of the source is cut off as if it were a sign of the start.",
)
changed(
    "CrossMaskFromTheEnd",
    TRANSLATOR,
    "x = layer(x, memory, src_mask, tgt_mask)",
    "ahead = torch.ones(len(tgt[0]), len(memory[0])).tril(len(memory[0]) - len(tgt[0])).bool()\n"
    "            x = layer(x, memory, src_mask & ahead, tgt_mask)",
    breaks=(SIDES,),
    defect="Cross-attention hides the source as if it were the future, all of it where the target is longer.",
)
changed(
    "TargetPositionsFromTheEnd",
    TRANSLATOR,
    "x = self.positions(self.tgt_embedding(tgt) * math.sqrt(self.d_model))",
    "x = self.positions(self.tgt_embedding(tgt).flip(1) * math.sqrt(self.d_model)).flip(1)",
    breaks=(TARGET_PREFIX,),
    defect="Positions of the target are counted from its end.",
)
changed(
    "CrossAttentionWithoutMask",
    TRANSLATOR,
    "self.cross_attention(x, memory, src_mask)",
    "self.cross_attention(x, memory, torch.ones_like(src_mask))",
    breaks=(SOURCE_PADDING,),
    defect="Cross-attention sees the source's padding.",
)
changed(
    "PaddingOfTheQueries",
    TRANSLATOR,
    "return (tgt != self.tgt_pad_idx)[:, None, None, :] & past",
    "return (tgt != self.tgt_pad_idx)[:, None, :, None] & past",
    breaks=(TARGET_PADDING,),
    defect="The target's padding mask lies along the queries: rows without a key are nan, and spoil the next layer.",
)
changed(
    "OneWayBert",
    BERT,
    "weights = self.dropout(scores.softmax(-1))",
    "weights = self.dropout(scores.masked_fill(torch.ones(length, length).triu(1).bool(), -1e9).softmax(-1))",
    breaks=(TWO_WAYS,),
    defect="The encoder hides later words.",
)
changed(
    "MaskInTheFirstLayerOnly",
    BERT,
    "            x = layer(x, mask)\n",
    "            x, mask = layer(x, mask), mask * 0\n",
    breaks=(ENCODER_PADDING,),
    defect="Only the first layer hides the padding.",
)
changed(
    "MaskTurnedRound",
    BERT,
    "(1.0 - attention_mask[:, None, None, :].to(x.dtype))",
    "attention_mask[:, None, None, :].to(x.dtype)",
    breaks=(ENCODER_PADDING,),
    defect="The mask hides the words and shows the padding.",
)
changed(
    "MeanWithPadding",
    CLASSIFIER,
    "(self.norm(x) * words).sum(1) / words.sum(1)",
    "self.norm(x).mean(1) * words.amax()",
    breaks=(CLASSIFIER_PADDING,),
    defect="Padding is part of the mean.",
)
changed(
    "LastWordCutOff",
    CLASSIFIER,
    "hidden = ids == self.pad_id",
    "ids = ids[:, :-1] if ids.shape[1] > 1 else ids\n        hidden = ids == self.pad_id",
    breaks=(EVERY_PART,),
    defect="The last word is cut off.",
)
changed(
    "RowsOfPatchesForgotten",
    VIT,
    "patches = patches.flatten(2)",
    "patches = patches[..., :1].repeat(1, 1, 1, 2).flatten(2)",
    breaks=(EVERY_PART,),
    defect="Only the first column of patches is read.",
)
changed(
    "MaskedLossShifted",
    BERT,
    "F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)",
    "F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)",
    breaks=(MASKED_LOSS,),
    defect="The labels of masked words are shifted as in a language model.",
)
changed(
    "PlacesCountPadding",
    CLASSIFIER,
    "(~hidden).cumsum(1)",
    "torch.ones_like(ids).cumsum(1)",
    breaks=("model-left-padding-changes-nothing-where-said",),
    defect="Positions count padding, too, so that padding on the left moves a sentence.",
)
changed(
    "LettersOfPaddingAreNormalised",
    TAGGER,
    "F.layer_norm(spelled, spelled.shape[-1:])",
    "F.layer_norm(spelled, spelled.shape[1:])",
    breaks=("padding-hides-what-stands-beside-it",),
    defect="Letters are normalised over all words of a text, padding among them.",
)
changed(
    "BestOfTheNextTag",
    TAGGER,
    "best, tag = (total[:, None] + self.transitions).max(0)",
    "best, tag = (total[:, None] + self.transitions).max(1)",
    breaks=("tagger-finds-the-best-path",),
    defect="The best path is looked for over the next tag, and not over the tag before.",
)
changed(
    "PathsOverPadding",
    TAGGER,
    "scores = scores if mask is None else scores[mask]",
    "mask = None",
    breaks=("tagger-paths-leave-padding-out",),
    defect="The best path is looked for over padding, too, whatever the mask says.",
)
changed(
    "WholeWithoutTransitions",
    TAGGER,
    "total = (total[:, None] + self.transitions).logsumexp(0) + step",
    "total = total.logsumexp(0) + step",
    breaks=("tagger-paths-share-one-whole",),
    defect="The sum over all paths leaves out the scores of transitions.",
)
