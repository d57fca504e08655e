"""Experts that take so many tokens only: they are given room for all, so that what is asked of each token can be asked.

A token that an expert turns away for those before it has another answer than without them, by design. Where an option
says how much an expert takes, the model is made with more of it, as it is made with fewer layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np
from torch import nn

from conformance.adapters.inference.construct import evaluating
from conformance.adapters.inference.facts import Fact
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.copying import in_main_dtype
from conformance.adapters.whole.mixing import MixingProbes
from conformance.adapters.whole.running import moved

M = TypeVar("M", bound=MixingProbes)
_FACTOR = re.compile(r"(\w+_)?capacity_factor(_\w+)?")
ROOM = 64.0
"""So many times its share an expert takes: more than there are experts in a small model."""


def with_room(subject: M) -> M:
    """The subject, made with room for every token in every expert, where options say how much that is."""
    made = subject.made
    changed: list[str] = []
    for name, factor in dict(_factors(subject.module)).items():
        with suppress(Exception):
            made.otherwise({name: ROOM})
            made = made.with_number(name, ROOM)
            changed.append(f"{name} {factor:g} -> {ROOM:g}")
    with suppress(Exception):
        if changed:
            module = evaluating(in_main_dtype(moved(made.fresh()), subject.torch_dtype))
            fact = Fact("room", ", ".join(changed), "so that no expert turns a token away")
            other = replace(subject, made=made, module=module, known={}, facts=[*subject.facts, fact])
            if np.isfinite(other(**other.example())["out"]).all():
                return other
    return subject


def _factors(module: nn.Module) -> Iterator[tuple[str, float]]:
    """The options that say how many times its share of the tokens an expert takes."""
    held = [vars(part) for part in module.modules()] + list(settings_of(module))
    for fields in held:
        for name, value in fields.items():
            if isinstance(name, str) and _FACTOR.fullmatch(name.lower()) and type(value) is float and 0 < value < ROOM:
                yield name, value
