"""Checks of forecasters: channels keep their places, and what was normalised is put back."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import Array, NotProvided

CLOSE, EXACT = 1e-5, 1e-7
"""How far two answers in float64 may lie apart, beside the largest. Exactly: behind a norm that adds an eps of at most
1e-3 to a variance of 1e6."""
APART = (
    r"(?i)channels?[- _]?((is|are) )?independen|"
    r"(each|every) (channel|variate|variable) (by itself|alone|separately|on its own)"
)
PUTS_BACK = r"(?i)rev_?in\b|reversible|de_?norm|un_?norm|inverse_?(norm|transform|scale)|de_?standardi|put back"
MEANS_OTHERWISE = r"(?i)de_?station|\blog1p\(|a(rc)?sinh\(|quantiz|tokeniz"


def near(one: Array, other: Array, close: float = CLOSE) -> bool:
    return one.shape == other.shape and bool(np.abs(one - other).max() <= close * max(np.abs(other).max(), 1e-9))


@check("forecast-channels-keep-their-places", roles=("module",))
def channels_keep_their_places(impl: Any, draw: Draw) -> Evidence:
    """Channels are labels: numbered in another order, with all parameters that belong to one, they are answered in
    that order."""
    subject = impl.build("module", {})
    seen = subject.forecast()
    if seen.channels is None:
        raise NotProvided("it reads one series a row")
    if subject.line_of(r"Conv2d\(|(?i:channel)\w*_?(pos|index|idx)|arange\([^)]*channel"):
        raise NotProvided("it may tell channels by their numbers")
    order = np.roll(np.arange(seen.count), 1)
    x = seen.data(1)
    module = seen.relabelled(order)
    if module is None:
        raise NotProvided("which axes of its parameters are channels is not known")
    expected = seen.answer(x).take(order, seen.channels)
    got = seen.answer(x.take(order, seen.channels), module)
    return true(
        "the forecasts of channels in another order", near(got, expected), got=f"{np.abs(got - expected).max():.3g} off"
    ).saying(
        diagnosis="Channels are mixed up: in another order, and with their parameters in that order, they get other "
        "forecasts. The numbers of a channel lie elsewhere than where they are read.",
        place=seen.reshaped_at() or subject.place(),
        mend="permute the axes before they are joined or split: x.permute(0, 2, 1).reshape(batch * channels, steps)",
    )


@check("forecast-channels-are-apart-where-said", roles=("module",))
def channels_apart(impl: Any, draw: Draw) -> Evidence:
    """Where the code says that channels are independent, another series in one changes the forecast of that one, and
    of no other."""
    subject = impl.build("module", {})
    seen = subject.forecast()
    said = subject.line_of(APART)
    if seen.channels is None or not said:
        raise NotProvided("it does not say that its channels are independent")
    x = seen.data(2)
    base = seen.answer(x)
    own, others = [], []
    for channel in range(min(seen.count, 4)):
        moved = x.copy()
        at = tuple(slice(None) if axis != seen.channels else channel for axis in range(x.ndim))
        moved[at] = seen.data(3)[at]
        change = np.abs(seen.answer(moved) - base).max(tuple(a for a in range(x.ndim) if a != seen.channels))
        own.append(float(change[channel]))
        others.append(float(np.delete(change, channel).max()))
    scale = float(np.abs(base).max())
    return all_of(
        true("each channel changes its own forecast", min(own) > CLOSE * scale, got=f"{min(own):.3g}"),
        true("no channel changes another's forecast", max(others) <= CLOSE * scale, got=f"{max(others):.3g}"),
    ).saying(
        diagnosis=f"The code says that channels are independent ({said.rpartition('/')[2]}), and the series of one "
        "changes the forecast of another.",
        place=seen.reshaped_at() or subject.place(),
        mend="permute the axes before they are joined: x.permute(0, 2, 1).reshape(batch * channels, steps)",
    )


@check("forecast-follows-level-and-scale-where-said", roles=("module",))
def level_and_scale(impl: Any, draw: Draw) -> Evidence:
    """Where a series is normalised and the forecast put back, a x + b is forecast as a times the forecast of x, plus
    b, for each channel's own a and b."""
    subject = impl.build("module", {})
    seen = subject.forecast()
    said = subject.line_of(PUTS_BACK)
    if not said or subject.line_of(MEANS_OTHERWISE):
        raise NotProvided("it does not say that its forecasts are put back by the level and scale of the series")
    x = 1e3 * seen.data(4)
    shape = [size if axis in (0, seen.channels) else 1 for axis, size in enumerate(x.shape)]
    a, b = np.linspace(0.5, 2.0, shape[0] * seen.count).reshape(shape), np.linspace(-1e3, 1e3, shape[0] * seen.count)
    b = b.reshape(shape)
    base, got = seen.answer(x), seen.answer(a * x + b)
    expected = a * base + b
    close = max(EXACT, 10 * subject.noise)
    off = float(np.abs(got - expected).max())
    evidence = true("the forecast of a x + b", near(got, expected, close), got=f"{off:.3g} off")
    if evidence.ok:
        return evidence
    for words, other, mend in (
        ("the level is taken out and not put back", a * base, "add the mean of the series: y * std + mean"),
        *(
            (
                "the scale is taken out and not put back",
                base + (a - 1) * level + b,
                "multiply by the deviation: y * std",
            )
            for level in (x.mean(seen.steps, keepdims=True), x.take([-1], seen.steps))
        ),
        ("level and scale are taken out and not put back", base, "put both back: y * std + mean"),
        ("the level is subtracted where it should be added", a * base - b, "add the mean: y * std + mean"),
        ("the scale divides where it should multiply", base / a**2 + b, "multiply by the deviation: y * std + mean"),
    ):
        if near(got, other, close):
            return evidence.saying(
                diagnosis=f"A forecast does not follow its series: {words}.",
                place=_put_back_at(subject) or said,
                mend=mend,
            )
    if subject.line_of(r"(?i)rev_?in\b|reversible"):
        return evidence.saying(
            diagnosis="The series is normalised reversibly, and the forecast of a x + b is not that of x times a, "
            "plus b: it is not put back by the numbers that were taken out.",
            place=_put_back_at(subject) or said,
            mend="y * std + mean, of the same row and channel",
        )
    return note("the forecast does not follow the level and scale of the series", said.rpartition("/")[2])


