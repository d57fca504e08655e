"""What checks of parts with weights share: building with random parameters, and bounds. Registers no check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.draw import Draw
from conformance.evidence import tolerance
from conformance.protocol import ROLES, Array, Arrays, Subject

DIFFERENCES = 1e-6
"""Absolute error allowed to gradients of size about one: the numpy reference takes them by central differences."""


def loaded(impl: Any, draw: Draw, role: str, config: Mapping[str, Any]) -> tuple[Subject, Arrays]:
    """A subject of `role` with random parameters, and those parameters."""
    subject = impl.build(role, config)
    params = draw.params(ROLES[role].params(ROLES[role].settings(config)))
    subject.load(params)
    return subject, params


def sum_bound(subject: Subject, *arrays: Array) -> float:
    """Rounding of sums of products whose terms and results have the size of `arrays`."""
    size = max(float(np.abs(a).max()) for a in arrays)
    return tolerance(subject.dtype, max(a.shape[-1] for a in arrays), max(size, 1.0) * 4.0)


def gradient_bound(subject: Subject, length: int, scale: float = 4.0) -> float:
    """Rounding of gradients that are sums of `length` terms, or the error of central differences."""
    return max(tolerance(subject.dtype, length, scale), DIFFERENCES)
