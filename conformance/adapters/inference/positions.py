"""What is found out about positional encodings and rotations."""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference import probes
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.inference.fit import fit
from conformance.adapters.inference.probes import FITS, SIZES, TQ, B, noise
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.inference.subjects import Conventions
from conformance.adapters.torch_subject import to_array
from conformance.protocol import Array
from conformance.reference.positions import sinusoid


def resolve_positions(found: Resolution, module: nn.Module) -> None:
    """Codes that are added: alone or to a multiple of the input, and in which layout."""
    call, d = found.conventions.call, SIZES["d_model"]
    zeros, ones = torch.zeros(B, TQ, d), torch.ones(B, TQ, d)
    with torch.no_grad():
        answers = [list(probes.floats(call(module, {"query": x}))) for x in (zeros, ones)]
    if len(answers[0]) > 1 and torch.equal(answers[0][0], zeros) and torch.equal(answers[1][0], ones):
        raise Unresolved(f"{found.cls.__name__} hands its input on as it is, beside codes that something else adds")
    results = [given[0] for given in answers]
    if results[0].shape != zeros.shape or torch.equal(results[0], results[1]):
        found.conventions = replace(found.conventions, scale=None)
        found.say("returns", "the codes alone", f"shape {tuple(results[0].shape)}, whatever the input")
    else:
        scale = float((results[1] - results[0]).mean())
        rooted = abs(scale - d**0.5) < 1e-3
        found.conventions = replace(found.conventions, scale=scale, rooted=rooted)
        shown = "sqrt(d_model)" if rooted else f"{scale:.4g}"
        found.say("returns", f"{shown} x + codes", "its answers to x = 0 and x = 1")
        along = [float((results[0] - results[0].narrow(axis, 0, 1)).abs().max()) for axis in (0, 1)]
        if along[1] == 0.0 < along[0]:
            _sequence_first(found)
    if found.role == "learned_positions":
        fit(found, p.table_layouts(module, found.settings), {"x": to_array(noise(B, TQ, d))})
        return
    codes = found.subject(found.settings, found.conventions)(x=np.zeros((1, TQ, d)))["out"][0]
    errors = {
        layout: float(abs(codes - sinusoid(np.arange(TQ), d, layout)).max()) for layout in ("interleaved", "half")
    }
    fits = min(errors.values()) < FITS
    layout = min(errors, key=lambda name: errors[name]) if fits else "interleaved"
    found.attributes["layout"] = layout
    evidence = f"equals the formula to {errors[layout]:.0e}" if fits else f"neither fits (error {errors[layout]:.2g})"
    found.say("pairs", layout, evidence, doubtful=not fits)


def _sequence_first(found: Resolution) -> None:
    """Codes run along axis 0. That is sequence first, unless attention in the same file is batch first."""
    for name, other in sorted(vars(sys.modules.get(found.cls.__module__, SimpleNamespace())).items()):
        if not (isinstance(other, type) and issubclass(other, nn.Module) and other.__module__ == found.cls.__module__):
            continue
        if other is found.cls or "attention" not in name.lower():
            continue
        try:
            sibling = type(found)(other)
        except Exception:  # a sibling that cannot be resolved says nothing
            continue
        if sibling.conventions.batch_first:
            found.say("layout of inputs", "(B, T, d)", f"{name} of the same file takes it; the codes run along axis 0")
            return
    found.conventions = replace(found.conventions, batch_first=False)
    found.say("layout of inputs", "(T, B, d)", "the codes run along axis 0")


def resolve_rope(found: Resolution) -> None:
    """Which features are paired, and where the axis of heads is."""
    x = to_array(noise(B, 2, TQ, 8))
    found.settings = {"base": 10000.0, "pairing": "interleaved"}
    if "positions" in found.conventions.call.names:
        alike = replace(found.conventions, positions_alike=True)
        turns = _runs(found, alike, x)
        found.conventions = alike if turns else replace(found.conventions, rotation=_rotation_of(found.cls))
    axis, refusal = _axis_of_heads(found)
    found.conventions = replace(found.conventions, heads_axis=axis)
    settings = {pairing: {**found.settings, "pairing": pairing} for pairing in ("interleaved", "half")}
    errors = {
        pairing: probes.difference(found.subject(given, found.conventions), {"x": x}, given)
        for pairing, given in settings.items()
    }
    pairing = min(errors, key=lambda name: errors[name])
    error = errors[pairing]
    evidence = f"equals the formula to {error:.0e}" if error < FITS else f"no standard form fits (error {error:.2g})"
    found.runs, found.fits = isfinite(error), error < FITS
    if not found.runs:
        raise Unresolved(
            f"{found.cls.__name__} turns neither (B, H, T, d) nor (B, T, H, d) nor (B, T, d): {refusal}; write a "
            "subclass whose forward takes x and returns it rotated"
        )
    if found.fits:
        found.fixed["pairing"] = pairing
    if "base" not in found.constructor.known:
        found.fixed["base"] = 10000.0
    found.say("layout of inputs", LAYOUTS[axis], "what it gives for equal vectors varies along T only")
    found.say("pairing", pairing, evidence, doubtful=not found.fits)


LAYOUTS = {1: "(B, H, T, d)", 2: "(B, T, H, d)", 0: "(B, T, d)"}
"""How rotary positions are handed their input, by the axis of heads; 0 where they are part of the batch."""


def _runs(found: Resolution, conventions: Conventions, x: Array) -> bool:
    """Whether the module gives what it is given back, turned, with such conventions: it returns no tables."""
    with suppress(Exception):
        found.subject({**found.settings}, conventions)(x=x)
        return True
    return False


def _axis_of_heads(found: Resolution) -> tuple[int, str]:
    """The axis of heads: the layout in which equal vectors come out different along T and nowhere else; else the first
    that runs. And why the last one does not run."""
    same, running, refusal = np.ones((B, 2, TQ, 8)), [], "it leaves every vector as it was"
    for axis in LAYOUTS:
        trial = replace(found.conventions, heads_axis=axis)
        try:
            out = found.subject({**found.settings}, trial)(x=same)["out"]
        except Exception as error:
            refusal = f"{type(error).__name__}: {error}"
            continue
        running.append(axis)
        elsewhere = max(np.ptp(out, axis=other).max() for other in (0, 1))
        if elsewhere < 1e-6 < np.ptp(out, axis=2).max():
            return axis, refusal
    return next(iter(running), 1), refusal


def _rotation_of(cls: type[nn.Module]) -> str:
    """The name of the function beside a class of cosine and sine tables that rotates (queries, keys) by them.

    Raises Unresolved when its file has none.
    """
    for name, value in vars(sys.modules[cls.__module__]).items():
        if inspect.isfunction(value) and {"cos", "sin"} <= set(inspect.signature(value).parameters):
            return name
    raise Unresolved(
        f"{cls.__name__} takes positions, and its file has no function of (queries, keys, cos, sin) that rotates by "
        "what it returns: write a subclass whose forward takes x and returns it rotated"
    )
