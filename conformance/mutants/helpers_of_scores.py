"""Mutants of functions that stand beside models: what scores become, examples of answers, spans of tags."""

from __future__ import annotations

from conformance.mutants.source import HELPERS, changed

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
    "SpansThatEndBeforeTheText",
    HELPERS,
    'enumerate([*tags, "O"])',
    "enumerate(tags)",
    breaks=("spans-of-tags-are-all-found",),
    defect="An entity at the end of the text is not found.",
)
changed(
    "HiddenScoresOfZero",
    HELPERS,
    'float("-inf")).softmax(-1)',
    "0.0).softmax(-1)",
    breaks=("a-masked-softmax-gives-hidden-scores-nothing",),
    defect="Hidden scores are 0 before the softmax, which is no small score.",
)
