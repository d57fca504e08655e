"""Functions that train a model, beside it or its methods: called on a few tiny batches of its own inputs, and watched.

`fit(model, x, y)` and `train_one_epoch(model, loader, optimizer)` step an optimizer, so that the claims about training
runs can be asked of them. Asked is only what needs no data of the user's: clearing, clipping, what the loss takes, and
labels where the function cuts them itself. One that makes one step is called again and again. A function that needs
something unknown, or steps nothing, is left alone.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from types import MethodType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.functions.arguments import PAD, read
from conformance.adapters.functions.subjects import source_of
from conformance.adapters.helpers.criteria import CrossEntropy, criteria_of
from conformance.adapters.helpers.drawn import Parts, drawn, parts_of, tree_of
from conformance.adapters.helpers.modes import left_in_evaluation, rests
from conformance.adapters.helpers.trial import Found, Trouble, seeded
from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.whole.configs import Guessed
from conformance.adapters.whole.model import WholeModel
from conformance.check import CHECKS
from conformance.draw import Draw, Pinned
from conformance.protocol import Arrays, NotProvided
from conformance.watch.record import Run
from conformance.watch.script import called
from conformance.watch.verdicts import Watched

_SETTINGS, _SETTING = 8, 2
"""So many names of made-up settings are added, each with this number: steps of accumulation, a limit of a norm."""
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
        "run-schedule-comes-down",
    ),
    "functions-that-train-ask-for-the-next-word": _LABELS,
}
"""What is asked of a function that trains -> the claims about training runs that say it."""

_NAMED = re.compile(
    r"_?(fit|((pre|re)?train|fine_?tune|run)(_(one|an|single|model|\w*lm|loop|for|epochs?))*|training_loop)"
)
"""Names of functions that train over several batches."""
_STEP = re.compile(
    r"_?((train|training|update|accumulat\w+)_(step|batch)|(step|train)_on_batch|(update|learn)_on"
    r"|step_(over|on)_(micro_?)?batches)"
)
"""Names of functions that make one step: they are called again and again."""
_TAKES = "functions-that-train-give-losses-what-they-take"
_OF_A_STEP = {
    "functions-that-train-clip-what-is-stepped": RULES["functions-that-train-clip-what-is-stepped"],
    _TAKES: RULES[_TAKES],
    "functions-that-train-ask-for-the-next-word": _LABELS,
}
"""What is asked of one that makes one step: clearing, modes and rates may be its caller's to see to."""
_OF_ONE_THAT_CLEARS = {
    "functions-that-train-clear-gradients": ("run-gradients-reach-the-step", "run-gradients-of-all-passes-count")
}
"""What is asked of it besides, where it clears gradients itself."""
_CLEARS = re.compile(r"zero_grad\(|\.grad\s*=\s*None")
ROWS, BATCHES, STEPS, LENGTH, TEXT, PIECES = 4, 6, 6, 4, 400, 3
SECONDS, LARGEST, MOST = 5.0, 10_000_000, 8
"""A function gets so many seconds of processor time for each form of its labels; a larger model is not trained, and
batches are made for so many that one step adds up. PIECES: of the batch of one step, where it takes a list."""

_INPUTS = r"input_?(ids|s)?|ids|tokens?|x|text|pixel_values|images?"
_WORDS = {
    "model": r"(\w+_)?(model|net|network|module|transformer)",
    "optimizer": r"(model_)?(opt|optim|optimi[sz]er)",
    "loader": (
        r"(train(ing)?_?)?(data_?)?"
        r"(loader|dl|iter|iterator|iterable|((micro|mini|sub)_?)?batches|set|data|dataset|stream|corpus|sampler)"
        r"|micros|chunks|shards"
    ),
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
    "batch": r"(data_?|mini_?)?batch",
    "smoothing": r"(label_?)?smooth(ing)?|eps(ilon)?",
}
"""What the parameters of a function that trains mean. Others are inputs of the model, in their order."""
_MASK = re.compile(r"((attention|attn)_?)?mask")
_NUMBERS = {
    **{"epochs": 2, "epoch": 0, "steps": STEPS, "size": 2, "rate": 1e-3, "clip": 1.0, "accumulated": 2},
    **{"decay": 0.0, "every": 1, "seed": 0, "warmup": 2, "smoothing": 0.1},
}
_GIVEN = ("epochs", "steps", "size", "optimizer")
"""What is given although it has a default: few steps; and without an optimizer a function may only evaluate."""


def is_trainer(function: Callable[..., Any]) -> bool:
    """Whether the name of a function says that it trains; of one that makes a step it takes the optimizer, too."""
    name = getattr(function, "__name__", "").lower()
    return _NAMED.fullmatch(name) is not None or makes_one_step(function)


def makes_one_step(function: Callable[..., Any]) -> bool:
    if not _STEP.fullmatch(getattr(function, "__name__", "").lower()):
        return False
    return any(re.fullmatch(_WORDS["optimizer"], name.lower()) for name in inspect.signature(function).parameters)