def _put_back_at(subject: Any) -> str:
    """file:line where the code puts a forecast back."""
    for pattern in (
        r"\w*\s*\*\s*[\w.\[\]]*(std|stats?|scale|sigma|dev)\w*|\*\s*[\w.]*\bstats\[",
        r"\+\s*[\w.\[\]]*(mean|mu|loc|level|last)",
        r"(?i)def \w*(de_?norm|un_?norm|inverse)",
    ):
        if found := subject.line_of(pattern):
            return str(found)
    return ""


@check("forecasts-go-on-from-their-own", roles=("module",))
def go_on(impl: Any, draw: Draw) -> Evidence:
    """A forecast of more steps than one call gives goes on from the newest steps, the model's own among them."""
    subject = impl.build("module", {})
    seen = subject.forecast()
    x = seen.data(5)
    once = seen.answer(x)
    length, horizon = x.shape[seen.steps], once.shape[seen.steps]

    def newest(series: Array) -> Array:
        return series.take(range(series.shape[seen.steps] - length, series.shape[seen.steps]), seen.steps)

    def cut(series: Array, count: int) -> Array:
        return series.take(range(count), seen.steps)

    more, step = horizon + 3, x
    for _ in range(3 if horizon > 3 else 0):
        step = np.concatenate([step, cut(seen.answer(newest(step)), 1)], seen.steps)
    again = seen.answer(newest(np.concatenate([x, once], seen.steps)))
    right = np.concatenate([once, cut(again, 3)], seen.steps) if horizon >= 3 else None
    parts = []
    for name, place, rolled in subject.rollouts():
        got = rolled(x, more)
        if right is None or got.shape != right.shape:
            continue
        by_one = near(cut(got, 3), step.take(range(length, length + 3), seen.steps))
        stuck = np.concatenate([once, cut(once, 3)], seen.steps)
        if near(got, right) or by_one:
            parts.append(true(f"what {name} gives behind the horizon", True))
        elif near(got, stuck):
            parts.append(
                true(f"what {name} gives behind the horizon", False, got="the first forecasts again").saying(
                    diagnosis=f"{name} begins each time from the same steps: its own forecasts are not read.",
                    place=place,
                    mend="x = torch.cat([x, y], dim=1), and the newest steps of it are read",
                )
            )
    if not parts:
        raise NotProvided("no method of it forecasts further than one call")
    return all_of(*parts)


@check("forecast-quantiles-are-taught-their-levels", roles=("module",))
def quantiles_are_taught_their_levels(impl: Any, draw: Draw) -> Evidence:
    """The loss of quantiles teaches each forecast the level that the model says it is of, and not the rest to 1."""
    parts = []
    for one in impl.build("module", {}).levels():
        said, taught = np.array(one.said), np.array(one.taught)
        right = bool(np.abs(said - taught).max() < 1e-4)
        if right or np.abs(1 - said - taught).max() < 1e-4:
            parts.append(
                true(f"the levels that {one.name} teaches", right, expected=said.tolist(), got=taught.tolist()).saying(
                    diagnosis=f"{one.name} teaches the quantile of {said[0]:.4g} to be that of {taught[0]:.4g}: "
                    "the sign of its error is turned round.",
                    place=one.place,
                    mend="error = future - forecast; torch.maximum(level * error, (level - 1) * error)",
                )
            )
    if not parts:
        raise NotProvided("its loss weighs the errors of its quantiles in another way")
    return all_of(*parts)


