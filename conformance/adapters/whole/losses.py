"""The losses of a model are run: those that forward returns, that methods compute, and that functions of its file do.

    for run in subject.loss_runs(): ...

Every word of the texts that are handed in is another one. So each word that is taught, and each word that was read
before it, tells by itself where it stands. What a loss expects is told by the names of its parameters; a batch is made
in the form in which the function takes it apart, which is read as syntax.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.answer_losses import losses_of_answers
from conformance.adapters.whole.balance import BALANCE
from conformance.adapters.whole.calling import Lookups, default_dtype, loss_in
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.decoding import MODELS, taken_by
from conformance.adapters.whole.loss_texts import HIDDEN, Texts, labels_of, switch_of
from conformance.adapters.whole.names import PREFIX
from conformance.adapters.whole.pads import PadProbes
from conformance.adapters.whole.results import named_by, named_tensors
from conformance.adapters.whole.statements import argument_line
from conformance.adapters.whole.used_functions import functions_called_by, text_of
from conformance.adapters.whole.watching import user_line
from conformance.protocol import NotProvided
from conformance.watch.comparing import are_cut_anew

_LOSS = re.compile(r"loss|(train|training|shared|valid(ation)?)_step|^_?step$|objective|(^|_)nll|criterion", re.I)
_OF_CLASSES = re.compile(r"cross_entropy|nll_loss")
_OF_NUMBERS = re.compile(r"mse_loss|l1_loss|huber_loss|binary_cross_entropy|kl_div")
_ANY_CRITERION = re.compile(f"{_OF_CLASSES.pattern}|{_OF_NUMBERS.pattern}")
_DISTANCES = {"mse_loss", "l1_loss", "huber_loss"}
"""Losses that take any numbers: others want probabilities."""
_SQUASHED = re.compile(r"Sigmoid|Softmax")
"""Steps of a graph that give probabilities."""
_REARRANGED = re.compile(
    r"View|Reshape|Squeeze|Select|Slice|Index|Transpose|Permute|TBackward|Clone|Expand|Cat|Copy|Alias|Gather|Split"
)
"""Steps of a graph that leave numbers as they are."""


@dataclass(frozen=True)
class Criterion:
    """One call of a loss of torch's, or one that is written out ("written"). name: of the function. given, target: as
    handed in. reaches: the gradient of the result by `given`; None where the result does not depend on it. trains:
    `given` has a gradient at all. memory: what it was given, tensors by the address and order of their numbers.
    squashed: whether what it was given comes from a sigmoid or softmax, rearranged at most. cut_anew: whether scores of
    words were given another shape where they should be turned. log_target, ignored: as kl_div and cross_entropy take
    them."""

    name: str
    given: Tensor
    target: Tensor
    place: str
    trains: bool
    reaches: Tensor | None = None
    memory: tuple[Any, ...] = ()
    squashed: bool = False
    cut_anew: bool = False
    log_target: bool = False
    ignored: int = -100

    @property
    def of_classes(self) -> bool:
        return self.is_written_out or (bool(_OF_CLASSES.search(self.name)) and not self.target.is_floating_point())

    @property
    def is_written_out(self) -> bool:
        """Whether it is no call of torch's: its rows are what forward answers, and need be no logits."""
        return self.name == "written"

    @property
    def rows(self) -> Tensor:
        """(N, V): the given scores, a row for each target."""
        given = self.given if self.given.dim() < 3 else self.given.movedim(1, -1)
        return given.reshape(-1, given.shape[-1])

    def least_share(self) -> float | None:
        """The share of each wrong word that a cross-entropy of these scores asks for, 0 where labels are not smoothed:
        the gradient is w * (probability - share). Minus infinity where the labels' own scores are lowered. None
        where it is no line in the probabilities, so something else."""
        shares = []
        for row, slope, word in zip(self.rows.double(), self.reaches.double(), self.target, strict=True):  # type: ignore[union-attr]
            others = torch.arange(len(row)) != word
            likely, size = row.softmax(-1)[others], slope.abs().max()
            if size == 0:
                continue
            if slope[word] > 0:
                return -float("inf")
            line = torch.stack([likely, torch.ones_like(likely)], 1)
            (steep, level), *_ = torch.linalg.lstsq(line, slope[others, None]).solution[:, 0], None
            apart = (line @ torch.stack([steep, level]) - slope[others]).abs().max()
            if steep <= 0 or apart > 1e-6 * size:
                return None
            shares.append(float(-level / steep))
        return min(shares, default=None)

    def repeats(self, other: Criterion) -> bool:
        """Is it the same loss of the same scores and labels, with the same options?"""
        return self.name == other.name and self.memory == other.memory

    @property
    def weights(self) -> Tensor | None:
        """(N): how much each row counts in the result, by the size of its gradient; None where it has none."""
        if self.reaches is None:
            return None
        gradient = self.reaches if self.reaches.dim() < 3 else self.reaches.movedim(1, -1)
        return gradient.reshape(-1, gradient.shape[-1]).abs().sum(-1)


