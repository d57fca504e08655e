"""A second model beside the user's: the first module whose output differs (`first_difference`).

Both have the same parameters and get the same inputs, so the first module that gives something else is where the two
programs part. Buffers stay as each model makes them: a wrong mask or table must show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.stated import StatedError
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.model import WholeModel
from conformance.evidence import Evidence, close
from conformance.places import with_source
from conformance.protocol import Arrays


@dataclass(frozen=True)
class Difference:
    """path: of the module, as in `named_modules`; empty for the whole model. line: "file:line: source" of its forward,
    or of what makes it where it is torch's own. expected, got: the reference's output and the user's, as text. error:
    how far apart."""

    path: str
    line: str
    expected: str
    got: str
    error: float

    def __str__(self) -> str:
        which = self.path or "the whole model (none of its parts)"
        at = f"; see {self.line}" if self.line else ""
        return (
            f"the first module whose output differs from the reference's is {which}: expected {self.expected}, "
            f"got {self.got} (off by {self.error:.3g}){at}"
        )


def first_difference(mine: WholeModel, reference: WholeModel) -> Difference | None:
    """The first module that gets the same and gives something else, beyond rounding; None where every module gives the
    same. Modules are taken in the order in which they finish; the same path in both is the same module.

    Raises StatedError when the two cannot be compared.
    """
    mine, reference = mine.twin(), reference.twin()
    if [one.meaning for one in mine.calling.inputs] != [one.meaning for one in reference.calling.inputs]:
        raise StatedError("--claims-reference: the two models take other inputs (token ids, two sequences, or numbers)")
    _share_parameters(mine.module, reference.module)
    inputs = mine.example(seed=11)
    noise = 10 * max(mine.noise, reference.noise)
    theirs = {call.key: call for call in _calls(reference, inputs)}
    for call in _calls(mine, inputs):
        other = theirs.get(call.key)
        if other is None or any(not _compared(*pair, noise).ok for pair in zip(call.given, other.given, strict=False)):
            continue
        evidence = _compared(call.result, other.result, noise)
        if not evidence.ok:
            path = call.key[0]
            of_torch = type(mine.module.get_submodule(path)).__module__.startswith("torch.")
            line = with_source(mine.made_at(path) if of_torch else mine.place(path))
            return Difference(path, line, *evidence.sides(), float(evidence.error))
    return None


def _compared(got: Tensor, expected: Tensor, noise: float) -> Evidence:
    one, other = (to_array(value.detach().double()) for value in (got, expected))
    return close("output", one, other, noise * max(1e-9, float(abs(other).max(initial=0.0))))


def _share_parameters(mine: nn.Module, reference: nn.Module) -> None:
    """Give the reference the user's parameters: by name, or in their order where the names differ."""
    own, theirs = dict(mine.named_parameters()), dict(reference.named_parameters())
    same_names = own.keys() == theirs.keys()
    pairs = list(zip(own, own if same_names else theirs, strict=False))
    differing = [(a, b) for a, b in pairs if own[a].shape != theirs[b].shape]
    if differing or len(own) != len(theirs):
        why = f"one has {len(own)}, the reference {len(theirs)}"
        if differing:
            a, b = differing[0]
            why = f"{a} is {tuple(own[a].shape)}, and {b} of the reference {tuple(theirs[b].shape)}"
        raise StatedError(
            f"--claims-reference: the two models do not have the same parameters: {why}; write the same sizes out for "
            "both, as in model.py:GPT(n_layer=2)"
        )
    with torch.no_grad():
        for a, b in pairs:
            theirs[b].copy_(own[a])


@dataclass(frozen=True)
class _Call:
    """One call of a module. key: its path, and how often it was called before. given, result: numbers."""

    key: tuple[str, int]
    given: list[Tensor]
    result: Tensor


def _calls(model: WholeModel, inputs: Arrays) -> list[_Call]:
    """The calls of the model's modules that give numbers, in the order in which they finish."""
    calls: list[_Call] = []
    counted: Counter[str] = Counter()

    def hook(path: str) -> Callable[..., None]:
        def note(_: nn.Module, args: Any, words: Any, result: Any) -> None:
            given, gives = (
                [t.detach().cpu().clone() for t in tensors_in(v) if t.is_floating_point()]
                for v in ((args, words), result)
            )
            if gives:
                calls.append(_Call((path, counted[path]), given, gives[0]))
                counted[path] += 1

        return note

    hooks = [part.register_forward_hook(hook(path), with_kwargs=True) for path, part in model.module.named_modules()]
    try:
        model(**inputs)
    finally:
        for one in hooks:
            one.remove()
    return calls
