"""Fitting: the layouts that names propose are decided by numbers, against the role's formula and its known mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference import probes
from conformance.adapters.inference.facts import CannotRun, Unresolved
from conformance.adapters.inference.norms import mend_norms
from conformance.adapters.inference.probes import FITS, NORM_EPS
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.inference.roles import MODELS, norms_in
from conformance.adapters.inference.subjects import ModuleSubject
from conformance.adapters.torch_subject import TorchSubject
from conformance.places import innermost_line
from conformance.protocol import ROLES, Array, Arrays, NotProvided

_ACTIVATIONS = {"activation": ("relu", "gelu", "gelu_tanh", "silu")}
VARIANTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "feed_forward": _ACTIVATIONS,
    "encoder_layer": _ACTIVATIONS,
    "decoder_layer": _ACTIVATIONS,
    "layer_norm": {"eps": NORM_EPS},
    "rms_norm": {"eps": (1e-6, 1e-5, 1e-8, 1e-12)},
    "rope": {"pairing": ("interleaved", "half")},
    "decoder_lm": {"rope": ("interleaved", "half", None)},
    "cached_decoder_lm": {"rope": ("interleaved", "half", None)},
    "encoder_decoder": {"pad_id": (0, 1)},
}
"""Options that a class may have fixed: the values that are tried."""


Trial = tuple[str, p.Layout, dict[str, bool], dict[str, Any]]
"""A label, a layout, what is taken out of the module, and the values of variants."""


def fit(
    found: Resolution,
    layouts: Iterable[tuple[str, p.Layout]],
    inputs: Arrays,
    mask: Array | None = None,
    has_norm: bool = False,
    also: Sequence[Arrays] = (),
) -> bool:
    """Adopt the first layout with which the module equals the role's formula; else that with which it equals a
    mistake on `inputs` and on those of `also`; else the first one. Say which."""
    variants = {k: v for k, v in VARIANTS.get(found.role, {}).items() if k not in found.fixed}
    inside: dict[str, dict[str, bool]] = {"": {}}
    if has_norm:
        inside[", its norm taken out"] = {"bare": True}
        inside[", its residual and norm taken out"] = {"bare": True, "residual": True}
    trials = [
        (label + said, layout, without, chosen)
        for (label, layout), (said, without) in product(layouts, inside.items())
        for chosen in (dict(zip(variants, values, strict=True)) for values in product(*variants.values()))
    ]
    if not trials:
        names = sorted({name.rsplit(".", 1)[0] for name in ROLES[found.role].params(found.settings)})
        raise Unresolved(
            f"the parameters of {found.cls.__name__} cannot be told apart by name and shape: write a subclass that "
            f"names its layers {', '.join(names)}, or a class with build(role, config)"
        )
    errors = []
    for trial in trials:
        errors.append(_error(found, trial, inputs, mask))
        if errors[-1] < FITS:
            break
    found.runs = bool(np.isfinite(min(errors))) or _gives_nan(found, trials[0], inputs, mask)
    refusal = "" if found.runs or found.role in MODELS else _refusal(found, trials[0], inputs, mask)
    if refusal:
        raise CannotRun(
            f"{found.cls.__name__} cannot be run as {found.role}: {refusal}; name its role as "
            f"file.py:{found.cls.__name__}@role, or write a class with build(role, config)"
        )
    best = int(np.argmin(errors))
    found.fits = errors[best] < FITS
    if not found.fits:
        but_for_norms = _adopt_unfit(found, trials, errors, [inputs, *also], mask)
        for option in variants:  # no variant is excused: the claims about each of them apply, and fail
            found.fixed.pop(option, None)
        if but_for_norms is not None:
            _adopt(found, but_for_norms, "with LayerNorms in the place of its norms it equals the formula")
        return False
    _adopt(found, trials[best], f"equals the formula to {errors[best]:.0e} with random parameters")
    return True


def _adopt(found: Resolution, trial: Trial, evidence: str) -> None:
    """Take the layout and the variants with which the module equals the formula."""
    label, layout, without, chosen = trial
    found.conventions = found.conventions.with_layout(layout, **without)
    if found.fits:
        found.say("layout", label, evidence)
    for option, value in chosen.items():
        if option not in ROLES[found.role].config:
            found.attributes[option] = value
        elif option not in found.constructor.known or found.constructor.config_parameter is not None:
            found.fixed[option] = value
        else:
            continue
        found.say(option, value, evidence)


def _adopt_unfit(
    found: Resolution, trials: Sequence[Trial], errors: Sequence[float], inputs: Sequence[Arrays], mask: Array | None
) -> Trial | None:
    """Adopt the first layout with which the module computes a known mistake, and name it; else the first layout.

    Returned is the trial with which a layer is right but for the formula of its norms, if one is.
    """
    first = [i for i, trial in enumerate(trials) if trial[1] is trials[0][1]]
    nearest = trials[min(first, key=lambda i: errors[i])]
    mistaken = ((trial, made) for trial in trials for made in [_mistakes(found, trial, inputs, mask)] if made)
    trial, mistakes = next(mistaken, (nearest, {}))
    found.conventions = found.conventions.with_layout(trial[1], **trial[2])
    missing = _misfits(found, trial) or f"the nearest of {len(trials)} is {min(errors):.2g} off"
    evidence = (
        "in no layout the formula; in this one a known mistake"
        if mistakes
        else f"by names alone: not the formula in any layout: {missing}"
    )
    found.say("layout", trial[0], evidence, doubtful=True)
    own, but_for_norms = _own_norms(found, trials, inputs[0], mask)
    found.own_norms, found.recognised = own, bool(mistakes or own)
    if own:
        found.say("norms", own, "with LayerNorms in their place it equals the formula", doubtful=True)
    for mistake, error in mistakes.items():
        found.say("looks like", mistake, f"equals this mistake to {error:.0e}", doubtful=True)
    return but_for_norms


def _mistakes(found: Resolution, trial: Trial, inputs: Sequence[Arrays], mask: Array | None) -> dict[str, float]:
    """The known mistakes that the module makes in this layout -> how exactly it equals them on all inputs: the
    defects of the role's mutants, and other scales of the scores."""
    from conformance.mutants import MUTANTS, Mutant  # only where something is wrong

    settings, subject = _settings_of(found, trial), _subject_of(found, trial)
    if subject is None or not np.isfinite(probes.difference(subject, inputs[0], settings, mask)):
        return {}
    masked = {} if mask is None else {"mask": mask}
    try:
        answers = [subject(**given, **masked)["out"] for given in inputs]
    except Exception:  # it cannot be run on them all
        return {}
    formulas: dict[str, dict[str, Any]] = {
        mutant.defect: {"formula": mutant.cls}
        for mutant in MUTANTS.values()
        if isinstance(mutant, Mutant) and mutant.role == found.role
    }
    scales: dict[str, dict[str, Any]] = {}
    if "q_proj.weight" in ROLES[found.role].params(settings):
        width = found.settings["d_model"]
        head = found.settings.get("d_k", width // found.settings.get("n_heads", 1))
        for scale, name in ((1.0, "1"), (width**-0.5, "1/sqrt(d_model)"), (1 / head, "1/d_k")):
            scales[f"The scale of the scores is {name}."] = {"scale": scale * head**0.5}
        lengths = {next(given[name] for name in ("key", "memory", "x") if name in given).shape[1] for given in inputs}
        if len(lengths) == 1:
            said = "The scores are divided by the square root of the number of keys."
            scales[said] = {"scale": (head / lengths.pop()) ** 0.5}
    for mistakes in (formulas, scales):
        errors = {
            said: max(
                probes.difference(subject, given, settings, mask, **mistake, got=got)
                for given, got in zip(inputs, answers, strict=True)
            )
            for said, mistake in mistakes.items()
        }
        if made := {said: error for said, error in errors.items() if error < FITS}:
            return made
    return {}


def _own_norms(
    found: Resolution, trials: Sequence[Trial], inputs: Arrays, mask: Array | None
) -> tuple[str, Trial | None]:
    """The class of a layer's norms, if they alone keep it from the formula, and the trial that shows it."""
    if found.role not in ("encoder_layer", "decoder_layer"):
        return "", None
    for trial in trials:
        subject = _subject_of(found, trial)
        if not isinstance(subject, ModuleSubject):
            continue
        own = [type(norm).__name__ for _, norm in norms_in(subject.module) if not isinstance(norm, nn.LayerNorm)]
        mend_norms(subject.module, found.attributes.get("eps", NORM_EPS[0]))
        if own and probes.difference(subject, inputs, _settings_of(found, trial), mask) < FITS:
            return own[0], trial
    return "", None


def _settings_of(found: Resolution, trial: Trial) -> dict[str, Any]:
    _, layout, _, chosen = trial
    settings = {**found.settings, **{k: v for k, v in chosen.items() if k in found.settings}}
    if "bias" in settings:
        settings["bias"] = all(name in layout for name in ROLES[found.role].params({**settings, "bias": True}))
    return settings


def _subject_of(found: Resolution, trial: Trial) -> TorchSubject | None:
    """A subject with random parameters; None where parameters are missing."""
    _, layout, without, chosen = trial
    conventions = found.conventions.with_layout(layout, **without)
    try:
        return found.subject(_settings_of(found, trial), conventions, chosen, random=True)
    except NotProvided:
        return None


def _error(found: Resolution, trial: Trial, inputs: Arrays, mask: Array | None) -> float:
    subject = _subject_of(found, trial)
    return np.inf if subject is None else probes.difference(subject, inputs, _settings_of(found, trial), mask)


def _misfits(found: Resolution, trial: Trial) -> str:
    """The parameters that have another number of elements than the role's, in words."""
    subject = _subject_of(found, trial)
    wanted = ROLES[found.role].params(_settings_of(found, trial))
    misfits = subject.misfits if isinstance(subject, ModuleSubject) else {}
    return ", ".join(f"{name} has {size} numbers of {prod(wanted[name])}" for name, size in misfits.items())


def _refusal(found: Resolution, trial: Trial, inputs: Arrays, mask: Array | None) -> str:
    """What it raises in its role; empty where it runs, or where numbers are missing."""
    subject = _subject_of(found, trial)
    if subject is None or (isinstance(subject, ModuleSubject) and subject.misfits):
        return ""
    try:
        subject(**inputs, **({} if mask is None else {"mask": mask}))
    except Exception as error:
        return (
            f"{type(error).__name__}: {error}" if str(error) else f"{type(error).__name__} at {innermost_line(error)}"
        )
    return ""


def _gives_nan(found: Resolution, trial: Trial, inputs: Arrays, mask: Array | None) -> bool:
    """Whether it runs, and what comes out is no number."""
    try:
        subject = found.subject(found.settings, found.conventions.with_layout(trial[1], **trial[2]), random=True)
        out = subject(**inputs, **({} if mask is None else {"mask": mask}))["out"]
    except Exception:
        return False
    if np.isfinite(out).all():
        return False
    found.say("output", "NaN", "of random inputs, no key hidden", doubtful=True)
    return True
