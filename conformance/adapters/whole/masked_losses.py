"""Losses of hidden places: where a file says that only masked patches, frames or words are taught, which are?

What the loss asks of the last module's answer is read from the gradient: a place that is not taught has none. A mask
that the loss draws by itself need not be known; where its caller says which places are hidden, it is known.
"""

from __future__ import annotations

import inspect
import re
import tokenize
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.names import KEEPS_BY_NAME, meaning_of
from conformance.adapters.whole.pads import PadProbes
from conformance.adapters.whole.used_functions import text_of
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

_LOSS = re.compile(r"forward|_?\w*loss|(pre)?train(ing)?_step|pretrain|objective")
_SAYS = re.compile(
    r"\b(on|over|of|under|at|only|for|by|in|to)\W+(the\W+|all\W+|only\W+){0,2}"
    r"(masked|hidden|removed|corrupted|dropped)(\W+(out|input|image|random|and\W+(valid|real|observed)))?\W+"
    r"(patch|frame|span|position|token|place|step|point|word|region|value|entr|pixel|part|one|item)\w*"
    r"|\b(masked|hidden|removed)\W+(patches|frames|positions|tokens|places|steps|ones|words)\W+only\b",
    re.I,
)
_HIDDEN = re.compile(r"(is_?)?(masked|hidden|hide|removed|corrupted|dropped)(_(steps|frames|patches|places|tokens))?")
"""Names of what says which places are hidden: True for those."""
_SEEDS, _LENGTH, _EVERY = (1, 2, 3), 48, 3


@dataclass(frozen=True)
class Taught:
    """What a loss of hidden places asks for. share: the largest part of the places that one of the runs taught. all:
    whether every run taught all of them, but for at most one in a row. seen: whether every run taught none of the
    places that it was told are hidden, and others."""

    name: str
    place: str
    said: str
    share: float
    all: bool
    seen: bool


class MaskedLossProbes(PadProbes):
    """The experiment, of a running model."""

    def hidden_places_taught(self) -> list[Taught]:
        """Of each loss whose text speaks of masked places, what it teaches. Raises NotProvided where there is none."""
        found = [
            one for name, function, said in _candidates(type(self.module)) if (one := self._of(name, function, said))
        ]
        if not found:
            raise NotProvided("no loss of its that could be run speaks of masked places")
        return found

    def _of(self, name: str, function: FunctionType, said: str) -> Taught | None:
        shares, whole, seen = [], [], []
        for training in (False, True):
            for seed in _SEEDS:
                with suppress(Exception):  # it asks for what nothing here shows
                    taught, hidden = self._rows(function, training, seed)
                    seen.append(hidden is not None and hidden.shape == taught.shape and not bool(taught[hidden].any()))
                    shares.append(float(taught.double().mean()))
                    whole.append(int((~taught).sum(-1).max()) <= 1)
        if not shares:
            return None
        return Taught(name, _last_loss_line(function), said, max(shares), all(whole), all(seen))

    def _rows(self, function: Callable[..., Any], training: bool, seed: int) -> tuple[Tensor, Tensor | None]:
        """(B, T): which places of the last module's answer the loss asks about, and which it was told are hidden; None
        where it draws them."""
        twin = self.twin()
        answers: list[Tensor] = []

        def keep(module: nn.Module, given: Any, result: Any) -> None:
            answers.extend(one for one in tensors_in(result) if one.dim() == 3 and one.requires_grad)

        for part in twin.module.modules():
            if part is not twin.module:
                part.register_forward_hook(keep)
        with twin.mode(training), torch.enable_grad(), default_dtype(twin.torch_dtype):
            given = _arguments(twin, function)
            seed_torch(seed)
            loss = loss_in(function(twin.module, **given))
            if loss is None or not answers:
                raise NotProvided("it gives no loss")
            gradients = torch.autograd.grad(loss, answers, allow_unused=True)
        last = next((one for one in reversed(gradients) if one is not None and bool(one.any())), None)
        if last is None or last.shape[1] < 4:
            raise NotProvided("nothing was taught")
        hidden = next((value for name, value in given.items() if _HIDDEN.fullmatch(name.lower())), None)
        return last.abs().sum(-1) > 0, hidden


def _candidates(cls: type) -> Iterator[tuple[str, FunctionType, str]]:
    """Methods that compute a loss, with what their text says of masked places."""
    methods = dict(inspect.getmembers(cls, inspect.isfunction))
    for name, function in methods.items():
        if function.__module__.startswith("torch.") or not _LOSS.fullmatch(name.lower()):
            continue
        called = [methods[one] for one in re.findall(r"\bself\.(\w+)\(", text_of(function)) if one in methods]
        for one in (function, *called):
            found = _SAYS.search(" ".join(_words_of(one).split())) if "loss" in text_of(one) else None
            if found:
                yield name, function, found[0]
                break


def _words_of(function: FunctionType) -> str:
    """Its docstring and its comments."""
    said = [inspect.getdoc(function) or ""]
    with suppress(tokenize.TokenError, IndentationError):
        tokens = tokenize.generate_tokens(StringIO(inspect.cleandoc(text_of(function))).readline)
        said += [one.string.lstrip("# ") for one in tokens if one.type == tokenize.COMMENT]
    return "\n".join(said)


def _arguments(subject: PadProbes, function: Callable[..., Any]) -> dict[str, Any]:
    """Those of forward by the same names, lengths and marks of real places that leave nothing out, and which places are
    hidden: every third. Raises NotProvided."""
    data = subject.example(4, _LENGTH if subject.free_length else None)
    known = subject.calling.arguments(subject.tensors(data))
    main = known[subject.calling.main.parameter]
    given: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        steps = main.shape[:2]
        if _HIDDEN.fullmatch(parameter.name.lower()) and parameter.default is parameter.empty:
            given[parameter.name] = (torch.arange(steps[1]) % _EVERY == 1).repeat(steps[0], 1)
        elif KEEPS_BY_NAME.search(parameter.name.lower()) and parameter.default is parameter.empty:
            given[parameter.name] = torch.ones(steps, dtype=torch.bool)
        elif meaning_of(parameter.name) == "lengths" and parameter.default is parameter.empty:
            given[parameter.name] = torch.full((len(main),), main.shape[1])
        elif parameter.name in known and (parameter.default is parameter.empty or "mask" not in parameter.name):
            given[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty and not given:
            given[parameter.name] = main
        elif parameter.default is parameter.empty:
            raise NotProvided(f"{function.__name__} asks for {parameter.name}")
    return given


def _last_loss_line(function: FunctionType) -> str:
    """file:line of the last mean or sum in its text; else of its first."""
    start, lines = function.__code__.co_firstlineno, text_of(function).splitlines()
    found = [number for number, line in enumerate(lines) if re.search(r"mean\(|sum\(|_loss\(", line.partition("#")[0])]
    return f"{function.__code__.co_filename}:{start + (found[-1] if found else 0)}"
