"""A model that cannot be called as it was made is made in another way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from torch import nn

from conformance.adapters.stated import Stated
from conformance.adapters.whole.making import Made
from conformance.adapters.whole.model import WholeModel, whole_model


def reads_words(made: Made) -> bool:
    """Whether what is made has a table of embeddings."""
    return any(isinstance(part, nn.Embedding) for part in made.fresh().modules())


_REFUSES = ": raise "
"""Stands before the line of the user's that raises, where the model raises by itself."""

_MOST = 50_000_000
"""A model with more parameters is not run at its own sizes."""

MOST_WAYS = 4
"""So many more ways to make a model are tried where it cannot be called as it was made first."""


def otherwise_made(
    ways: Iterator[Made], made: Made, why: Exception, kind: str = "", stated: Stated | None = None
) -> tuple[Made, WholeModel | None]:
    """A model of words, or one that refuses its options by itself, that cannot be called as it was `made`, made in the
    first of these ways in which it can: an option that is None may be needed. What was made smaller is tried at its own
    sizes, too. why: what calling it raised. As it was made, and None, where there is none, or it is no such model."""
    if reads_words(made) or _REFUSES in str(why):
        for other in islice((way for way in ways if way.facts[0].value != made.facts[0].value), MOST_WAYS):
            with suppress(Exception):
                return other, whole_model(other, kind, stated)
    if (large := made.at_its_own_sizes(_MOST)) is not None:
        with suppress(Exception):
            return large, whole_model(large, kind, stated)
    return made, None
