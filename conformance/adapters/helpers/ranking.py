"""Helpers that rank: losses over the candidates of a query, and orders by scores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, shown, tensor
from conformance.adapters.whole.calling import loss_in

_SCORES = r"(pred(icted)?_?)?(scores?|logits?|sims?|similarit(y|ies)|relevance_scores)|pred(s|ictions?)?|outputs?"
_PRESENT = r"(is_?|candidate_?|doc_?|cand_?)?(present|valid|keep|kept|real|exists?)(_?(mask|docs?|candidates))?"
"""Names of masks that are True for what is there, by any reading."""
_MASK = rf"{_PRESENT}|(candidate_?|valid_?|list_?|doc_?|cand_?)?(mask|present|valid|keep|real)"
_RELEVANCE = r"labels?|targets?|rel(evanc(e|ies|y))?s?|gains?|gold|grades?|y(_true)?"
QUERIES, CANDIDATES = 3, 5
GRADES = torch.tensor([[3.0, 0.0, 1.0, 2.0, 4.0], [1.0, 4.0, 3.0, 0.0, 2.0], [0.0, 2.0, 4.0, 1.0, 3.0]])
"""The relevance of candidates, no two of a query alike."""


_LISTWISE = r"list_?(wise|net|mle|loss)|softmax_(rank|loss|ce)|(rank(ing|net)?|lambda(_?rank)?)_?(loss|ce)"


@helper(
    "losses-of-lists-keep-queries-apart",
    _LISTWISE,
    {
        "mask": _MASK,
        "labels": r"labels?|targets?|rel(evance)?s?|gains?|gold|grades?|y(_true)?|pos(itive)?_?(idx|index|ids?)",
        "scores": _SCORES,
    },
    (),
)
def listwise(loss: Called) -> Iterator[Trouble]:
    """What the scores of a query's candidates are taught depends on that query alone: another query changes its slopes
    by a common factor at most. A relevant candidate with a higher score lowers the loss."""
    if not (loss.has("scores") and loss.has("labels")):
        raise OtherKind("it takes no scores and labels")
    form = _form(loss)
    relevant = torch.tensor([1, 4, 0])
    scores, labels = noise(QUERIES, CANDIDATES), form(relevant)
    base = _slopes(loss, scores, labels)
    others = scores.clone()
    others[1] = noise(CANDIDATES, seed=7) * 2
    moved = _slopes(loss, others, labels)
    with_label = _slopes(loss, scores, form(torch.tensor([1, 2, 0])))
    if not (base.abs().amax(-1) > 1e-6).all():
        raise OtherKind("some query has no slope")
    for row in (0, 2):
        for found in (moved, with_label):
            if not _parallel(base[row], found[row]):
                yield Trouble(
                    f"{loss.name}: what a query's candidates are taught depends on the candidates of another query: "
                    "a softmax or sum runs over the queries, not over the candidates of each.",
                    shown(base[row]),
                    shown(found[row]),
                )
                return
    at = base[torch.arange(QUERIES), relevant]
    if (at >= 0).all():
        yield Trouble(
            f"{loss.name}: a higher score of the relevant candidate does not lower the loss.",
            "a negative slope",
            shown(at),
        )


def _form(loss: Called) -> Callable[[Tensor], Tensor]:
    """How relevance is handed over: the number of the relevant candidate of each query, or a share for each."""
    at = torch.tensor([1, 4, 0])
    for form in (lambda at: one_hot(at, CANDIDATES).float(), lambda at: one_hot(at, CANDIDATES), lambda at: at):
        with suppress(Exception):
            made = _slopes(loss, noise(QUERIES, CANDIDATES), form(at))
            if made.isfinite().all() and made.any():
                return form
    raise OtherKind("it gives no loss of queries and candidates")


def _slopes(loss: Called, scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    given = scores.double().requires_grad_()
    (slopes,) = torch.autograd.grad(_value(loss, given, labels, mask), given)
    return slopes


def _value(loss: Called, scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """The loss. mask: True for the candidates that there are, all where it is None."""
    labels = labels.double() if labels.is_floating_point() else labels
    mask = torch.ones(QUERIES, CANDIDATES, dtype=torch.bool) if mask is None else mask
    made = loss_in(loss.arguments.call(loss.function, scores=scores, labels=labels, mask=mask))
    if made is None:
        raise OtherKind("it gives no loss")
    return made


@helper(
    "losses-of-lists-leave-missing-candidates-out",
    _LISTWISE,
    {"mask": _PRESENT, "labels": _RELEVANCE, "scores": _SCORES},
    ("scores", "labels", "mask"),
)
def left_out(loss: Called) -> Iterator[Trouble]:
    """A candidate that is not there is taught nothing, and its score changes nothing."""
    if not re.fullmatch(_PRESENT, loss.arguments.parameter_of["mask"].lower()):
        raise OtherKind("its mask may be True for what is missing")
    mask = torch.ones(QUERIES, CANDIDATES, dtype=torch.bool)
    mask[0, 3:], mask[2, 4] = False, False
    scores, grades = noise(QUERIES, CANDIDATES), GRADES * mask
    found = _slopes(loss, scores, grades, mask)
    if not found.isfinite().all() or not (found[mask].abs() > 1e-6).any():
        raise OtherKind("it teaches nothing of graded lists")
    missing = found[~mask].abs().max()
    if float(missing) > 1e-6 * float(found.abs().max()):
        yield Trouble(
            f"{loss.name}: candidates that are missing are taught, too: they count in the sum over the list.",
            "no slope",
            shown(found[~mask]),
        )


@helper(
    "losses-of-lists-do-not-mind-their-order",
    _LISTWISE,
    {"mask": _MASK, "labels": _RELEVANCE, "scores": _SCORES},
    ("scores", "labels"),
)
def in_any_order(loss: Called) -> Iterator[Trouble]:
    """The same candidates in another order have the same loss, where no two are alike."""
    scores = noise(QUERIES, CANDIDATES).double()
    values = [
        float(_value(loss, scores[:, order], GRADES[:, order]))
        for order in ([0, 1, 2, 3, 4], [3, 0, 4, 1, 2], [1, 2, 3, 4, 0])
    ]
    if not all(math.isfinite(value) for value in values) or (len(set(values)) == 1 and values[0] == 0):
        raise OtherKind("it gives no loss of graded lists")
    if not re.search(r"sort\(|topk\(", loss.source):
        raise OtherKind("its candidates may be handed over in their order")
    if max(values) - min(values) > 1e-6 * max(map(abs, values)):
        yield Trouble(
            f"{loss.name}: the same candidates in another order have another loss: an order by scores is no list of "
            "ranks, these are its argsort.",
            shown(values[0]),
            shown(values[1]),
        )


@helper(
    "ndcg-is-one-for-the-best-order",
    r"ndcg",
    {
        "k": r"(top_?)?k|n|at",
        "mask": _MASK,
        "labels": r"(true_?)?rel(evanc(e|ies|y))?s?(_true)?|gains?|grades?|true_relevance|y_true|labels?|targets?",
        "scores": _SCORES + r"|y_(score|pred|hat)",
    },
    ("scores", "labels"),
)
def graded(measure: Called) -> Iterator[Trouble]:
    """Scores in the order of the relevance have an NDCG of one, in any other order less."""
    found: list[float] = []
    for scores in (GRADES, -GRADES):
        mask = torch.ones(QUERIES, CANDIDATES, dtype=torch.bool)
        made = tensor(measure(scores=scores, labels=GRADES, mask=mask, k=CANDIDATES))
        if made.numel() not in (1, QUERIES) or not made.isfinite().all():
            raise OtherKind("it gives no NDCG of graded lists")
        found.append(float(made.mean()))
    best, worst = found
    size = next((one for one in (1.0, 100.0, float(QUERIES)) if abs(best - one) < 1e-3 * one), None)
    if size is None or worst > 0.95 * size:
        yield Trouble(
            f"{measure.name}: of lists in their best order it gives {best:.4g}, in their worst {worst:.4g}.",
            "1, and less than 1",
            f"{best:.4g}, {worst:.4g}",
        )


@helper(
    "recalls-of-all-that-is-relevant-are-one",
    r"recall_?(at|@)|recalls?$",
    {
        "k": r"(top_?)?ks?|n|at|cut_?offs?",
        "labels": rf"{_RELEVANCE}|(is_?)?relevant|relevance_(mask|matrix)|positives",
        "scores": _SCORES,
    },
    ("k", "scores", "labels"),
)
def recalled(measure: Called) -> Iterator[Trouble]:
    """Where all of the two that are relevant to each query are among the best three, the recall at three is one: a hit
    rate and a recall that is capped say so, too, and a precision does not."""
    scores, relevant = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]]).repeat(2, 1), torch.zeros(2, 5)
    relevant[0, :2] = relevant[1, [0, 2]] = 1
    worst = torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0]]).repeat(2, 1)
    several = measure.arguments.parameter_of["k"].lower().endswith("s")

    def value(labels: Tensor) -> float:
        made = measure(scores=scores, labels=labels, k=(3,) if several else 3)
        found = tensor(made[3] if isinstance(made, dict) and 3 in made else made)
        if found.numel() not in (1, 2) or not found.isfinite().all():
            raise OtherKind("it gives no recall of queries")
        return float(found.mean())

    for form in (torch.Tensor.float, torch.Tensor.bool):
        with suppress(Exception):
            got, nothing = value(form(relevant)), value(form(worst))
            break
    else:
        raise OtherKind("it takes no scores with what is relevant")
    if nothing != 0:
        raise OtherKind("what is relevant is told it in another form")
    if min(abs(got - one) for one in (1.0, 100.0, 2.0)) > 1e-3 * max(got, 1):
        yield Trouble(
            f"{measure.name} at 3 gives {got:.4g} where all that is relevant is among the best three.",
            "1",
            f"{got:.4g}",
            at=(r"/",),
            mend="divide the hits by how many are relevant",
        )


def _parallel(one: Tensor, other: Tensor) -> bool:
    if not other.any():
        return False
    return float(torch.cosine_similarity(one, other, 0)) > 1 - 1e-6


@helper(
    "orders-by-scores-begin-with-the-best",
    r"^(re_?)?rank(_?(docs?|documents|candidates|passages|items|results|by_scores?))?$|(^|_)top_?(k|n)(_?\w+)?$|^best_",
    {"k": r"(top_?)?(k|n)|limit|count", "mask": _MASK, "scores": _SCORES},
    ("scores",),
)
def ranked(order: Called) -> Iterator[Trouble]:
    """The numbers of the best scores come first, the best before the second best."""
    scores = noise(2, 6, seed=3)
    if re.search(r"worst|lowest|ascending|hard|distance|loss|smallest|bottom|filter|mask", order.says + order.source):
        raise OtherKind("it may look for the lowest")
    for given in (scores, scores[0]):
        with suppress(Exception):
            made = order(scores=given, k=3, mask=torch.ones_like(given, dtype=torch.bool))
            found = tensor(made[1] if isinstance(made, tuple) and len(made) == 2 else made)
            found = found if found.dim() == given.dim() else found[None]
            break
    else:
        raise OtherKind("it gives no numbers of candidates")
    down = given.argsort(-1, descending=True)[..., : found.shape[-1]].double()
    up = given.argsort(-1)[..., : found.shape[-1]].double()
    if found.shape == up.shape and torch.equal(found, up) and not torch.equal(up, down):
        yield Trouble(f"{order.name} begins with the lowest scores.", shown(down), shown(up))
