"""Preferences that a script learns by hand: `logsigmoid` of a margin between a preferred answer and another one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.watch.events import Backward, Forward, Margin, Written
from conformance.watch.lines import At, source_of
from conformance.watch.measures import values_of
from conformance.watch.watcher import Watcher

_PREFERRED = re.compile(r"(^|_)(chosen|preferred|winners?|wins?|yw|accepted)(_|\d|$)", re.IGNORECASE)
_OTHER = re.compile(r"(^|_)(rejected|dispreferred|losers?|loses?|yl|rejects?)(_|\d|$)", re.IGNORECASE)
LEARNED = 20
"""After so many steps a model has learned, before it learns a preference."""


def tap(watcher: Watcher) -> None:
    watcher.around(F, "logsigmoid", _Margins(watcher).logsigmoid)


class _Margins:
    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def logsigmoid(self, original: Any, input: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        result: Tensor = original(input, *rest, **keywords)
        if input.requires_grad and input.numel():
            event = self.watcher.add(Margin(largest=float("nan")))
            with self.watcher.looking():
                values = input.detach().double()
                event.largest, event.spread = float(values.abs().max()), float(values.max() - values.min())
                calls = self.watcher.run.calls_since_step()
                own, others = self._models(calls)
                is_alone = own is not None and not any(one.random for one in calls)
                event.is_at_start = is_alone and any(_are_equal(own, other) for other in others)
                event.is_new = own is not None and len(others) == 1 and self._is_new(own, others[0])
        return result

    def _models(self, calls: list[Forward]) -> tuple[Any, list[nn.Module]]:
        """The model that learns, and those that were called beside it; None where it is not clear or long known."""
        watcher = self.watcher
        learning, resting = ({one.module for one in calls if one.gradients is has} for has in (True, False))
        own, others = (
            [m for n in numbers if isinstance(m := watcher.modules.get(n), nn.Module)]
            for numbers in (learning, resting - learning)
        )
        is_clear = watcher.is_close and len(learning) == 1 and own
        return (own[0] if is_clear else None), others

    def _is_new(self, own: nn.Module, other: nn.Module) -> bool:
        """Whether in the first step of a preference the model has learned for long in this run, and one of its kind
        beside it is as such models begin: no part is the model's, and what begins as ones or zeros is just that."""
        run = self.watcher.run
        is_first = all(one.step == run.steps for one in run.of(Margin))
        if not is_first or run.steps < LEARNED or type(own) is not type(other):
            return False
        mine, its = (dict(one.named_parameters()) for one in (own, other))
        if mine.keys() != its.keys() or any(one.shape != its[name].shape for name, one in mine.items()):
            return False
        pairs = [(one.detach(), its[name].detach()) for name, one in mine.items() if one.numel() > 1]
        begun = [(one, other) for one, other in pairs if _is_one_number(other) and float(other.flatten()[0]) in (0, 1)]
        is_random = any(one.dim() > 1 and not _is_one_number(other) for one, other in pairs)
        varied = [one for one, _ in begun if not _is_one_number(one)]
        return is_random and len(varied) == len(begun) >= 2 and not any(torch.equal(one, other) for one, other in pairs)


def _is_one_number(values: Tensor) -> bool:
    return bool((values == values.flatten()[0]).all())


def _are_equal(first: nn.Module, second: nn.Module) -> bool:
    pairs = [*first.state_dict().items()], [*second.state_dict().items()]
    return [name for name, _ in pairs[0]] == [name for name, _ in pairs[1]] and all(
        one.shape == other.shape and torch.equal(one, other) for (_, one), (_, other) in zip(*pairs, strict=True)
    )


def turned_round(run: Any) -> tuple[Written, Margin] | None:
    """The log-probabilities of a preferred answer that the first steps of a preference lower, where they raise those of
    the other one; with the margin of that step."""
    seen: list[tuple[Written, Margin]] = []
    for margin, back in _learned(run):
        given = [one for one in run.of(Written) if back.order < one.order and one.step == back.step]
        named = [(side_of(one.stack), one) for one in given]
        preferred, others = ([one for side, one in named if side == wanted] for wanted in ("preferred", "other"))
        if preferred and others:
            is_wrong = all(one.raised == 0 for one in preferred) and all(one.raised == 1 for one in others)
            if not is_wrong:
                return None
            seen.append((preferred[0], margin))
    return seen[0] if seen else None


def _learned(run: Any) -> Iterator[tuple[Margin, Backward]]:
    """The margins of the steps, each with the backward pass that follows it."""
    for margin in run.of(Margin):
        back = next(run.between(margin.order, len(run.events), Backward), None)
        if back is not None and back.step == margin.step:
            yield margin, back


