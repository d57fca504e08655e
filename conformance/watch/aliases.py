"""What a script's text says of models that are kept beside the one that learns: whether they are copies of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import Source
from conformance.watch.parts import Bound, bindings
from conformance.watch.stated import sources

_FIXED = re.compile(r"^(ref|reference|teacher|target|old)(_(model|policy|net|network))?$", re.IGNORECASE)
_BEST = re.compile(r"^best_(model|net|network)$", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optim|Adam|SGD|RMSprop|Lion|Adafactor")


class Alias(NamedTuple):
    """A name for the model that learns, which says that it is another one. learner: its own name."""

    name: str
    learner: str
    place: str


def aliases(run: Any) -> list[Alias]:
    """`reference = policy`, and `best_model = model` in the loop that goes on with the model."""
    return [found for source in sources(run) for found in _aliases(source)]


def _aliases(source: Source) -> Iterator[Alias]:
    bound = [one for one in bindings(source) if getattr(one.value, "value", one) is not None]
    for one in bound:
        if not isinstance(one.value, ast.Name) or one.value.id not in _stepped(source, one):
            continue
        own = [other for other in bound if other.name == one.value.id]
        is_fixed = _FIXED.match(one.name) and len(own) < 2
        is_best = _BEST.match(one.name) and _goes_on(source, one, own)
        if (is_fixed or is_best) and sum(other.name == one.name for other in bound) == 1:
            yield Alias(one.name, one.value.id, source.place(one.statement))


def _stepped(source: Source, one: Bound) -> set[str]:
    """The names of models in the function of a statement whose parameters are given to an optimizer there."""
    calls = [n for n in source.inside(source.function(one.statement)) if isinstance(n, ast.Call)]
    made = [n for n in calls if _OPTIMIZER.search(ast.unparse(n.func))]
    texts = [match for call in made for match in re.findall(r"\b(\w+)\.parameters\(\)", ast.unparse(call))]
    return {*texts}


def _goes_on(source: Source, one: Bound, own: list[Bound]) -> bool:
    """Whether a statement is in a loop that makes no new model."""
    loops = [n for n in source.outward(one.statement) if isinstance(n, (ast.For, ast.While))]
    return bool(loops) and not any(loop in source.outward(other.statement) for other in own for loop in loops)