@check("forecasts-are-taught-the-level-of-what-follows", roles=("module",))
def levels_are_taught(impl: Any, draw: Draw) -> Evidence:
    """The loss of a forecast is another one where all that follows lies higher."""
    parts = []
    for name, place, sees in impl.build("module", {}).taught_levels():
        parts.append(
            true(
                f"what {name} is where all that follows lies 3 higher", sees, expected="the same", got="another one"
            ).saying(
                diagnosis=f"{name} takes the level out of what follows by its own numbers: forecasts never learn it.",
                place=place,
                mend="normalise what follows by the mean and the deviation of the series before it",
            )
        )
    return all_of(*parts)


@check("imputed-values-follow-the-series", roles=("module",))
def imputed_values_follow(impl: Any, draw: Draw) -> Evidence:
    """What is filled in for a x + b is a times what is filled in for x, plus b; it is not the same in other units."""
    parts = []
    for filled in impl.build("module", {}).filled():
        got, expected = "the same numbers", "1000 times as large, and moved by 500"
        parts.append(
            true(f"what {filled.name} fills in for 1000 x + 500", filled.follows, got=got, expected=expected).saying(
                diagnosis=f"{filled.name} leaves known values as they are, and fills in numbers in the model's own "
                "units: they are the same for a series of another level and scale.",
                place=filled.place,
                mend="put level and scale back: guess * std + mean",
            )
        )
    return all_of(*parts)


@check("series-are-read-where-they-were-observed", roles=("module",))
def read_where_observed(impl: Any, draw: Draw) -> Evidence:
    """What stands in the gaps of a series changes no answer of a model that is told of them and leaves some out."""
    found = impl.build("module", {}).gaps()
    if found.counted and not found.read:
        return true(
            "the forecasts of a series with gaps that lies higher", False, expected="as much higher", got="otherwise"
        ).saying(
            diagnosis="Forecasts follow the level of a series, and not where some of it was not observed: a mean "
            "counts the gaps, or the gaps are not empty after it is taken away.",
            place=found.place,
            mend=f"multiply by {found.name} before a sum over the steps and divide by its sum; multiply what is "
            f"centred by {found.name}",
        )
    what = "the answers to other numbers where nothing was observed"
    return true(what, not found.read, expected="the same", got="others").saying(
        diagnosis=f"{found.name} says where nothing was observed, and what stands there changes the answers: one place "
        "reads it.",
        place=found.place,
        mend=f"multiply by {found.name} before a sum over the steps, and divide by its sum",
    )


@check("missing-numbers-teach-finite-gradients", roles=("module",))
def missing_numbers_teach(impl: Any, draw: Draw) -> Evidence:
    """Where numbers that are missing (NaN) are left out of an answer, they are left out of all gradients, too."""
    found = impl.build("module", {}).missing()
    named = ", ".join(found.learns_nothing[:3])
    what = "gradients of an answer to numbers of which some are missing"
    return true(what, not found.learns_nothing, expected="numbers", got=f"NaN for {named}").saying(
        diagnosis=f"Missing numbers are left out of the answer, and not of the gradients: that of {named} is NaN.",
        place=found.place,
        mend="fill missing numbers first: torch.where(gone, other, torch.nan_to_num(x) * weight)",
    )


@check("forecasts-do-not-read-what-they-forecast", roles=("module",))
def forecasts_read_no_answer(impl: Any, draw: Draw) -> Evidence:
    """Where forward is given the values that its loss compares its forecasts with, the forecast of a step depends on
    none of that step and of those behind it."""
    name, place, ahead = impl.build("module", {}).values_ahead()
    return true(
        f"values of {name} that the forecast of a step depends on",
        not ahead,
        expected="those before it",
        got="later ones",
    ).saying(
        diagnosis=f"The forecast of a step reads {name} at that step or behind it: it is given what it shall forecast.",
        place=place,
        mend="the value before each step: torch.cat([past[:, -1:], future[:, :-1]], 1), and a causal mask",
    )


@check("forecasts-of-methods-are-put-back", roles=("module",))
def methods_put_back(impl: Any, draw: Draw) -> Evidence:
    """Where forward forecasts a normalised series, a method that puts that back gives for a x + b what it gives for x,
    times a, plus b."""
    parts = []
    for name, place, follows in impl.build("module", {}).put_back():
        parts.append(
            true(
                f"what {name} gives for 3 x + 500", follows, expected="3 times as large, and 500 more", got="otherwise"
            ).saying(
                diagnosis=f"forward takes level and scale out of a series, and {name} does not put them back.",
                place=place,
                mend="forecast * scale + level, in this order",
            )
        )
    return all_of(*parts)
