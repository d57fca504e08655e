"""Helpers that rank: losses over the candidates of a query, and orders by scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, shown, tensor
from conformance.adapters.whole.calling import loss_in

_SCORES = r"(pred(icted)?_?)?(scores?|logits?|sims?|similarit(y|ies)|relevance_scores)|pred(s|ictions?)?|outputs?"
_MASK = r"(candidate_?|valid_?|list_?|doc_?|cand_?)?(mask|present|valid|keep|real)"
QUERIES, CANDIDATES = 3, 5


@helper(
    "losses-of-lists-keep-queries-apart",
    r"list_?(wise|net|mle|loss)|softmax_(rank|loss|ce)|(rank(ing|net)?|lambda(_?rank)?)_?(loss|ce)",
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


def _slopes(loss: Called, scores: Tensor, labels: Tensor) -> Tensor:
    given = scores.double().requires_grad_()
    labels = labels.double() if labels.is_floating_point() else labels
    mask = torch.ones(QUERIES, CANDIDATES, dtype=torch.bool)
    made = loss_in(loss.arguments.call(loss.function, scores=given, labels=labels, mask=mask))
    if made is None:
        raise OtherKind("it gives no loss")
    (slopes,) = torch.autograd.grad(made, given)
    return slopes


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