@dataclass(frozen=True)
class Lesson:
    """One row of scores and the word that it is taught. read, taught: (text, row, position) of the last word that was
    read before and of the word that is taught. weight: how much it counts. criterion: the number of the loss of torch's
    that teaches it."""

    criterion: int
    read: tuple[str, int, int] | None
    taught: tuple[str, int, int] | None
    weight: float


@dataclass(frozen=True)
class LossRun:
    """A loss that was run. name: of the function; own: it is forward. texts: the words by parameter, (B, T).
    terms: losses for the router's balance that forward or a part leaves behind, and how the whole grows with each.
    prefix: how many words at the start of a text it was told are given. alone: it was given texts, and nothing else.
    marks: the parameters that hide the last words of the first text; hidden: how many. over_steps: the sizes of vectors
    (B, T, d) that it brings to length 1 along the steps, and the line that does."""

    name: str
    own: bool
    place: str
    texts: Mapping[str, Tensor]
    value: Tensor | None
    criteria: list[Criterion]
    terms: Mapping[str, float]
    lessons: list[Lesson] = field(default_factory=list)
    prefix: int = 0
    alone: bool = False
    marks: Sequence[str] = ()
    hidden: int = HIDDEN
    over_steps: Sequence[tuple[torch.Size, str]] = ()

    @property
    def label_place(self) -> str:
        """file:line of the labels that its loss gets."""
        return argument_line(self.place, "target", 1)

    @property
    def ignored_place(self) -> str:
        """file:line where its loss is told which label to ignore, if it is."""
        return argument_line(self.place, "ignore_index")


