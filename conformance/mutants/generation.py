"""Mutants of whole models that write wrongly, by their own generate, or give nan in a narrow precision."""

from __future__ import annotations

from conformance.mutants.source import GPT, LLAMA, RECOMMENDER, TRANSLATOR, changed

CACHED = "cached-steps-give-the-logits-of-one-pass"
BEST = "generate-takes-the-best-token"
GREEDY = "generate-is-greedy-where-asked"
MANY = "generate-writes-as-many-tokens-as-asked"
PROMPT = "generate-gives-the-prompt-back-unchanged"
LAST = "generate-reads-the-last-tokens-of-a-long-text"
LEAVES = "generate-leaves-the-model-as-it-was"
FORGETS = "generate-does-not-remember-other-prompts"
ENDS = "generate-stops-at-the-end-token"
BEAM = "generate-with-one-beam-is-greedy"
TEMPERATURE = "generate-divides-logits-by-temperature"
TOP_K = "generate-with-top-k-draws-from-the-k-best"
TOP_P = "generate-with-top-p-keeps-the-token-that-crosses-p"
HALF = "half-precision-gives-no-nan"
AUTOCAST = "autocast-gives-no-nan"

changed(
    "OldValuesBehindNewOnes",
    GPT,
    "torch.cat((past[1], v), 2)",
    "torch.cat((v, past[1]), 2)",
    breaks=(CACHED,),
    defect="The values of the cache are joined behind the new ones, the keys before them.",
)
changed(
    "StepsAtPositionZero",
    GPT,
    "torch.arange(start, start + ids.shape[1])",
    "torch.arange(ids.shape[1])",
    breaks=(CACHED,),
    defect="A token that is fed with the cache gets the first position.",
)
changed(
    "MaskForgetsTheCache",
    GPT,
    ".tril(keys - length)",
    ".tril()",
    breaks=(CACHED,),
    defect="The mask takes the first new token for the first of all, so that it sees one old key.",
)
changed(
    "FeedsNoCache",
    GPT,
    "(presents, chosen) if use_cache",
    "(None, chosen) if use_cache",
    breaks=(CACHED,),
    defect="generate feeds one token a step, and no cache.",
)
changed(
    "ReadsTheFirstLogits",
    LLAMA,
    "-self.max_seq_len :])[:, -1]",
    "-self.max_seq_len :])[:, 0]",
    breaks=(BEST,),
    defect="generate chooses by the logits of the first position.",
)
changed(
    "RowsTurnedRound",
    LLAMA,
    "-self.max_seq_len :])[:, -1]",
    "-self.max_seq_len :])[:, -1].flip(0)",
    breaks=(BEST,),
    defect="Each prompt goes on by the logits of another row.",
)
changed(
    "ColdIsWorst",
    LLAMA,
    "logits.argmax(-1, keepdim=True)",
    "logits.argmin(-1, keepdim=True)",
    breaks=(GREEDY,),
    defect="Temperature 0 takes the worst token.",
)
changed(
    "OneTokenTooFew",
    GPT,
    "range(max_new_tokens)",
    "range(max_new_tokens - 1)",
    breaks=(MANY,),
    defect="generate writes one token fewer than it is asked for.",
)
changed(
    "WritesInFront",
    LLAMA,
    "torch.cat((tokens, chosen), 1)",
    "torch.cat((chosen, tokens), 1)",
    breaks=(PROMPT,),
    defect="New tokens are put in front of the prompt.",
)
changed(
    "ReadsTheFirstTokens",
    LLAMA,
    "-self.max_seq_len :]",
    ": self.max_seq_len]",
    breaks=(LAST,),
    defect="Of a text that is too long generate reads the beginning.",
)
changed(
    "StaysInEvaluation",
    LLAMA,
    "        self.train(was_training)\n",
    "",
    breaks=(LEAVES,),
    defect="generate leaves the model in evaluation mode, although it remembers its mode.",
)
changed(
    "KeepsOldPrompts",
    LLAMA,
    "        self.eval()\n",
    "        self.eval()\n        tokens = self.text = torch.cat((getattr(self, 'text', tokens[:, :0]), tokens), 1)\n",
    breaks=(FORGETS,),
    defect="A prompt is put behind those of the calls before.",
)
changed(
    "OneEndEndsAll",
    GPT,
    "if ended.all():",
    "if ended.any():",
    breaks=(ENDS,),
    defect="The first row that ends ends the others, too.",
)
changed(
    "EndedRowsGoOn",
    GPT,
    "chosen = chosen.masked_fill(ended, eos_id)",
    "chosen = chosen.clone()",
    breaks=(ENDS,),
    defect="A row that has ended goes on with words until all rows have, although the code says that it is filled up.",
)
changed(
    "WorstBeams",
    TRANSLATOR,
    "log_softmax(-1).topk(beam_size)",
    "log_softmax(-1).topk(beam_size, largest=False)",
    breaks=(BEAM,),
    defect="Beams grow by their worst words.",
)
changed(
    "MultipliesByTemperature",
    GPT,
    "logits[:, -1] / temperature",
    "logits[:, -1] * temperature",
    breaks=(TEMPERATURE,),
    defect="Logits are multiplied by the temperature.",
)
changed(
    "TemperatureChangesNothing",
    LLAMA,
    "(logits / temperature).softmax(-1)",
    "logits.softmax(-1)",
    breaks=(TEMPERATURE,),
    defect="The temperature is not used.",
)
changed(
    "OneTooMany",
    GPT,
    "scores.topk(top_k)",
    "scores.topk(top_k + 1 if top_k < scores.shape[-1] else top_k)",
    breaks=(TOP_K, GREEDY),
    defect="One token more than top_k can be drawn.",
)
changed(
    "KeepsTheBestOnly",
    GPT,
    ".values[:, -1:]",
    ".values[:, :1]",
    breaks=(TOP_K,),
    defect="Top-k keeps the tokens that are as good as the best, not as the k-th.",
)
changed(
    "DropsTheTokenThatCrosses",
    LLAMA,
    "ranked.cumsum(-1) - ranked >= top_p",
    "ranked.cumsum(-1) >= top_p",
    breaks=(TOP_P,),
    defect="The token with which the sum reaches top_p is dropped.",
)
changed(
    "RanksTakenForTokens",
    LLAMA,
    "beyond.scatter(-1, order, beyond)",
    "beyond",
    breaks=(TOP_P,),
    defect="Ranks are taken for tokens: what is cut off are the words at the end of the vocabulary.",
)
changed(
    "MaskOverflows",
    GPT,
    "scores.masked_fill(~visible, -1e30)",
    "(scores + ~visible * torch.tensor(-1e9).to(scores))",
    breaks=(HALF, AUTOCAST),
    defect="The additive mask is minus infinity in float16, and 0 times it is nan.",
)
changed(
    "BeamsAddLogits",
    TRANSLATOR,
    "logits[0, -1].log_softmax(-1).topk(beam_size)",
    "logits[0, -1].topk(beam_size)",
    breaks=("beam-search-adds-logarithms-of-probabilities",),
    defect="Beam search adds logits.",
)
changed(
    "BeamsForgetTheirScore",
    TRANSLATOR,
    "grown.append((score + value.item(), torch",
    "grown.append((value.item(), torch",
    breaks=("beam-search-with-all-words-finds-the-best",),
    defect="A beam counts its last word only.",
)
changed(
    "BeamsTakeOtherHistories",
    TRANSLATOR,
    "beam, word = index // steps.shape[-1],",
    "beam, word = index % len(beams),",
    breaks=("beam-search-scores-are-those-of-its-tokens",),
    defect="A word is put behind the history of another beam.",
)
changed(
    "PenaltyOfTheLongestLength",
    TRANSLATOR,
    "s.item() / length**alpha) for b, s in zip(beams[ended]",
    "s.item() / max_len**alpha) for b, s in zip(beams[ended]",
    breaks=("beam-search-divides-by-the-length-of-each-sentence",),
    defect="All sentences are divided by the penalty of the longest length.",
)
changed(
    "PenaltyMultipliesScores",
    TRANSLATOR,
    "memory, done = self.encode(src, src_mask), []",
    "memory, done, alpha = self.encode(src, src_mask), [], -alpha",
    breaks=("beam-search-divides-by-the-length-of-each-sentence",),
    defect="The scores of sentences are multiplied by the penalty of their length.",
)
changed(
    "RecommendsByTheFirstItem",
    RECOMMENDER,
    "self(history)[:, -1]",
    "self(history)[:, 0]",
    breaks=("recommendations-are-the-best-that-are-new",),
    defect="Items are recommended by the scores behind the oldest item.",
)
changed(
    "RecommendsWhatWasSeen",
    RECOMMENDER,
    "scatter(1, history, -torch.inf)",
    "scatter(1, history[:, -1:], -torch.inf)",
    breaks=("recommendations-are-the-best-that-are-new",),
    defect="Of the items that were seen only the newest is left out.",
)
changed(
    "RecommendsTheWorst",
    RECOMMENDER,
    "-torch.inf).topk(k).indices",
    "-torch.inf).topk(k, largest=False).indices",
    breaks=("recommendations-are-the-best-that-are-new",),
    defect="The items with the lowest scores are recommended.",
)
changed(
    "RecommendsPadding",
    RECOMMENDER,
    "scores[:, 0] = -torch.inf",
    "scores[:, 0] = 0.0",
    breaks=("recommendations-hold-no-padding",),
    defect="Padding has the score zero, and may be recommended.",
)
changed(
    "ScoresBehindTheNumberOfItems",
    RECOMMENDER,
    "newest = self.states(history)[:, -1]",
    "newest = self.states(history)[torch.arange(len(history)), (history != 0).sum(1) - 1]",
    breaks=("candidates-are-scored-behind-the-newest-item",),
    defect="The newest item is read where it stood if padding were behind the items.",
)
changed(
    "ReadsTheOldestItems",
    RECOMMENDER,
    "history = history[:, -len(self.places) :]",
    "history = history[:, : len(self.places)]",
    breaks=("long-histories-are-cut-to-their-newest-items",),
    defect="A history that is too long is cut to its oldest items.",
)
changed(
    "WritesWithoutTheMaskOfTheSource",
    TRANSLATOR,
    "(written, read, hidden, self",
    "(written, read, torch.ones_like(hidden), self",
    breaks=("generate-hides-the-padding-of-sources",),
    defect="A writer hands its decoder a mask that hides no padding of the source.",
)
changed(
    "BeamsReadAnotherText",
    TRANSLATOR,
    "memory = self.encode(src, src_mask).repeat_interleave(beam_size, 0)",
    "memory = self.encode(src, src_mask).repeat(beam_size, 1, 1)",
    breaks=("beam-search-searches-for-each-text-alone",),
    defect="What was read is repeated text by text, and the beams lie side by side: they read other texts.",
)
