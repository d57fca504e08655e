"""The check of slow copies of weights: target encoders that a model moves, averages that a class beside it keeps."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true


@check("slow-copies-of-weights-follow-slowly", roles=("model",))
def follow_slowly(impl: Any, draw: Draw) -> Evidence:
    """A slow copy becomes a large part of itself and the rest of its original, with one share for all its weights."""
    return all_of(*[_of(one) for one in impl.build("model", {}).followers()])


def _of(one: Any) -> Evidence:
    what = f"how {one.name} moves a slow copy"
    wanted = f"{one.asked:g} of itself" if one.asked is not None else "more than half of itself"
    if one.keeps is None:
        got, why = "another mixture", "leaves the slow copy neither what it was, nor on the way to its original"
    elif one.turned:
        got, why = "the learner moves", "moves the learner to its slow copy"
    elif one.left:
        got, why = f"{one.left} stays", f"leaves out {one.left}: a part of the copy stays what it was at first"
    else:
        got = f"{one.keeps:.4g} of itself"
        why = f"keeps {one.keeps:.4g} of the slow copy, where {wanted.removesuffix(' of itself')} is meant to stay"
    near = one.keeps is not None and (one.keeps > 0.5 if one.asked is None else abs(one.keeps - one.asked) < 1e-3)
    return true(what, near and not one.turned and not one.left, got=got, expected=wanted).saying(
        diagnosis=f"{one.name} {why}.", place=one.place, mend="slow.mul_(m).add_(fast, alpha=1 - m)"
    )
