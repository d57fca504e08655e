"""Mutants of an encoder of sentences: lists out of order, pairs that are no pairs, lengths along another axis."""

from __future__ import annotations

from conformance.mutants.source import EMBEDDER, changed

LISTS = "lists-of-texts-are-answered-one-by-one"
PARTNER = "contrasts-label-the-own-partner"
TEMPERATURE = "contrasts-are-divided-by-the-temperature"
LENGTHS = "attention-lengths-are-of-one-vector"

changed(
    "ListsStaySorted",
    EMBEDDER,
    "made[chosen] = self(batch)",
    "made[start : start + len(chosen)] = self(batch)",
    breaks=(LISTS,),
    defect="A list of texts is answered in the order of their lengths.",
)
changed(
    "ListsAttendToPadding",
    EMBEDDER,
    "made[chosen] = self(batch)",
    "made[chosen] = self(batch, torch.ones_like(batch))",
    breaks=(LISTS,),
    defect="The padding of a list is told to be words.",
)
changed(
    "AllAreTaughtTheFirst",
    EMBEDDER,
    "own = torch.arange(len(scores))",
    "own = torch.zeros(len(scores), dtype=torch.long)",
    breaks=(PARTNER,),
    defect="Every anchor is taught the first positive.",
)
changed(
    "TimesTheTemperature",
    EMBEDDER,
    ".t() / self.temperature",
    ".t() * self.temperature",
    breaks=(TEMPERATURE,),
    defect="Similarities are multiplied by the temperature.",
)
changed(
    "LengthsOverTheHeads",
    EMBEDDER,
    "q, k = F.normalize(q, dim=-1)",
    "q, k = F.normalize(q)",
    breaks=(LENGTHS,),
    defect="Queries are normalised over the heads, the default axis, and not over their features.",
)
