"""Checks that what is computed is read: pieces of a result that reach nothing."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, true
from conformance.protocol import NotProvided


@check("model-every-piece-of-a-result-is-read", roles=("module",))
def every_piece_is_read(impl: Any, draw: Draw) -> Evidence:
    """Of a result that is cut into equal pieces each piece reaches the answer, or something beside it."""
    subject = impl.build("module", {})
    if subject.tokens_compete or "experts" in subject.inside().seen:
        raise NotProvided("it chooses which of its maps are read")
    if subject.attends_to_one():
        raise NotProvided("it attends to one token somewhere, whose key counts nothing")
    maps, unread = subject.unread_pieces()
    if not maps:
        raise NotProvided("it has no linear map that gets a gradient")
    path = unread[0] if unread else ""
    return true(
        "each piece of what a map gives is read", not unread, got=f"a piece of {path}", expected="all pieces"
    ).saying(
        diagnosis=f"One piece of the result of {path} is not used: another piece is read in its place.",
        place=subject.read_twice_at(path) if path else "",
        mend="give each piece its own use",
    )
