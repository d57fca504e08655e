"""Checks of the losses that language models return themselves, beside their logits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.language_models import usable_length, with_head
from conformance.draw import Draw
from conformance.evidence import Evidence, close, true
from conformance.protocol import Array, NotProvided
from conformance.reference.training import cross_entropy


@check("language-model-loss-teaches-the-next-token", roles=("language_model",))
def loss_is_the_cross_entropy(impl: Any, draw: Draw) -> Evidence:
    """The loss that it returns is the cross-entropy of its own logits, with the labels shifted once at most."""
    subject = impl.build("language_model", {})
    if not subject.calling.labels:
        raise NotProvided("it returns no loss")
    inputs = subject.example(3, usable_length(subject), seed=17)
    labels = subject.example(3, usable_length(subject), seed=18)["ids"]
    taught = subject.taught({**inputs, "labels": labels})
    length = labels.shape[1]
    shifts = range(-2, 4)

    def fits(shift: int) -> bool:
        at = [t for t in range(length) if 0 <= t + shift < length and (taught[:, t] >= 0).any()]
        return bool(at) and all((taught[:, t] == labels[:, t + shift])[taught[:, t] >= 0].all() for t in at)

    found = [shift for shift in shifts if fits(shift)]
    silent = [t for t in range(length) if (taught[:, t] < 0).all()]
    place = subject.line_of("cross_entropy|CrossEntropyLoss|nll_loss") or subject.place()
    what = "the token that each position is taught"
    mend = "shift once: logits[:, :-1] against labels[:, 1:]"
    if 0 in found and 0 in silent and length - 1 not in silent:
        return true(what, False, expected="its next token", got="its own label, and none at the first position").saying(
            diagnosis="The logits are shifted instead of the labels: each position is taught its own token.",
            place=place,
            mend=mend,
        )
    said = subject.says_shift()
    if said is not None and found and said not in found and found[0] in (0, 1):
        words = ("the caller has shifted them", "the model shifts them")[said]
        return true(what, False, expected=f"the label {said:+d}", got=f"the label {found[0]:+d}").saying(
            diagnosis=f"The author says of the labels that {words}, and the model shifts them by {found[0]}.",
            place=place,
            mend=mend if said else "shift nothing: compare logits with labels as they are",
        )
    if 0 in found or 1 in found:
        return true(what, True, got=f"the label {'of the position' if 0 in found else 'after the position'}")
    if found:
        return true(
            what, False, expected="the label of the position, or the one after it", got=f"the label {found[0]:+d}"
        ).saying(
            diagnosis=f"Labels are shifted by {found[0]}: each position is taught a token that is not the next one.",
            place=place,
            mend=mend,
        )
    raise NotProvided("its loss teaches no token that could be told from its gradient")


@check("language-model-loss-takes-logits", roles=("language_model", "masked_language_model"))
def loss_takes_logits(impl: Any, draw: Draw) -> Evidence:
    """The loss is computed from logits: a softmax is not taken twice."""
    subject = with_head(impl)
    if not subject.calling.labels:
        raise NotProvided("it returns no loss")
    inputs = subject.example(3, usable_length(subject), seed=17)
    labels = subject.example(3, usable_length(subject), seed=18)[subject.calling.main.meaning]
    found = subject(**inputs, labels=labels)
    if "loss" not in found or found["out"].ndim < 3:
        raise NotProvided("it returns no loss beside its logits")
    logits, loss = found["out"], float(found["loss"])
    flat, wanted = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    once, twice = float(cross_entropy(flat, wanted)), float(cross_entropy(_softmax(flat), wanted))
    return true(
        "the loss is not that of probabilities", abs(twice - loss) > 1e-6 * abs(twice), expected=once, got=loss
    ).saying(
        diagnosis="The cross-entropy is given probabilities: the softmax is taken twice.",
        place=subject.line_of("cross_entropy|CrossEntropyLoss") or subject.place(),
        mend="give it the logits",
    )


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@check("language-model-loss-leaves-ignored-labels-out", roles=("language_model",))
def loss_ignores(impl: Any, draw: Draw) -> Evidence:
    """Labels of -100, or of its padding where it says so, are left out of the sum and of the count."""
    subject = impl.build("language_model", {})
    if not subject.calling.labels:
        raise NotProvided("it returns no loss")
    length = usable_length(subject)
    inputs, labels = subject.example(3, length, seed=17), subject.example(3, length, seed=18)["ids"]
    plain = subject(**inputs, labels=labels)
    if "loss" not in plain or plain.get("out", np.zeros(0)).ndim < 3:
        raise NotProvided("it returns no loss beside its logits")
    index = subject.ignored_label()
    if index is None:
        raise NotProvided("it refuses labels that are no tokens, and says of none that it is ignored")
    hidden = labels.copy()
    hidden[0, length // 2 :] = index
    try:
        found = subject(**inputs, labels=hidden)
    except (IndexError, RuntimeError) as error:
        is_assumed = index == -100 and not subject.line_of(r"[=<>]\s*-100\b")
        if is_assumed and re.search("out of (bounds|range)", str(error)):
            raise NotProvided("it refuses labels that are no tokens, and says of none that it is ignored") from error
        raise
    logits, loss = found["out"], float(found["loss"])
    values = {}
    for shift in (0, 1):
        rows, wanted = logits[:, : length - shift].reshape(-1, logits.shape[-1]), hidden[:, shift:].reshape(-1)
        kept = wanted != index
        each = -np.log(np.maximum(_softmax(rows)[np.arange(len(rows))[kept], wanted[kept]], 1e-300))
        values[shift] = (float(each.mean()), float(each.sum() / len(rows)))
    base = float(plain["loss"])
    plain_values = [
        float(cross_entropy(logits[:, : length - s].reshape(-1, logits.shape[-1]), labels[:, s:].reshape(-1)))
        for s in (0, 1)
    ]
    if min(abs(base - value) for value in plain_values) > 1e-5 * max(1.0, abs(base)) + subject.noise:
        raise NotProvided("its loss is no plain cross-entropy")
    shift = int(np.argmin([abs(base - value) for value in plain_values]))
    right, over_all = values[shift]
    evidence = close(
        "the loss with ignored labels", np.array(loss), np.array(right), 1e-5 * max(1.0, abs(right)) + subject.noise
    )
    counted = abs(loss - over_all) < 1e-5 * abs(loss)
    words = "they are left out of the sum, and counted in the mean" if counted else "they are taught"
    return evidence.saying(
        diagnosis=f"Ignored labels ({index}) change the loss: {words}.",
        place=(counted and subject.line_of(r"loss\s*=.*\.mean\(\)"))
        or subject.line_of("cross_entropy")
        or subject.place(),
        mend=f"F.cross_entropy(..., ignore_index={index})",
    )
