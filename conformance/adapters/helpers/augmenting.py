"""Helpers that change data at random, so that each epoch sees other ones: frames that are hidden, noise, pieces left
out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, parts, seeded

_COPIES = re.compile(
    r"(?<!no )(?<!not )(?<!never )(?<!without )(?<!without a )\bcop(y|ies)\b"
    r"|\bnew (tensor|frames|batch|array|series)\b|\b(un|not )(changed|modified|touched)\b"
)
_IN_PLACE = re.compile(r"\bin[- ]?place\b|\boverwrit")
_TIMES, _ROWS, _STEPS, _WIDTH = 8, 2, 20, 8


@helper(
    "augmented-data-are-copies-where-said",
    r"augment|spec_?aug|(^|_)(jitter|cutout|random_eras\w*|(time|freq\w*)_mask\w*|mask_(time|freq\w*|frames|mels|bands))($|_)"
    r"|drop_(frames|steps)",
    {
        "lengths": r"(\w+_)?(lengths?|lens)|n_frames",
        "data": (
            r"x|frames?|spec(trogram)?s?|log_?mels?|mels?|feat(ure)?s?|wave(form)?s?|audio|signal|series|window|data|"
            r"images?|imgs?|batch|inputs?"
        ),
        "random": r"rng|random(_state)?|generator|gen",
    },
    ("data",),
)
def left_as_it_was(change: Called) -> Iterator[Trouble]:
    """What is handed in is the same afterwards, where the function says that it gives a copy."""
    if not _COPIES.search(change.says) or _IN_PLACE.search(change.says):
        raise OtherKind("it does not say that it gives a copy")
    for shape in ((_ROWS, _STEPS, _WIDTH), (_STEPS, _WIDTH), (_ROWS, 3, _STEPS, _STEPS)):
        with suppress(Exception):
            changed = [_changed(change, shape, seed) for seed in range(_TIMES)]
            if any(other for other, _ in changed):
                before = next((numbers for _, numbers in changed if numbers is not None), None)
                if before is not None:
                    yield Trouble(
                        f"{change.name} says that it gives a copy, and changes what it is handed: the data of later "
                        "epochs are destroyed.",
                        "the same numbers afterwards",
                        f"{int(before)} other numbers",
                    )
                return
    raise OtherKind("it changes no data that are known")


def _changed(change: Called, shape: tuple[int, ...], seed: int) -> tuple[bool, int | None]:
    """Whether it gave other numbers in the same shape, and how many of those handed in are others now; None for none.
    Raises whatever it raises, and OtherKind where it gives another shape."""
    first = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + 3.0
    given = first.clone()
    lengths = torch.full(shape[:1], _STEPS - 2)
    with seeded(seed):
        made = change.arguments.call(
            change.function, data=given, lengths=lengths, random=torch.Generator().manual_seed(seed)
        )
    out = next((part for part in parts(made) if isinstance(part, Tensor) and part.shape == first.shape), None)
    if out is None:
        raise OtherKind("it gives no numbers of this shape")
    destroyed = int((given != first).sum())
    return not torch.equal(out, first), destroyed or None
