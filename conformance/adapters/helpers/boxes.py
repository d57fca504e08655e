"""Helpers of detectors: boxes in other forms, and how much of two boxes is shared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, parts, shown, tensor
from conformance.adapters.whole.calling import loss_in

_BOX = r"(b?box(es)?|bb|b|preds?|pred(icted)?_?box(es)?|src_?box(es)?|x|out(puts?)?|rects?)"
_CENTRE = r"(c?xc?ywh|cxcywh|ccwh|cent(er|re)s?|cwh|xcycwh)"
_CORNERS = r"(xyxy|corners?|x1y1x2y2|ltrb|tlbr)"
_ROUNDED = 1e-3
"""Farther from its formula than any small number that is added to a divisor."""


@helper(
    "boxes-are-the-same-in-every-form",
    rf"(^|_){_CENTRE}_?(to|2)_?{_CORNERS}|(^|_){_CORNERS}_?(to|2)_?{_CENTRE}",
    {"boxes": _BOX},
    ("boxes",),
)
def forms(convert: Called) -> Iterator[Trouble]:
    """The corners lie half of its size from the centre; of xywh some take the first two for a corner."""
    corners = torch.tensor([[0.25, 0.125, 0.75, 0.375], [0.5, 0.25, 0.625, 1.0]])
    low, high = corners.split(2, -1)
    centre, corner = torch.cat([(low + high) / 2, high - low], -1), torch.cat([low, high - low], -1)
    to_corners = bool(re.search(rf"(to|2)_?{_CORNERS}$", convert.name.lower()))
    sides = [centre, corner] if re.search(r"(^|_|2)xywh", convert.name.lower()) else [centre]
    made = [(tensor(convert(boxes=x if to_corners else corners)), corners if to_corners else x) for x in sides]
    if any(got.shape != wanted.shape for got, wanted in made):
        raise OtherKind("it gives no boxes")
    if not any(torch.allclose(got, wanted.double(), atol=_ROUNDED) for got, wanted in made):
        got, wanted = made[0]
        yield Trouble(f"{convert.name} gives other boxes than it is given.", shown(wanted[0]), shown(got[0]))


@helper(
    "overlaps-of-boxes-are-shares-of-their-union",
    r"(^|_)g?iou(_|$)|(^|_)(general(ized|ised)?_?)(box_?)?iou|b?box_?iou|b?box_overlaps?|intersection_over_union",
    {"one": rf"{_BOX}_?[1a]?|a", "other": rf"{_BOX}_?[2b]?|(target|tgt|gt|true|y)_?(b?box(es)?)?|targets?|t"},
    ("one", "other"),
)
def overlaps(measure: Called) -> Iterator[Trouble]:
    """What two boxes share over what either has; the generalised one is lower by the empty share of their hull."""
    if re.search(r"(^|_)[dc]iou|mask|mean|mious?|complete|distance|rotat", measure.name.lower()):
        raise OtherKind("it is another measure")
    one = torch.tensor([[0.1, 0.2, 0.5, 0.6], [0.0, 0.0, 0.2, 0.1]])
    other = torch.tensor([[0.3, 0.3, 0.7, 0.9], [0.6, 0.7, 0.9, 0.8], [0.2, 0.3, 0.3, 0.4]])
    general = bool(re.search(r"(^|_)giou|general", measure.name.lower()))
    got, pairs = _asked(measure, one, other)
    for corners in (lambda x: x, _of_centres):
        share, hull = _shares(corners(one), corners(other))
        whole = share - hull if general else share
        wanted = whole if pairs else whole[[0, 1, 1], [0, 1, 2]]
        losses = [1 - wanted, (1 - wanted).mean(), (1 - wanted).sum()] if "loss" in measure.name.lower() else [wanted]
        if any(got.shape == loss.shape and torch.allclose(got, loss, atol=_ROUNDED) for loss in losses):
            return
    share, hull = _shares(one, other)
    if not pairs and got.shape != torch.Size([3]):
        raise OtherKind("it gives no number for each pair")
    wanted = share - hull if general else share
    yield Trouble(
        f"{measure.name} of two boxes is not what they share over "
        f"{'their union, less the empty share of their hull' if general else 'their union'}.",
        shown(wanted if pairs else wanted[[0, 1, 1], [0, 1, 2]]),
        shown(got),
    )


def _asked(measure: Called, one: Tensor, other: Tensor) -> tuple[Tensor, bool]:
    """What it gives for all pairs of two boxes and three, or for three pairs; whether for all."""
    with suppress(Exception):
        for part in parts(measure(one=one, other=other)):
            if tensor(part).shape == (2, 3):
                return tensor(part), True
    return tensor(parts(measure(one=one[[0, 1, 1]], other=other))[0]).squeeze(-1), False


def _of_centres(boxes: Tensor) -> Tensor:
    middle, size = boxes.split(2, -1)
    return torch.cat([middle - size / 2, middle + size / 2], -1)


def _shares(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """(N, M): what each pair shares, and which share of the box around both neither of them has."""
    a, b = one.double()[:, None], other.double()[None]
    inner = torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])
    outer = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    shared, around = inner.clamp(min=0).prod(-1), outer.prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - shared
    return shared / union, (around - union) / around


@helper(
    "losses-of-sets-do-not-mind-their-order",
    r"(^|_)(set|detection|detr|hungarian|match(ing|ed)?|objects?|box(es)?)_?(loss|criterion)$|loss_(of_)?(sets?|objects)",
    {
        "logits": r"(pred_?|class_?|cls_?)?(logits|scores)",
        "boxes": rf"{_BOX}",
        "targets": r"targets?|objects|gts?|truths?",
    },
    ("logits", "boxes", "targets"),
)
def sets(loss: Called) -> Iterator[Trouble]:
    """A set has no order: the same objects in another order, or the same answers from other queries, have the same
    loss, and so have two classes that change their numbers, where no class but that of nothing weighs less."""
    queries, classes = 7, loss.number(r"n(um)?_?(classes|labels)", 5)
    logits, boxes = noise(1, queries, classes + 1), noise(1, queries, 4, seed=1).sigmoid() * 0.4 + 0.3
    labels, objects = torch.tensor([1, 0, min(2, classes - 1)]), noise(3, 4, seed=2).sigmoid() * 0.4 + 0.3

    def value(order: list[int], places: list[int], named: list[int]) -> float:
        target = {"labels": torch.tensor(named)[labels[order]], "boxes": objects[order]}
        made = loss_in(loss(logits=logits[:, places][..., named], boxes=boxes[:, places], targets=[target]))
        if made is None:
            raise OtherKind("it gives no loss")
        return float(made)

    straight, same, names = [0, 1, 2], list(range(queries)), list(range(classes + 1))
    exchanged = [1, 0, *names[2:]]
    try:
        base = value(straight, same, names)
        ways = [
            ("the same objects in another order", value([2, 0, 1], same, names)),
            ("the same answers from other queries", value(straight, [3, 1, 6, 0, 5, 2, 4], names)),
        ]
        if classes > 1 and not re.search(r"class_weights?|per_class", loss.source):
            ways.append(("two classes that change their numbers", value(straight, same, exchanged)))
    except OtherKind:
        raise
    except Exception as error:
        raise OtherKind(f"it takes no logits, boxes and objects: {error}") from error
    for what, other in ways:
        if abs(other - base) > 1e-4 * max(abs(base), 1e-3):
            yield Trouble(
                f"{loss.name}: {what} have another loss.",
                f"{base:.4g}",
                f"{other:.4g}",
                at=(r"weight\w*\[", r"\[\w+, \w+\] =", r"labels"),
            )
            return
