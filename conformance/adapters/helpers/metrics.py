"""Helpers that measure: accuracy, perplexity, ranks, errors of forecasts, edits between texts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, shown, tensor

_SCORES = r"logits?|scores?|pred(s|ictions?)?|out(puts?)?|x|y_?(hat|pred)|probs"
_RANKED = r"rank(ed|ing|s)?|top|recommend|best|ids|item|order|result|retrieved"
"""Names of parameters that take the numbers of the best, and no scores."""
_LABELS = r"targets?|labels?|y(_true)?|truth|gold|gt|answers?|t"


def _number(made: Any) -> float:
    made = made[0] if isinstance(made, (tuple, list)) and made else made
    found = tensor(made)
    if found.numel() != 1:
        raise OtherKind("it gives no number")
    return float(found)


def _is(got: float, *wanted: float) -> bool:
    return any(abs(got - one) < 1e-3 * max(1.0, abs(one)) for one in wanted)


@helper(
    "accuracy-is-the-share-of-right-answers",
    r"acc(uracy)?(_|$)|(^|_)top_?k?_?acc|accuracy",
    {"k": r"(top_?)?k|topk", "ignored": r"ignore_?(index|id)|pad(_id|_idx)?", "labels": _LABELS, "scores": _SCORES},
    ("scores", "labels"),
)  # fmt: skip
def accuracy(measure: Called) -> Iterator[Trouble]:
    """Of five rows two are answered rightly, of those whose label counts."""
    if re.search(r"class_?acc|per_?class|by_?class|each", measure.name):
        raise OtherKind("it measures each class")
    left_out = {k: v for k, v in measure.settings.items() if re.search(r"pad|ignore", k) and type(v) is int}
    free = [n for n in range(12) if n not in left_out.values()]
    labels = torch.tensor(free[:5])
    scores = -0.01 * torch.arange(12.0).repeat(5, 1)
    scores[range(5), [*free[:2], *free[5:8]]] = 4.0  # each row is the best of some class, should rows be compared
    scores[2, free[2]] = 2.0
    topk_form = (1,) if measure.arguments.parameter_of.get("k", "").lower() == "topk" else 1
    got = _number(measure(scores=scores, labels=labels, k=topk_form, ignored=-100))
    if not _is(got, 0.4, 40.0, 2.0):
        yield Trouble(f"{measure.name}: with 2 of 5 answers right it gives {got:.4g}.", "0.4", f"{got:.4g}")
        return
    if measure.has("k") and topk_form == 1:
        two = _number(measure(scores=scores, labels=labels, k=2, ignored=-100))
        if not _is(two, 0.6, 60.0, 3.0):
            yield Trouble(
                f"{measure.name}: with 3 of 5 answers among the best two it gives {two:.4g}.", "0.6", f"{two:.4g}"
            )
            return
    if topk_form == (1,):
        both = measure(scores=scores, labels=labels, k=(1, 2), ignored=-100)
        two = _number(both[1]) if isinstance(both, (list, tuple)) and len(both) == 2 else 0.6
        if not _is(two, 0.6, 60.0, 3.0):
            yield Trouble(
                f"{measure.name}: with 3 of 5 answers among the best two it gives {two:.4g}.", "0.6", f"{two:.4g}"
            )
            return
    says_so = measure.has("ignored") or "-100" in measure.source or re.search(r"mask|ignor", measure.says)
    read = (value for name, value in left_out.items() if re.search(rf"\b{name}\b", measure.source.lower()))
    ignored = -100 if says_so else next(read, None)
    if ignored is not None:
        some = labels.clone()
        some[3:] = ignored
        got = _number(measure(scores=scores, labels=some, k=topk_form, ignored=-100))
        if not _is(got, 2 / 3, 200 / 3, 2.0):
            yield Trouble(
                f"{measure.name} counts labels that are left out: with 2 of 3 right it gives {got:.4g}.",
                "0.667",
                f"{got:.4g}",
            )


@helper(
    "perplexity-is-the-exponential-of-the-mean-loss",
    r"perplexity|^ppl|(^|_)ppl$|bits_per",
    {"loss": r"(mean_?|avg_?|total_?)?(loss|nll|ce)(_sum)?|x", "count": r"n(_?tokens)?|count|num_tokens|total"},
    ("loss",),
)
def perplexity(measure: Called) -> Iterator[Trouble]:
    """exp(1.5) of the mean loss 1.5; bits divide by log 2."""
    given: dict[str, Any] = {"loss": 6.0 if measure.has("count") else 1.5, "count": 4}
    try:
        got = _number(measure(**given))
    except Exception:
        got = _number(measure(**{**given, "loss": torch.tensor(given["loss"])}))
    wanted = 1.5 / math.log(2) if "bits" in measure.name else math.exp(1.5)
    if not _is(got, wanted):
        yield Trouble(f"{measure.name}: of a mean loss of 1.5 it gives {got:.4g}.", f"{wanted:.4g}", f"{got:.4g}")


@helper(
    "retrieval-counts-the-own-partner",
    r"recall(_at)?|hit_?rate|hits?_?at|retrieval|top_?k_?(recall|hit)|mrr|reciprocal",
    {
        "k": r"(top_?)?ks?|n",
        "one": r"a|q|query|queries|x|z1|scores?|sim(ilarity|s)?|q_emb|image.*|left|u|src",
        "other": r"b|d|docs?|y|z2|targets?|labels?|positives?|d_emb|text.*|right|v|tgt",
    },
    ("one", "other"),
)
def retrieval(measure: Called) -> Iterator[Trouble]:
    """Where the own partner has rank 1, 2, 1 and 3, it is among the best one in half, among the best two in three of
    four, and the mean reciprocal rank is 17 / 24."""
    if (named := _by_name(measure)) is not None:
        yield from named
        return
    sims = torch.tensor([[0.9, 0.1, 0.0, 0.2], [0.8, 0.5, 0.1, 0.0], [0.1, 0.0, 0.7, 0.3], [0.6, 0.5, 0.1, 0.4]])
    reciprocal = bool(re.search(r"mrr|reciprocal", measure.name))
    forms: list[tuple[Tensor, Tensor]] = [(sims, torch.arange(4)), (_with_cosines(sims), torch.eye(4))]
    if "==" in measure.source and not re.search(r"sort\(|topk\(|[<>]|@", measure.source.partition(":\n")[2]):
        forms = [(sims.argsort(1, descending=True), torch.arange(4))]  # it is given numbers of rows, the best first
    wanted = {1: 0.5, 2: 0.75, 3: 1.0}
    ran = False
    for one, other in forms:
        with suppress(Exception):
            got = {k: _number(measure(one=one, other=other, k=k)) for k in ((1, 2, 3) if _takes_one(measure) else (3,))}
            ran = True
            if reciprocal and not _is(got[3], (1 + 0.5 + 1 + 1 / 3) / 4):
                yield Trouble(
                    f"{measure.name}: of the ranks 1, 2, 1 and 3 it gives {got[3]:.4g}.", "0.7083", f"{got[3]:.4g}"
                )
            elif not reciprocal and _takes_one(measure):
                bad = [k for k, value in got.items() if not _is(value, wanted[k], 100 * wanted[k], 4 * wanted[k])]
                if bad:
                    yield Trouble(
                        (
                            f"{measure.name} at {bad[0]}: where {wanted[bad[0]]:.0%} of the "
                            f"rows have their partner among the best, it gives {got[bad[0]]:.4g}."
                        ),
                        f"{wanted[bad[0]]:.4g}",
                        f"{got[bad[0]]:.4g}",
                    )
            break
    if not ran:
        raise OtherKind("it takes neither scores and labels nor two sides")


def _takes_one(measure: Called) -> bool:
    """Whether it takes one number of the best, and not several."""
    return measure.has("k") and not _takes_several(measure)


def _takes_several(measure: Called) -> bool:
    return measure.arguments.parameter_of.get("k", "").lower().endswith("ks")


_AT = re.compile(r"(.*?)(?<![a-z])(r|recall|hits?|hit_?rate|hr|top)[_ ]?(@|at)?[_ ]?(\d+)")
"""Names of figures that are a recall among so many: "i2t_R@5", "recall_10"."""
_WAY = re.compile(r"([a-z]+?)_?(?:2|to)_?([a-z]+?)[_/ ]*")
_VECTORS = re.compile(
    r"(images?|imgs?|texts?|txts?)|quer(y|ies)|docs?|documents?|audios?|videos?"
    r"|\w*_?(emb|embs|embeds?|embeddings?|feats?|features?|vecs?|vectors?|repr|z)"
)
"""Names of parameters that take a vector for each row."""
_MANY = re.compile(r"//|repeat_interleave|per_image|captions_")
"""What says that a row has several partners."""
_ALONG = r"\.diag(onal)?\((?!.*(None|unsqueeze|view|reshape))"
_AS_A_COLUMN = "sims.diagonal().unsqueeze(1), so that each row is compared with its own"
_PAIRS, _WIDE, _NOISE = 12, 6, 0.6


def _by_name(measure: Called) -> list[Trouble] | None:
    """What is wrong with recalls that come by their names, where both sides are vectors, row by row partners; None
    where none come so. Each recall is that of the one way or that of the other, which its name need not tell; of two
    names that say opposite ways each has its own."""
    known = measure.arguments.parameter_of
    sides = [known[side].lower() for side in ("one", "other")]
    if {*measure.arguments.accepts} - {*known.values()} or _MANY.search(measure.source):
        return None
    if not all(_VECTORS.fullmatch(side) for side in sides):
        return None
    one = F.normalize(noise(_PAIRS, _WIDE), dim=-1)
    other = F.normalize(one + _NOISE * noise(_PAIRS, _WIDE, seed=1), dim=-1)
    try:
        made = measure(one=one, other=other, **({"k": (1, 2, 3)} if _takes_several(measure) else {}))
    except Exception:  # what it wants is not known
        return None
    found: dict[int, dict[str, float]] = {}
    for name, value in made.items() if isinstance(made, dict) else ():
        if (told := _AT.fullmatch(str(name).lower())) is not None:
            found.setdefault(int(told[4]), {})[told[1]] = _number(value)
    if not found:
        return None
    sims = one @ other.T
    for k, got in sorted(found.items()):
        shares = [float((way > way.diagonal()[:, None]).sum(1).lt(k).double().mean()) for way in (sims, sims.T)]
        of = f"{measure.name}: of {_PAIRS} rows {shares[0]:.0%} have their partner among the best {k} one way, and "
        of += f"{shares[1]:.0%} the other way."
        wanted = " and ".join(f"{share:.4g}" for share in shares)
        given = ", ".join(f"{value:.4g}" for value in got.values())
        if not all(_is(value, *shares, *(100 * share for share in shares)) for value in got.values()):
            return [Trouble(f"{of} It gives {given}.", wanted, given, at=(_ALONG,), mend=_AS_A_COLUMN)]
        if _opposite([*got]) and abs(shares[0] - shares[1]) > 0.05 and len({*got.values()}) == 1:
            return [Trouble(f"{of} It gives {given} for both: one side is asked twice.", wanted, given)]
    return []


def _opposite(names: list[str]) -> bool:
    """Whether two names say opposite ways: "i2t_" and "t2i_", "image_to_text" and "text_to_image"."""
    ways = [_WAY.fullmatch(name) for name in names]
    return len(ways) == 2 and all(ways) and ways[0].groups() == ways[1].groups()[::-1]  # type: ignore[union-attr]


def _with_cosines(sims: Tensor) -> Tensor:
    """Rows whose cosine with the unit vectors has the order of the similarities."""
    return sims.clone()


@helper(
    "ndcg-discounts-by-the-rank",
    r"ndcg",
    {"k": r"(top_?)?k|n", "labels": _LABELS, "scores": _SCORES},
    ("scores", "labels"),
)
def ndcg(measure: Called) -> Iterator[Trouble]:
    """One true item of the rank r (from 0) counts 1 / log2(r + 2), beyond k nothing."""
    scores = torch.tensor([[0.9, 0.1, 0.5, 0.3], [0.9, 0.8, 0.7, 0.1]])
    labels = torch.tensor([2, 3])
    if re.match(_RANKED, measure.arguments.parameter_of["scores"].lower()):
        scores = scores.argsort(-1, descending=True)[:, :3]
    made = measure(scores=scores, labels=labels, k=3)
    named = re.split(r"_and_|_", measure.name.lower())
    if isinstance(made, tuple):  # recall_and_ndcg gives two numbers
        told = [name for name in named if re.search(r"ndcg|recall|hit|mrr|precision|map", name)]
        if len(told) != len(made):
            raise OtherKind("which of its numbers it is is not known")
        made = made[next(n for n, name in enumerate(told) if "ndcg" in name)]
    got = _number(made)
    wanted = (1 / math.log2(3)) / 2
    if not _is(got, wanted, 2 * wanted):
        yield Trouble(
            f"{measure.name}: for ranks 1 and 3 (from 0), the best three, it gives {got:.4g}.",
            f"{wanted:.4g}",
            f"{got:.4g}",
        )


@helper(
    "ndcg-discounts-by-the-rank",
    r"ndcg|(^|_)rank(ing|s)?_?metrics|metrics_(of|from|at|for)_?ranks?|(^|_)(compute_)?metrics$",
    {"k": r"(top_?)?ks?|n|cut_?offs?|at", "ranks": r"((target|pos(itive)?|true|all)_?)?ranks?"},
    ("ranks",),
)
def ndcg_of_ranks(measure: Called) -> Iterator[Trouble]:
    """Of the ranks of true items alone: the best counts 1, that behind it 1 / log2(3), whether ranks begin with 0 or
    with 1."""

    def value(*ranks: int) -> float:
        listed = measure.arguments.parameter_of.get("k", "").lower().endswith("s")
        for form in (torch.tensor(ranks), np.array(ranks), list(ranks)):
            with suppress(Exception):
                made = measure(ranks=form, k=(5,) if listed else 5)
                if isinstance(made, dict):
                    return next(_number(one) for name, one in made.items() if "ndcg" in str(name).lower())
                if "ndcg" in measure.name.lower():
                    return _number(made)
        raise OtherKind("it gives no NDCG of ranks")

    first, second, both = value(1), value(2), value(1, 2)
    if not (first > second > 0 and _is(both, (first + second) / 2) and value(9_999) == 0):
        raise OtherKind("its ranks are no ranks of one true item each")
    wanted = 1 / math.log2(3)  # the value of the second place
    if not any(_is(one, wanted, 100 * wanted) for one in (first, second)):
        yield Trouble(
            f"{measure.name}: the second place counts {first:.4g} if ranks begin with 0, and {second:.4g} if they "
            "begin with 1.",
            f"{wanted:.4g} (1 / log2(3))",
            f"{first:.4g} or {second:.4g}",
        )


@helper(
    "errors-of-forecasts-are-their-formulas",
    r"^(mase|s?mape|r?mse|mae|nd|wape)(_|$)|(^|_)(mase|s?mape|rmse|mae|wape)$",
    {
        "season": r"season(ality)?|m|period|freq",
        "past_seen": r"(past|insample|history|train)_(seen|mask|observed|valid)",
        "seen": r"seen|(target_|future_)?(mask|observed|valid)|weights?|w|keep",
        "past": r"past|insample|history|train|context|y_train|x",
        "target": r"targets?|labels?|y(_true)?|truth|actual|future|t|true|y",
        "forecast": r"forecasts?|pred(s|icted|ictions?)?|y_?(hat|pred)|out(puts?)?|f",
    },
    ("forecast", "target"),
)
def forecast_errors(measure: Called) -> Iterator[Trouble]:
    """The usual formula of the error that the function is called after."""
    forecast, target = 3 + noise(1, 4, 1), 3 + noise(1, 4, 1, seed=1)
    past = 3 + noise(1, 10, 1, seed=2)
    got = None
    for cut in ((lambda t: t), (lambda t: t.reshape(-1)), (lambda t: t.reshape(-1).numpy())):
        with suppress(Exception):
            seen = {
                name: cut(torch.ones_like(of, dtype=torch.bool)) for name, of in (("seen", target), ("past_seen", past))
            }
            got = _number(measure(forecast=cut(forecast), target=cut(target), past=cut(past), season=2, **seen))
            break
    if got is None:
        raise OtherKind("it gives no number")
    error = (forecast - target).abs()
    step = (past[:, 2:] - past[:, :-2]).abs().mean() if measure.has("season") else past.diff(dim=1).abs().mean()
    name = next(n for n in ("smape", "mape", "mase", "rmse", "mse", "mae", "wape", "nd") if n in measure.name.lower())
    wanted = {
        "mase": error.mean() / step,
        "mape": (error / target.abs()).mean(),
        "smape": (2 * error / (forecast.abs() + target.abs())).mean(),
        "rmse": error.square().mean().sqrt(),
        "mse": error.square().mean(),
        "mae": error.mean(),
        "wape": error.sum() / target.abs().sum(),
        "nd": error.sum() / target.abs().sum(),
    }[name]
    if not _is(got, float(wanted), 100 * float(wanted), float(wanted) / 2 if name == "smape" else float(wanted)):
        yield Trouble(f"{measure.name} is not {name.upper()}.", shown(wanted), f"{got:.4g}")


@helper(
    "edit-distances-count-the-fewest-edits",
    r"edit_?dist|levenshtein|(^|_)[wc]er(_|$)|(word|char(acter)?|letter|phone)_?error",
    {
        "true": r"ref(erence)?s?|targets?|truth|gold|y|a|s1?|r",
        "found": r"hyp(othesis|otheses)?s?|pred(iction)?s?|b|t|s2|h|out(puts?)?",
    },
    ("true", "found"),
)
def edits(measure: Called) -> Iterator[Trouble]:
    """kitten and sitting are three edits apart; an error rate divides by the length of the truth."""

    def values(true: str, found: str) -> list[float]:
        """What it gives for each form in which it can be given two texts."""
        forms: list[tuple[Any, Any]] = [
            (true, found),
            (list(true), list(found)),
            ([*map(ord, true)], [*map(ord, found)]),
        ]
        if re.search(r"(^|_)wer|word", measure.name):
            forms.insert(0, (" ".join(true), " ".join(found)))
        if measure.takes_text("true"):
            forms = forms[:1]
        given = []
        for one, other in [*forms, *(([one], [other]) for one, other in forms)]:
            with suppress(Exception):
                given.append(_number(measure(true=one, found=other)))
        if not given:
            raise OtherKind("it takes no two texts")
        return given

    rate = bool(re.search(r"er(_|$)|error|rate|normali", measure.name + measure.says.split("\n")[0]))
    for true, found, count in (("kitten", "sitting", 3), ("abc", "abc", 0), ("flaw", "lawn", 2), ("aab", "ba", 2)):
        wanted = (count, count / len(true) if rate else count, 100 * count / len(true) if rate else count)
        given = values(true, found)
        if not any(_is(got, *wanted) for got in given):
            yield Trouble(
                f"{measure.name} of {true!r} and {found!r} is {given[0]:.4g}.",
                f"{count / len(true):.4g}" if rate else count,
                f"{given[0]:.4g}",
            )
            return


@helper(
    "areas-under-the-curve-count-pairs",
    r"(^|_)(roc_?)?auc(_|$)|auroc|area_under",
    {
        "scores": r"(y_?)?(scores?|probs?|pred(s|ictions?)?|hat|logits?)|p|s|x|out(puts?)?",
        "labels": r"(y_?)?(labels?|targets?|true|truth|gold|pos(itives?)?)|y|is_\w+|gt|answers?",
    },
    ("scores", "labels"),
)
def area(measure: Called) -> Iterator[Trouble]:
    """The share of pairs of a positive and a negative in which the positive has the higher score; of equal scores half
    of the pairs count, which is a note where the function says nothing of these."""
    if re.search(r"(^|_)(pr|precision|aupr|macro|mean|multi|average)", measure.name):
        raise OtherKind("it is another area, or a mean of several")
    says_so = re.search(r"\btie[sd]?\b|equal|average|unique|inverse|same score", measure.source)
    for scores, wanted in (([0.1, 0.4, 0.35, 0.8, 0.2], 5 / 6), ([0.1, 0.4, 0.4, 0.8, 0.2], 5.5 / 6)):
        labels = [0, 0, 1, 1, 0]
        got = math.nan
        for form in (torch.tensor, np.array, list):
            with suppress(Exception):  # it takes another form
                got = _number(measure(scores=form(scores), labels=form(labels)))
                break
        if math.isnan(got):
            raise OtherKind("it takes no scores and labels")
        if not _is(got, wanted, 100 * wanted):
            with_ties = len({*scores}) < len(scores)
            yield Trouble(
                f"{measure.name} of the scores {', '.join(map(str, scores))}, of which the third and the fourth are "
                f"positive, is {got:.4g}.",
                f"{wanted:.4g}",
                f"{got:.4g}",
                certain=not with_ties or says_so is not None,
            )
            return
