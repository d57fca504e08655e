"""Speech with CTC: what its loss is given, and what becomes of a path when the model writes texts by itself.

Both are run with data of which the answer is known: labels that are told apart, and a path of letters and blanks that
stands where the model's own scores would.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.watching import user_line
from conformance.protocol import NotProvided

FRAMES = 64
"""How many frames the first sentence of a batch has, where the model takes any number; the second has half as many."""
_LABELS = re.compile(r"(?i)(targets?|labels?|letters|texts?|tokens|transcripts?|y)(_?(ids?|pad(ded)?))?")
_LENGTHS = re.compile(r"(?i)(len|length)s?(_|$)|_(sizes?|n)$|^n_")
_OF_LABELS = re.compile(r"(?i)target|label|letter|text|token|transcript|^y|out")
_ALPHABET = re.compile(r"(?i)_?(alphabet|letters|chars(et)?|characters|vocab(ulary)?|symbols)")
_LOSS = re.compile(r"(?i)loss|step|objective")
_WRITES = re.compile(r"(?i)decode|transcribe|recogni[sz]e|predict|greedy|to_text")


@dataclass(frozen=True)
class CtcCall:
    """One call of torch's ctc_loss. scores: what it was given, (T, B, V); frames, counts: the lengths of the rows and
    of the labels, 3 and 2 of which were given, and None where nothing said so; place: its line; blank: the number that
    it takes for no letter."""

    scores: Tensor
    frames: Tensor
    counts: Tensor | None
    place: str
    blank: int = 0


@dataclass(frozen=True)
class Reading:
    """What a method makes of the path: letters, or None where it gives something else. name, place: of the method.
    blank: the number that the loss, or else the model, takes for no letter; kept: what it makes of a path of letters
    that holds this number once, between others; given: that path."""

    name: str
    place: str
    expected: list[int]
    got: list[int] | None
    blank: int
    given: list[int]
    kept: list[int] | None


class CtcProbes(RunningModel):
    """The experiments with speech, of a running model."""

    def ctc_calls(self) -> list[CtcCall]:
        """What its CTC losses are given. Raises NotProvided."""
        return ctc_calls(self)

    def readings(self) -> list[Reading]:
        """What its own methods make of a path of letters and blanks. Raises NotProvided."""
        return readings(self)


def ctc_calls(subject: RunningModel) -> list[CtcCall]:
    """Every ctc_loss of the model's forward and of its methods that compute a loss. Raises NotProvided."""
    own = type(subject.module)
    methods = [
        (n, f)
        for n, f in inspect.getmembers(own, inspect.isfunction)
        if _LOSS.search(n) and f.__module__ == own.__module__
    ]
    found: list[CtcCall] = []
    for name, function in [("forward", own.forward), *methods]:
        with suppress(Exception):
            found += _calls_of(subject.twin(), name, function)
    if not found:
        raise NotProvided("it computes no CTC loss that could be run")
    return found


def _calls_of(subject: RunningModel, name: str, function: Callable[..., Any]) -> list[CtcCall]:
    alphabet = _alphabet(subject)
    texts = [alphabet[2:5], alphabet[3:5]]
    try:
        if _says_lengths_of_labels(function):
            return _calls_with(subject, name, function, torch.tensor([[2, 3, 4], [3, 4, 2]]))
        return _calls_that_count(subject, name, function)
    except Exception:
        if not all(texts):
            raise
    return _calls_with(subject, name, function, texts)  # its labels are texts


def _says_lengths_of_labels(function: Callable[..., Any]) -> bool:
    names = inspect.signature(function).parameters
    return any(_LENGTHS.search(name) and _OF_LABELS.search(name) for name in names)


