"""What each parameter of a function means, read from its name, and the calls that follow from it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.adapters.inference.facts import Unresolved

Words = Mapping[str, str]
"""Meaning -> the names that it goes by, as a pattern of the whole name in lower case."""

PAD = r"(.*_)?pad(ding)?(_?(id|idx|index|token|token_id|token_idx|symbol|value))?|ignore_?(index|idx|id|label)"
VOCAB = r"(n_?|num_?)?(tgt_|trg_|target_)?(vocab(ulary)?|classes|class_num|labels_num|tokens)(_size|_len)?|size|v|c"
DEVICE = r"device"


@dataclass(frozen=True)
class Arguments:
    """The parameters of a callable by meaning. accepts: all names that it takes, in order."""

    name: str
    parameter_of: Mapping[str, str]
    accepts: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    leading: tuple[str, ...] = ()

    def has(self, meaning: str) -> bool:
        return meaning in self.parameter_of

    def call(self, function: Callable[..., Any], **values: Any) -> Any:
        """Call it with values by meaning; those that it does not take are left out."""
        given = {self.parameter_of[m]: value for m, value in values.items() if m in self.parameter_of}
        given = {**self.fixed, **given}
        first = [given.pop(name) for name in self.leading if name in given]
        return function(*first, **given)


def read(function: Callable[..., Any], words: Words, data: Sequence[str] = ()) -> Arguments:
    """The arguments of a callable.

    data: meanings of required parameters in their usual order: what no word of `words` tells is taken in this order.
    Raises Unresolved, in one sentence, for a required parameter that means nothing known.
    """
    name = getattr(function, "__name__", type(function).__name__)
    found: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    unknown: list[inspect.Parameter] = []
    leading: list[str] = []
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            leading.append(parameter.name)
        lower = parameter.name.lower().strip("_")
        meaning = next((m for m, names in words.items() if m not in found and re.fullmatch(names, lower)), None)
        if meaning is not None:
            found[meaning] = parameter.name
        elif re.fullmatch(DEVICE, lower):
            fixed[parameter.name] = torch.device("cpu")
        elif parameter.default is parameter.empty:
            unknown.append(parameter)
    for meaning in data:
        if meaning not in found and unknown:
            found[meaning] = unknown.pop(0).name
    if unknown:
        names = ", ".join(p.name for p in unknown)
        raise Unresolved(
            f"nothing shows what {names} of {name} should be; write a class with build(role, config) around it"
        )
    return Arguments(name, found, tuple(p.name for p in parameters), fixed, tuple(leading))