class _Criteria(TorchFunctionMode):
    """Records the calls of torch's losses, and keeps their graph; and those of `normalize` along the second of three
    axes, which is where it works by default."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Criterion] = []
        self.over_steps: list[tuple[torch.Size, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "normalize" and args and args[0].dim() == 3 and kwargs.get("dim") == 1:
            self.over_steps.append((args[0].shape, user_line()))
        if _OF_CLASSES.search(name) or _OF_NUMBERS.search(name):
            given, target = (
                kwargs.get(n, args[i] if len(args) > i else None) for i, n in enumerate(("input", "target"))
            )
            if isinstance(given, Tensor) and isinstance(target, Tensor):
                memory = _memory((given, target, args[2:], sorted((n, v) for n, v in kwargs.items() if v is not given)))
                criterion = Criterion(name, given, target, user_line(), given.requires_grad, memory=memory)
                is_log, ignored = bool(kwargs.get("log_target", False)), _ignored(args, kwargs)
                criterion = replace(criterion, squashed=is_squashed(given), cut_anew=are_cut_anew(given))
                self.seen.append(replace(criterion, log_target=is_log, ignored=ignored))
        return func(*args, **kwargs)


def _ignored(args: Any, kwargs: Mapping[str, Any]) -> int:
    """The label that a call of a loss of classes ignores."""
    said = kwargs.get("ignore_index", args[4] if len(args) > 4 else None)
    return said if type(said) is int else -100


def is_squashed(given: Tensor) -> bool:
    """Whether a sigmoid or a softmax made these numbers, and nothing but their order was changed since."""
    step = given.grad_fn
    while step is not None and _REARRANGED.search(step.name()) and step.next_functions:
        step = step.next_functions[0][0]
    return step is not None and bool(_SQUASHED.match(step.name()))


def _memory(given: Any) -> tuple[Any, ...]:
    """Arguments as what can be compared; a tensor as the numbers that it shows, by their address and order."""
    leaves = tree_leaves(given)
    return tuple((one.data_ptr(), tuple(one.shape), one.stride()) if isinstance(one, Tensor) else one for one in leaves)


class LossProbes(PadProbes):
    """The experiments with losses, of a running model."""

    def loss_runs(self, padded: bool = False, wider: int = 0, marked: bool = False) -> list[LossRun]:
        """Every loss that could be run. padded: the first text has two words of padding, behind it or where its padding
        stands; wider: so many more in all texts but sources; marked: masks and lengths, also those that may be left
        out, hide the last two words of the first text. Raises NotProvided."""
        key = f"losses{padded}{wider}{marked}"
        if key not in self.known:
            self.known[key] = list(_runs(self.twin(), padded, wider, marked))
        if not self.known[key]:
            raise NotProvided("no loss that could be run was found in it or beside it")
        found: list[LossRun] = self.known[key]
        return found

    def ends_with_padding(self) -> bool:
        """Whether its padding is its end token, too, which has to be taught."""
        scopes = [*settings_of(self.module), vars(sys.modules.get(type(self.module).__module__, object()))]
        ends = (v for scope in scopes for n, v in scope.items() if re.search(r"(?i)eos|eot|(^|_)end(_|$)", n))
        return any(type(value) is int and value == self.pad_id for value in ends)


def _runs(subject: PadProbes, padded: bool, wider: int, marked: bool) -> Iterator[LossRun]:
    for name, function, method in loss_candidates(subject):
        for flat, lean, tags in _forms(subject, function):
            texts = Texts(subject, padded, flat, wider, marked, tags=tags)
            try:
                given = texts.arguments(function, lean)
                yield _run(subject, name, partial_of(function, subject.module, method), given, texts)
            except Exception:  # its labels have another form, or it takes what nothing here shows
                continue
            for prefix in () if padded or marked else _optional_prefixes(function):
                texts = Texts(subject, padded, flat, wider, marked, also=(prefix,), tags=tags)
                with suppress(Exception):
                    given = texts.arguments(function, lean)
                    yield _run(subject, name, partial_of(function, subject.module, method), given, texts)
            break


def _optional_prefixes(function: Callable[..., Any]) -> list[str]:
    """The parameters that say how many words at the start are given, and may be left out."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is not p.empty and PREFIX.fullmatch(p.name.lower())]


def _forms(subject: PadProbes, function: Callable[..., Any]) -> Iterator[tuple[bool, bool, str]]:
    """Whether labels are flat, whether what has a default is left out, and which labels are tags: those of a model that
    answers each position with one of a few classes, all of them or the first alone. Where each row gets several numbers
    and the loss is one of numbers, a label is as many numbers."""
    texts = "".join([text_of(function), *map(text_of, functions_called_by(function))])
    compares = {found[0] for found in _ANY_CRITERION.finditer(texts)}
    if compares and compares <= _DISTANCES and not subject.positions and subject.calling.outputs > 1:
        yield (False, True, "numbers")
        return
    yield from ((False, True, ""), (True, True, ""), (False, False, ""))
    calling, writes = subject.calling, subject.kind in ("language_model", "sequence_to_sequence")
    if not writes and calling.layout == "(B, T, V)" and 0 < calling.outputs < calling.main.vocab:
        yield from ((False, True, "all"), (False, True, "first"))


def loss_candidates(subject: PadProbes) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """forward if it takes labels or computes a loss of the words that it reads, methods of the model, and functions of
    its file that take a model first, or, of a forward that gives no loss, its answer."""
    cls = type(subject.module)
    gives_a_loss = labels_of(subject) or switch_of(subject) or _teaches_what_it_reads(subject)
    if gives_a_loss:
        yield "forward", cls.forward, True
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        own = not function.__module__.startswith("torch")
        if own and not name.startswith("__") and name != "forward" and (_LOSS.search(name) or _is_a_loss(function)):
            yield name, function, True
    beside = list(vars(sys.modules.get(cls.__module__, object())).items())  # the user's code may add names meanwhile
    for name, function in beside:
        if inspect.isfunction(function) and function.__module__ == cls.__module__ and _LOSS.search(name):
            first = next(iter(inspect.signature(function).parameters.values()), None)
            if first is not None and MODELS.fullmatch(first.name.lower()):
                yield name, taken_by(subject.module, function), False
    for name, behind in losses_of_answers(subject) if not gives_a_loss else ():
        yield name, behind, False