_MODES = "functions-that-train-stay-in-training-mode"
_LEFT = Trouble(
    "The model is set to evaluation within the loop that trains it, and nothing sets it back: from then on its dropout "
    "does nothing.",
    "model.train() behind the evaluation",
    "none",
)
_SET_BACK = "call model.train() at the beginning of each epoch, or after each evaluation"


def trained(functions: Sequence[Callable[..., Any]], subject: WholeModel) -> Iterator[Found]:
    """What the claims say of the functions that train: nothing of one that could not be run, or stepped nothing."""
    if sum(p.numel() for p in subject.module.parameters()) > LARGEST:
        return
    for function in functions:
        ran = _ran(function, subject)
        if ran is None:
            if place := left_in_evaluation(function) if rests(subject.module) else "":
                yield Found(_MODES, function.__name__, _LEFT, place, _SET_BACK)
            continue
        run, cuts_labels = ran
        criteria = Attempt(function, subject, label_forms(subject)[0]).own_criteria()
        for claim, rules in _asked(function).items():
            if rules is _LABELS and not (cuts_labels and _shows_with_another_loss(function, criteria)):
                continue
            found = [*_judged(claim, rules, run, function.__name__)]
            if any(one.trouble for one in found) and claim == _TAKES and not _all_take_logits(criteria):
                own = _ran(function, subject, (True,))  # a loss of the file says what it takes
                found = [*_judged(claim, rules, own[0], function.__name__)] if own is not None else []
            yield from found


def _asked(function: Callable[..., Any]) -> dict[str, tuple[str, ...]]:
    """What is asked of a function, by claim."""
    if not makes_one_step(function):
        return RULES
    clears = _CLEARS.search(source_of(function)) is not None
    return {**(_OF_ONE_THAT_CLEARS if clears else {}), **_OF_A_STEP}


_CUTS = re.compile(r":\s*-\s*1\s*[\],]|\b1\s*:|\+\s*1\s*[:\]]|shift|roll\(|narrow\(")
"""What cuts a text for the next words."""


def _shows_with_another_loss(function: Callable[..., Any], criteria: Sequence[Any]) -> bool:
    """Whether the place of the labels shows with a loss of torch's in the place of that which it is handed: a loss of
    its own may shift them, and does where the function cuts nothing."""
    if not any(re.fullmatch(_WORDS["criterion"], name.lower()) for name in inspect.signature(function).parameters):
        return True
    return not any(map(_CUTS.search, _texts(criteria))) and _CUTS.search(source_of(function)) is not None


def _all_take_logits(criteria: Sequence[Any]) -> bool:
    """Whether each of some losses takes a softmax itself, as torch's cross-entropy does."""
    return all(re.search(r"log_softmax|logsumexp|cross_entropy|CrossEntropy", text) for text in _texts(criteria))


def _texts(criteria: Sequence[Any]) -> list[str]:
    return [source_of(one if inspect.isroutine(one) else type(one)) for one in criteria]


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


def _ran(
    function: Callable[..., Any], subject: WholeModel, with_own: Sequence[bool] = (False, True)
) -> tuple[Run, bool] | None:
    """The run of a function with the first form of labels with which it makes two steps, and whether it cuts the labels
    out of the text itself; None where it makes none. with_own: whether it is given a loss of its file, each way that
    is tried."""
    for labels_of, own in product(label_forms(subject), with_own):
        try:
            trial = Attempt(function, subject, labels_of)
            criteria = trial.own_criteria() if own else [trial.criterion]
        except Exception:  # its parameters mean nothing known, its source is not to be had, the model does not answer
            return None
        for criterion in criteria:
            trial = Attempt(function, subject, labels_of)
            trial.criterion = criterion
            try:
                run = trial.run()
            except Exception:  # what it is to be given is not known
                return None
            if run.steps >= 2:
                return run, not trial.gave_labels and subject.kind in ("language_model", "sequence_to_sequence")
            if not run.whole:
                return None  # its time was over
    return None


Labels = Callable[[Tensor, Tensor], tuple[Tensor, nn.Module]]
"""Of an answer and the main input the labels, and the loss that takes them."""


def label_forms(subject: WholeModel) -> list[Labels]:
    """Labels that a model may have: the next words, numbers of classes, or numbers like the answer."""

    def words(out: Tensor, main: Tensor) -> tuple[Tensor, nn.Module]:
        return main.roll(-1, 1) % out.shape[-1], CrossEntropy()

    def classes(out: Tensor, main: Tensor) -> tuple[Tensor, nn.Module]:
        rows = out.shape[:-1]
        return torch.arange(rows.numel()).view(rows) % min(out.shape[-1], 3), CrossEntropy()

    def numbers(out: Tensor, main: Tensor) -> tuple[Tensor, nn.Module]:
        return torch.zeros_like(out), nn.MSELoss()

    return [words if subject.calling.main.vocab and subject.positions else classes, numbers]


@contextlib.contextmanager
def _noting(raised: list[Exception]) -> Iterator[None]:
    """What is raised inside ends there, and is kept."""
    try:
        yield
    except Exception as error:
        raised.append(error)


