"""Which token ends a text, as a script names it; and whether what waits for that token was ever taught it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from conformance.slips.slip import END
from conformance.watch.events import Loss
from conformance.watch.lines import Source
from conformance.watch.stated import sources

_WORDS = re.compile(r"^[<\[|]+(eos|/s|end|eot|endoftext|end_of_text|im_end)[>\]|]+$", re.IGNORECASE)
"""Words of a vocabulary that end a text. They stand in brackets: "end" alone is a word like others."""

_DEPTH, _MOST = 2, 400
FORWARD = 0.9
"""A loss is of next tokens where more than this share of its labels is."""

FEWEST = 4
"""So many losses at least show what is asked for."""


def named_in(frames: Iterable[FrameType]) -> dict[str, int]:
    """The ids that end a text, by their names: of variables and attributes that frames can see, and of words in their
    dictionaries, as "<eos>"."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    for frame in frames:
        for names in (frame.f_locals, frame.f_globals):
            _look(names, found, seen, _DEPTH)
    return found


def _look(names: Mapping[str, Any], found: dict[str, int], seen: set[int], depth: int) -> None:
    for name, value in [*names.items()]:
        if type(value) is int and isinstance(name, str) and END.match(name):
            found.setdefault(name, value)
        elif type(value) is dict:
            found.update({k: v for k, v in value.items() if type(v) is int and type(k) is str and _WORDS.match(k)})
        elif depth and len(seen) < _MOST and id(value) not in seen and not isinstance(value, (type, ModuleType)):
            held = getattr(value, "__dict__", None)
            if type(held) is dict:
                seen.add(id(value))
                _look(held, found, seen, depth - 1)


class Awaited(NamedTuple):
    """An end that is waited for, and that no label asks for. value: its id. place: where it is waited for. loss: the
    first one of next tokens."""

    value: int
    place: str
    loss: Loss


def untaught(run: Any) -> tuple[int, Awaited | None]:
    """How many losses of whole texts teach an end that the script waits for; and the end where none does."""
    every = [loss for loss in run.of(Loss) if loss.gradients and loss.asked_for]
    losses = [loss for loss in every if loss.unasked and loss.targets and loss.targets.offsets.get(1, 0.0) > FORWARD]
    places = {loss.place for loss in losses}
    texts = [loss for loss in every if loss.unasked and loss.place in places]
    waits = [place for source in sources(run) for place in _waited_for(source)]
    classes = max((loss.classes for loss in losses), default=0)
    ends = {value for value in run.ends.values() if 0 <= value < classes}
    if len(texts) < FEWEST or not waits or len(ends) != 1:
        return 0, None
    value = ends.pop()
    asked = [loss for loss in every if value in loss.asked_for]
    return len(asked), None if asked else Awaited(value, waits[0], losses[0])


def _waited_for(source: Source) -> Iterator[str]:
    """Where a loop compares tokens with the end, as what writes or reads does: `if token == EOS: break`; and where what
    writes is told it: `generate(..., eos_token_id=EOS)`."""
    for node in source.nodes:
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            is_in_loop = any(isinstance(one, (ast.For, ast.While)) for one in source.outward(node))
            if is_in_loop and any(map(_is_end, (node.left, node.comparators[0]))):
                yield source.place(node)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "generate":
            yield from (source.place(node) for one in node.keywords if END.match(one.arg or ""))


def _is_end(node: ast.AST) -> bool:
    return END.match(getattr(node, "id", "") or getattr(node, "attr", "")) is not None
