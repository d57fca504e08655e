"""Functions that evaluate a model: is the mean that they give the mean of what they have added up?

A function is called with a model whose parameters are all zero, so that every label costs the logarithm of how many
there are. The mean is that cost then, and the perplexity its exponential, however many rows a batch has. A part of the
cost, and half of that where a batch has twice the rows, is a mean that was divided by the number again.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.helpers.training import LARGEST, Attempt, Labels, is_trainer, label_forms
from conformance.adapters.helpers.trial import Found, Trouble, named_parts
from conformance.adapters.whole.model import WholeModel
from conformance.adapters.whole.usage import Surroundings, surroundings
from conformance.places import line_of, short
from conformance.watch.events import Forward

CLAIM = "evaluations-give-the-mean-of-what-they-add-up"
MODE = "evaluations-are-in-evaluation-mode"
_NAMED = re.compile(
    r"_?((run|compute|calc(ulate)?|get|estimate|measure)_)?"
    r"((eval(uate)?|evaluation|valid(ate|ation)?|val|test|dev|heldout)(_(one|model|epoch|loop|step|loss|lm|set|perplexity|ppl))*"
    r"|(mean_|avg_|average_)?(loss|perplexity|ppl)(_(of|on|over)_\w+)?)"
)
_JUDGES = re.compile(r"(^|_)(eval(uate|uation)?|valid(ate|ation)?|val|test|dev|heldout|perplexity|ppl)(_|$)")
"""Names of functions that evaluate and never train: a loss is for both."""
_SETS = re.compile(r"\.eval\(\)|\.train\((?!\s*(True)?\s*\))")
_ROWS, _BATCHES = 2, 2


def is_evaluator(function: Callable[..., Any]) -> bool:
    """Whether it evaluates by its name, takes a model and batches, and steps nothing."""
    if not _NAMED.fullmatch(getattr(function, "__name__", "").lower()) or is_trainer(function):
        return False
    try:
        return re.search(r"backward\(|\.step\(", inspect.getsource(inspect.unwrap(function))) is None
    except (OSError, TypeError):
        return False


def evaluated(functions: Sequence[Callable[..., Any]], subject: WholeModel) -> Iterator[Found]:
    """What the claim says of functions that evaluate: nothing of one that could not be run, or gives no mean loss."""
    if sum(p.numel() for p in subject.module.parameters()) > LARGEST:
        return
    for function in functions:
        yield from _mode(function, subject)
        for labels_of in label_forms(subject):
            try:
                once, twice = (_Costs(function, subject, labels_of, rows) for rows in (_ROWS, 2 * _ROWS))
            except Exception:  # what it is to be given is not known
                continue
            if 1 in once.shares and 1 in twice.shares:
                yield Found(CLAIM, function.__name__)
                break
            shares = [share for share in once.shares if share % _ROWS == 0 and 2 * share in twice.shares]
            if shares:
                yield Found(CLAIM, function.__name__, _trouble(function, once, shares[0]), *_told(function))
                break


def _mode(function: Callable[..., Any], subject: WholeModel) -> Iterator[Found]:
    """A model that is in training mode when a function is called is asked in evaluation mode. Its callers may
    see to that."""
    if not _JUDGES.search(function.__name__.lower()):
        return
    for labels_of in label_forms(subject):
        try:
            run = _Attempt(function, subject, labels_of, _ROWS, _BATCHES).run()
        except Exception:  # what it is to be given is not known
            continue
        asked = [one for one in run.of(Forward) if one.module == 0]
        if not asked:
            continue
        dropping = [one for one in asked if one.training and (one.random or one.learned)]
        if not dropping:
            yield Found(MODE, function.__name__)
        elif not _is_set_by_callers(function):
            parts = ", ".join((*dropping[0].random, *dropping[0].learned)[:3])
            said = Trouble(
                f"{function.__name__} asks the model in training mode, and nothing sets it to evaluation.",
                "model.eval() before the first batch",
                f"training mode, in which {parts} change the answer",
            )
            plain = inspect.unwrap(getattr(function, "__func__", function))
            yield Found(
                MODE, function.__name__, said, line_of(plain), "call model.eval() first, and model.train() behind"
            )
        return


def _is_set_by_callers(function: Callable[..., Any]) -> bool:
    """Whether the functions that call it set a module to evaluation, or those that call these; where none calls it,
    whether its file does."""
    module = sys.modules.get(function.__module__)
    return module is None or _is_set_before(function.__name__, surroundings(module), frozenset())


def _is_set_before(name: str, around: Surroundings, known: frozenset[str]) -> bool:
    callers = [
        scope.node
        for source in around.sources
        for call, scope in source.calls
        if name in (getattr(call.func, "id", ""), getattr(call.func, "attr", ""))
    ]
    if not callers and not known:
        named = re.compile(rf"\b{re.escape(name)}\b")
        return any(named.search(source.text) and _SETS.search(source.text) for source in around.sources)
    further = {name, *known}
    return bool(callers) and all(
        _SETS.search(ast.unparse(node)) is not None
        or (
            (caller := getattr(node, "name", "")) not in {"", *further}
            and _is_set_before(caller, around, frozenset(further))
        )
        for node in callers
    )


class _Batches(list[Any]):
    """Batches that know their rows, as a loader does."""

    @property
    def dataset(self) -> range:
        firsts = (next(iter(batch.values())) if isinstance(batch, dict) else batch for batch in self)
        return range(sum(len(one[0] if isinstance(one, tuple) else one) for one in firsts))


class _Attempt(Attempt):
    """An evaluation of such batches."""

    def _data(self, name: str) -> Any:
        found = super()._data(name)
        return _Batches(found) if isinstance(found, list) else found


class _Costs:
    """What a function gives where each label costs the same. shares: the cost by each number that it gives, or by the
    logarithm of one, where that is a whole number. certain: whether it takes the loss itself."""

    def __init__(self, function: Callable[..., Any], subject: WholeModel, labels_of: Labels, rows: int) -> None:
        attempt = _Attempt(function, subject, labels_of, rows, _BATCHES)
        with torch.no_grad():
            for parameter in attempt.module.parameters():
                parameter.zero_()
        attempt.run()
        given = [value for _, part in named_parts(attempt.answer) if (value := _number(part)) is not None]
        self.certain = not attempt.arguments.has("criterion")  # the one that is handed to it may give sums
        self.cost = math.log(subject.calling.outputs or 1)
        values = [*given, *(math.log(value) for value in given if value > 0)]
        found = [self.cost / value for value in values if value > 1e-9]
        self.shares = [round(share) for share in found if abs(share - round(share)) < 1e-3 and round(share) > 0]


def _number(part: Any) -> float | None:
    if isinstance(part, bool) or not isinstance(part, (int, float, Tensor)):
        return None
    if isinstance(part, Tensor) and part.dim():
        return None
    value = float(part)
    return value if math.isfinite(value) else None


def _trouble(function: Callable[..., Any], costs: _Costs, share: int) -> Trouble:
    return Trouble(
        f"{function.__name__} adds up means of batches and divides them by a number of rows or labels: the figure is "
        "too small by the size of a batch.",
        f"{costs.cost:.4g} where every label costs that, or its exponential",
        f"a cost {share} times too small for batches of {_ROWS} rows, {2 * share} times for {2 * _ROWS}",
        costs.certain,
    )


def _told(function: Callable[..., Any]) -> tuple[str, str]:
    """The line where a loss is added up, and the mend."""
    mend = "add loss * number, or divide by the number of batches"
    plain = inspect.unwrap(getattr(function, "__func__", function))
    lines, start = inspect.getsourcelines(plain)
    for pattern in (r"\b\w*(loss|total|nll|sum)\w*\s*\+=", r"\+=|\.append\(", r"/"):
        for at, line in enumerate(lines):
            if re.search(pattern, line.partition("#")[0]):
                return f"{short(plain.__code__.co_filename)}:{start + at}", mend
    return line_of(plain), mend
