"""Helpers that weigh classes by how often they occur."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, shown, tensor

_COUNTS = (12, 4, 2)
"""So often the classes occur."""
_RARE = re.compile(r"\brare|invers|balanc|effective number|less frequent|under-?represented|minority")
_OFTEN = r"(\w+_)?(counts?|freqs?|frequenc(y|ies)|num_list)(_\w+)?|(n|num|samples|clips)_per_(class|cls|label|tag)"
_LABELS = r"\w*(labels?|targets?|tags?)|ys?|y_\w+"
_FREQUENT = re.compile(r"prior|frequency of|share of each|proportional to")


@helper(
    "weights-of-classes-favour-the-rare",
    r"(^|_)weights?(_|$)",
    {
        "classes": r"(n|num|number)(_?of)?_?(class(es)?|labels?|tags?|categories)|n|k|c|classes|\w*_classes",
        "labels": _LABELS,
    },
    ("labels",),
)
def class_weights(weigh: Called) -> Iterator[Trouble]:
    """Of three classes the one that comes most often has the least weight, as its author says of the rare ones."""
    yield from _rising(weigh, _weights(weigh))


@helper("weights-of-classes-favour-the-rare", r"(^|_)weights?(_|$)", {"counts": _OFTEN}, ("counts",))
def weights_of_counts(weigh: Called) -> Iterator[Trouble]:
    """The same of a function that is given how often each class comes."""
    if not re.fullmatch(_OFTEN, weigh.arguments.parameter_of["counts"].lower()):
        raise OtherKind("it is not told how often classes come")
    for given in (torch.tensor(_COUNTS), list(_COUNTS), torch.tensor(_COUNTS).numpy()):
        with suppress(Exception):
            made = tensor(weigh(counts=given)).reshape(-1)
            if made.numel() == len(_COUNTS) and bool(made.isfinite().all()) and bool((made > 0).all()):
                yield from _rising(weigh, made)
                return
    raise OtherKind("it gives no weight for each class")


def _rising(weigh: Called, found: Tensor) -> Iterator[Trouble]:
    """The trouble of weights that are the larger, the more often a class comes."""
    if bool((found.diff() >= -1e-9).all()) or bool((found.diff() > 0).any()):
        return
    says = weigh.says + weigh.source.lower()
    if _FREQUENT.search(says):
        return
    yield Trouble(
        f"{weigh.name} gives a class more weight, the more often it occurs.",
        "more weight for classes that are rare",
        f"{shown(found)} for classes that come {', '.join(map(str, _COUNTS))} times",
        certain=bool(_RARE.search(says)),
        at=(r"return.*(/|\\*)", r"(/|\\*)", r"return"),
        mend="weights = total / (n_classes * counts)",
    )


def _weights(weigh: Called) -> Tensor:
    """A weight for each class, of the first form in which labels are taken; of a weight for each row those of the first
    row of each class. Raises OtherKind."""
    labels = torch.arange(len(_COUNTS)).repeat_interleave(torch.tensor(_COUNTS))
    is_of_labels = re.fullmatch(_LABELS, weigh.arguments.parameter_of["labels"].lower()) is not None
    for given in (labels, labels.tolist(), labels.numpy()):
        with suppress(Exception):
            made = tensor(weigh(labels=given, classes=len(_COUNTS))).reshape(-1)
            if made.numel() == len(labels) and is_of_labels:  # else it may be a function of each number
                made = made[labels.diff(prepend=torch.tensor([-1])) > 0]
            if made.numel() == len(_COUNTS) and bool(made.isfinite().all()) and bool((made > 0).all()):
                return made
    raise OtherKind("it gives no weight for each class")
