"""Early stopping: classes and functions with a patience, told one score after another.

Which way is better, and where it says that training shall stop, is found by running it: on scores that get better it
never stops, on scores that get worse it does, but not at the first of them.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from conformance.adapters.functions.subjects import source_of
from conformance.adapters.helpers.acting import SAVES, acts
from conformance.adapters.helpers.trial import Found, OtherKind, Trouble, seeded
from conformance.places import line_of, short

IN_A_ROW = "early-stopping-counts-in-a-row"
AS_IT_WAS = "early-stopping-keeps-the-best-state-as-it-was"
PATIENCE, LONGEST = 3, 40
"""The patience that it is given, and after so many bad scores it must have stopped."""

_PATIENCE = re.compile(r"\w*patience\w*")
_SCORE = re.compile(
    r"((val(id(ation)?)?|dev|eval|test|current|cur|new|this|epoch|mean|avg|monitor(ed)?)_?)*"
    r"(loss|metric|score|value|val|acc(uracy)?|perplexity|ppl|error|err|f1|bleu|measure|monitor(ed)?|current)"
)
_SCORES = re.compile(r"((val(id(ation)?)?|dev|eval)_?)*(losses|metrics|scores|values|hist(ory)?|errors)(_hist(ory)?)?")
_STOPS = re.compile(r"stop|patience|plateau", re.IGNORECASE)
_GOES_ON = re.compile(r"continue|keep_?going|go(es)?_?on|running|active", re.IGNORECASE)
_OTHERWISE = re.compile(r"in total|altogether|cumulative|overall|smooth|\bema\b|moving|running_|mean\(|average|median")
"""It counts all bad scores because it means to, or compares more than single scores."""
_BEST = re.compile(r"best|saved|kept|snapshot|checkpoint")
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def is_stopper(one: Any) -> bool:
    """Whether a class has a patience and a method that is told a score; or a function has one, and is named so."""
    with contextlib.suppress(ValueError, TypeError):
        names = [name.lower() for name in inspect.signature(one).parameters]
        if not any(map(_PATIENCE.fullmatch, names)):
            return False
        if acts(one, *SAVES):  # its source takes time to read, and few have a patience
            return False
        if isinstance(one, type):
            return one.__bases__ == (object,) and any(_methods(one))
        told = any(map(_SCORES.fullmatch, names)) or re.search(r"\n\s+def \w+\(", source_of(one))
        return bool(_STOPS.search(getattr(one, "__name__", "")) and told and "backward(" not in source_of(one))
    return False


def _methods(cls: type) -> Iterator[str]:
    """The methods whose first argument is a score by its name."""
    for name, function in vars(cls).items():
        if inspect.isfunction(function) and (name == "__call__" or not name.startswith("_")):
            first = [*inspect.signature(function).parameters.values()][1:2]
            if first and _SCORE.fullmatch(first[0].name.lower()):
                yield name


def stopped(stoppers: Sequence[Callable[..., Any]]) -> Iterator[Found]:
    """What the claims say of what stops early: nothing of one that could not be run, or never says so."""
    for one in stoppers:
        if not _OTHERWISE.search(source_of(one).lower()):
            with contextlib.suppress(Exception):
                yield _counts_in_a_row(one)
        if isinstance(one, type):
            with contextlib.suppress(Exception):
                yield _keeps_the_best(one)


@dataclass(frozen=True)
class _Way:
    """Which scores are better (each is `factor` times the one before), and one that is worse than all of them."""

    first: float
    factor: float
    bad: float

    def better(self, number: int) -> list[float]:
        return [self.first * self.factor**i for i in range(number)]

    def worse(self, number: int) -> list[float]:
        return [self.first, *(self.bad * (self.bad / self.first) ** (i / LONGEST) for i in range(number - 1))]


_WAYS = (_Way(100.0, 0.9, 200.0), _Way(10.0, 1.1, 5.0))
"""Losses, and what is better where it is higher."""


@dataclass(frozen=True)
class _Signal:
    """What says that training shall stop. at: of its answer, or of one of its attributes; says: the value."""

    at: str
    says: bool
    way: _Way
    after: int


def _counts_in_a_row(one: Callable[..., Any]) -> Found:
    """Where every second score is the best so far, it does not stop. Raises OtherKind."""
    found = [signal for way in _WAYS for signal in _signals(one, way)]
    if not found or len({signal.way for signal in found}) > 1:
        raise OtherKind("it does not say that training shall stop")
    signal = found[0]
    number = max(16, 2 * signal.after + 4)
    scores = [score for better in signal.way.better(number // 2) for score in (better, signal.way.bad)]
    said = _answers(one, scores).get(signal.at, [])
    if signal.says not in said:
        return Found(IN_A_ROW, one.__name__)
    trouble = Trouble(
        f"{one.__name__} adds up bad scores over the whole run: the count does not begin again where a score is the "
        "best so far.",
        f"no stop, with a patience of {PATIENCE}, where every second score is the best so far",
        f"a stop after {said.index(signal.says) + 1} scores",
    )
    place = _line(one, r"\bbest\w*(\[\w*\])?\s*=[^=]", r"\+=\s*1\b")
    return Found(IN_A_ROW, one.__name__, trouble, place, "set the count of bad scores to 0 where a score is better")


def _signals(one: Callable[..., Any], way: _Way) -> Iterator[_Signal]:
    up, down = _answers(one, way.better(10)), _answers(one, way.worse(LONGEST))
    for at, said in down.items():
        for says in (True, False):
            if not says and not _GOES_ON.search(at):
                continue
            after = said.index(says) if says in said else 0
            if at in up and says not in up[at] and after >= 2:
                yield _Signal(at, says, way, after)


def _answers(one: Callable[..., Any], scores: Sequence[float]) -> dict[str, list[bool]]:
    """What it says behind each score: its answer, and its attributes, that are true or false."""
    found: dict[str, list[bool]] = {}
    with _quiet():
        tell = _teller(one, nn.Linear(2, 2))
        for score in scores:
            for at, value in tell(score).items():
                found.setdefault(at, []).append(value)
    return {at: said for at, said in found.items() if len(said) == len(scores)}


Teller = Callable[[float], dict[str, bool]]


def _teller(one: Callable[..., Any], model: nn.Module) -> Teller:
    """What tells a fresh one a score, and gives its answers. Raises OtherKind."""
    parameters = inspect.signature(one).parameters
    history = next((name for name in parameters if _SCORES.fullmatch(name.lower())), None)
    if history is not None and not isinstance(one, type):
        given, scores = _given(parameters, model, but=history), list[float]()

        def of_all(score: float) -> dict[str, bool]:
            scores.append(score)
            return _said(one.__name__, one(**given, **{history: [*scores]}))

        return of_all
    made = one(**_given(parameters, model))
    name = next(_methods(one)) if isinstance(one, type) else "__call__"
    step = getattr(made, name)
    of_step = inspect.signature(step).parameters
    first = next(iter(of_step))

    def of_one(score: float) -> dict[str, bool]:
        answer = step(score, **_given(of_step, model, but=first))
        return _said(name if isinstance(one, type) else one.__name__, answer) | _attributes(made)

    return of_one


def _said(name: str, answer: Any) -> dict[str, bool]:
    answers = answer if isinstance(answer, tuple) else (answer,)
    return {f"{name} {at}": value for at, part in enumerate(answers) if (value := _bool(part)) is not None}


def _attributes(made: Any) -> dict[str, bool]:
    """What an object keeps that is true or false, its properties, and what it is asked without arguments."""
    cls = type(made)
    found = {name: value for name, kept in vars(made).items() if (value := _bool(kept)) is not None}
    for name, kept in vars(cls).items():
        asked = inspect.isfunction(kept) and len(inspect.signature(kept).parameters) == 1
        if isinstance(kept, property) or (asked and re.search(f"{_STOPS.pattern}|{_GOES_ON.pattern}", name.lower())):
            with contextlib.suppress(Exception):
                answer = getattr(made, name)
                if (value := _bool(answer() if asked else answer)) is not None:
                    found[name] = value
    return found


def _bool(value: Any) -> bool | None:
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    return bool(value) if isinstance(value, Tensor) and value.dtype == torch.bool and value.numel() == 1 else None


def _given(parameters: Mapping[str, inspect.Parameter], model: nn.Module, but: str = "") -> dict[str, Any]:
    """The patience, and what is required beside. Raises OtherKind where a name means nothing."""
    given: dict[str, Any] = {}
    for name, parameter in parameters.items():
        lower, required = name.lower(), parameter.default is parameter.empty
        if name == but or parameter.kind in _MANY:
            continue
        if _PATIENCE.fullmatch(lower):
            given[name] = PATIENCE
        elif re.fullmatch(r"(min_?)?(delta|tol(erance)?|threshold|eps(ilon)?)", lower):
            given[name] = 0.0
        elif re.fullmatch(r"(\w+_)?(model|net|network|module)", lower):
            given[name] = model
        elif required and re.fullmatch(r"(model_?)?(state(_dict)?|weights|params)", lower):
            given[name] = model.state_dict()
        elif required and re.fullmatch(r"epoch(_?(idx|num))?|step", lower):
            given[name] = 0
        elif required and re.fullmatch(r"\w*(path|file(name)?|checkpoint|ckpt)", lower):
            given[name] = "best.pt"
        elif required and re.fullmatch(r"verbose", lower):
            given[name] = False
        elif required:
            raise OtherKind(f"nothing shows what {name} is")
    return given


@contextlib.contextmanager
def _quiet() -> Iterator[mock.Mock]:
    """Nothing is printed, nothing is kept in files, and no folder is made; yields what stands for torch.save."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(seeded())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        for holder, name in ((os, "makedirs"), (os, "mkdir"), (Path, "mkdir")):
            stack.enter_context(mock.patch.object(holder, name))
        yield stack.enter_context(mock.patch.object(torch, "save"))


