"""Helpers that make one vector of many, and losses that compare such vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, near, noise, shown, tensor
from conformance.adapters.whole.watching import Watching

_HIDDEN = (
    r"hidden(_states?)?|x|h|tokens?(_embeddings?)?|last_hidden(_state)?|"
    r"embeddings?|out(put)?s?|feat(ure)?s?|states?|sequence|enc"
)
_MASK = r"((attention|attn|padding|pad|key_padding|real|valid|src)_?)?mask|m|keep|lengths?|lens?|valid"


@helper(
    "pooling-leaves-padding-out",
    r"pool|masked_(mean|max|average)|mean_(over|of)_(real|valid|tokens)",
    {"mask": _MASK, "hidden": _HIDDEN},
    ("hidden", "mask"),
)
def pooled(pool: Called) -> Iterator[Trouble]:
    """What stands in place of padding changes nothing; a mean is one over the real words, a maximum is theirs."""
    lengths = torch.tensor([5, 3, 2])
    real = torch.arange(5) < lengths[:, None]
    hidden = noise(3, 5, 4)
    hidden = hidden - 2.0 if "max" in pool.name else hidden  # a maximum below zero tells a mask of zeros
    name = pool.arguments.parameter_of["mask"].lower()
    forms: list[Tensor] = [real.long(), real.float(), real]
    if re.search(r"pad", name) and not re.search(r"non_?pad|not_pad", name):
        forms = [*(form.bool().logical_not().to(form.dtype) for form in forms[::-1])]
    if re.match(r"len", name):
        forms = [lengths]
    for mask in forms:
        with suppress(Exception):
            made = tensor(pool(hidden=hidden, mask=mask))
            if made.shape in ((3, 4), (3, 1, 4)):
                break
    else:
        raise OtherKind("it gives no vector for each row")
    moved = torch.where(real[..., None], hidden, 7.0 + hidden)
    if not near(made, pool(hidden=moved, mask=mask)):
        yield Trouble(
            f"{pool.name} counts padding: other numbers in its place give another vector.",
            "the same vector",
            "another vector",
        )
        return
    kind = next(
        (k for k, words in (("mean", r"mean|avg|average"), ("max", r"max")) if re.search(words, pool.name.lower())), ""
    )
    wanted = {
        "mean": (hidden * real[..., None]).sum(1) / lengths[:, None],
        "max": hidden.masked_fill(~real[..., None], -torch.inf).amax(1),
    }
    if (
        kind
        and not re.search(r"sqrt|weighted|attention", pool.says)
        and not near(made.reshape(3, 4), wanted[kind], 1e-3)
    ):
        words = "the mean over the real words" if kind == "mean" else "the largest of the real words"
        yield Trouble(f"{pool.name} is not {words}.", shown(wanted[kind][1]), shown(made.reshape(3, 4)[1]))


_SCORES = re.compile(r"logits?|sim(s|ilarit\w+)?($|_)|scores?|per_(image|text)")
"""Names of what is compared already: a number for each pair."""
_TEMPERATURE = r"t|tau|temp(erature)?|logit_scale|scale|s"
_MULTIPLIES = re.compile(r"(logit_)?scale|s")
"""Names of what similarities are multiplied by; by the others they are divided."""
_ONE_WAY = re.compile(
    r"a-?symmetric|(not|non|un|than|unlike|contrast to)[- ](the )?symmetric|one[- ](way|sided|direction)"
)
_BOTH_WAYS = re.compile(r"symmetric|both directions|two directions")
_NORMALISES = re.compile(r"normalize\(|cosine_similarity\(|norm\(")


@helper(
    "contrastive-losses-prefer-the-own-partner",
    r"contrast|info_?nce|nt_?xent|clip_loss|in_?batch|multiple_negatives|mnr|simcse",
    {
        "temperature": _TEMPERATURE,
        "one": (
            r"a|x|q|query|queries|anchors?|z1|z_?i|emb1|u|"
            r"image(_features|_emb)?|q_emb|left|h1|src|e1|query_emb(eddings?)?"
        ),
        "other": (
            r"b|y|d|docs?|documents?|positives?|z2|z_?j|emb2|v|"
            r"text(_features|_emb)?|d_emb|k|keys?|p|right|h2|tgt|e2|doc_emb(eddings?)?"
        ),
    },
    ("one", "other"),
)
def own_partner(loss: Called) -> Iterator[Trouble]:
    """In-batch contrast is the cross-entropy of similarities over the temperature, with the own partner as label."""
    a, b = noise(5, 7, seed=4), noise(5, 7, seed=5)
    names = loss.arguments.parameter_of
    scale_given = _MULTIPLIES.fullmatch(names.get("temperature", "").lower()) is not None
    if re.search(r"label|target|class", names["one"] + names["other"]):
        raise OtherKind("it is told which samples belong together")

    takes_scores = any(_SCORES.search(loss.arguments.parameter_of[side].lower()) for side in ("one", "other"))

    def value(one: Tensor, other: Tensor, temperature: float = 0.5) -> float:
        if takes_scores:
            one, other = one @ other.t(), other @ one.t()
        made = loss(one=one, other=other, temperature=1 / temperature if scale_given else temperature)
        made = made[0] if isinstance(made, tuple) else made
        if tensor(made).numel() != 1:
            raise OtherKind("it gives no loss")
        return float(tensor(made))

    with _Softmaxes() as asked:
        made = value(a, b)
    if asked.of_shares:
        yield _softmax_twice(loss)
        return
    one_way, both_ways = _contrasts(a, b, loss.has("temperature"))
    if any(abs(made - wanted) < 1e-5 * max(1.0, wanted) for wanted in one_way + both_ways):
        says_both = _BOTH_WAYS.search(loss.says) and not _ONE_WAY.search(loss.says)
        if (says_both or asked.twice) and abs(made - value(b, a)) > 1e-4:
            yield Trouble(
                f"{loss.name} is not symmetric: the two sides exchanged give another loss."
                + " Its two cross-entropies are of the same matrix." * asked.twice,
                shown(made),
                shown(value(b, a)),
            )
        return
    unit = F.normalize(a, dim=-1)  # each is most like itself
    unlike = value(a, a.roll(1, 0)) <= value(a, a)
    if unlike:
        yield Trouble(
            f"{loss.name} is no lower where each row meets its own partner than where it meets another.",
            f"less than {value(a, a.roll(1, 0)):.4g}",
            f"{value(a, a):.4g}",
        )
    elif abs(value(3 * a, b) - value(a, b)) < 1e-5 and abs(value(a, 3 * b) - value(a, b)) > 1e-4:
        yield Trouble(
            f"{loss.name} divides by the length of one side only.", shown(value(a, b)), shown(value(a, 3 * b))
        )
    elif abs(value(3 * a, b) - value(a, b)) > 1e-4 and abs(value(a, 3 * b) - value(a, b)) < 1e-5:
        yield Trouble(
            f"{loss.name} divides by the length of one side only.", shown(value(a, b)), shown(value(3 * a, b))
        )
    elif asked.count and loss.has("temperature") and value(unit, unit, 0.1) > value(unit, unit, 1.0) + 1e-4:
        yield Trouble(
            f"{loss.name}: a lower temperature does not make the choice sharper.",
            f"less than {value(unit, unit, 1.0):.4g}",
            f"{value(unit, unit, 0.1):.4g}",
        )
    elif abs(value(a, b) - value(a[[2, 0, 1, 4, 3]], b[[2, 0, 1, 4, 3]])) > 1e-4:
        yield Trouble(
            f"{loss.name} depends on the order of the pairs in the batch.",
            shown(value(a, b)),
            shown(value(a[[2, 0, 1, 4, 3]], b[[2, 0, 1, 4, 3]])),
        )
    elif _normalises(loss) and abs(value(3 * a, b) - value(a, b)) > 1e-4:
        yield Trouble(
            f"{loss.name}: the length of a vector changes the loss, although it is normalised.",
            shown(value(a, b)),
            shown(value(3 * a, b)),
        )


@helper(
    "contrastive-losses-prefer-the-own-partner",
    r"contrast|info_?nce|clip_?loss|in_?batch",
    {
        "temperature": _TEMPERATURE,
        "scores": r"logits?|sims?|similarit(y|ies)|scores?|((logits?|sims?|scores?)_)?(matrix|per_\w+)",
    },
    ("scores",),
)
def of_one_matrix(loss: Called) -> Iterator[Trouble]:
    """Where a loss of one matrix of similarities asks twice, it asks for the rows and for the columns."""
    scores = noise(5, 5, seed=4)

    def value(given: Tensor) -> float:
        made = tensor(loss(scores=given, temperature=1.0))
        if made.numel() != 1:
            raise OtherKind("it gives no loss")
        return float(made)

    with _Softmaxes() as asked:
        made = value(scores)
    if asked.of_shares:
        yield _softmax_twice(loss)
        return
    if asked.count < 2:
        raise OtherKind("it asks in one direction, and another function for the other one")
    rows = float(F.cross_entropy(scores, torch.arange(5)))
    if asked.twice and any(abs(made - wanted) < 1e-5 * wanted for wanted in (rows, 2 * rows)):
        yield Trouble(
            f"{loss.name} takes two cross-entropies of the rows of one matrix, and none of its columns.",
            shown(value(scores.t())),
            shown(made),
        )


def _softmax_twice(loss: Called) -> Trouble:
    return Trouble(f"{loss.name} takes the softmax of similarities twice.", "similarities", "what a softmax gives")


def _normalises(loss: Called) -> bool:
    """Whether its code normalises vectors, and no option of its says whether it does."""
    option = any("norm" in name.lower() for name in loss.arguments.accepts)
    return not option and any(_NORMALISES.search(line.partition("#")[0]) for line in loss.source.splitlines())


class _Softmaxes(Watching):
    """Counts the softmaxes of cross-entropies, and tells whether two are of the same matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten._log_softmax, torch.ops.aten.logsumexp):
            self.given.append(args[0].detach().clone())
        return func(*args, **(kwargs or {}))

    @property
    def count(self) -> int:
        return len(self.given)

    @property
    def of_shares(self) -> bool:
        """Whether one is of numbers that a softmax gave: none is below zero, and the rows or the columns add up to
        one."""
        shares = (one for one in self.given if one.dim() == 2 and bool((one >= 0).all()))
        return any(bool(((one.sum(axis) - 1).abs() < 1e-5).all()) for one in shares for axis in (0, 1))

    @property
    def twice(self) -> bool:
        """Whether there are two, of the same numbers in the same places."""
        return self.count == 2 and torch.equal(*self.given)


def _contrasts(a: Tensor, b: Tensor, tempered: bool) -> tuple[list[float], list[float]]:
    """The usual losses of one direction, once or twice, and those of both; at temperature 0.5, or at the usual
    temperatures where there is no parameter for it."""
    labels, one_way, both_ways = torch.arange(len(a)), list[float](), list[float]()
    for normed in (True, False):
        one, other = (F.normalize(a, dim=-1), F.normalize(b, dim=-1)) if normed else (a, b)
        for temperature in (0.5,) if tempered else (1.0, 0.05, 0.07, 0.1, 0.2, 0.5):
            scores = one @ other.t() / temperature
            rows, columns = float(F.cross_entropy(scores, labels)), float(F.cross_entropy(scores.t(), labels))
            one_way += [rows, columns, 2 * rows, 2 * columns]
            both_ways += [(rows + columns) / 2, rows + columns]
            both = torch.cat([one, other])
            every = (both @ both.t() / temperature).fill_diagonal_(-torch.inf)
            both_ways.append(float(F.cross_entropy(every, torch.cat([labels + len(a), labels]))))
    return one_way, both_ways
