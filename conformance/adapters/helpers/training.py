"""Functions that train a model, beside it or its methods: called on a few tiny batches of its own inputs, and watched.

`fit(model, x, y)` and `train_one_epoch(model, loader, optimizer)` step an optimizer, so that the claims about training
runs can be asked of them. Asked is only what needs no data of the user's: clearing, clipping, what the loss takes, and
labels where the function cuts them itself. A function that needs something unknown, or steps nothing, is left alone.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import dedent
from types import MethodType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.functions.arguments import PAD, read
from conformance.adapters.helpers.trial import Trouble, seeded
from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.whole.model import WholeModel
from conformance.check import CHECKS
from conformance.draw import Draw, Pinned
from conformance.protocol import Arrays, NotProvided
from conformance.watch.record import Run
from conformance.watch.script import called
from conformance.watch.verdicts import Watched

_LABELS = ("run-labels-are-shifted-once", "run-input-does-not-hold-its-answer")
RULES = {
    "functions-that-train-clear-gradients": (
        "run-gradients-are-cleared",
        "run-gradients-reach-the-step",
        "run-gradients-of-all-passes-count",
        "run-step-follows-a-backward-pass",
    ),
    "functions-that-train-clip-what-is-stepped": (
        "run-clipping-has-gradients",
        "run-clipping-comes-before-the-step",
        "run-clipping-comes-after-unscaling",
        "run-clipping-is-of-the-global-norm",
        "run-clipping-limit-is-no-rate",
    ),
    "functions-that-train-give-losses-what-they-take": (
        "run-cross-entropy-gets-logits",
        "run-likelihood-gets-log-probabilities",
        "run-labels-and-logits-are-flattened-alike",
    ),
    "functions-that-train-stay-in-training-mode": ("run-training-is-in-training-mode",),
    "functions-that-train-divide-what-they-accumulate": (
        "run-accumulation-is-divided",
        "run-accumulation-steps-on-time",
    ),
    "functions-that-train-move-their-rate-with-the-steps": (
        "run-schedule-drives-the-optimizer",
        "run-schedule-follows-the-step",
        "run-schedule-advances-once-a-step",
    ),
    "functions-that-train-ask-for-the-next-word": _LABELS,
}
"""What is asked of a function that trains -> the claims about training runs that say it."""

_NAMED = re.compile(
    r"_?(fit|((pre|re)?train|fine_?tune|run)(_(one|an|single|model|\w*lm|loop|for|epochs?))*|training_loop)"
)
"""Names of functions that train over several batches."""
_STEP = re.compile(r"_?((train|training)_(step|batch)|(step|train)_on_batch|(update|learn)_on)")
"""Names of functions that make one step: they are called again and again."""
_OF_A_STEP = ("functions-that-train-clip-what-is-stepped", "functions-that-train-give-losses-what-they-take")
"""What is asked of one that makes one step: clearing, modes and rates may be its caller's to see to."""
ROWS, BATCHES, STEPS, LENGTH, TEXT = 4, 6, 6, 4, 400
SECONDS, LARGEST, MOST = 5.0, 10_000_000, 8
"""A function gets so many seconds of processor time for each form of its labels; a larger model is not trained, and
batches are made for so many that one step adds up."""