def _calls_that_count(subject: RunningModel, name: str, function: Callable[..., Any]) -> list[CtcCall]:
    """The calls of a loss that is given no lengths of labels: it counts them itself, up to what fills the rows."""
    found: list[CtcCall] = []
    for filler in dict.fromkeys([blank_of(subject), 0, -1, -100]):
        with suppress(Exception):  # what fills the rows is no number of its letters
            calls = _calls_with(subject, name, function, torch.tensor([[2, 3, 4], [3, 4, filler]]))
            if all(one.counts is not None and one.counts.reshape(-1).tolist() == [3, 2] for one in calls):
                return calls
            found = found or calls
    if not found:
        raise NotProvided(f"{name} could not be run")
    return [replace(one, counts=None) for one in found]


def _alphabet(subject: RunningModel) -> str:
    """The letters that the model keeps, "" where it keeps none."""
    found = ((n, v) for n, v in vars(subject.module).items() if isinstance(v, str) and _ALPHABET.fullmatch(n))
    return next((letters for _, letters in found if 8 <= len(letters) == len(set(letters))), "")


def _calls_with(subject: RunningModel, name: str, function: Callable[..., Any], labels: Any) -> list[CtcCall]:
    given: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        value = _value(subject, parameter.name, labels)
        if value is not None:
            given[parameter.name] = value
        elif parameter.default is parameter.empty:
            raise NotProvided(f"{name} wants {parameter.name}")
    watch = _CtcLosses()
    call = subject.module if name == "forward" else getattr(subject.module, name)
    with subject.mode(False), torch.enable_grad(), default_dtype(subject.torch_dtype), watch:
        call(**given)
    return watch.seen