def _teaches_what_it_reads(subject: PadProbes) -> bool:
    """Whether a model that writes compares scores with words in forward, which is given no labels, and returns a
    loss."""
    if subject.kind not in ("language_model", "sequence_to_sequence"):
        return False
    criteria = _Criteria()
    with suppress(Exception), subject.mode(False), torch.no_grad(), criteria:
        return "loss" in subject.run(subject.example()) and any(one.of_classes for one in criteria.seen)
    return False


def _is_a_loss(function: FunctionType) -> bool:
    """Whether a method computes a cross-entropy and gives it back, whatever it is called: it is no figure to read."""
    texts = [text_of(function), *map(text_of, functions_called_by(function))]
    computes = any(_OF_CLASSES.search(text) for text in texts)
    return computes and not re.search(r"no_grad|inference_mode|\.item\(\)|\.exp\(|backward\(", "".join(texts))


def partial_of(function: Callable[..., Any], module: nn.Module, method: bool) -> Callable[..., Any]:
    """The function with its model, called as forward is called where it is forward."""
    if method and function.__name__ == "forward":
        return module
    return lambda **given: function(module, **given)


def _run(subject: PadProbes, name: str, call: Callable[..., Any], given: dict[str, Any], texts: Texts) -> LossRun:
    answers: list[Tensor] = []
    named: list[tuple[str, Tensor]] = []

    def noted(part: nn.Module, _: Any, result: Any) -> None:
        answers.extend(tensors_in(result))
        named.extend(named_by(part, result))

    handles = [part.register_forward_hook(noted) for part in subject.module.modules()]
    criteria, lookups = _Criteria(), Lookups()
    try:
        with subject.mode(False), torch.enable_grad(), default_dtype(subject.torch_dtype), criteria, lookups:
            result = call(**given)
    finally:
        for handle in handles:
            handle.remove()
    value = loss_in(result)
    if value is None and not criteria.seen:
        raise NotProvided(f"{name} gives no loss")
    terms = _terms(value, [*named_tensors(result), *named], subject.module)
    written = _written_out(subject, name, value, criteria.seen, answers)
    seen = [*_with_gradients(value, criteria.seen), *written]
    place = next((c.place for c in seen), "") or subject.line_of(rf"def {name}\b")
    lessons = [
        lesson
        for at, c in enumerate(seen)
        if c.of_classes and not texts.tags
        for lesson in _lessons(at, c, texts, answers, lookups)
    ]
    alone = given.keys() <= texts.texts.keys()
    found = LossRun(
        name, name == "forward", place, texts.texts, value, seen, terms, lessons, texts.prefix, alone, texts.marks
    )
    return replace(found, over_steps=criteria.over_steps)


def _terms(value: Tensor | None, named: list[tuple[str, Tensor]], module: nn.Module) -> dict[str, float]:
    """How a loss grows with each loss for balance that it, the model's forward or a part of the model gives or leaves
    behind; of several of one name the least."""
    if value is None or not value.requires_grad:
        return {}
    named = named + [(name, kept) for part in module.modules() for name, kept in vars(part).items() if _is_number(kept)]
    terms = [(name, one) for name, one in named if _is_number(one) and one.requires_grad and BALANCE.search(name)]
    if not terms:
        return {}
    slopes = torch.autograd.grad(value, [one for _, one in terms], allow_unused=True, retain_graph=True)
    found: dict[str, float] = {}
    for (name, _), slope in zip(terms, slopes, strict=True):
        if slope is not None:
            found[name] = min(float(slope), found.get(name, float("inf")))
    return found


