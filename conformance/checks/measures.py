"""Checks of what a model measures of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
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


@check("probabilities-are-shares-of-classes", roles=("classifier",))
def shares_of_classes(impl: Any, draw: Draw) -> Evidence:
    """What a method gives as probabilities adds up to one over the classes of a sample, and not over the samples."""
    parts = []
    for name, place, got in impl.build("classifier", {}).probabilities():
        of_samples, of_classes = (bool(np.allclose(got.sum(axis), 1, atol=1e-4)) for axis in (0, 1))
        if of_samples or of_classes:
            parts.append(
                true(f"the sums of {name} over the classes", of_classes, expected=1, got=got.sum(1)).saying(
                    diagnosis=f"{name} normalises over the samples of the batch: the probabilities of one sample do "
                    "not add up to one, and depend on its neighbours.",
                    place=place,
                    mend="softmax(dim=-1)",
                )
            )
    if not parts:
        raise NotProvided("no method of its gives shares as probabilities")
    return all_of(*parts)


@check("errors-of-observed-points-are-their-mean", roles=("module",))
def mean_of_observed(impl: Any, draw: Draw) -> Evidence:
    """A mean of the errors at observed points is divided by how many were observed."""
    parts = []
    for one in impl.build("module", {}).errors_of_observed():
        if not np.isclose(one.whole, one.twice, rtol=1e-4) or not 0 < one.whole < np.inf:
            continue  # it is a sum
        diluted = bool(np.isclose(one.part, one.share * one.whole, rtol=1e-4))
        if diluted and not one.says:
            return note("a masked error is divided by the number of all points", one.name)
        if diluted or np.isclose(one.part, one.whole, rtol=1e-4):
            parts.append(
                true(f"{one.name} of a part of the points", not diluted, expected=one.whole, got=one.part).saying(
                    diagnosis=f"{one.name} leaves out the errors at points that were not observed, and divides by the "
                    "number of all: the more are missing, the smaller it is.",
                    place=one.place,
                    mend="(error * observed).sum() / observed.sum()",
                )
            )
    if not parts:
        raise NotProvided("no mean error of its is told which points were observed")
    return all_of(*parts)
