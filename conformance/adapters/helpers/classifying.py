"""Helpers that measure a classifier by several numbers: precision, recall, F1, balanced accuracy, correlations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, named_parts, shown, tensor

_NAMED = (
    r"metric|f1|precision|recall|balanced|report|evaluate|matthews|mcc|kappa|specificity|score_|(^|_)(compute|measure)"
)
_SCORES = r"(y_?)?(pred(s|ictions?|icted)?|hat|prob(s|abilities)?|logits?|scores?)|out(puts?)?|p|y_(pred|prob|score)"
_LABELS = r"(y_?)?(targets?|labels?|true|truth|gold|gt|references?)|y|answers?"
_PREDICTED = r"(y_?)?(pred(s|ictions?|icted)?|hat)|y_pred"
"""Names of parameters that take numbers of classes rather than scores."""
LABELS = torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2])
PREDICTED = torch.tensor([0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 2, 2, 2])
"""Fourteen answers in three classes, of which no two measures are closer than 0.016."""


@helper(
    "measures-of-classes-are-their-formulas",
    _NAMED,
    {"count": r"(n|num)_?(classes|labels)|k", "labels": _LABELS, "scores": _SCORES},
    ("scores", "labels"),
)
def measures(measure: Called) -> Iterator[Trouble]:
    """Each number is what its name says, by one of the means over classes that the name leaves open."""
    says = f"{measure.says} {' '.join(measure.arguments.parameter_of.values())}"
    if re.search(r"binary|positive|threshold", says) or re.search(r"\.bool\(\)|astype\(bool\)", measure.source):
        raise OtherKind("it measures two classes")
    if re.search(r"pad|ignor|(label|target|true|gold|y)\w* ?(!=|>) ?0", measure.source.lower()):
        raise OtherKind("it may leave a class out")
    yield from _judged(measure, _numbers(measure))


_ROWS_ARE_TRUE = re.compile(
    r"rows?\b[^\n.]{0,30}\b(tru|label|target|actual|gold)"
    r"|(labels?|targets?|true|gold|y|t)\w* \* [\w.]+ \+ (pred|p\b|y_?hat)"
    r"|\[(labels?|targets?|y_true|true|t), ?(pred\w*|y_pred|p)\]",
    re.IGNORECASE,
)
"""How a file says that the rows of its table of pairs are the true classes."""


@helper(
    "measures-of-classes-are-their-formulas",
    r"recall|precision|f1|acc(uracy)?|metric|kappa|mcc|matthews|report",
    {"pairs": r"conf(usion)?(_?(matrix|mat))?|cm|matrix|cells"},
    ("pairs",),
)
def measures_of_pairs(measure: Called) -> Iterator[Trouble]:
    """The same of a table of pairs, whose rows are the true classes."""
    if not _ROWS_ARE_TRUE.search(measure.file):
        raise OtherKind("nothing says whether the rows of its table are the true classes")
    pairs = torch.zeros(3, 3, dtype=torch.long).index_put((LABELS, PREDICTED), torch.tensor(1), accumulate=True)
    for form in (pairs, pairs.double(), pairs.numpy()):
        with suppress(Exception):
            named = re.sub(
                r"^(average|avg|mean)_(?=recall)", "macro_", measure.name
            )  # of scores it may be one of ranks
            made = measure(pairs=form)
            share = re.search(r"(recall|sensitivity|acc(uracy)?)|(precision)", measure.name)
            each = tensor(made).reshape(-1) if share and not isinstance(made, (Mapping, tuple)) else torch.zeros(0)
            if share and len(each) == 3:
                yield from _of_each_class(measure, each, bool(share[3]))
            else:
                yield from _judged(measure, _known(named, made))
            return
    raise OtherKind("it takes no table of pairs")


def _of_each_class(measure: Called, each: Tensor, is_precision: bool) -> Iterator[Trouble]:
    """The recall or the precision of each class."""
    hits = torch.bincount(LABELS[LABELS == PREDICTED], minlength=3)
    wanted = (hits / torch.bincount(PREDICTED if is_precision else LABELS, minlength=3)).double()
    if not torch.allclose(each.double(), wanted, atol=1e-3):
        sentence = f"{measure.name}, of a table whose rows are the true classes, gives them {shown(each)}."
        yield Trouble(sentence, shown(wanted), shown(each))


def _judged(measure: Called, found: list[tuple[str, float]]) -> Iterator[Trouble]:
    if not found:
        raise OtherKind("it gives no measure of classes")
    for name, got in found:
        wanted = _allowed(name)
        if not any(abs(got - scale * one) < 1e-3 * scale for one in wanted for scale in (1, 100)):
            first, got_text = f"{wanted[0]:.4g}", f"{got:.4g}"
            sentence = f"{measure.name}: {name} of fourteen answers is {got_text}, and not {first}."
            yield Trouble(sentence, first, got_text)
            return


def _numbers(measure: Called) -> list[tuple[str, float]]:
    """The measures whose formula is known, by their names."""
    scores = torch.full((len(LABELS), 3), 0.1).scatter(1, PREDICTED[:, None], 0.8)
    forms: list[tuple[Any, Any]] = [(scores, LABELS), (PREDICTED, LABELS)]
    if re.fullmatch(_PREDICTED, measure.arguments.parameter_of["scores"].lower()):
        forms.reverse()
    for given, labels in [
        *forms,
        *((a.numpy(), b.numpy()) for a, b in forms),
        *((a.tolist(), b.tolist()) for a, b in forms),
    ]:
        try:
            made = measure(scores=given, labels=labels, count=3)
        except Exception:
            continue
        return _known(measure.name, made)
    return []


def _known(function: str, made: Any) -> list[tuple[str, float]]:
    """What is made, but for what has no known formula, by its names; the name of the function where it has none."""
    named = [(name or function, value) for name, value in named_parts(made)]
    return [(name, number) for name, value in named if _allowed(name) and (number := _number(value)) is not None]


def _number(value: Any) -> float | None:
    try:
        found = tensor(value)
    except OtherKind:
        return None
    return float(found) if found.numel() == 1 and not bool(found.isnan().any()) else None


def _allowed(name: str) -> Sequence[float]:
    """The numbers that a measure of this name may give; none where its formula is not known. Of accuracy_and_f1 each
    may be either."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    if len(parts := words.split("_and_")) > 1:
        each = [_allowed(part) for part in parts]
        return [number for numbers in each for number in numbers] if all(each) else ()
    return next((numbers for pattern, numbers in _FORMULAS if re.fullmatch(pattern, words)), ())