def side_of(stack: Sequence[At]) -> str:
    """Whether the calls on the way say "preferred" or "other": by what they are given, else by what they are bound to;
    "" where they say neither, or both."""
    for at in stack:
        call, source = at.call(), source_of(at.code.co_filename)
        if call is None or source is None:
            continue
        statement = source.statement(call)
        given: list[ast.AST] = [*call.args, *(one.value for one in call.keywords)]
        bound: list[ast.AST] = [*statement.targets] if isinstance(statement, ast.Assign) else []
        for nodes in (given, bound):
            names = {_name(n) for one in nodes for n in ast.walk(one)}
            sides = [any(map(wanted.search, names)) for wanted in (_PREFERRED, _OTHER)]
            if any(sides):
                return "" if all(sides) else "preferred" if sides[0] else "other"
    return ""


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return getattr(node, "id", "") or getattr(node, "attr", "")


FEWEST, MOST = 5, 20
"""So many steps tell that a margin stays zero. So many names are followed back."""


def of_one_model(run: Any) -> Margin | None:
    """The last of several margins that are all zero, over steps that each changed something: both sides are one."""
    found = [margin for margin, _ in _learned(run)]
    steps = {one.step for one in found}
    return found[-1] if len(steps) >= FEWEST and all(one.largest == 0 for one in found) else None


def unequal_at_start(run: Any) -> Margin | None:
    """The margin of two models that are still one, which is not zero; one number for all rows is an offset."""
    found = [margin for margin, _ in _learned(run) if margin.is_at_start and _has_reference(margin)]
    wrong = [one for one in found if one.largest > 1e-3 and one.spread > 1e-3]
    return wrong[0] if wrong and len(wrong) == len(found) else None


def new_reference(run: Any) -> Margin | None:
    """The margin of the first step in which a model that has learned is held to one that has not."""
    return next((one for one, _ in _learned(run) if one.is_new and _has_reference(one)), None)


_BETA = re.compile(r"^((self|args|cfg|config|hp|hparams)\.)*(dpo_)?beta$", re.IGNORECASE)
_REFERENCE = re.compile(r"ref|base|old|frozen|sft", re.IGNORECASE)
_LENGTH = re.compile(r"gamma|len|size|count|numel", re.IGNORECASE)


def _has_reference(margin: Margin) -> bool:
    """Whether the text of a margin names a reference, or four terms, none of which is a length: a margin without a
    reference may be meant, as SimPO's is."""
    call = margin.stack[0].call() if margin.stack else None
    source = source_of(margin.stack[0].code.co_filename) if call is not None else None
    if call is None or source is None or not call.args:
        return False
    inside, names, waiting = source.inside(source.function(call)), set[str](), [call.args[0]]
    while waiting and len(names) < MOST:
        found = {n.id for n in ast.walk(waiting.pop()) if isinstance(n, ast.Name)} - names
        names |= found
        waiting += [value for name in found for value in values_of(inside, name)]
    plain = {one for one in names if not _BETA.match(one) and not values_of(inside, one)}
    return any(map(_REFERENCE.search, names)) or (len(plain) >= 4 and not any(map(_LENGTH.search, names)))


class Scaled(NamedTuple):
    """The number that scales a margin, and how it is used. how: "divides" it, or "multiplies" the loss alone. place: of
    that."""

    name: str
    how: str
    margin: Margin
    place: str


def scaled_otherwise(run: Any) -> Scaled | None:
    """The margin that `beta` divides, or whose loss alone it multiplies."""
    for margin in run.of(Margin):
        call = margin.stack[0].call() if margin.stack else None
        source = source_of(margin.stack[0].code.co_filename) if call is not None else None
        if call is None or source is None or not call.args:
            continue
        inside = source.inside(source.function(call))
        values = [call.args[0], *(values_of(inside, n.id)[0] for n in ast.walk(call.args[0])
                                  if isinstance(n, ast.Name) and len(values_of(inside, n.id)) == 1)]  # fmt: skip
        nodes = [n for value in values for n in ast.walk(value)]
        for one in nodes:
            if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) and _BETA.match(ast.unparse(one.right)):
                return Scaled(ast.unparse(one.right), "divides", margin, source.place(one))
        if any(_BETA.match(_name(n)) for n in nodes):
            continue
        for around in source.outward(call):
            if isinstance(around, ast.stmt):
                break
            if isinstance(around, ast.BinOp) and isinstance(around.op, ast.Mult):
                sides = [ast.unparse(one) for one in (around.left, around.right)]
                name = next(filter(_BETA.match, sides), "")
                if name:
                    return Scaled(name, "multiplies", margin, source.place(around))
    return None
