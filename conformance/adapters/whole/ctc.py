"""Speech with CTC: what its loss is given, and what becomes of a path when the model writes texts by itself.

Both are run with data of which the answer is known: labels that are told apart, and a path of letters and blanks that
stands where the model's own scores would.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.decoding import taking_a_model
from conformance.adapters.whole.fillers import Beside
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
_MARKS = re.compile(r"(?i)(\w+_)?(pad(ding)?|[bes]os|unk|start|end|cls|sep|mask)(_?(token|id|idx|index|token_id))*")
"""Names of numbers that stand for no letter."""
_WRITES = re.compile(r"(?i)decode|transcribe|recogni[sz]e|predict|greedy|to_text")


@dataclass(frozen=True)
class CtcCall:
    """One call of torch's ctc_loss. scores: what it was given, (T, B, V); frames, counts: the lengths of the rows and
    of the labels, 3 and 2 of which were given, and None where nothing said so; place: its line; blank: the number that
    it takes for no letter; made_by: the path of the part that gave the scores, as (B, T, V) or (T, B, V)."""

    scores: Tensor
    frames: Tensor
    counts: Tensor | None
    place: str
    blank: int = 0
    made_by: str = ""


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
    """Every ctc_loss of the model's forward, of its methods that compute a loss, and of such functions of its file that
    take the model first. Raises NotProvided."""
    own = type(subject.module)
    if "ctc" not in _text_of_file(subject).lower():
        raise NotProvided("nothing of its file speaks of CTC")
    methods = [
        (n, f)
        for n, f in inspect.getmembers(own, inspect.isfunction)
        if _LOSS.search(n) and f.__module__ == own.__module__
    ]
    beside = [(n, f) for n, f in taking_a_model(subject.module) if _LOSS.search(n) and inspect.isfunction(f)]
    found: list[CtcCall] = []
    for name, function in [("forward", own.forward), *methods, *beside]:
        with suppress(Exception):
            found += _calls_of(subject.twin(), name, function)
    if not found:
        raise NotProvided("it computes no CTC loss that could be run")
    return found


_SPEECH = re.compile(r"ctc|blank|unique_consecutive|groupby|phone|speech|transcri", re.IGNORECASE)


def _text_of_file(subject: RunningModel) -> str:
    home = sys.modules.get(type(subject.module).__module__)
    return "".join(linecache.getlines(getattr(home, "__file__", None) or ""))


def _calls_of(subject: RunningModel, name: str, function: Callable[..., Any]) -> list[CtcCall]:
    alphabet = _alphabet(subject)
    texts = [alphabet[2:5], alphabet[3:5]]
    try:
        if _says_lengths_of_labels(function) and not _reads_labels(subject):
            return _calls_with(subject, name, function, torch.tensor([[2, 3, 4], [3, 4, 2]]))
        return _calls_that_count(subject, name, function)
    except Exception:
        if not all(texts):
            raise
    return _calls_with(subject, name, function, texts)  # its labels are texts


def _reads_labels(subject: RunningModel) -> bool:
    """Whether its labels are also read, by a decoder: then they have signs of the start and the end."""
    return bool(subject.calling.main.vocab)


def _says_lengths_of_labels(function: Callable[..., Any]) -> bool:
    names = inspect.signature(function).parameters
    return any(_LENGTHS.search(name) and _OF_LABELS.search(name) for name in names)


def _calls_that_count(subject: RunningModel, name: str, function: Callable[..., Any]) -> list[CtcCall]:
    """The calls of a loss that is given no lengths of labels: it counts them itself, up to what fills the rows."""
    found: list[CtcCall] = []
    one, two, three = _letters_of(subject, max(subject.calling.outputs, 8))[1:4]
    for filler in dict.fromkeys([blank_of(subject), 0, -1, -100]):
        with suppress(Exception):  # what fills the rows is no number of its letters
            calls = _calls_with(subject, name, function, torch.tensor([[one, two, three], [two, three, filler]]))
            if not _reads_labels(subject) and all(
                one.counts is not None and one.counts.reshape(-1).tolist() == [3, 2] for one in calls
            ):
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
    watch, results = _CtcLosses(), _Results(subject.module)
    taken = getattr(subject.module, name, None) or partial(function, subject.module)
    call = subject.module if name == "forward" else taken
    with subject.mode(False), torch.enable_grad(), default_dtype(subject.torch_dtype), watch, results:
        call(**given)
    return [replace(one, made_by=_maker(one.scores, results.seen)) for one in watch.seen]


class _Results:
    """Records the results of three axes that parts give, with their paths."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.seen = module, list[tuple[str, Tensor]]()
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        for path, part in self.module.named_modules():
            if path:
                self._handles.append(part.register_forward_hook(partial(self._keep, path)))

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep(self, path: str, part: nn.Module, given: Any, result: Any) -> None:
        self.seen += [(path, one.detach()) for one in tensors_in(result) if one.dim() == 3]


def _maker(scores: Tensor, results: list[tuple[str, Tensor]]) -> str:
    """The path of the part whose result has the order of these scores, (T, B, V), in each row; "" for none."""
    order = scores.argsort(stable=True, dim=-1)
    for path, result in results:
        for turned in (result, result.transpose(0, 1)):
            if turned.shape == scores.shape and torch.equal(turned.argsort(stable=True, dim=-1), order):
                return path
    return ""


