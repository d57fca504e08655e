"""Mutants of functions that stand beside models: what scores become, examples of answers, and measures."""

from __future__ import annotations

from conformance.mutants.source import HELPERS, SCORES, changed

changed(
    "ForbidsTheFirstWord",
    HELPERS,
    "{gram[-1] for",
    "{gram[0] for",
    breaks=("forbidden-words-would-repeat-an-n-gram",),
    defect="The first word of an n-gram is forbidden, not the one that would end it.",
)
changed(
    "MinPOfTheSum",
    HELPERS,
    "probs.amax(-1, keepdim=True)",
    "probs.sum(-1, keepdim=True)",
    breaks=("filters-keep-the-best-words",),
    defect="The share is of all words, not of the best one.",
)
changed(
    "SlopesFromOne",
    HELPERS,
    "start ** (head + 1)",
    "start**head",
    breaks=("slopes-of-alibi-are-powers-of-one-number",),
    defect="The slopes begin with 1.",
)
changed(
    "LabelsOfThePrompt",
    HELPERS,
    "[-100] * len(prompt) + answer",
    "[-100] * (len(prompt) + 1) + answer[1:]",
    breaks=("labels-of-examples-are-the-answer",),
    defect="The first word of the response has no label.",
)
changed(
    "HiddenScoresOfZero",
    HELPERS,
    'float("-inf")).softmax(-1)',
    "0.0).softmax(-1)",
    breaks=("a-masked-softmax-gives-hidden-scores-nothing",),
    defect="Hidden scores are 0 before the softmax, which is no small score.",
)
changed(
    "BestOfTheBatch",
    SCORES,
    "logits.topk(k, -1)",
    "logits.topk(k, 0)",
    breaks=("accuracy-is-the-share-of-right-answers",),
    defect="The best rows of a class are taken.",
)
changed(
    "RecallOfWhatWasSaid",
    SCORES,
    "(hits / support.clamp(min=1)).mean()",
    "(hits / said.clamp(min=1)).mean()",
    breaks=("measures-of-classes-are-their-formulas",),
    defect="The hits of a class are divided by how often it was predicted: that is its precision.",
)
changed(
    "PerplexityInBits",
    SCORES,
    "math.exp(mean_loss)",
    "2**mean_loss",
    breaks=("perplexity-is-the-exponential-of-the-mean-loss",),
    defect="The loss is in nats, and the base is 2.",
)
changed(
    "AllOfTheBest",
    SCORES,
    "best == torch.arange(len(queries))[:, None]).any(-1)",
    "best == torch.arange(len(queries))[:, None]).all(-1)",
    breaks=("retrieval-counts-the-own-partner",),
    defect="All of the best must be the partner.",
)
changed(
    "RankFromOne",
    SCORES,
    "torch.log2(rank + 2.0)",
    "torch.log2(rank + 3.0)",
    breaks=("ndcg-discounts-by-the-rank",),
    defect="Ranks are counted from one and discounted as from zero.",
)
changed(
    "NaiveForecastIsZero",
    SCORES,
    "(past[:, season:] - past[:, :-season]).abs()",
    "past[:, season:].abs()",
    breaks=("errors-of-forecasts-are-their-formulas",),
    defect="The naive forecast is zero.",
)
changed(
    "ExchangesCostTwo",
    SCORES,
    "before + (a != b)",
    "before + 2 * (a != b)",
    breaks=("edit-distances-count-the-fewest-edits",),
    defect="An exchange costs two.",
)
changed(
    "IdealOrderUpsideDown",
    SCORES,
    "gains.sort(-1, descending=True).values",
    "gains.sort(-1).values",
    breaks=("ndcg-is-one-for-the-best-order",),
    defect="The NDCG is divided by what the worst order has.",
)
changed(
    "RecallDividesByK",
    SCORES,
    "(found / relevant.sum(1))",
    "(found / k)",
    breaks=("recalls-of-all-that-is-relevant-are-one",),
    defect="The recall divides the hits by k: it is a precision.",
)
changed(
    "WorstDocumentsFirst",
    SCORES,
    "scores.argsort(-1, descending=True)[..., :k]",
    "scores.argsort(-1)[..., :k]",
    breaks=("orders-by-scores-begin-with-the-best",),
    defect="The candidates with the lowest scores come first.",
)
changed(
    "SpansThatEndBeforeTheText",
    SCORES,
    'enumerate([*tags, "O"])',
    "enumerate(tags)",
    breaks=("spans-of-tags-are-all-found",),
    defect="An entity at the end of the text is not found.",
)
changed(
    "NGramsCountHoweverOften",
    SCORES,
    "min(count, wanted[gram]) for gram, count in given.items()",
    "count for gram, count in given.items() if gram in wanted",
    breaks=("overlaps-of-texts-count-a-word-as-often-as-it-is-wanted",),
    defect="An n-gram counts as often as it is said, and not as often as the reference has it.",
)
changed(
    "EqualScoresHaveTheHighestRank",
    SCORES,
    "(counts.cumsum(0) - (counts - 1) / 2)[inverse]",
    "counts.cumsum(0)[inverse]",
    breaks=("areas-under-the-curve-count-pairs",),
    defect="Equal scores get the highest rank of their group.",
)
