"""Mutants of a language model that chooses among too many words, or wrong ones, or trains too little."""

from __future__ import annotations

from conformance.mutants.source import CAREFUL, HELPERS, RELATIVE, changed

PENALTY = "generate-with-a-penalty-lowers-what-was-written"
HOLDS = "model-optimizer-holds-every-parameter"
RISES = "model-schedule-rises-in-warm-up-and-then-falls"

changed(
    "RepetitionIsRewarded",
    CAREFUL,
    "torch.where(seen > 0,",
    "torch.where(seen < 0,",
    breaks=(PENALTY,),
    defect="The penalty for repetition raises the logits of words that were written.",
)
changed(
    "FrequencyIsRewarded",
    CAREFUL,
    "scores - frequency_penalty * counts",
    "scores + frequency_penalty * counts",
    breaks=(PENALTY,),
    defect="What a word was written is added to its logit.",
)
changed(
    "EndsBelowItsLeastLength",
    CAREFUL,
    "if step < min_new_tokens:",
    "if step > min_new_tokens:",
    breaks=("generate-does-not-end-before-its-least-length",),
    defect="The end token is forbidden behind the least length, not below it.",
)
changed(
    "RepeatsItsPairs",
    CAREFUL,
    "scores[row, text[start + size - 1]] = -math.inf",
    "scores[row, text[start + size - 2]] = -math.inf",
    breaks=("generate-repeats-no-n-gram-where-asked",),
    defect="Of a pair that must not be repeated the first word is left out, not the second.",
)
changed(
    "LeastShareOfOne",
    CAREFUL,
    "min_p * likely.amax(-1, keepdim=True)",
    "min_p",
    breaks=("generate-with-min-p-keeps-words-near-the-best",),
    defect="min_p is taken for a probability, not for a part of the best one.",
)
changed(
    "VectorsLeftOut",
    CAREFUL,
    ', {"params": no_decay, "weight_decay": 0.0}]',
    "]",
    breaks=(HOLDS,),
    defect="The group of norms and biases is left out of the optimizer.",
)
changed(
    "WarmUpRoundedDown",
    CAREFUL,
    "(step + 1) / self.warmup_steps",
    "(step + 1) // self.warmup_steps",
    breaks=(RISES,),
    defect="The rate of the warm-up is rounded down to zero.",
)
changed(
    "ShareOfTheFallForgetsTheWarmUp",
    CAREFUL,
    "(step - self.warmup_steps) / (total_steps - self.warmup_steps)",
    "step / (total_steps - self.warmup_steps)",
    breaks=(RISES,),
    defect="The fall begins as if the warm-up were a part of it, so that the rate jumps.",
)
changed(
    "SidesShareTheirBuckets",
    RELATIVE,
    " + side * (distance > 0)",
    "",
    breaks=("attention-relative-bias-tells-before-from-after",),
    defect="Keys before and behind a query share a bias, and half of the table is never read.",
)
changed(
    "WordAtTheCutIsLost",
    HELPERS,
    "text[last:]",
    "text[last + 1 :]",
    breaks=("rearranged-texts-keep-every-word",),
    defect="The word with which the suffix begins is lost.",
)
changed(
    "SmoothingDrivesWordsAway",
    CAREFUL,
    "wanted + smoothing * log_probs",
    "wanted - smoothing * log_probs",
    breaks=("losses-ask-for-no-share-below-zero",),
    defect="The smoothed share of all words is subtracted.",
)
changed(
    "WrittenOutLossIsNotShifted",
    CAREFUL,
    "log_probs.gather(-1, ids[:, 1:].unsqueeze(-1))",
    "log_probs.gather(-1, ids[:, :-1].unsqueeze(-1))",
    breaks=("losses-teach-the-next-word",),
    defect="A cross-entropy that is written out teaches each position the word that it has read.",
)
changed(
    "WrittenOutLossOfProbabilities",
    CAREFUL,
    "self(ids[:, :-1]).log_softmax(-1)",
    "self(ids[:, :-1]).softmax(-1).log_softmax(-1)",
    breaks=("losses-take-their-softmax-once",),
    defect="A cross-entropy that is written out takes the softmax twice.",
)
