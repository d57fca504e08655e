"""Checks of losses that take the model: what is fed, what is taught where, and what padding costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, same, true
from conformance.protocol import Array

VOCAB = 9


def draw_batch(draw: Draw, padded: bool) -> tuple[Array, Array]:
    """Logits (B, T, V) and texts (B, T); padded: all but the first text end early, which padding, 0, fills."""
    rows, length = draw.int("B", 2, 4, 3), draw.int("T", 4, 8, 6)
    ids = draw.integers("ids", (rows, length), 1, VOCAB)
    if padded:
        for row in range(1, rows):
            ids[row, 2 + (row + draw.int("end", 0, 3, 1)) % (length - 2) :] = 0
    return draw.normal("logits", (rows, length, VOCAB)), ids


def gradient_of(impl: Any, logits: Array, ids: Array) -> tuple[Array, Array]:
    """The gradient of the loss by the logits (B, T, V), and what the model was fed."""
    subject = impl.build("training_loss", {})
    given = np.asarray(subject(logits=logits, ids=ids)["given"])
    gradients, _ = subject.vjp({"logits": logits, "ids": ids}, np.array(1.0))
    return np.asarray(gradients["logits"], np.float64), given


@check("a-training-loss-feeds-the-true-text", roles=("training_loss",), needs=("training_loss.given",))
def feeds_the_text(impl: Any, draw: Draw) -> Evidence:
    """The model is fed the text from its first token on; the last one may be left out, as nothing follows it."""
    logits, ids = draw_batch(draw, padded=False)
    given = np.asarray(impl.build("training_loss", {})(logits=logits, ids=ids)["given"])
    length = ids.shape[1]
    return all_of(
        true(
            "length of what is fed",
            given.shape[1] in (length - 1, length),
            got=given.shape,
            expected=(len(ids), length - 1),
        ),
        same("what is fed", given, ids[:, : given.shape[1]]),
    )


@check(
    "a-training-loss-teaches-the-next-token",
    roles=("training_loss",),
    needs=("training_loss.vjp", "training_loss.given"),
    examples=3,
)
def teaches_the_next_token(impl: Any, draw: Draw) -> Evidence:
    """The gradient of position t wants one word more than it has: token t + 1. The last position is taught nothing."""
    logits, ids = draw_batch(draw, padded=False)
    gradient, _ = gradient_of(impl, logits, ids)
    return all_of(
        same("the word that each position is taught", gradient[:, :-1].argmin(-1), ids[:, 1:]),
        true("every position is taught", (gradient[:, :-1].min(-1) < 0).all(), got=gradient[:, :-1].min(-1)),
        same("the gradient of the last position", gradient[:, -1], np.zeros_like(gradient[:, -1])),
    )


@check("a-training-loss-teaches-no-padding", roles=("training_loss",), needs=("training_loss.vjp",), examples=3)
def teaches_no_padding(impl: Any, draw: Draw) -> Evidence:
    """A position whose next token is padding has no gradient, every other one has one."""
    logits, ids = draw_batch(draw, padded=True)
    gradient, _ = gradient_of(impl, logits, ids)
    real = ids[:, 1:] != 0
    draw.bites(not real.all(), "some label is padding")
    return same("the positions that are taught", np.abs(gradient[:, :-1]).max(-1) > 0, real)


@check("padding-does-not-dilute-a-training-loss", roles=("training_loss",), examples=3)
def padding_does_not_dilute(impl: Any, draw: Draw) -> Evidence:
    """Uniform predictions cost ln V for each real label: the mean is ln V however much padding there is."""
    logits, ids = draw_batch(draw, padded=True)
    real = int((ids[:, 1:] != 0).sum())
    draw.bites(real < ids[:, 1:].size, "some label is padding")
    subject = impl.build("training_loss", {})
    got = float(subject(logits=0 * logits, ids=ids)["out"]) / np.log(VOCAB)
    mean, summed = abs(got - 1.0) < 1e-4, abs(got - real) < 1e-4 * real
    return true("loss / ln V", mean or summed, got=got, expected=f"1, or {real} for a sum over the real labels")