def _keeps_the_best(cls: type) -> Found:
    """What it keeps of the weights with the best score does not follow a later change of them. Raises OtherKind."""
    signal = next(signal for way in _WAYS for signal in _signals(cls, way))
    model = nn.Linear(2, 2)
    with _quiet() as save:
        made = cls(**_given(inspect.signature(cls).parameters, model))
        step = getattr(made, next(_methods(cls)))
        parameters = inspect.signature(step).parameters
        first = next(iter(parameters))
        before = {name: id(value) for name, value in vars(made).items()}
        step(signal.way.first, **_given(parameters, model, but=first))
        kept = {
            name: value
            for name, value in vars(made).items()
            if before.get(name) != id(value) and _weights(name, value) is not None
        }
        was = {name: deepcopy(_weights(name, value)) for name, value in kept.items()}
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
        now = {name: deepcopy(_weights(name, value)) for name, value in kept.items()}
        step(signal.way.bad, **_given(parameters, model, but=first))
        kept = {name: value for name, value in kept.items() if vars(made).get(name) is value}
    if save.called or not kept:
        raise OtherKind("it keeps no weights, or in a file")
    for name in kept:
        if any(not torch.equal(a, b) for a, b in zip(was[name] or [], now[name] or [], strict=True)):
            trouble = Trouble(
                f"{cls.__name__} keeps the weights with the best score as they are, not as they were: {name} follows "
                "every later step.",
                "a copy of the weights",
                "the weights themselves",
                certain=not re.search(r"\.cpu\(|\.to\(", source_of(cls)),  # a copy where the model is elsewhere
            )
            place = _line(cls, rf"\.{name}\s*=.*(state_dict|parameters|model|net|weights)", rf"\.{name}\s*=[^=]")
            mend = "keep {k: v.detach().clone() for k, v in model.state_dict().items()}, or a deepcopy"
            return Found(AS_IT_WAS, cls.__name__, trouble, place, mend)
    return Found(AS_IT_WAS, cls.__name__)


def _weights(name: str, value: Any) -> list[Tensor] | None:
    """The tensors of a state; of a module where its name says that it is the best. None for anything else."""
    if isinstance(value, nn.Module):
        return [*value.state_dict().values()] if _BEST.search(name.lower()) else None
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    found = [one.detach() for one in values if isinstance(one, Tensor)]
    return found or None


def _line(one: Callable[..., Any], *patterns: str) -> str:
    """file:line of the first line of what it does with a score that the first pattern is found in, or the next."""
    told = getattr(one, next(_methods(one))) if isinstance(one, type) else one
    for holder in (told, one):
        lines, start = inspect.getsourcelines(holder)
        for pattern in patterns:
            for at, line in enumerate(lines):
                if re.search(pattern, line.partition("#")[0]):
                    return f"{short(inspect.getsourcefile(holder) or '')}:{start + at}"
    return line_of(told)
