"""What checks of parts with weights share: building with random parameters, and bounds. Registers no check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np

from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, tolerance
from conformance.protocol import ROLES, Array, Arrays, NotProvided, Subject

DIFFERENCES = 1e-6
"""Absolute error allowed to gradients of size about one: the numpy reference takes them by central differences."""

POISON = 100.0
"""What hidden positions hold. A leak of one part in ten million still shows, and the scores of hidden keys stay below
10000: what a mask of zeros and -10000 hides, as BERT's does, is hidden."""


def loaded(impl: Any, draw: Draw, role: str, **config: Any) -> tuple[Any, Arrays]:
    """A subject of `role` with random parameters, and those parameters.

    A module without biases is one whose biases are zero: one that refuses others is given these.
    """
    subject = impl.build(role, config)
    params = draw.params(ROLES[role].params(ROLES[role].settings(config)))
    try:
        subject.load(params)
    except NotProvided:
        params = {name: np.zeros_like(a) if name.endswith("bias") else a for name, a in params.items()}
        subject.load(params)
    return subject, params


def offered(impl: Any, role: str, config: Mapping[str, Any], **alternatives: tuple[Any, ...]) -> dict[str, Any]:
    """`config` with the first combination of the alternatives that the implementation provides.

    For claims that hold in every variant (pre- and post-norm, any activation) when an implementation has only one.
    """
    reason = NotProvided(f"no variant of {role}")
    for values in product(*alternatives.values()):
        candidate = {**config, **dict(zip(alternatives, values, strict=True))}
        try:
            impl.build(role, candidate)
        except NotProvided as error:
            reason = error
        else:
            return candidate
    raise reason


def of_those_provided(draw: Draw, parts: Iterable[tuple[str, Callable[[], Evidence]]]) -> Evidence:
    """All parts together, but for those that the implementation does not provide: the example names these.

    Raises NotProvided when it provides none. Parts after a failure are not run.
    """
    evidence: list[Evidence] = []
    missing: dict[str, NotProvided] = {}
    for name, part in parts:
        try:
            evidence.append(part())
        except NotProvided as error:
            missing[name] = error
        if evidence and not evidence[-1].ok:
            break
    if not evidence:
        raise next(iter(missing.values()))
    if missing:
        draw.values["not provided"] = ", ".join(missing)
    return all_of(*evidence)


def usual_mask(attend: Callable[[Array], Any], x: Array) -> Array | None:
    """The mask under which a layer sees all that it can: none, or the causal one where it never looks ahead."""
    try:
        attend(x)
    except NotProvided:
        return np.tri(x.shape[1], dtype=bool)[None, None]
    return None


def sum_bound(subject: Subject, *arrays: Array) -> float:
    """Rounding of sums of products whose terms and results have the size of `arrays`."""
    size = max(float(np.abs(a).max()) for a in arrays)
    return tolerance(subject.dtype, max(a.shape[-1] for a in arrays), max(size, 1.0) * 4.0)


def gradient_bound(subject: Subject, length: int, scale: float = 4.0) -> float:
    """Rounding of gradients that are sums of `length` terms, or the error of central differences."""
    return max(tolerance(subject.dtype, length, scale), DIFFERENCES)
