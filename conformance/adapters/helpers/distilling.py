"""Helpers that let a student follow a teacher: losses between the logits of two models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, near, noise, shown
from conformance.adapters.whole.calling import loss_in

_SIDE = r"(_?(logits?|out(put)?s?|scores?|pred(ictions?|s)?))?"
_SHARES = re.compile(r"^(soft_?)?(targets?|labels?|y)$|prob|share|mixed")
"""Names of targets that are no logits of a teacher."""
_ROWS, _LENGTH, _CLASSES = 2, 4, 6


@helper(
    "distillation-is-lowest-at-the-teacher",
    r"distil|(^|_)kd(_|$)|soft_(target|label)|student|teacher|knowledge",
    {
        "student": rf"students?{_SIDE}|s_logits|logits_s(tudent)?|stu(_logits)?",
        "teacher": rf"teachers?{_SIDE}|t_logits|logits_t(eacher)?|tea(_logits)?",
        "labels": r"labels?|targets?|y(_true)?|hard_labels",
        "mask": r"((attention|valid|label|token|loss)_?)?mask|keep|real|valid",
        "temperature": r"temp(erature)?|t|tau",
        "share": r"alpha|soft_?weight|kd_?weight|distil\w*_?(weight|alpha)|lam(bda)?_?(kd)?",
    },
    ("student", "teacher"),
)
def distillation(loss: Called) -> Iterator[Trouble]:
    """Where the student's logits are those of the teacher, nothing but its labels moves the student, at any
    temperature; away from them it is moved."""
    if not (loss.has("student") and loss.has("teacher")) or loss.arguments.parameter_of["student"] == "t":
        raise OtherKind("it takes no two sides")
    if _SHARES.search(loss.arguments.parameter_of["teacher"].lower()):
        raise OtherKind("its targets are shares of classes, and no logits")
    wide = _fits(loss)
    teacher = _logits(wide, 3)
    away = _slope(loss, _logits(wide, 5), teacher, wide)
    if not away.any():
        raise OtherKind("it moves no student")
    rest = _slope(loss, teacher, teacher, wide)
    rest = _but_labels(rest, teacher) if loss.has("labels") else rest
    names_a_model = re.search(r"teach|tea\b|logit|^t$|(^|_)t(_|$)", loss.arguments.parameter_of["teacher"].lower())
    of_shares = _slope(loss, teacher.log_softmax(-1), teacher.softmax(-1), wide)
    if not names_a_model and float(of_shares.abs().max()) < 1e-6 * float(away.abs().max()):
        raise OtherKind("its targets are shares of classes, and no logits")
    if float(rest.abs().max()) > 1e-6 * float(away.abs().max()):
        yield Trouble(
            f"{loss.name}: a student whose logits are those of its teacher is moved away from them. What the "
            "divergence is given is not log-probabilities beside probabilities, or they are not softened alike.",
            "no slope",
            shown(rest),
        )
        return
    if wide and loss.has("mask"):
        yield from _of_padding(loss)


def _of_padding(loss: Called) -> Iterator[Trouble]:
    """A masked place changes nothing, and one more of them changes no mean."""
    student, teacher = _logits(True, 5), _logits(True, 3)
    value = _value(loss, student, teacher, True, _mask(1))
    moved = student.clone()
    moved[0, -1] += torch.arange(_CLASSES)
    if not near(_value(loss, moved, teacher, True, _mask(1)), value):
        yield Trouble(f"{loss.name} counts masked places.", shown(value), "another loss")
        return
    longer, behind = (torch.cat([one, one[:, -1:]], 1) for one in (student, teacher))
    mask = torch.cat([_mask(1), torch.zeros(_ROWS, 1, dtype=torch.bool)], 1)
    more = _value(loss, longer, behind, True, mask)
    if not near(more, value):
        yield Trouble(
            f"{loss.name} is no mean over what is real: one masked place more gives another loss.",
            shown(value),
            shown(more),
        )


def _logits(wide: bool, seed: int) -> Tensor:
    shape = (_ROWS, _LENGTH, _CLASSES) if wide else (_ROWS * _LENGTH, _CLASSES)
    return noise(*shape, seed=seed).double()


def _mask(hidden: int) -> Tensor:
    mask = torch.ones(_ROWS, _LENGTH, dtype=torch.bool)
    mask[0, _LENGTH - hidden :] = False
    return mask


def _fits(loss: Called) -> bool:
    """Whether its logits have an axis of places."""
    for wide in (False, True) if not loss.has("mask") else (True, False):
        with suppress(Exception):
            if _slope(loss, _logits(wide, 5), _logits(wide, 3), wide).isfinite().all():
                return wide
    raise OtherKind("it gives no loss of two sides")


def _value(loss: Called, student: Tensor, teacher: Tensor, wide: bool, mask: Tensor) -> Tensor:
    labels = torch.arange(_ROWS * student.shape[1] if wide else _ROWS * _LENGTH) % _CLASSES
    made = loss.arguments.call(
        loss.function,
        student=student,
        teacher=teacher,
        labels=labels.reshape(student.shape[:-1]),
        mask=mask if wide else mask.reshape(-1),
        temperature=2.0,
        share=0.5,
    )
    made = made[0] if isinstance(made, tuple) and made else made
    value = loss_in(made)
    if value is None:
        raise OtherKind("it gives no loss")
    return value


def _slope(loss: Called, student: Tensor, teacher: Tensor, wide: bool) -> Tensor:
    given = student.clone().requires_grad_()
    (slope,) = torch.autograd.grad(_value(loss, given, teacher.clone(), wide, _mask(0)), given)
    return slope


def _but_labels(slope: Tensor, logits: Tensor) -> Tensor:
    """The slope without what a cross-entropy of the labels, smoothed or not, explains."""
    labels = (torch.arange(_ROWS * _LENGTH) % _CLASSES).reshape(logits.shape[:-1])
    likely = logits.softmax(-1)
    taught = torch.stack([(likely - one_hot(labels, _CLASSES)).flatten(), (likely - 1 / _CLASSES).flatten()], 1)
    shares = torch.linalg.lstsq(taught, slope.flatten()[:, None]).solution
    return slope - (taught @ shares).reshape(slope.shape)
