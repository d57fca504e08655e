"""The methods with which a model of items recommends, and its losses of true and false items, are run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.decoding import taking_a_model
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.used_functions import line_in
from conformance.protocol import Array, NotProvided

_RECOMMENDS = re.compile(r"recommend|suggest|(next|best|rank)_items|top_?k_items|predict_top", re.I)
_MANY = re.compile(r"(top_?)?(k|n)|num_(items|results)|count|limit", re.I)
_LEAVES_OUT = re.compile(
    r"already|unseen|\bnew items|left out|leaves? out|exclud|filter_(seen|history)"
    r"|not (yet )?(seen|clicked|bought|watched)",
    re.I,
)
_TRUE = re.compile(r"pos(itives?)?(_?(seqs?|items?|ids?|samples?))?", re.I)
_LOSS = re.compile(r"loss|objective|(^|_)(bpr|bce)(_|$)", re.I)
_FALSE = re.compile(r"neg(atives?)?(_?(seqs?|items?|ids?|samples?))?", re.I)


@dataclass(frozen=True)
class Recommended:
    """items: (B, k), the best first, for histories (B, T). scores: (B, T, V), those of forward. says: whether the text
    of the method says that what a history holds is left out. chosen_at: the line that orders the scores."""

    name: str
    place: str
    chosen_at: str
    histories: Array
    items: Array
    scores: Array
    says: bool


class RecommendProbes(PlaceProbes):
    """The experiments with items, of a running model."""

    def recommended(self, many: int) -> list[Recommended]:
        """What each method of its recommends for histories without padding. Raises NotProvided."""
        found = [one for name, function in _methods(self, _RECOMMENDS) if (one := _ask(self, name, function, many))]
        if not found:
            raise NotProvided("it has no method that recommends items")
        return found

    def losses_of_pairs(self) -> list[tuple[str, str, Callable[[Array, Array, Array], float]]]:
        """Its methods, and the functions of its file, that compare true items with false ones: name, line and the loss
        of histories, true and false items, (B, T) each. Raises NotProvided."""
        found = []
        functions = ((name, one) for name, one in taking_a_model(self.module) if _LOSS.search(name))
        for name, function in [*_methods(self, _LOSS), *functions]:
            names = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty][1:]
            kinds = ["true" if _TRUE.fullmatch(n) else "false" if _FALSE.fullmatch(n) else "history" for n in names]
            if sorted(kinds) == ["false", "history", "true"]:
                found.append((name, line_in(function, r"def "), _pair_loss(self, function, kinds)))
        if not found:
            raise NotProvided("none of its losses compares true items with false ones")
        return found


def _methods(subject: PlaceProbes, names: re.Pattern[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, function in inspect.getmembers(type(subject.module), inspect.isfunction):
        if names.search(name) and not function.__module__.startswith("torch"):
            yield name, function


def _ask(subject: PlaceProbes, name: str, function: Callable[..., Any], many: int) -> Recommended | None:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    count = next((p.name for p in parameters[1:] if _MANY.fullmatch(p.name)), "")
    required = [p.name for p in parameters if p.default is p.empty]
    if not parameters or not count or not set(required) <= {parameters[0].name, count}:
        return None
    histories = subject.example(3, seed=95)[subject.calling.main.meaning]
    twin = subject.twin()
    with suppress(Exception), torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
        laid = twin.calling.turned(torch.tensor(histories))
        result = function(twin.module, laid, **{count: many})
        tables = [one for one in (result if isinstance(result, tuple) else (result,)) if _are_items(one, many)]
        if len(tables) == 1:
            text = inspect.getsource(function)
            items, scores = to_array(tables[0]), subject(**{subject.calling.main.meaning: histories})["out"]
            place = subject.line_of(rf"def {name}\b")
            chosen = line_in(function, r"(top_?k|arg_?sort|sort)\(", r"def ")
            return Recommended(name, place, chosen, histories, items, scores, bool(_LEAVES_OUT.search(text)))
    return None


def _are_items(one: Any, many: int) -> bool:
    return isinstance(one, Tensor) and not one.is_floating_point() and tuple(one.shape) == (3, many)


def _pair_loss(
    subject: PlaceProbes, function: Callable[..., Any], kinds: list[str]
) -> Callable[[Array, Array, Array], float]:
    def loss(history: Array, true: Array, false: Array) -> float:
        given = {"history": history, "true": true, "false": false}
        twin = subject.twin()
        with torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
            items = {kind: twin.calling.turned(torch.tensor(ids)) for kind, ids in given.items()}
            try:
                made = loss_in(function(twin.module, *(items[kind] for kind in kinds)))
            except (RuntimeError, IndexError):  # it takes several false items for each place
                several = items | {"false": items["false"][..., None].expand(*items["false"].shape, 2)}
                made = loss_in(function(twin.module, *(several[kind] for kind in kinds)))
        if made is None:
            raise NotProvided("its loss of pairs gives no number")
        return float(made)

    return loss
