"""The methods with which a model of items recommends, and its losses of true and false items, are run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
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
_SCORES = re.compile(r"_?(predict|score|rank|rate)(_(items|candidates|scores))?", re.I)
_CANDIDATES = re.compile(r"candidates?(_(items|ids))?|item_?(ids|indices|idx)|items", re.I)
TOO_LONG = (40, 130, 600)
"""Numbers of items one of which is more than most models of items read."""
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
        """What each method of its recommends for histories without padding; many: 0 for as many items as there are
        beside the histories. Raises NotProvided."""
        found = [one for name, function in _methods(self, _RECOMMENDS) if (one := _ask(self, name, function, many))]
        if not found:
            raise NotProvided("it has no method that recommends items")
        return found

    def item_scores(self, histories: Array) -> Array:
        """(B, T, V): the scores of all items at each place, from its states where forward gives those: a state times
        the vector of an item. Raises NotProvided."""
        main = self.calling.main
        if self.kind not in ("language_model", "encoder_model") or not self.positions or not main.vocab:
            raise NotProvided("it gives no scores of items, and no states of places")
        answer = self(**{main.meaning: histories})["out"]
        if self.kind == "language_model":
            return answer
        width = answer.shape[-1]
        tables = [p for p in self.module.modules() if isinstance(p, nn.Embedding) and p.embedding_dim == width]
        tables = [p for p in tables if p.num_embeddings == main.vocab]
        if len(tables) != 1:
            raise NotProvided("which vectors of items its states are compared with is not known")
        return answer @ to_array(tables[0].weight.detach().to(self.torch_dtype)).T

    def scorers(self) -> list[tuple[str, str, Callable[[Array, Array], Array]]]:
        """Its methods that score candidates for histories: name, line, and the scores (B, C) of histories (B, T) and
        items (B, C). Raises NotProvided."""
        found = []
        for name, function in _methods(self, _SCORES):
            wanted = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty][1:]
            if _SCORES.fullmatch(name) and len(wanted) == 2 and _CANDIDATES.fullmatch(wanted[1]):
                found.append((name, line_in(function, r"\[.*-1|\[:, 0|\[torch", r"def "), _scorer(self, function)))
        if not found:
            raise NotProvided("it has no method that scores candidates")
        return found

    def recommends(self) -> bool:
        """Whether it has a method that recommends items, or a loss of true and false items."""
        with suppress(NotProvided):
            return bool(any(_methods(self, _RECOMMENDS)) or self.losses_of_pairs())
        return False

    def cut_histories(self) -> tuple[Array, Array, Array]:
        """What forward answers for histories that are too long, for as many of their newest items as it answers, and
        for their oldest. Raises NotProvided where it cuts none."""
        main = self.calling.main
        if not self.positions or not main.vocab or not self.calling.batch_first:
            raise NotProvided("it reads no items, or has no answer for each place")
        for count in TOO_LONG:
            history = self.example(2, count, seed=94)[main.meaning]
            with suppress(Exception), self.mode(False), torch.no_grad():  # it takes no more than it has places
                parts = list(tensors_in(self.run({main.meaning: history})["result"]))
                answer = to_array(parts[min(self.calling.answer_at, len(parts) - 1)])
                if answer.ndim == 3 and 2 < (kept := answer.shape[1]) < count:
                    cuts = (history[:, -kept:], history[:, :kept])
                    newest, oldest = (self(**{main.meaning: cut})["out"] for cut in cuts)
                    return answer, newest, oldest
        raise NotProvided("it cuts no history")

    def losses_of_pairs(self) -> list[tuple[str, str, Callable[[Array, Array, Array], float]]]:
        """Its methods, and the functions of its file, that compare true items with false ones: name, line and the loss
        of histories, true and false items, (B, T) each. Raises NotProvided."""
        found = []
        functions = ((name, one) for name, one in taking_a_model(self.module) if _LOSS.search(name))
        for name, function in [*_methods(self, _LOSS), *functions]:
            parameters = list(inspect.signature(function).parameters.values())[1:]
            names = [
                p.name for p in parameters if p.default is p.empty or (p.default is None and _FALSE.fullmatch(p.name))
            ]
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


def _ask(subject: RecommendProbes, name: str, function: Callable[..., Any], many: int) -> Recommended | None:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    count = next((p.name for p in parameters[1:] if _MANY.fullmatch(p.name)), "")
    required = [p.name for p in parameters if p.default is p.empty]
    if not parameters or not count or not set(required) <= {parameters[0].name, count}:
        return None
    histories = subject.example(3, seed=95)[subject.calling.main.meaning]
    many = many or subject.calling.main.vocab - 1 - max(len({*row}) for row in histories.tolist())
    twin = subject.twin()
    with suppress(Exception), torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
        laid = twin.calling.turned(torch.tensor(histories))
        result = function(twin.module, laid, **{count: many})
        tables = [one for one in (result if isinstance(result, tuple) else (result,)) if _are_items(one, many)]
        if len(tables) == 1:
            text = inspect.getsource(function)
            items, scores = to_array(tables[0]), subject.item_scores(histories)
            place = subject.line_of(rf"def {name}\b")
            chosen = line_in(function, r"(top_?k|arg_?sort|sort)\(", r"def ")
            return Recommended(name, place, chosen, histories, items, scores, bool(_LEAVES_OUT.search(text)))
    return None


def _scorer(subject: PlaceProbes, function: Callable[..., Any]) -> Callable[[Array, Array], Array]:
    def scores(histories: Array, candidates: Array) -> Array:
        twin = subject.twin()
        with torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
            made = function(twin.module, twin.calling.turned(torch.tensor(histories)), torch.tensor(candidates))
        return to_array(made.double())

    return scores


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