def _written_out(
    subject: PadProbes, name: str, value: Tensor | None, seen: list[Criterion], answers: list[Tensor]
) -> list[Criterion]:
    """The loss that is written out, where none of torch's compares words: the word that each row of the scores is
    taught is the one whose score it raises most."""
    vocab = subject.calling.main.vocab
    if value is None or not value.requires_grad or not vocab or any(c.of_classes for c in seen):
        return []
    wide = [one for one in answers if one.dim() == 3 and one.shape[-1] == subject.calling.outputs]
    scores = [one for one in wide if one.requires_grad]
    gradients = torch.autograd.grad(value, scores, allow_unused=True, retain_graph=True) if scores else ()
    for one, gradient in zip(scores, gradients, strict=True):
        if gradient is not None and bool(gradient.any()):
            rows, slopes = one.detach().reshape(-1, one.shape[-1]), gradient.reshape(-1, one.shape[-1])
            for signed in (slopes, -slopes):
                if _raises_one_word(signed):
                    return [Criterion("written", rows, signed.argmin(-1), _picks_at(subject, name), True, slopes)]
    return []


def _raises_one_word(slopes: Tensor) -> bool:
    """Whether each row that counts is one of a cross-entropy: one score is raised far more than all others, and what
    it gains they lose; or the scores are log-probabilities, and it is the only one that is moved."""
    rows = slopes[slopes.abs().amax(-1) > 0].double()
    least = rows.topk(2, -1, largest=False).values
    raised = (least[:, 0] < 0) & (least[:, 1] > 0.5 * least[:, 0])
    even = rows.sum(-1).abs() < 0.1 * rows.abs().amax(-1)  # a z-loss beside it moves all a little
    alone = (rows != 0).sum(-1) == 1
    return bool((raised & (even | alone)).all())


def _picks_at(subject: PadProbes, name: str) -> str:
    """file:line of a written-out loss that picks the scores of the labels; else of its first."""
    cls = type(subject.module)
    function = getattr(cls, name, None) or vars(sys.modules.get(cls.__module__, object())).get(name)
    plain = inspect.unwrap(function) if inspect.isfunction(function) else None
    if plain is None:
        return subject.place()
    lines = text_of(plain).splitlines()
    picks = (n for n, line in enumerate(lines) if re.search(r"gather\(|one_hot\(|kl_div\(|arange\(", line))
    return f"{plain.__code__.co_filename}:{plain.__code__.co_firstlineno + next(picks, 0)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point()


def _with_gradients(value: Tensor | None, seen: list[Criterion]) -> list[Criterion]:
    if value is None or not value.requires_grad or not any(c.trains for c in seen):
        return seen
    given = [c.given for c in seen if c.trains]
    found = iter(torch.autograd.grad(value, given, allow_unused=True))
    with_gradient = [(c, next(found) if c.trains else None) for c in seen]
    return [replace(c, given=c.given.detach(), reaches=gradient) for c, gradient in with_gradient]


def _lessons(
    number: int, criterion: Criterion, texts: Texts, answers: list[Tensor], lookups: Lookups
) -> Iterator[Lesson]:
    rows, targets = criterion.rows.detach(), criterion.target.reshape(-1).tolist()
    weights = criterion.weights
    if len(rows) != len(targets):
        return
    read = _words_before(rows, texts, answers, lookups)
    for at, word in enumerate(targets):
        weight = float(weights[at]) if weights is not None else 0.0
        yield Lesson(number, texts.where.get(read[at], None), texts.where.get(word, None), weight)


def _words_before(rows: Tensor, texts: Texts, answers: list[Tensor], lookups: Lookups) -> list[int]:
    """The word that each row of scores answers to: that of its place in what the tables were read by; -1 unknown."""
    for answer in answers:
        if answer.shape[-1:] != rows.shape[-1:] or answer.dim() < 2:
            continue
        whole = answer.detach().reshape(-1, answer.shape[-1])
        fed = next((ids for _, ids in reversed(lookups.seen) if ids.numel() == len(whole) and texts.knows(ids)), None)
        if fed is None or len(whole) < len(rows) or len(whole) > 4096:
            continue
        apart = torch.cdist(rows.double(), whole.double())
        nearest = apart.min(-1)
        if bool((nearest.values <= 1e-6 * whole.abs().max()).all()):
            return [int(fed.reshape(-1)[at]) for at in nearest.indices.tolist()]
    fed = next((ids for _, ids in reversed(lookups.seen) if ids.numel() == len(rows) and texts.knows(ids)), None)
    return fed.reshape(-1).tolist() if fed is not None else [-1] * len(rows)
