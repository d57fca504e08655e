"""Checks of the filters by which a model's writer draws: temperature, top-k and top-p.

What it draws by is seen, not estimated: `Writer.distribution` gives the probability of each first token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.generation import KINDS, built, log_softmax, prompt, writers
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, true
from conformance.protocol import Array, NotProvided

BOUND = 1e-5
"""Of probabilities: some writers compute them in float32."""


def drawing(impl: Any, option: str) -> Iterator[tuple[Any, Any, dict[str, Array], Array]]:
    """Subject, writer, prompt and the model's own logits, for each writer that has the option and draws by the softmax
    of those logits without it. Raises NotProvided when there is none."""
    subject = built(impl)
    why = f"it has no {option.replace('_', '-')}"
    some = False
    for writer in writers(subject):
        if not writer.has(option):
            continue
        data = prompt(subject, writer.rows, 90)
        try:
            plain = _plain(subject, writer, data, option)
        except NotProvided as error:
            why = str(error)
            continue
        first = writer.write(subject, data, 1)
        own = subject.called_as_in(first).next_logits(first.prefix, data.get("src"))[: len(plain)]
        expected = likely(own, plain)
        ranks = (
            float(np.abs(np.sort(plain, 1) - np.sort(expected, 1)).max()) <= BOUND
        )  # of a token for the token itself
        if option != "temperature" and float(np.abs(plain - expected).max()) > BOUND and not ranks:
            why = f"without {option} {writer.name} draws by another distribution than the softmax of the logits"
            continue
        some = True
        yield subject, writer, data, own
    if not some:
        raise NotProvided(why)


def _plain(subject: Any, writer: Any, data: dict[str, Array], option: str) -> Array:
    """What it draws from without the option; where it does not draw then, with the value that leaves all in."""
    try:
        return np.asarray(writer.distribution(subject, data))
    except NotProvided:
        off = {"top_p": 1.0, "top_k": subject.calling.main.vocab, "temperature": 1.0}[option]
        return np.asarray(writer.distribution(subject, data, **{option: off}))


def likely(logits: Array, drawn: Array | None = None) -> Array:
    """The softmax of logits, over those tokens that can be drawn at all."""
    probabilities = np.exp(log_softmax(logits))
    if drawn is not None:
        probabilities = probabilities * (drawn > 0)
    return np.asarray(probabilities / probabilities.sum(-1, keepdims=True))


_LEAST = 1e-4
"""A token that crosses p has at least this share."""


@check("generate-divides-logits-by-temperature", roles=KINDS)
def temperature_divides(impl: Any, draw: Draw) -> Evidence:
    """What is drawn from is the softmax of the logits divided by the temperature."""
    parts = []
    for subject, writer, data, own in drawing(impl, "temperature"):
        plain = writer.distribution(subject, data, temperature=1.0)
        if float(np.abs(plain - likely(own, plain)).max()) > BOUND:
            parts.append(note(f"{writer.name} at temperature 1", "draws by another distribution than the softmax"))
            continue
        for value in (0.5, 2.0):
            got = writer.distribution(subject, data, temperature=value)
            evidence = close(f"probabilities at temperature {value}", got, likely(own / value, got), BOUND, "float32")
            words = "it is not the softmax of the logits divided by it"
            if np.abs(got - plain).max() < BOUND:
                words = "it changes nothing"
            elif np.abs(got - likely(own * value, got)).max() < BOUND:
                words = "the logits are multiplied by it, not divided"
            parts.append(
                evidence.saying(
                    diagnosis=f"The temperature of {writer.name} is wrong: {words}.",
                    place=writer.line_of(rf"\b{writer.options['temperature']}\b(?!\s*[:=,)])", "softmax|multinomial"),
                    mend="logits / temperature, before the softmax",
                )
            )
    return all_of(*parts)


@check("generate-with-top-k-draws-from-the-k-best", roles=KINDS)
def top_k_draws(impl: Any, draw: Draw) -> Evidence:
    """With top_k = k the k best tokens can be drawn, and no others, in their proportions."""
    parts = []
    for subject, writer, data, own in drawing(impl, "top_k"):
        for k in (2, 5):
            got = writer.distribution(subject, data, top_k=k)
            best = -np.sort(-own, 1)[:, k - 1 : k] <= own
            parts.append(_kept(writer, "top_k", k, got, best, own))
    return all_of(*parts)


@check("generate-with-top-p-keeps-the-token-that-crosses-p", roles=KINDS)
def top_p_keeps(impl: Any, draw: Draw) -> Evidence:
    """With top_p = p the smallest set of best tokens whose probability reaches p can be drawn, and no others."""
    parts = []
    for subject, writer, data, own in drawing(impl, "top_p"):
        own = own[:1]
        alone = {name: value[:1] for name, value in data.items()}
        ranked = np.argsort(-own[0])
        reached = np.cumsum(likely(own)[0, ranked])
        for size in (3, 6, 1):
            before = reached[size - 2] if size > 1 else 0.0
            if reached[size - 1] - before < _LEAST:
                continue  # one word has nearly all: where a sum of float32 crosses p is a matter of rounding
            p = float(before + reached[size - 1]) / 2
            best = np.zeros(own.shape, bool)
            best[0, ranked[:size]] = True
            got = writer.distribution(subject, alone, top_p=p)
            parts.append(_kept(writer, "top_p", p, got[:1], best, own))
            if not parts[-1].ok:
                return parts[-1]
    return all_of(*parts)


def _kept(writer: Any, option: str, value: float, got: Array, best: Array, own: Array) -> Evidence:
    """Whether what can be drawn is `best`, in the proportions of the softmax."""
    best, own = best[: len(got)], own[: len(got)]
    drawn = got > 1e-12
    name, shown = writer.options[option], f"{value:.4g}"
    named = rf"\b{name}\b(?!\s*[:=])"
    filters = ("cumsum|sorted", rf"\b{name}\b.*[<>]") if option == "top_p" else (r"topk\(",)
    place = writer.line_of(*filters, named, or_called=True)
    if (drawn != best).any():
        row = int((drawn != best).any(1).argmax())
        counts = int(drawn[row].sum()), int(best[row].sum())
        words = f"{counts[0]} tokens can be drawn, and {counts[1]} are meant"
        if option == "top_p" and counts[0] == counts[1] - 1 and (drawn & ~best).sum() == 0:
            words = "the token that crosses p is dropped"
        elif (drawn & ~best)[row].any() and counts[0] <= counts[1]:
            words = "other tokens than the best can be drawn"
        return true(
            f"what {writer.name} draws from with {name}={shown}", False, got=counts[0], expected=counts[1]
        ).saying(diagnosis=f"With {name}={shown} {words}.", place=place)
    kept = likely(own, best.astype(float))
    return close(f"probabilities with {name}={shown}", got, kept, BOUND, "float32").saying(
        diagnosis=f"With {name}={shown} the tokens that are left are not drawn in their proportions.", place=place
    )