def _value(subject: RunningModel, name: str, labels: Any) -> Any:
    """What stands for a parameter by its name; None for one that means nothing here."""
    beside = next((make for make in subject.calling.fixed.values() if isinstance(make, Beside)), None)
    if _LENGTHS.search(name):
        frames = beside.shape[0] if beside is not None else subject.calling.main.length or FRAMES
        return torch.tensor([3, 2] if _OF_LABELS.search(name) else [frames, frames // 2])
    if beside is not None:
        numbers = beside({"ids": torch.zeros(2, 1)}).to(subject.torch_dtype)
        return numbers if name == beside.name else labels if _LABELS.fullmatch(name) else None
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
    """The number of the blank: what the model, its loss or its file says, else 0."""
    file = vars(sys.modules.get(type(subject.module).__module__, object()))
    for held in (*map(vars, subject.module.modules()), file):
        for name, value in held.items():
            if re.fullmatch(r"(?i)(ctc_?)?blank(_?(id|idx|index|token))?", name) and type(value) is int:
                return value
    return 0


def _letters_of(subject: RunningModel, letters: int) -> list[int]:
    """The numbers of letters, without those that the model or its file names as marks, where enough are left."""
    told = (*settings_of(subject.module), vars(sys.modules.get(type(subject.module).__module__, object())))
    marks = {v for held in told for n, v in held.items() if type(v) is int and _MARKS.fullmatch(str(n))}
    found = [letter for letter in range(1, letters) if letter not in marks]
    return found if len(found) > 4 else [*range(1, letters)]


# --- writing


def readings(subject: RunningModel) -> list[Reading]:
    """What the model's own methods make of a path of which the text is known. Raises NotProvided."""
    try:
        calls = ctc_calls(subject)
    except NotProvided:
        if subject.kind != "encoder_model" or not _SPEECH.search(_text_of_file(subject)):
            raise
        calls = []
    letters = calls[0].scores.shape[-1] if calls else subject.calling.outputs
    named = blank_of(subject)
    blank = calls[0].blank if calls else named
    # The text is asked with the blank that the model names: that the loss has another is a mistake of its own.
    found_letters = [word for word in _letters_of(subject, letters) if word not in (named, blank)]
    if len(found_letters) < 2:
        raise NotProvided("what it answers are no letters")
    first, second = found_letters[:2]
    made_by = next((one.made_by for one in calls if one.made_by), "")
    path = [first, first, named, first, second, second, named]
    mixed = list(dict.fromkeys([first, blank, second, named, 0, letters - 1]))
    found = []
    own = type(subject.module)
    for name, function in inspect.getmembers(own, inspect.isfunction):
        if not _WRITES.search(name) or function.__module__ != own.__module__:
            continue
        got = _written(subject, name, function, [*path, named], letters, made_by)
        kept = _written(subject, name, function, mixed, letters, made_by)
        if got is _NOTHING:
            continue
        found.append(Reading(name, _place(subject, name), [first, first, second], got, blank, mixed, kept or None))
    if not found:
        raise NotProvided("it has no method that writes the text of a path")
    return found


_NOTHING: list[int] = []
"""A method that does not run the model."""


def _written(
    subject: RunningModel, name: str, function: Callable[..., Any], path: list[int], letters: int, made_by: str
) -> list[int] | None:
    """What a method writes of a path, whose last number stays until the end; None for what is no numbers of the path;
    _NOTHING where it runs neither the model nor the part `made_by` that gives the scores, or reads letters, too."""
    other = subject.twin()
    given = _data_of(other, function)
    if given is None:
        return _NOTHING
    forced = _Forced(other, path, letters)
    text: Any = None
    with suppress(Exception), other.mode(False), torch.no_grad(), default_dtype(other.torch_dtype):
        forced.replace_scores(other.module.get_submodule(made_by) if made_by else None)
        other.module.forward = forced
        text = getattr(other.module, name)(**given)
        if forced.used and not forced.reads_letters:
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
    """Stands for forward: it gives what that gives, with scores of letters that are sure of one path. Where forward is
    not run, it stands for the part that gives the scores. reads_letters: whether letters were looked up, as a
    decoder does."""

    def __init__(self, subject: RunningModel, path: list[int], letters: int) -> None:
        self.subject, self.path, self.letters, self.used = subject, path, letters, False
        self.forward = subject.module.forward
        self.inside = self.reads_letters = False
        for part in subject.module.modules():
            if isinstance(part, nn.Embedding) and part.num_embeddings in (letters, subject.calling.main.vocab):
                part.register_forward_hook(self._reads)

    def replace_scores(self, part: nn.Module | None) -> None:
        if part is not None:
            part.register_forward_hook(self._of_part)

    def _reads(self, *_: Any) -> None:
        self.reads_letters = True

    def _of_part(self, part: nn.Module, given: Any, result: Any) -> Any:
        if self.inside or not (isinstance(result, Tensor) and self.holds_letters(result)):
            return result
        self.used = True
        return self.sure(result)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.used = self.inside = True
        result = self.forward(*args, **kwargs)
        self.inside = False
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