_INPUTS = r"input_?(ids|s)?|ids|tokens?|x|text|pixel_values|images?"
_WORDS = {
    "model": r"(\w+_)?(model|net|network|module|transformer)",
    "optimizer": r"(model_)?(opt|optim|optimi[sz]er)",
    "loader": r"(train(ing)?_?)?(data_?)?(loader|dl|iter|iterator|iterable|batches|set|data|dataset|stream|corpus)",
    "judged": r"(val(id)?|validation|dev|test|eval)_?(data_?)?(loader|dl|iter|batches|set|data)",
    "criterion": r"criterion|(loss|crit)_?(fn|func|function|f|criterion)?",
    "scheduler": r"(lr_)?sched(uler)?",
    "scaler": r"(grad_?)?scaler",
    "labels": r"ys?|labels?|targets?|y_train|train_y|train_labels",
    "epochs": r"((n|num|max|total)_?)?epochs",
    "epoch": r"epoch(_?(idx|index|num|number|i))?",
    "steps": r"((n|num|max|total)_?)?((train|training)_?)?(steps|iters|iterations|updates)",
    "size": r"(train_)?(batch_?size|bs|bsz|mini_?batch(_size)?)",
    "rate": r"lr|learning_rate|base_lr|max_lr|eta",
    "clip": r"((max|grad(ient)?)_?)*(clip(ping)?|norm)(_?(norm|value|grad|max))*",
    "accumulated": r"\w*accum\w*",
    "pad": PAD,
    "words": r"(n_?|num_?)?(tgt_|target_)?(vocab(ulary)?|classes)(_?(size|len))?",
    "length": r"block_size|(max_)?(seq(uence)?|context)_?len(gth)?|max_len(gth)?",
    "decay": r"weight_decay|wd",
    "every": r"\w*(log|print|eval|report)\w*(every|interval|freq|steps)",
    "seed": r"(random_)?seed",
    "warmup": r"(n_|num_)?warm_?up\w*",
}
"""What the parameters of a function that trains mean. Others are inputs of the model, in their order."""
_NUMBERS = {
    **{"epochs": 2, "epoch": 0, "steps": STEPS, "size": 2, "rate": 1e-3, "clip": 1.0, "accumulated": 2},
    **{"decay": 0.0, "every": 1, "seed": 0, "warmup": 2},
}
_SHORT = ("epochs", "steps", "size")
"""What is given although it has a default."""


def is_trainer(function: Callable[..., Any]) -> bool:
    """Whether the name of a function says that it trains; of one that makes a step it takes the optimizer, too."""
    name = getattr(function, "__name__", "").lower()
    return _NAMED.fullmatch(name) is not None or makes_one_step(function)


def makes_one_step(function: Callable[..., Any]) -> bool:
    if not _STEP.fullmatch(getattr(function, "__name__", "").lower()):
        return False
    return any(re.fullmatch(_WORDS["optimizer"], name.lower()) for name in inspect.signature(function).parameters)


@dataclass(frozen=True)
class Found:
    """What a claim says of a function that trains. trouble: None where it is kept; else with the line, and the mend."""

    claim: str
    function: str
    trouble: Trouble | None = None
    place: str = ""
    mend: str = ""


def trained(functions: Sequence[Callable[..., Any]], subject: WholeModel) -> Iterator[Found]:
    """What the claims say of the functions that train: nothing of one that could not be run, or stepped nothing."""
    if sum(p.numel() for p in subject.module.parameters()) > LARGEST:
        return
    for function in functions:
        ran = _ran(function, subject)
        if ran is None:
            continue
        run, cuts_labels = ran
        for claim, rules in RULES.items():
            if makes_one_step(function) and claim not in _OF_A_STEP:
                continue
            if rules is not _LABELS or cuts_labels:
                yield from _judged(claim, rules, run, function.__name__)


def _judged(claim: str, rules: tuple[str, ...], run: Run, name: str) -> Iterator[Found]:
    """The first rule that the run breaks; or else that some rule was kept."""
    seen = False
    for rule in rules:
        try:
            evidence = CHECKS[rule].function(Watched(run), Draw(Pinned()))
        except NotProvided:
            continue
        seen = True
        if not evidence.ok and not evidence.is_note and evidence.place:
            trouble = Trouble(evidence.diagnosis, evidence.expected, evidence.got)
            yield Found(claim, name, trouble, evidence.place, evidence.mend)
            return
    if seen:
        yield Found(claim, name)


def _ran(function: Callable[..., Any], subject: WholeModel) -> tuple[Run, bool] | None:
    """The run of a function with the first form of labels with which it makes two steps, and whether it cuts the labels
    out of the text itself; None where it makes none."""
    for labels_of in _forms(subject):
        try:
            trial = _Trial(function, subject, labels_of)
            run = trial.run()
        except Exception:  # its parameters mean nothing known, its source is not to be had, the model does not answer
            return None
        if run.steps >= 2:
            return run, not trial.gave_labels and subject.kind in ("language_model", "sequence_to_sequence")
        if not run.whole:
            return None  # its time was over
    return None


Labels = Callable[[Tensor, Tensor], tuple[Tensor, nn.Module]]
"""Of an answer and the main input the labels, and the loss that takes them."""


