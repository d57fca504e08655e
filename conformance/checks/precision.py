"""Checks of whole models in narrow precision: float16 and bfloat16 weights, and autocast."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.generation import KINDS, built
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import NotProvided

LARGE = 1e3
"""Answers above this are near float16's end, which no mask is to blame for."""


def padded(subject: Any, length: int = 6) -> dict[str, Any]:
    """Inputs whose last two tokens are padding, where the model is told of padding."""
    inputs: dict[str, Any] = subject.example(2, length, 95, src=length, tgt=length)
    for name in [one for one in inputs if subject.padding_of(one) and inputs[one].ndim == 2]:
        real = np.ones(inputs[name].shape, bool)
        real[1, -2:] = False
        inputs["padding" if name == "ids" else f"{name}_padding"] = real
        if subject.pad_id is not None:
            inputs[name] = np.where(real, inputs[name], subject.pad_id)
    return inputs


def finite_where_float32_is(subject: Any, names: tuple[str, ...], what: str) -> Evidence:
    """No NaN in the answers of the runs that `subject.narrow` makes, with and without padding."""
    inputs = [subject.example(2, 6, 94, src=6, tgt=6), padded(subject)]
    parts = []
    why = ""
    for given in inputs:
        wide = subject.narrow("float32", given)
        if not np.isfinite(wide).all() or np.abs(wide).max() > LARGE:
            continue
        for name in names:
            try:
                out = subject.narrow(name, given)
            except Exception as error:
                kind = "" if isinstance(error, NotProvided) else f"{type(error).__name__}: "
                why = why or f"{what} {name} it does not run ({kind}{' '.join(str(error).split())[:160]})"
                continue
            bad = int(np.isnan(out).sum())
            parts.append(
                true(f"{what} {name} gives numbers", not bad, got=f"{bad} NaN of {out.size}", expected="no NaN").saying(
                    diagnosis=f"{what} {name} the answer holds NaN: a mask or a sum overflows.",
                    place=subject.line_of(r"-\s*(1e\d|float\(|np\.inf|math\.inf|torch\.inf)|-10000") or subject.place(),
                    mend="mask with a boolean, or with torch.finfo(scores.dtype).min",
                )
            )
    if not parts:
        raise NotProvided(why or "its answers are too large in float32")
    return all_of(*parts)


@check("half-precision-gives-no-nan", roles=KINDS)
def half_precision(impl: Any, draw: Draw) -> Evidence:
    """With float16 or bfloat16 weights a model gives numbers, where it runs."""
    return finite_where_float32_is(built(impl), ("float16", "bfloat16"), "in")


@check("autocast-gives-no-nan", roles=KINDS)
def autocast(impl: Any, draw: Draw) -> Evidence:
    """Under autocast to float16 or bfloat16 a model gives numbers."""
    return finite_where_float32_is(built(impl), ("autocast float16", "autocast bfloat16"), "under")