class Attempt:
    """One attempt to call a function. gave_labels: whether it was given labels beside the model's inputs. rows: of a
    batch; batches: how many there are at least. answer: what the function returned last."""

    def __init__(
        self, function: Callable[..., Any], subject: WholeModel, labels_of: Labels, rows: int = ROWS, batches: int = 0
    ) -> None:
        self.gave_labels, self.batches, self.answer = False, batches, None
        self.subject = subject.twin(torch.float32)
        self.module = self.subject.module.train()
        is_method = isinstance(function, MethodType)
        self.function = getattr(self.module, function.__name__) if is_method else function  # of this copy
        example = self.subject.example(rows)
        given = {m: v for m, v in self.subject.tensors(example).items() if isinstance(v, Tensor)}
        self.inputs = {m: self._turned(v) for m, v in given.items()}
        labels, self.criterion = labels_of(self._answer(example), [*given.values()][-1])
        self.labels = self._turned(labels)
        self.arguments = read(self.function, _WORDS, (*self.inputs, "labels"))
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-3)
        self.tree = tree_of(self.function)

    def _turned(self, x: Tensor) -> Tensor:
        """As the model takes it: one that takes (T, B) is trained on (T, B)."""
        return self.subject.calling.turned(x) if x.ndim > 1 else x

    def own_criteria(self) -> list[Any]:
        """The losses of its file, where it has to be given one."""
        settings = {meaning: self._value(meaning) for meaning in ("words", "pad", "smoothing")}
        return [*criteria_of(self.function, settings, _WORDS)] if self.arguments.has("criterion") else []

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
        taken = [m for m, n in self.arguments.parameter_of.items() if given[n].default is given[n].empty or m in _GIVEN]
        for _ in range(_SETTINGS):
            run, lacking = self._watched({meaning: self._value(meaning) for meaning in taken})
            if lacking is None:
                break
            settings, name = lacking
            settings[name] = _SETTING  # they were made up by what the model reads of them
        return run

    def _watched(self, values: dict[str, Any]) -> tuple[Run, tuple[Guessed, str] | None]:
        """One call with these values; and made-up settings with a name that the function reads and they lack."""
        raised: list[Exception] = []

        def call() -> None:
            with _noting(raised), warnings.catch_warnings(), seeded():
                warnings.simplefilter("ignore")
                with (
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()),
                    mock.patch.object(torch, "save"),  # nothing of this is to be kept
                ):
                    for _ in range(STEPS if makes_one_step(self.function) else 1):
                        self.answer = self.arguments.call(self.function, **values)

        run = called(call, STEPS, SECONDS)
        lacking = [
            (error.obj, error.name)
            for error in raised
            if isinstance(error, AttributeError) and isinstance(error.obj, Guessed) and error.name
        ]
        return run, lacking[0] if lacking else None

    def _value(self, meaning: str) -> Any:
        if meaning in self.inputs:
            return self.inputs[meaning]
        if meaning == "labels":
            self.gave_labels = True
            return self.labels
        if meaning == "batch":
            return self._batch(ast.Name(self.arguments.parameter_of["batch"]))
        if meaning in ("loader", "judged"):
            names = self.arguments.parameter_of
            handed_on = meaning == "judged" and drawn(self.tree, names[meaning]) is None and "loader" in names
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
        batch = drawn(self.tree, name)
        if batch is not None:
            once = isinstance(batch, ast.Call)  # it draws from one iterator, and makes no second pass
            number = (STEPS if once else STEPS // 2) * self._accumulated()
            most = PIECES if makes_one_step(self.function) else max(BATCHES, number)
            return [self._batch(batch) for _ in range(self.batches or most)]
        if len(self.inputs) == 1 and self.subject.calling.main.vocab:
            text = self.subject.tokens(np.random.default_rng(0), self.subject.calling.main.meaning, (TEXT,))
            return torch.as_tensor(text)
        raise Unresolved(f"nothing shows how {name} is read")

    def _accumulated(self) -> int:
        """Over how many batches a step goes, where a default says so."""
        name = self.arguments.parameter_of.get("accumulated", "")
        default = inspect.signature(self.function).parameters[name].default if name else 1
        return min(default, MOST) if type(default) is int and default > 0 else 1

    def _batch(self, batch: ast.AST) -> Any:
        """A batch as the function takes it apart: by the names of a tuple, by keys, or as the inputs alone."""
        names, given = parts_of(self.function, self.tree, batch), [*self.inputs.values()]
        if isinstance(names, Parts):
            held = {key: self._part(key) for key in names}
            return _Held(**held) if names.by_attribute else held
        if any(_MASK.fullmatch(name.lower()) for name in names):
            return tuple(self._part(name) for name in names)
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
        if _MASK.fullmatch(lower):
            return torch.ones(self.inputs[first].shape[:2], dtype=torch.long)
        raise Unresolved(f"nothing shows what {key} is")


class _Held(SimpleNamespace):
    """A batch that is an object."""

    def to(self, *_: Any, **__: Any) -> _Held:
        return self