def _value(subject: RunningModel, name: str, labels: Any) -> Any:
    """What stands for a parameter by its name; None for one that means nothing here."""
    if _LENGTHS.search(name):
        frames = subject.calling.main.length or FRAMES
        return torch.tensor([3, 2] if _OF_LABELS.search(name) else [frames, frames // 2])
    if name == subject.calling.main.parameter or re.search(r"(?i)mel|audio|frames?$|feat|^x$|^inputs?$", name):
        made = subject.example(2, FRAMES, seed=95)[subject.calling.main.meaning]
        return torch.tensor(made, dtype=subject.torch_dtype)
    return labels if _LABELS.fullmatch(name) else None


class _CtcLosses(TorchFunctionMode):
    """Records what torch's ctc_loss is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[CtcCall] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.ctc_loss:
            names = ("log_probs", "targets", "input_lengths", "target_lengths", "blank")
            given = dict(zip(names, args, strict=False)) | {name: kwargs[name] for name in names if name in kwargs}
            frames, counts = (torch.as_tensor(given[name]) for name in ("input_lengths", "target_lengths"))
            blank = int(given.get("blank", 0))
            self.seen.append(CtcCall(given["log_probs"].detach(), frames, counts, user_line(), blank))
        return func(*args, **kwargs)


def blank_of(subject: RunningModel) -> int:
    """The number of the blank: what the model or its loss says, else 0."""
    for module in subject.module.modules():
        for name, value in vars(module).items():
            if re.fullmatch(r"(?i)(ctc_?)?blank(_?(id|idx|index|token))?", name) and type(value) is int:
                return value
    return 0


# --- writing


def readings(subject: RunningModel) -> list[Reading]:
    """What the model's own methods make of a path of which the text is known. Raises NotProvided."""
    try:
        calls = ctc_calls(subject)
    except NotProvided:
        calls = []
    letters = calls[0].scores.shape[-1] if calls else subject.calling.outputs
    named = blank_of(subject)
    blank = calls[0].blank if calls else named
    # The text is asked with the blank that the model names: that the loss has another is a mistake of its own.
    first, second = [word for word in range(1, 8) if word not in (named, blank)][:2]
    path = [first, first, named, first, second, second, named]
    mixed = list(dict.fromkeys([first, blank, second, named, 0, letters - 1]))
    found = []
    own = type(subject.module)
    for name, function in inspect.getmembers(own, inspect.isfunction):
        if not _WRITES.search(name) or function.__module__ != own.__module__:
            continue
        got = _written(subject, name, function, [*path, named], letters)
        kept = _written(subject, name, function, mixed, letters)
        if got is _NOTHING:
            continue
        found.append(Reading(name, _place(subject, name), [first, first, second], got, blank, mixed, kept or None))
    if not found:
        raise NotProvided("it has no method that writes the text of a path")
    return found


_NOTHING: list[int] = []
"""A method that does not run the model."""


def _written(
    subject: RunningModel, name: str, function: Callable[..., Any], path: list[int], letters: int
) -> list[int] | None:
    """What a method writes of a path, whose last number stays until the end; None for what is no numbers of the path;
    _NOTHING where it does not run the model."""
    other = subject.twin()
    given = _data_of(other, function)
    if given is None:
        return _NOTHING
    forced = _Forced(other, path, letters)
    text: Any = None
    with suppress(Exception), other.mode(False), torch.no_grad(), default_dtype(other.torch_dtype):
        other.module.forward = forced
        text = getattr(other.module, name)(**given)
        if forced.used:
            wrote = _letters(text, _alphabet(other), 1 if blank_of(other) == 0 else 0)
            # Numbers that are not on the path are read from other scores, or are of another alphabet.
            return wrote if wrote is not None and set(wrote) <= set(path) else None
    return _NOTHING


def _place(subject: RunningModel, name: str) -> str:
    """file:line in a method that merges or drops; else of its head."""
    function = inspect.unwrap(getattr(type(subject.module), name))
    lines, start = inspect.getsourcelines(function)
    told = re.compile(r"unique_consecutive|groupby|(!=|is not|not in|==).*(blank|prev|last)|(blank|prev|last).*(!=|==)")
    at = next((number for number, line in enumerate(lines) if told.search(line)), 0)
    return f"{inspect.getsourcefile(function)}:{start + at}"


def _data_of(subject: RunningModel, function: Callable[..., Any]) -> dict[str, Any] | None:
    """The arguments of a method that takes frames, and nothing that means something else."""
    given = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        value = _value(subject, parameter.name, torch.zeros(0)) if not _LABELS.fullmatch(parameter.name) else None
        if value is not None:
            given[parameter.name] = value
        elif parameter.default is parameter.empty:
            return None
    return given or None


class _Forced:
    """Stands for forward: it gives what that gives, with scores of letters that are sure of one path."""

    def __init__(self, subject: RunningModel, path: list[int], letters: int) -> None:
        self.subject, self.path, self.letters, self.used = subject, path, letters, False
        self.forward = subject.module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.used = True
        result = self.forward(*args, **kwargs)
        return tree_map_only(Tensor, lambda one: self.sure(one) if self.holds_letters(one) else one, result)

    def holds_letters(self, one: Tensor) -> bool:
        return one.dim() == 3 and one.is_floating_point() and one.shape[-1] == self.letters

    def sure(self, scores: Tensor) -> Tensor:
        """The same shape, (B, T, V) or (T, B, V), with nearly all of the probability on the path, which stays at its
        last number."""
        time_first = scores.shape[1] == 2 and scores.shape[0] != 2
        steps = scores.shape[0 if time_first else 1]
        path = torch.tensor((self.path + [self.path[-1]] * steps)[:steps])
        sure = 20.0 * nn.functional.one_hot(path, scores.shape[-1]).to(scores.dtype)
        return sure[:, None].expand_as(scores).log_softmax(-1) if time_first else sure.expand_as(scores).log_softmax(-1)


def _letters(text: Any, alphabet: str, before: int) -> list[int] | None:
    """The first sentence as numbers; None where it is something else. A string is read by the model's alphabet, which
    has `before` numbers before it: a blank."""
    first = text[0] if isinstance(text, list | tuple) and len(text) else text
    if isinstance(first, str):
        return [alphabet.index(letter) + before for letter in first] if {*first} <= {*alphabet} else None
    if isinstance(first, list | tuple) and first and isinstance(first[0], list | tuple | Tensor):
        first = first[0]
    if isinstance(first, Tensor):
        first = (first[0] if first.dim() == 2 else first).tolist()
    numbers = (
        [int(one) for one in first]
        if isinstance(first, list) and all(isinstance(n, int | Tensor) for n in first)
        else None
    )
    return numbers
