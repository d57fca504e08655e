"""Mutants of language models: what they see, what their loss counts, how their head is tied."""

from __future__ import annotations

from conformance.mutants.source import GPT, LLAMA, PREFIX, RECOMMENDER, changed

CAUSAL = "language-model-is-causal"
CAUSAL_IN_TRAINING = "language-model-is-causal-in-training"
EARLIER = "language-model-sees-every-earlier-token"
PREFIXES = "language-model-prefix-has-the-same-logits"
LOGITS = "language-model-gives-logits"
NEXT = "language-model-loss-teaches-the-next-token"
FROM_LOGITS = "language-model-loss-takes-logits"
IGNORED = "language-model-loss-leaves-ignored-labels-out"
PADDING = "language-model-padding-changes-nothing"
LEARNS = "language-model-learns-a-repeated-batch"
TIED = "language-model-tied-head-is-one-tensor"

changed(
    "NoCausalMask",
    GPT,
    "scores.masked_fill(~visible, -1e30).softmax(-1)",
    "scores.softmax(-1)",
    breaks=(CAUSAL, CAUSAL_IN_TRAINING, PREFIXES),
    defect="The causal mask is made and not applied.",
)
changed(
    "OneTokenAhead",
    GPT,
    ".tril(keys - length)",
    ".tril(keys - length + 1)",
    breaks=(CAUSAL, CAUSAL_IN_TRAINING, PREFIXES),
    defect="The mask lets each token see the next one.",
)
changed(
    "MaskInEvaluationOnly",
    LLAMA,
    "is_causal=True)",
    "is_causal=not self.training)",
    breaks=(CAUSAL_IN_TRAINING,),
    defect="The future is hidden in evaluation mode only.",
)
changed(
    "FirstTokenHidden",
    GPT,
    "        if real is not None:\n            visible",
    "        visible[1:, 0] = False\n        if real is not None:\n            visible",
    breaks=(EARLIER,),
    defect="No token but the first sees the first.",
)
changed(
    "PositionsFromTheEnd",
    GPT,
    "torch.arange(start, start + ids.shape[1])",
    "torch.arange(start, start + ids.shape[1]).flip(0)",
    breaks=(PREFIXES,),
    defect="Positions are counted from the end of the sentence.",
)
changed(
    "ReturnsProbabilities",
    GPT,
    "        return logits, loss, presents",
    "        return logits.softmax(-1), loss, presents",
    breaks=(LOGITS,),
    defect="The model returns probabilities under the name of logits.",
)
changed(
    "ShiftedTwice",
    LLAMA,
    "logits[:, :-1], labels[:, 1:]",
    "logits[:, :-2], labels[:, 2:]",
    breaks=(NEXT,),
    defect="The labels are shifted twice.",
)
changed(
    "LossOfProbabilities",
    GPT,
    "F.cross_entropy(logits.flatten(0, 1)",
    "F.cross_entropy(logits.softmax(-1).flatten(0, 1)",
    breaks=(FROM_LOGITS,),
    defect="The cross-entropy gets probabilities and takes their softmax again.",
)
changed(
    "IgnoredAreCounted",
    LLAMA,
    "(wanted != -100).sum()",
    "wanted.numel()",
    breaks=(IGNORED,),
    defect="Ignored labels are counted in the mean.",
)
changed(
    "PaddingOnTheLeftOnly",
    GPT,
    "(real.long().cumsum(1) - 1).clamp(min=0)[:, start:]",
    "(torch.arange(real.shape[1]) - (~real).sum(1, keepdim=True)).clamp(min=0)[:, start:]",
    breaks=(PADDING,),
    defect="Positions are right only where the padding stands on the left.",
)
changed(
    "WeakPaddingMask",
    GPT,
    """            visible = visible & real[:, None, None, :]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
""",
    """            q = q * 1.0
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores if real is None else scores - (~real[:, None, None, :]).to(x.dtype)
""",
    breaks=(PADDING,),
    defect="Padding lowers the scores by 1 instead of hiding them.",
)
changed(
    "NoGradientAtAll",
    LLAMA,
    "    def forward(self, tokens, labels=None):",
    "    @torch.no_grad()\n    def forward(self, tokens, labels=None):",
    breaks=(LEARNS, "model-every-parameter-gets-a-gradient"),
    defect="forward runs without gradients.",
)
changed(
    "TiedTooEarly",
    GPT,
    "self.head.weight = self.tokens.weight\n",
    "self.head.weight = self.tokens.weight\n        self.tokens = nn.Embedding(vocab_size, d_model)\n",
    breaks=(TIED,),
    defect="The embedding is made anew after the head was tied to it.",
)
changed(
    "CapThatIsNotTakenBack",
    LLAMA,
    "logits = self.output(self.norm(x))",
    "logits = torch.tanh(self.output(self.norm(x)) / 15.0)",
    breaks=("language-model-can-be-sure",),
    defect="Logits are capped, and not multiplied by the cap again.",
)
changed(
    "ShiftedByCallerAndModel",
    GPT,
    "F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)",
    "F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=-100)",
    breaks=("language-model-loss-teaches-the-next-token",),
    defect="The targets are shifted already, and the model shifts them once more.",
)
changed(
    "ShiftedByNobody",
    LLAMA,
    "shifted, wanted = logits[:, :-1], labels[:, 1:]",
    "shifted, wanted = logits, labels",
    breaks=("language-model-loss-teaches-the-next-token",),
    defect="The labels are the tokens themselves, and nobody shifts them.",
)
changed(
    "PrefixOneTooLong",
    PREFIX,
    "< prefix_len[:, None, None])",
    "<= prefix_len[:, None, None])",
    breaks=("language-model-is-causal-behind-its-prefix",),
    defect="The first word behind the prefix is seen where it is to be predicted.",
)
changed(
    "PrefixSeesBehindItself",
    PREFIX,
    "places[None, None, :] < prefix_len",
    "places[None, :, None] < prefix_len",
    breaks=("language-model-is-causal-behind-its-prefix",),
    defect="The queries of the prefix, and not its keys, are what the mask lets see.",
)
changed(
    "MasksOfOtherHistories",
    RECOMMENDER,
    "mask.repeat_interleave(self.heads, 0)",
    "mask.repeat(self.heads, 1, 1)",
    breaks=("language-model-padding-changes-nothing",),
    defect="The masks are tiled where the heads of one history follow each other: a history gets those of others.",
)
changed(
    "DocumentsSeeEachOther",
    PREFIX,
    "visible & (document_ids[:, None, :, None]",
    "visible | (document_ids[:, None, :, None]",
    breaks=("documents-of-one-row-are-apart",),
    defect="A word sees all before it and all of its document, and not those that are both.",
)