def _formulas() -> list[tuple[str, Sequence[float]]]:
    pairs = torch.zeros(3, 3).double()
    for label, predicted in zip(LABELS.tolist(), PREDICTED.tolist(), strict=True):
        pairs[label, predicted] += 1
    hits, support, said, whole = pairs.diagonal(), pairs.sum(1), pairs.sum(0), pairs.sum()
    precision, recall, f1 = hits / said, hits / support, 2 * hits / (said + support)
    accuracy = float(hits.sum() / whole)
    by_chance = float((said * support).sum() / whole**2)
    spread = math.sqrt(float((whole**2 - said.square().sum()) * (whole**2 - support.square().sum())))
    correlation = float(hits.sum() * whole - (said * support).sum()) / spread
    mean_precision, mean_recall = float(precision.mean()), float(recall.mean())
    of_means = 2 * mean_precision * mean_recall / (mean_precision + mean_recall)
    true_negatives = (whole - said - support + hits) / (whole - support)

    def open_mean(values: Tensor) -> list[float]:
        weighted = float((values * support).sum() / whole)
        return [float(values.mean()), weighted, accuracy, float(values[1]), float(values[1:].mean())]

    macro = [float(f1.mean()), of_means, float(f1[1:].mean())]
    end = r"(_?score)?"
    return [
        (rf"(\w+_)?(balanced|bal|macro)_?acc(uracy)?{end}|(\w+_)?acc(uracy)?_(balanced|macro)|uar", [mean_recall]),
        (rf"((val|test|eval|train|top1)_)?acc(uracy)?{end}", [accuracy]),
        (rf"(\w+_)?(macro_?f_?1|f_?1_?macro){end}", macro),
        (rf"(\w+_)?(weighted_?f_?1|f_?1_?weighted){end}", [float((f1 * support).sum() / whole)]),
        (rf"(\w+_)?(micro_?f_?1|f_?1_?micro){end}", [accuracy]),
        (rf"((val|test|eval)_)?f_?1{end}", [*macro, *open_mean(f1)]),
        (r"macro_precision|precision_macro", [mean_precision, float(precision[1:].mean())]),
        (r"macro_recall|recall_macro", [mean_recall, float(recall[1:].mean())]),
        (rf"((val|test|eval)_)?precision{end}", open_mean(precision)),
        (rf"((val|test|eval)_)?(recall|sensitivity){end}", open_mean(recall)),
        (r"specificity", open_mean(true_negatives)),
        (r"mcc|matthews\w*", [correlation]),
        (r"(cohens?_)?kappa", [(accuracy - by_chance) / (1 - by_chance)]),
    ]


_FORMULAS = _formulas()