def _forms(subject: WholeModel) -> list[Labels]:
    """Labels that a model may have: the next words, numbers of classes, or numbers like the answer."""

    def words(out: Tensor, main: Tensor) -> tuple[Tensor, nn.Module]:
        return main.roll(-1, 1) % out.shape[-1], nn.CrossEntropyLoss()

    def classes(out: Tensor, main: Tensor) -> tuple[Tensor, nn.Module]:
        rows = out.shape[:-1]
        return torch.arange(rows.numel()).view(rows) % min(out.shape[-1], 3), nn.CrossEntropyLoss()

    def numbers(out: Tensor, main: Tensor) -> tuple[Tensor, nn.Module]:
        return torch.zeros_like(out), nn.MSELoss()

    return [words if subject.calling.main.vocab and subject.positions else classes, numbers]


class _Trial:
    """One attempt to call a function. gave_labels: whether it was given labels beside the model's inputs."""

    def __init__(self, function: Callable[..., Any], subject: WholeModel, labels_of: Labels) -> None:
        self.gave_labels = False
        self.subject = subject.twin(torch.float32)
        self.module = self.subject.module.train()
        is_method = isinstance(function, MethodType)
        self.function = getattr(self.module, function.__name__) if is_method else function  # of this copy
        example = self.subject.example(ROWS)
        self.inputs = {m: v for m, v in self.subject.tensors(example).items() if isinstance(v, Tensor)}
        out = self._answer(example)
        self.labels, self.criterion = labels_of(out, [*self.inputs.values()][-1])
        self.arguments = read(self.function, _WORDS, (*self.inputs, "labels"))
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-3)
        self.tree = ast.parse(dedent(inspect.getsource(self.function)))

    def _answer(self, example: Arrays) -> Tensor:
        """What the model answers, in its own shape: not with an image or a series in one row."""
        given: list[Any] = []
        handle = self.module.register_forward_hook(lambda module, arguments, result: given.append(result))
        try:
            out = torch.as_tensor(self.subject.run(example)["out"]).detach()
        finally:
            handle.remove()
        alike = (t.detach() for t in tensors_in(given) if t.is_floating_point() and t.numel() == out.numel())
        return next((t for t in alike if t.shape[0] == out.shape[0]), out)

    def run(self) -> Run:
        """Call it, and watch; what it raises ends the run. Raises Unresolved where a parameter means nothing."""
        if not self.arguments.has("model") and not isinstance(self.function, MethodType):
            raise Unresolved(f"{self.arguments.name} takes no model")
        given = inspect.signature(self.function).parameters
        taken = [m for m, n in self.arguments.parameter_of.items() if given[n].default is given[n].empty or m in _SHORT]
        values = {meaning: self._value(meaning) for meaning in taken}

        def call() -> None:
            with contextlib.suppress(Exception), warnings.catch_warnings(), seeded():
                warnings.simplefilter("ignore")
                with (
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()),
                    mock.patch.object(torch, "save"),  # nothing of this is to be kept
                ):
                    for _ in range(STEPS if makes_one_step(self.function) else 1):
                        self.arguments.call(self.function, **values)

        return called(call, STEPS, SECONDS)

    def _value(self, meaning: str) -> Any:
        if meaning in self.inputs:
            return self.inputs[meaning]
        if meaning == "labels":
            self.gave_labels = True
            return self.labels
        if meaning in ("loader", "judged"):
            names = self.arguments.parameter_of
            handed_on = meaning == "judged" and self._drawn(names[meaning]) is None and "loader" in names
            return self._data(names["loader" if handed_on else meaning])  # what it hands on is read as its own
        if meaning == "scheduler":
            return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _: 1.0)
        if meaning == "scaler":
            return torch.amp.GradScaler("cpu", init_scale=256.0)
        own = {
            "model": self.module,
            "optimizer": self.optimizer,
            "criterion": self.criterion,
            "pad": -100 if self.subject.pad_id is None else self.subject.pad_id,
            "words": self.subject.calling.outputs,
            "length": self.subject.calling.main.length or LENGTH,
        }
        return own[meaning] if meaning in own else _NUMBERS[meaning]

    def _data(self, name: str) -> Any:
        """Batches, where a function loops over what it is given; else a long text, where the model takes words."""
        drawn = self._drawn(name)
        if drawn is not None:
            once = isinstance(drawn, ast.Call)  # it draws from one iterator, and makes no second pass
            number = (STEPS if once else STEPS // 2) * self._accumulated()
            return [self._batch(drawn) for _ in range(max(BATCHES, number))]
        if len(self.inputs) == 1 and self.subject.calling.main.vocab:
            text = self.subject.tokens(np.random.default_rng(0), self.subject.calling.main.meaning, (TEXT,))
            return torch.as_tensor(text)
        raise Unresolved(f"nothing shows how {name} is read")

    def _accumulated(self) -> int:
        """Over how many batches a step goes, where a default says so."""
        name = self.arguments.parameter_of.get("accumulated", "")
        default = inspect.signature(self.function).parameters[name].default if name else 1
        return min(default, MOST) if type(default) is int and default > 0 else 1

    def _batch(self, drawn: ast.AST) -> Any:
        """A batch as the function takes it apart: by the names of a tuple, by keys, or as the inputs alone."""
        names, given = self._names(drawn), [*self.inputs.values()]
        if isinstance(names, dict):
            return {key: self._part(key) for key in names}
        if names and len(names) == len(given) + 1:
            self.gave_labels = True
            return (*given, self.labels)
        if len(names) == len(given) > 1 or not names:
            return tuple(given) if len(given) > 1 else given[0]
        if len(names) == len(given):
            return (given[0],)
        raise Unresolved(f"nothing shows what {', '.join(names)} are")

    def _part(self, key: str) -> Tensor:
        lower, first = key.lower(), next(iter(self.inputs))
        if re.fullmatch(_WORDS["labels"], lower):
            self.gave_labels = True
            return self.labels
        own = next((m for m in self.inputs if self.subject.calling.input(m).parameter == key), "")
        if own or (len(self.inputs) == 1 and re.fullmatch(_INPUTS, lower)):
            return self.inputs[own or first]
        if lower in ("attention_mask", "mask"):
            return torch.ones(self.inputs[first].shape[:2], dtype=torch.long)
        raise Unresolved(f"nothing shows what {key} is")

    def _names(self, drawn: ast.AST) -> list[str] | dict[str, None]:
        """The names that a batch is taken apart into; of a dictionary its keys."""
        if isinstance(drawn, ast.Tuple):
            return [ast.unparse(one) for one in drawn.elts]
        keys: dict[str, None] = {}
        most = -1
        for node in ast.walk(self.tree):
            held = getattr(node, "value", None)
            if not (isinstance(held, ast.Name) and held.id == getattr(drawn, "id", "")):
                continue
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                return [ast.unparse(one) for one in node.targets[0].elts]
            key = getattr(getattr(node, "slice", None), "value", None)
            if isinstance(key, str):
                keys[key] = None
            elif type(key) is int:
                most = max(most, key)
        return keys or ["" for _ in range(most + 1)]

    def _drawn(self, name: str) -> ast.AST | None:
        """What a loop or `next` binds a batch to."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.For, ast.comprehension)) and _reads(node.iter, name):
                counted = "enumerate(" in ast.unparse(node.iter) and isinstance(node.target, ast.Tuple)
                return node.target.elts[1] if counted else node.target  # type: ignore[attr-defined]
            if isinstance(node, ast.Assign) and re.search(rf"\bnext\(.*\b{name}\b", ast.unparse(node.value)):
                return node.targets[0]
        for node in ast.walk(self.tree):  # what goes over it may have a name of its own, and be drawn from as a whole
            if isinstance(node, ast.Assign) and re.search(rf"\b(iter|cycle)\(.*\b{name}\b", ast.unparse(node.value)):
                return self._drawn(ast.unparse(node.targets[0]))
            if isinstance(node, ast.Call) and re.fullmatch(rf"next\({name}\)", ast.unparse(node)):
                return node
        return None


def _reads(node: ast.AST, name: str) -> bool:
    """Whether a loop goes over what has a name, bare or in tqdm, enumerate and the like: not over its numbers."""
    text = ast.unparse(node)
    return re.search(rf"\b{name}\b", text) is not None and "range(" not in text
