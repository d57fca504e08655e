"""Low-rank adapters beside a linear map: whether what they adapt rests, and whether all of them are saved."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from conformance.watch.record import Run

_FACTOR = re.compile(r"(^|_)(lora_?)?(a|b|down|up)(_|$|\d)", re.IGNORECASE)
_CLASS = re.compile(r"lora|lowrank|low_rank", re.IGNORECASE)


def adapted(run: Run) -> tuple[int, list[int]]:
    """How many low-rank adapters are stepped, and which matrices they adapt that their optimizer steps, too."""
    number, found = 0, []
    for parts in (*run.earlier, *run.parts.values()):
        named = [one for one, cls in parts.items() if _CLASS.search(getattr(cls, "__name__", ""))]
        for path in (one for one in named if one and not any(other.startswith(f"{one}.") for other in named)):
            inside = {
                n: one.name[len(path) + 1 :] for n, one in run.parameters.items() if one.name.startswith(f"{path}.")
            }
            factors = {n for n, name in inside.items() if _is_factor(name)}
            held = {n for one in run.optimizers.values() if factors & {*one.parameters} for n in one.parameters}
            if len(factors & held) < 2:
                continue
            number += 1
            others = (n for n, name in inside.items() if n in held and n not in factors and n not in run.frozen)
            found += [n for n in others if run.parameters[n].is_matrix]
    return number, found


def _is_factor(name: str) -> bool:
    return any(_FACTOR.search(word) for word in name.split("."))


def halves(saved: Any, names: set[str], depth: int = 3) -> Iterator[tuple[str, str]]:
    """Of what is saved, pairs of factors of one part of which the first is there and the second is not. names: of the
    parameters that are trained."""
    if not isinstance(saved, Mapping):
        return
    keys = {key for key, value in saved.items() if isinstance(key, str) and isinstance(value, Tensor)}
    owners: dict[str, set[str]] = defaultdict(set)
    for name in names:
        words = name.split(".")
        at = next((i for i in range(len(words) - 1, -1, -1) if _FACTOR.search(words[i])), None)
        if at is not None:
            owners[".".join(words[:at])].add(name)
    for held in owners.values():
        there, missing = sorted(held & keys), sorted(held - keys)
        if there and missing and len(held) == 2:
            yield there[0], missing[0]
    for value in saved.values() if depth else ():
        yield from halves(value, names, depth - 1)
