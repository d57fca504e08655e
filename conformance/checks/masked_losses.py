"""The check of losses of hidden places: patches, frames or words that a model has to fill in."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true


@check("losses-of-masked-places-teach-no-others", roles=("model",))
def teaches_masked_places(impl: Any, draw: Draw) -> Evidence:
    """A loss whose text says that masked places are taught asks nothing of places that were seen."""
    parts = []
    for taught in impl.build("model", {}).hidden_places_taught():
        parts.append(
            true(
                f"{taught.name} teaches masked places",
                not (taught.all or taught.seen),
                expected="a part of the places" if taught.all else "those that are hidden",
                got=f"{taught.share:.0%} of them" if taught.all else "those that are seen",
            ).saying(
                diagnosis=f'{taught.name} says "{taught.said}", and its loss counts '
                + (
                    "every place: those that the model has seen, too."
                    if taught.all
                    else "those that the model has seen."
                ),
                place=taught.place,
                mend="(error * mask).sum() / mask.sum()",
            )
        )
    return all_of(*parts)
