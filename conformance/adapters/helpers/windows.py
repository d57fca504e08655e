"""Helpers of series: windows with their future, parts in the order of time, returns, and what is put back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import (
    Called,
    OtherKind,
    Trouble,
    helper,
    named_parts,
    near,
    noise,
    parts,
    shown,
    tensor,
)

_SERIES = r"series|data|x|values?|ts|seq(uence)?|array|signal|y"


@helper(
    "windows-are-followed-by-their-future",
    r"window|sliding|(make|create|build|to)_(sequences?|samples|supervised|examples|dataset)",
    {
        "context": (
            r"context(_?(len(gth)?|size))?|look_?back|"
            r"(seq|input|in|past|history|window|enc)_?(len(gth)?|size|steps)?|n_(past|in|input)"
        ),
        "horizon": (
            r"horizon|pred(iction)?_?(len(gth)?|steps|size)?|(n_)?ahead|forecast(_?(len(gth)?|size))?|"
            r"future|n_(future|out|ahead)|(output|out|target)_?(len(gth)?|size|steps)?"
        ),
        "stride": r"stride|step|hop",
        "series": _SERIES,
    },
    ("series", "context", "horizon"),
)
def followed_windows(windows: Called) -> Iterator[Trouble]:
    """On the series 0, 1, 2, ... the future begins one step behind the past, and no window is left out."""
    steps, context, horizon = 30, 6, 3
    past, future = _windows(windows, steps, context, horizon)
    if past.shape[1] != context or future.shape[1] != horizon:
        yield Trouble(
            f"{windows.name} gives {past.shape[1]} steps of the past and {future.shape[1]} of the future.",
            f"{context} and {horizon}", f"{past.shape[1]} and {future.shape[1]}",
        )  # fmt: skip
        return
    away = future[:, 0] - past[:, -1]
    if not bool((away == 1).all()):
        yield Trouble(
            f"{windows.name}: the future begins {shown(away.unique())} steps behind the last step of the past.",
            1, shown(away.unique()),
        )  # fmt: skip
        return
    count = steps - context - horizon + 1
    if len(past) != count:
        yield Trouble(
            f"{windows.name} gives {len(past)} windows of {steps} steps.", f"{count}: all that fit", len(past),
            certain=bool(re.search(r"\ball\b|every|each possible", windows.says)) or len(past) > count,
        )  # fmt: skip


def _windows(windows: Called, steps: int, context: int, horizon: int) -> tuple[Tensor, Tensor]:
    """Past (N, context) and future (N, horizon) of the series 0, 1, 2, ..."""
    flat = torch.arange(steps, dtype=torch.float32)
    for series in (flat[:, None].repeat(1, 2), flat, flat[:, None].repeat(1, 2).numpy(), flat.numpy()):
        with suppress(Exception):
            made = _past_and_future(windows(series=series, context=context, horizon=horizon, stride=1))
            if len(made) > 2 and len(made[0]) == 2:
                made = [list(side) for side in zip(*made, strict=True)]
            past, future = (tensor(side) for side in made[:2])
            past, future = (side[..., 0] if side.dim() == 3 else side for side in (past, future))
            if past.dim() == 2 and future.dim() == 2 and len(past) == len(future):
                return past, future
    raise OtherKind("it gives no windows of past and future")


_PAST = re.compile(r"(x|past|context|history|inputs?|source|src|encoder)(_?(values?|series|y|target))?")
_FUTURE = re.compile(r"(y|future|targets?|horizon|labels?|tgt|decoder|forecast)(_?(values?|series|y|target))?")


def _past_and_future(made: Any) -> list[Any]:
    """What windows are made of, the past and the future first, where several parts have names: beside the values may
    stand features of the calendar, and what was observed."""
    named = {name.lower(): part for name, part in named_parts(made) if name}
    sides = [next((part for name, part in named.items() if of.fullmatch(name)), None) for of in (_PAST, _FUTURE)]
    return sides if len(named) > 2 and all(side is not None for side in sides) else parts(made)


@helper(
    "parts-of-a-series-are-in-order-and-apart",
    r"split|partition",
    {"series": _SERIES, "fractions": r"$^"},
    ("series",),
)
def parts_apart(split: Called) -> Iterator[Trouble]:
    """Training, validation and test parts follow each other, and no step is in two."""
    if not re.search(r"train|val|test", split.source.lower()):
        raise OtherKind("it makes no parts for training")
    made = [tensor(part).reshape(-1) for part in parts(split(series=torch.arange(200.0)))]
    if len(made) < 2:
        raise OtherKind("it gives one part")
    together = torch.cat(made)
    if len(set(together.tolist())) < len(together):
        yield Trouble(
            f"{split.name} puts a step into two parts, so what is tested was trained on.",
            "parts that are apart", f"{len(together) - len(set(together.tolist()))} steps in two parts",
        )  # fmt: skip
    elif re.search(r"order|time|chronolog", split.says) and not bool((together.diff() > 0).all()):
        yield Trouble(f"{split.name}: the parts are not in the order of time.", "0, 1, 2, ...", shown(together))


@helper(
    "returns-to-go-are-sums-of-later-rewards",
    r"returns?_?to_?go|rtg|discount|rewards?_?to_?go|compute_returns",
    {"gamma": r"gamma|discount(_factor)?|g", "rewards": r"rewards?|r|x|rews?"},
    ("rewards",),
)
def later_rewards(returns: Called) -> Iterator[Trouble]:
    """Of each step the discounted sum of its own reward and of all later ones."""
    rewards = torch.tensor([1.0, 2.0, 0.5, -1.0, 4.0])
    for gamma in (1.0, 0.5) if returns.has("gamma") else (1.0,):
        made = _rewarded(returns, rewards, gamma)
        expected, running = [0.0] * 5, 0.0
        for at in reversed(range(5)):
            running = float(rewards[at]) + gamma * running
            expected[at] = running
        if not near(made, torch.tensor(expected)):
            so_far = near(made, rewards.cumsum(0)) and gamma == 1.0
            yield Trouble(
                f"{returns.name} sums " + (("the rewards so far, "
"not those to come.") if so_far else (f"other rewards than these and the "
f"later ones (discount {gamma:g}).")),
                shown(expected), shown(made),
            )  # fmt: skip
            return


def _rewarded(returns: Called, rewards: Tensor, gamma: float) -> Tensor:
    for given in (rewards, rewards.numpy(), rewards.tolist()):
        with suppress(Exception):
            made = tensor(returns(rewards=given, gamma=gamma))
            if made.numel() == len(rewards):
                return made.reshape(-1)
    for given in (rewards[None], rewards[None, :, None]):
        with suppress(Exception):
            made = tensor(returns(rewards=given, gamma=gamma))
            if made.numel() == len(rewards):
                return made.reshape(-1)
    raise OtherKind("it gives no return for each step")


@helper(
    "averaged-weights-follow-slowly",
    r"ema|moving_average|momentum_update|update_(target|teacher|momentum)|soft_update|polyak",
    {
        "decay": r"decay|m|momentum|beta|alpha|tau|ema_decay",
        "slow": (
            r"ema(_model|_net)?|teacher|target(_net|_model)?|avg(_model)?|"
            r"averaged?|key(_encoder)?|momentum_(model|encoder)|slow|shadow"
        ),
        "fast": r"model|student|net|online(_net)?|source|query(_encoder)?|fast|policy|q_net",
    },
    ("slow", "fast", "decay"),
)
def slow_average(update: Called) -> Iterator[Trouble]:
    """The slow weights become decay times themselves plus the rest of the new ones."""
    slow, fast = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    before, new = slow.weight.detach().clone(), fast.weight.detach().clone()
    update.arguments.call(update.function, slow=slow, fast=fast, decay=0.9)
    after = slow.weight.detach()
    if torch.equal(after, before):
        raise OtherKind("it changes nothing")
    small = update.arguments.parameter_of["decay"].lower() == "tau"
    expected = (0.1 * before + 0.9 * new) if small else (0.9 * before + 0.1 * new)
    if not near(after, expected):
        yield Trouble(f"{update.name} does not mix old and new weights by its decay.", shown(expected), shown(after))


@helper(
    "what-was-normalised-is-put-back",
    r"^(de|un|inverse_?|inv_?)_?(normali[sz]e|standardi[sz]e|scale)|^inverse(_transform)?$",
    {
        "mean": r"mean|mu|loc|m",
        "scale": r"std|sigma|scale|s|sd|stdev",
        "x": r"x|y|data|values?|pred(ictions?)?|z|normed|t",
    },
    ("x", "mean", "scale"),
)
def put_back(inverse: Called) -> Iterator[Trouble]:
    """(x - mean) / std, put back, is x."""
    x = noise(4, 5)
    made = tensor(inverse(x=(x - 3.0) / 2.0, mean=torch.tensor(3.0), scale=torch.tensor(2.0)))
    if made.shape != x.shape:
        raise OtherKind("it gives other numbers")
    if not near(made, x, 1e-3):
        yield Trouble(f"{inverse.name} does not put back what was normalised.", shown(x[0]), shown(made[0]))
