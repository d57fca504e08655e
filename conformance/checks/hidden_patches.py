"""Checks of masked autoencoders: what is hidden is not seen, the mask tells what, and what is seen keeps its place."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, true

_MASK_LINE = r"gather|restore|argsort"


@check("masks-tell-which-patches-are-hidden", roles=("model",))
def mask_tells(impl: Any, draw: Draw) -> Evidence:
    """The patches that do not reach the answer are those that the mask of the same run counts."""
    subject = impl.build("model", {})
    found = subject.hidden_patches()
    return true("the mask tells the patches that were hidden", found.is_told(), got="other patches").saying(
        diagnosis="The mask that forward gives counts other patches than those that were hidden: the loss is taken at "
        "the wrong places.",
        place=subject.line_of(r"mask\w*\s*=.*(gather|take|restore|\[)") or subject.line_of(_MASK_LINE),
        mend="restore = shuffle.argsort(1), and mask.gather(1, restore)",
    )


@check("hidden-patches-are-not-seen", roles=("model",))
def hidden_are_hidden(impl: Any, draw: Draw) -> Evidence:
    """The answer of a masked autoencoder does not depend on patches that the mask hides."""
    subject = impl.build("model", {})
    sees_all = subject.sees_hidden_patches()
    return true("the answer does not depend on hidden patches", not sees_all, got="it depends on all").saying(
        diagnosis="The answer depends on every patch, also on those that the mask hides: they are to be filled in, and "
        "are read.",
        place=subject.line_of(r"(?i)encod\w*\(") or subject.line_of(_MASK_LINE),
        mend="give the encoder the visible patches only",
    )


@check("visible-patches-keep-their-places", roles=("model",))
def visible_keep_places(impl: Any, draw: Draw) -> Evidence:
    """The encoder is told where the patches stand that it sees: its tokens depend on which patches are visible, also
    where all patches look alike."""
    subject = impl.build("model", {})
    apart, told = subject.places_of_visible_patches()
    return true("other visible patches have other tokens", told or not apart, got="the same tokens").saying(
        diagnosis="Of an image of one colour the encoder's tokens are the same whichever patches are visible: "
        "positions are added after the visible patches were picked, so that these get the first places of the image.",
        place=subject.line_of(r"(?i)\+.*pos|pos\w*\s*(\[|\+)"),
        mend="add the positions to all patches, then pick the visible ones",
    )
