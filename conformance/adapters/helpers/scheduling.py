"""Helpers that give a learning rate for a step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, tensor

_TOTAL, _WARM, _PEAK, _FLOOR = 100, 10, 1.0, 0.1


@helper(
    "schedules-rise-in-warm-up-and-then-fall",
    r"lr|learning_rate|schedule|warm_?up|cosine|anneal|(^|_)rate$|decay",
    {
        "step": r"step|it(er(ation)?)?|t|epoch|s|i|step_num|current_step|global_step|n",
        "warmup": r"(n_|num_)?warm_?up(_?(steps?|iters?|iterations|n|epochs))?",
        "total": (
            r"(n_|num_|max_|total_|decay_|training_|lr_decay_)*(steps?|iters?|iterations|epochs|training_steps)|"
            r"total|t_max|max_?(it|step|t)"
        ),
        "peak": r"(base|max|peak|init(ial)?)?_?(lr|learning_rate|rate)|base|peak|max|eta_max",
        "floor": r"(min|final|end|floor)_?(lr|learning_rate|rate|ratio)?|eta_min|floor",
    },
    ("step",),
)
def risen_and_fallen(schedule: Called) -> Iterator[Trouble]:
    """Up to its peak at the end of the warm-up, down from there without a jump, at its floor at the end, and never
    below zero."""
    if re.search(
        r"restart|cycl|plateau|tri_?stage|sawtooth|weight_decay|momentum|temperature|dropout|teacher|beta|noise|d_model|model_size",
        schedule.source.lower(),
    ):
        raise OtherKind("it has another shape")
    if not (schedule.has("warmup") or schedule.has("total")):
        raise OtherKind("it takes no number of steps")
    given: dict[str, Any] = {"warmup": _WARM, "total": _TOTAL, "peak": _PEAK, "floor": _FLOOR}
    steps = range(0, 2 * _TOTAL)
    try:
        first = schedule(step=1, **given)
    except Exception as error:
        raise OtherKind("it cannot be called with a step") from error
    if isinstance(first, bool) or tensor(first).numel() != 1:
        raise OtherKind("it gives no rate")
    rates = [float(tensor(schedule(step=step, **given))) for step in steps]
    peak = max(rates)
    name = schedule.name
    if not all(map(math.isfinite, rates)) or peak <= 0:
        raise OtherKind("it gives no rates")
    if min(rates) < -1e-9:
        yield Trouble(
            f"{name} gives a rate below zero at step {rates.index(min(rates))}.", "0 or more", f"{min(rates):.4g}"
        )
        return
    if not (schedule.has("warmup") and schedule.has("total")):
        return
    rise, fall = rates[: _WARM + 1], rates[_WARM : _TOTAL + 1]
    asked = _PEAK if schedule.has("peak") else peak
    if abs(max(rise) - asked) > 1e-6 * asked or any(b < a - 1e-9 for a, b in pairwise(rise)):
        shape = f"{rise[0]:.4g}, {rise[1]:.4g}, ..., {rise[-1]:.4g}"
        yield Trouble(f"{name} does not rise to {asked:g} in its {_WARM} steps of warm-up.", f"0 to {asked:g}", shape)
    elif rise[0] > 0.5 * asked:
        yield Trouble(f"{name} begins its warm-up with {rise[0]:.4g} of {asked:g}.", "a small rate", f"{rise[0]:.4g}")
    elif any(b > a + 1e-9 for a, b in pairwise(fall)):
        worst = next(i for i, (a, b) in enumerate(pairwise(fall)) if b > a + 1e-9)
        yield Trouble(
            f"{name} rises again after the warm-up, at step {_WARM + worst + 1}.",
            f"at most {fall[worst]:.4g}",
            f"{fall[worst + 1]:.4g}",
        )
    elif max(a - b for a, b in pairwise(fall)) > 0.12 * asked and re.search(
        r"cos|linear|\bt\b|progress|ratio", schedule.source
    ):
        worst = max(range(len(fall) - 1), key=lambda i: fall[i] - fall[i + 1])
        yield Trouble(
            f"{name} jumps from {fall[worst]:.4g} to {fall[worst + 1]:.4g} at step {_WARM + worst + 1}.",
            "a smooth fall",
            f"{fall[worst + 1]:.4g}",
        )
    else:
        yield from _end(schedule, rates, asked)


def _end(schedule: Called, rates: list[float], asked: float) -> Iterator[Trouble]:
    """Where it falls along a cosine or a line, it is half-way in the middle, and at its floor in the end."""
    cosine = re.search(r"\bcos\(|\.cos\(", schedule.source)
    floor = rates[-1]
    if schedule.has("floor") and "ratio" not in schedule.arguments.parameter_of["floor"].lower():
        floor = _FLOOR
    if cosine and abs(rates[_TOTAL] - floor) > 0.02 * asked:
        yield Trouble(
            f"{schedule.name} is {rates[_TOTAL]:.4g} at its last step.", f"{floor:.4g}", f"{rates[_TOTAL]:.4g}"
        )
    elif any(b > a + 1e-9 for a, b in pairwise(rates[_TOTAL:])):
        yield Trouble(
            f"{schedule.name} rises again after its last step.", f"{rates[_TOTAL]:.4g}", f"{max(rates[_TOTAL:]):.4g}"
        )
    elif cosine:
        middle = rates[(_WARM + _TOTAL) // 2]
        if abs(middle - (asked + floor) / 2) > 0.02 * asked:
            yield Trouble(
                f"{schedule.name} is {middle:.4g} half-way down a cosine.",
                f"{(asked + floor) / 2:.4g}",
                f"{middle:.4g}",
            )
