"""Checks of the functions beside a model: each is held to the claim of its kind.

The claims are those of the topic "helpers"; the kinds stand in `conformance.adapters.helpers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.catalogue import load
from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, note, true
from conformance.protocol import NotProvided


def no_trouble(slug: str, says: str) -> Callable[[Any, Draw], Evidence]:
    """The check that no function of the file breaks a claim."""

    def run(impl: Any, draw: Draw) -> Evidence:
        examined = impl.build("helpers", {})
        if slug not in examined.tested:
            raise NotProvided("its file has no function of this kind")
        found = sorted((one for one in examined.wrong if one.claim == slug), key=lambda one: not one.trouble.certain)
        if not found:
            return true(f"{', '.join(examined.tested[slug])} keeps it", True)
        first = found[0]
        if not first.trouble.certain:
            return note(first.trouble.sentence, str(first.trouble.got))
        return true(
            f"{first.function} keeps it", False, expected=str(first.trouble.expected), got=str(first.trouble.got)
        ).saying(diagnosis=first.trouble.sentence, place=first.place, mend=first.edit.text if first.edit else "")

    run.__doc__ = says
    return run


for _claim in load().claims.values():
    if _claim.topic == "helpers":
        check(_claim.slug, roles=("helpers",))(no_trouble(_claim.slug, _claim.says))
