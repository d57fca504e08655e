"""Checks of models of one vector a text: lists keep their order, and pairs are compared as pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import Array, NotProvided

CLOSE = 1e-5
LEAST_SCALE = 0.5
"""A smaller scale of cosines gives the best partner less than e times the share of the worst."""
LARGEST_LOG = 88.8
"""The exponential of more than this is infinite in float32."""
UNSEEN = r"(?i)#.*\bpad\w*\b[^.]*\b(never|not|un)[- ]?(seen|read|attended)|#.*\b(ignor|hid)\w*\b[^.]*\bpad"
"""Words by which a model says that its texts do not see their padding."""


@check("lists-of-texts-are-answered-one-by-one", roles=("module",))
def one_by_one(impl: Any, draw: Draw) -> Evidence:
    """A method that gives a vector for each text of a list gives each what it gives that text alone, in its place."""
    subject = impl.build("module", {})
    if not subject.calling.main.vocab:
        raise NotProvided("it reads no words")
    texts, parts = subject.texts(), []
    for name, place, answers in subject.listed():
        try:
            got = answers(texts)
            alone = np.concatenate([answers([text]) for text in texts])
        except Exception:  # it takes texts in another form
            continue
        scale = CLOSE * max(float(np.abs(alone).max()), 1e-9)
        apart = np.abs(got[:, None] - alone[None]).max(-1)
        where = apart.argmin(1)
        evidence = true(f"the answers of {name} to a list", bool((np.diag(apart) <= scale).all()), got=where.tolist())
        if bool((apart.min(1) <= scale).all()):
            evidence = evidence.saying(
                diagnosis=f"{name} does not answer in the order of its list: the answer in each place is that of the "
                f"text {where.tolist()}.",
                place=place,
                mend="put the answers back in the order of the list: answers[order] = sorted_answers",
            )
        else:
            evidence = evidence.saying(
                diagnosis=f"{name} gives a text in a list another vector than alone: padding or other texts count.",
                place=place,
                mend="hide the padding from attention and leave it out of means",
            )
        parts.append(evidence)
    if not parts:
        raise NotProvided("none of its methods answers lists of words")
    return all_of(*parts)


@check("contrasts-label-the-own-partner", roles=("module",))
def own_partner(impl: Any, draw: Draw) -> Evidence:
    """In a cross-entropy of the similarities within a batch, row i has the label i."""
    parts = []
    for one in impl.build("module", {}).contrasts():
        right = np.arange(len(one.target))
        parts.append(
            true(
                "the labels", bool((one.target == right).all()), expected=right.tolist(), got=one.target.tolist()
            ).saying(
                diagnosis="The similarities of pairs are taught other labels than the partners: row i of the batch "
                "belongs to column i.",
                place=one.place,
                mend="target = torch.arange(len(scores))",
            )
        )
    return all_of(*parts)


@check("contrasts-are-divided-by-the-temperature", roles=("module",))
def divided_by_the_temperature(impl: Any, draw: Draw) -> Evidence:
    """Similarities are divided by the temperature that the model has."""
    subject = impl.build("module", {})
    said = {name: value for name, value in subject.temperatures().items() if abs(value - 1) > 1e-3}
    parts = []
    for one in subject.contrasts():
        if one.factor is None:
            continue
        for name, value in subject.logarithms().items():
            if not any(_close(one.factor, factor) for factor in (value, 1 / value)):
                continue
            parts.append(
                true("the factor of the similarities", False, expected=np.exp(value), got=one.factor).saying(
                    diagnosis=f"{name} ({value:.4g}) is the logarithm of what similarities are scaled by, and scales "
                    "them itself: exp is missing.",
                    place=_used_at(subject, name) or subject.line_of(rf"self\.{name}\b") or one.place,
                    mend=f"{name}.exp()",
                )
            )
        for name, value in said.items():
            times = _close(one.factor, value)
            if _close(one.factor, 1 / value) or times:
                parts.append(
                    true("the factor of the similarities", not times, expected=1 / value, got=one.factor).saying(
                        diagnosis=f"Similarities are multiplied by the temperature {name} ({value:.4g}) where they "
                        "should be divided by it.",
                        place=_used_at(subject, name) or one.made or one.place,
                        mend=f"scores / {name}",
                    )
                )
    if not parts:
        raise NotProvided("no temperature is seen in its similarities of pairs")
    return all_of(*parts)


@check("learned-scales-of-pairs-begin-where-they-learn", roles=("module",))
def begin_where_they_learn(impl: Any, draw: Draw) -> Evidence:
    """A learned scale of similarities makes cosines larger at its start, and its bounds leave it as it is."""
    parts = []
    for one in impl.build("module", {}).learned_scales():
        what = f"the scale by {one.name}"
        cut = next((c for c in one.clamps + one.clamps_of_power if c.trains and c.cut_to is not None), None)
        endless = next((c for c in one.clamps if one.power and c.high is not None and c.high > LARGEST_LOG), None)
        if cut is not None:
            parts.append(
                true(what, False, expected=(cut.low, cut.high), got=cut.before).saying(
                    diagnosis=f"{one.name} begins outside its bounds: the clamp cuts {cut.before:.4g} off, and lets no "
                    "gradient through, so that it never learns.",
                    place=cut.place,
                    mend="clamp the scale by numbers, or its logarithm by their logarithms: clamp(max=math.log(100))",
                )
            )
        elif endless is not None:
            parts.append(
                true(what, False, expected="the logarithm of a bound", got=endless.high).saying(
                    diagnosis=f"{one.name} is the logarithm of a scale, and is clamped at {endless.high:.4g}, whose "
                    "exponential no number of float32 can hold: the bound is one of the scale itself.",
                    place=endless.place,
                    mend=f"math.log({endless.high:.4g})",
                )
            )
        elif one.factor < LEAST_SCALE and not one.power and one.factor > 0:
            parts.append(note(f"{what} makes cosines smaller", one.factor))
        else:
            parts.append(
                true(what, one.factor >= LEAST_SCALE, expected=f"{LEAST_SCALE:g} or more", got=one.factor).saying(
                    diagnosis=f"Cosines are multiplied by {one.factor:.4g}, which {one.name} = {one.value:.4g} gives "
                    "at the start: all partners get nearly the same share, or false ones more.",
                    place=one.place,
                    mend="exp(log_scale) with log_scale = log(1 / 0.07), or divide by exp(log(0.07))",
                )
            )
    return all_of(*parts)


@check("contrasts-ask-in-both-directions", roles=("module",))
def both_directions(impl: Any, draw: Draw) -> Evidence:
    """Of two cross-entropies of one matrix of similarities, one is of its rows and one of its columns."""
    matrices: dict[int, list[Any]] = {}
    for one in impl.build("module", {}).contrasts():
        matrices.setdefault(one.matrix, []).append(one)
    twice = [of_one for of_one in matrices.values() if len(of_one) == 2 and of_one[0].turned is not None]
    if not twice:
        raise NotProvided("none of its losses asks twice about the same similarities")
    return all_of(
        *(
            true("the directions", first.turned != second.turned, expected=2, got=1).saying(
                diagnosis="Two losses of the same similarities ask in the same direction: how the other side "
                "chooses among its partners is never taught.",
                place=second.place,
                mend="F.cross_entropy(scores, own) + F.cross_entropy(scores.t(), own)",
            )
            for first, second in twice
        )
    )


@check("losses-of-pairs-teach-both-sides", roles=("module",))
def both_sides(impl: Any, draw: Draw) -> Evidence:
    """Each side that the scores of pairs are computed by, and a loss of them depends on, gets a gradient of it."""
    found = impl.build("module", {}).sides_untaught()
    one = found[0] if found else None
    return true("the sides that get a gradient", not found, got=f"{one.side} gets none" if one else "all").saying(
        diagnosis=f"{one.loss} depends on {one.side} and gives it no gradient: one side of the pairs never learns."
        if one
        else "",
        place=one.place if one else "",
        mend="leave detach() out",
    )


@check("contrasts-scale-all-false-partners", roles=("module",))
def all_are_scaled(impl: Any, draw: Draw) -> Evidence:
    """In one cross-entropy the similarities of further false partners are scaled as those within the batch."""
    parts = []
    for one in impl.build("module", {}).false_partners():
        factors = [factor for _, factor in one.blocks]
        plain = [line for line, factor in one.blocks if _close(factor, 1.0)]
        if not plain and not all(_close(factor, factors[0]) for factor in factors):
            return note("further false partners have a scale of their own", factors)
        parts.append(
            true("the factors of the similarities", not plain or len(plain) == len(factors), got=factors).saying(
                diagnosis="The similarities of some partners in a loss are scaled, and those of others are plain "
                "cosines: the plain ones hardly count.",
                place=plain[0] if plain else "",
                mend="scale * queries @ negatives.t()",
            )
        )
    return all_of(*parts)


@check("scores-of-pairs-are-the-same-in-a-larger-batch", roles=("module",))
def same_in_a_larger_batch(impl: Any, draw: Draw) -> Evidence:
    """What forward gives a pair of samples does not depend on which other samples are in the batch."""
    subject = impl.build("module", {})
    scores, fewer = subject.pair_scores(), subject.pair_scores(fewer=1)
    for axis in (0, 1):
        if np.allclose(np.exp(scores).sum(axis), 1, atol=CLOSE) or np.allclose(scores.sum(axis), 1, atol=CLOSE):
            raise NotProvided("its scores are shares of a row or a column, so that all samples count")
    kept = scores[: len(fewer), : len(fewer)]
    far = float(np.abs(kept - fewer).max() / max(float(np.abs(kept).max()), 1e-9))
    return true("the scores of a smaller batch", far <= CLOSE, expected=kept[0], got=fewer[0]).saying(
        diagnosis="The score of a pair changes with the other samples of the batch: something is computed over "
        "the batch.",
        place=str(subject.line_of(r"dim=0|, 0\)|F\.normalize\(\w+\)") or subject.place()),
        mend="normalise each vector over its features: F.normalize(z, dim=-1)",
    )


@check("texts-of-pairs-end-where-said", roles=("module",))
def texts_end_where_said(impl: Any, draw: Draw) -> Evidence:
    """Where the code says that padding behind a text is not seen, it changes no score of a pair."""
    subject = impl.build("module", {})
    said = subject.line_of(UNSEEN)
    if not said:
        raise NotProvided("its code does not say that padding of texts is not seen")
    plain, padded = subject.padded_texts()
    far = float(np.abs(plain - padded).max() / max(float(np.abs(plain).max()), 1e-9))
    return true("the scores with padding behind the texts", far <= CLOSE, expected=plain[0], got=padded[0]).saying(
        diagnosis="The code says that padding behind a text is not seen, and it changes the scores of pairs.",
        place=said,
        mend="read the state of the end token behind a causal mask, or hide the padding from attention",
    )


def _used_at(subject: Any, name: str) -> str:
    """file:line where the code multiplies by what it calls so."""
    found = subject.line_of(rf"\*\s*(self\.)?(\w+\.)*{name}\b|\b{name}(\.exp\(\))?\s*\*")
    return str(found) if found else ""


def _close(one: Array | float, other: float) -> bool:
    return bool(np.isclose(one, other, rtol=1e-4))
