"""Mutants of a language model with a memory of the segments before."""

from __future__ import annotations

from conformance.mutants.source import RECURRENT, changed

STEPS = "cached-steps-give-the-logits-of-one-pass"
PERPLEXITY = "perplexity-of-equal-chances-is-their-number"
NEWEST = "caches-keep-the-newest-tokens"

changed(
    "MemoryKeepsTheOldest",
    RECURRENT,
    "whole[:, -self.memory_length :]",
    "whole[:, : self.memory_length]",
    breaks=(NEWEST,),
    defect="The memory is cut at its end: it keeps the oldest states.",
)
changed(
    "MaskForgetsTheMemory",
    RECURRENT,
    ".tril(seen - length)",
    ".tril()",
    breaks=(STEPS,),
    defect="The mask does not count the memory: behind one, a token does not see its own segment.",
)
changed(
    "SegmentsAreCountedOnce",
    RECURRENT,
    ".item() * read.shape[1]",
    ".item()",
    breaks=(PERPLEXITY,),
    defect="The mean losses of the segments are added, and divided by the number of tokens.",
)
