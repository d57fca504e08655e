"""Checks of what a model measures of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import NotProvided


@check("perplexity-of-equal-chances-is-their-number", roles=("language_model",))
def of_equal_chances(impl: Any, draw: Draw) -> Evidence:
    """If all parameters are zero, every token is as likely as any other: the perplexity is the number of tokens."""
    subject = impl.build("language_model", {})
    count, parts = subject.calling.outputs, []
    for name, place, got in subject.perplexities():
        if got > count:  # by word, perhaps, of which there are fewer than tokens
            continue
        units = (np.log(count), np.log2(count), np.log(count) / np.log(10))  # it may give the logarithm
        right = any(np.isclose(got, one, rtol=1e-4) for one in (count, *units))
        parts.append(
            true(f"what {name} gives where all of {count} tokens are equally likely", right, expected=count, got=got)
            .saying(
                diagnosis=f"{name} gives a perplexity of {got:.4g} where all {count} tokens are equally likely: the "
                "sum and the count of its mean are not of the same tokens.",
                place=place,
                mend="sum the losses of all tokens, and divide by how many there are: total += loss.mean() * count",
            )
        )  # fmt: skip
    if not parts:
        raise NotProvided("none of its methods says that it gives a perplexity")
    return all_of(*parts)
