"""Which known mistake gives the same wrong answers: the diagnosis of what its check cannot name (`lookalike`).

The mutants of the suite are mistakes in words. On the example that an implementation failed, and on a few more, mutants
of the same component are asked too, as shadows of the implementation. One whose answers are the implementation's,
within the check's own bound, makes the same mistake.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from conformance.check import Check
from conformance.draw import Draw, Pinned, Replayed, Seeded, Source
from conformance.evidence import Evidence, close
from conformance.observed import Observed, ObservedSubject
from conformance.protocol import Array, Arrays

MOST = 2
"""More mistakes than this that look alike say nothing."""

SECONDS = 3.0
"""Processor time after which no further mutant is asked."""


class Likeness(NamedTuple):
    """words: a sentence with the mistakes that answer alike; empty when none is known. usual: where authors choose on
    purpose what is alike; empty where a mistake is."""

    words: str = ""
    usual: str = ""


def lookalike(check: Check, impl: Observed, failed: Sequence[int]) -> Likeness:
    """What answers as `impl` does.

    failed: the choices of the example that it failed (`conformance.draw.Recorded`). Mutants of the claim are asked
    first, other mutants of its components only if none of them is alike.
    """
    from conformance.mutants import MUTANTS, Mutant  # only where something is wrong

    sources: list[Callable[[], Source]] = [lambda: Replayed(failed), Pinned, lambda: Seeded(0), lambda: Seeded(1)]
    answers = [(source, answer) for source in sources if (answer := _answer(check, impl, source))]
    if not all(_agree(answer, _answer(check, impl, source)) for source, answer in answers):
        return Likeness()  # it draws, so what it answers alike today it does not tomorrow
    wrong = [np.asarray(answer.got) for _, answer in answers if _is_telling(answer)]
    if not any(got.size > 1 for got in wrong) and len({float(got.reshape(())) for got in wrong}) < 3:
        return Likeness()  # a few single numbers fit too many mistakes
    deadline = time.process_time() + SECONDS
    for is_of_claim in (True, False):
        alike: list[Mutant] = []
        for mutant in [known for known in MUTANTS.values() if isinstance(known, Mutant)]:
            fits = mutant.role in check.roles and (check.claim in mutant.breaks) is is_of_claim
            if fits and len(alike) <= MOST and time.process_time() < deadline:
                shadow = Observed(Shadow(mutant.implementation(), impl))
                if all(_agree(answer, _answer(check, shadow, source)) for source, answer in answers):
                    alike.append(mutant)
        if alike:
            return _said(alike) if len(alike) <= MOST else Likeness()
    return Likeness()


def _said(alike: Sequence[Any]) -> Likeness:
    words = " Or: ".join(mutant.defect for mutant in alike)
    if all(mutant.usual for mutant in alike):
        usual = "; ".join(mutant.usual for mutant in alike)
        return Likeness(f"It is made in another usual way: {words} ({usual})", usual)
    return Likeness(f"It looks like this mistake: {words}")


class Shadow:
    """A mutant that provides what an implementation provides, refuses what it refuses, and starts from its parameters.

    So a check asks both the same questions, and only the mistake differs.
    """

    def __init__(self, mutant: Any, impl: Observed) -> None:
        self.mutant = mutant
        self.impl = impl
        self.name = str(mutant.name)

    def build(self, role: str, config: Mapping[str, Any]) -> ShadowSubject:
        original = self.impl.build(role, config)
        return ShadowSubject(original, self.mutant.build(role, config))


class ShadowSubject:
    """The subject of a `Shadow`: computes by the mutant's, after the implementation's had its chance to refuse."""

    def __init__(self, original: ObservedSubject, mutant: Any) -> None:
        self.original = original
        self.mutant = mutant
        self.dtype = original.dtype
        self.attributes = original.attributes
        with contextlib.suppress(Exception):  # it has no parameters to show; a check that needs them loads its own
            mutant.load(original.params())

    def __call__(self, **inputs: Any) -> Arrays:
        names = self.original(**inputs)
        return {name: value for name, value in self.mutant(**inputs).items() if name in names}

    def params(self) -> Arrays:
        return self.original.params()

    def load(self, params: Mapping[str, Array]) -> None:
        self.original.load(params)
        self.mutant.load(params)

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        self.original.vjp(inputs, cotangent)
        gradients: tuple[Arrays, Arrays] = self.mutant.vjp(inputs, cotangent)
        return gradients

    def train(self, mode: bool = True) -> None:
        self.original.train(mode)
        self.mutant.train(mode)


def _answer(check: Check, impl: Observed, source: Callable[[], Source]) -> Evidence | None:
    """What the implementation shows on an example; None where it has no answer."""
    try:
        return check.function(impl, Draw(source()))
    except Exception:
        return None


def _is_telling(evidence: Evidence) -> bool:
    """Whether it is a wrong answer in finite numbers, far off its bound: a shape, a no, and a share that scatters fit
    too many mistakes."""
    if evidence.ok or "at" not in evidence.details or evidence.error < 4 * evidence.bound:
        return False
    got = np.asarray(evidence.got)
    return got.dtype.kind == "f" and got.size > 0 and bool(np.isfinite(got).all())


def _agree(one: Evidence, other: Evidence | None) -> bool:
    """Whether both are asked the same, and answer the same: within the bound of the first, or within a hundredth of
    what it is off, since a mistake may magnify rounding."""
    if other is None or (one.what, one.ok) != (other.what, other.ok) or np.shape(one.got) != np.shape(other.got):
        return False
    if "at" not in one.details:
        return _equal(one.got, other.got)
    bound = max(one.bound, one.error / 100)
    return all(close("", *pair, bound).ok for pair in ((other.got, one.got), (other.expected, one.expected)))


def _equal(one: Any, other: Any) -> bool:
    """Whether two answers are the same: numbers, or several of these by name."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))
