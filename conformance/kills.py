"""The kill matrix: which checks catch which mutants.

A suite that passes everything is worth nothing, so it is measured: every mutant is a correct implementation with one
deliberate defect, and the checks of the claims that it violates must fail on it. Checks run unfolded, from seeded
examples without shrinking. Mutants of whole models and of training scripts need torch.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import warnings
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import conformance.checks  # noqa: F401 (registers them)
from conformance.adapters.reference import ReferenceImplementation
from conformance.check import CHECKS
from conformance.mutants import MUTANTS
from conformance.mutants.script import NOTED, SCRIPTS
from conformance.mutants.source import SPECIMENS, Specimen
from conformance.mutated import implementation_of, script_run, specimen_as_it_is
from conformance.protocol import NotProvided
from conformance.runner import evidence_of

KILLED, ERROR, SURVIVED, NOT_PROVIDED = "killed", "error", "survived", "not provided"


@dataclass(frozen=True)
class Row:
    """One mutant's row: what each check that ran made of it. `missing` are claims that it breaks and no check tests."""

    mutant: str
    defect: str
    known_as: str
    breaks: tuple[str, ...]
    outcomes: dict[str, str]
    missing: tuple[str, ...] = ()

    @property
    def killers(self) -> list[str]:
        """The checks that caught it: by evidence, or because it could not be run."""
        return [claim for claim, outcome in self.outcomes.items() if outcome in (KILLED, ERROR)]

    @property
    def escaped(self) -> list[str]:
        """The claims that it breaks whose checks did not catch it. A mutant that breaks no claim escapes them all."""
        caught = set(self.killers)
        return [claim for claim in self.breaks if claim not in caught] or ([] if self.breaks else ["(breaks no claim)"])


def outcome(claim: str, implementation: Any) -> str:
    """What the check of `claim` makes of an implementation."""
    try:
        evidence, _ = evidence_of(CHECKS[claim], implementation)
    except NotProvided:
        return NOT_PROVIDED
    except Exception:
        return ERROR
    return SURVIVED if evidence.ok else KILLED


def checks_of(mutant: Any) -> list[str]:
    """The checks that can see a mutant, those of the claims that it breaks first.

    A mutant replaces one role of the reference, so a check that builds no subject of that role meets the reference. One
    of a whole model plays the role of every model, too.
    """
    first = [claim for claim in mutant.breaks if claim in CHECKS]
    rest = [claim for claim, check in CHECKS.items() if not {*mutant.roles}.isdisjoint(check.roles)]
    return list(dict.fromkeys([*first, *rest]))


def row_of(name: str, own: bool = False) -> Row:
    """Run the checks of one mutant: all that can see it, or only its own, of the claims that it breaks."""
    mutant = MUTANTS[name]
    implementation = implementation_of(mutant)
    claims = [claim for claim in mutant.breaks if claim in CHECKS] if own else checks_of(mutant)
    outcomes = {claim: outcome(claim, implementation) for claim in claims}
    missing = tuple(claim for claim in mutant.breaks if claim not in CHECKS)
    return Row(name, " ".join(mutant.defect.split()), mutant.known_as, mutant.breaks, outcomes, missing)


def matrix(names: Sequence[str], progress: Callable[[Row], None], processes: int = 2, own: bool = False) -> list[Row]:
    """The rows of the mutants, in order; `progress` is called with each as it is done. own: see `row_of`."""
    rows: dict[str, Row] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(names)), context, initializer=_start_worker) as pool:
        for future in as_completed([pool.submit(row_of, name, own) for name in names]):
            row = future.result()
            rows[row.mutant] = row
            progress(row)
    return [rows[name] for name in names]


def _start_worker() -> None:
    """What a process of a pool needs. It computes on one thread: models are small, and the threads of processes side by
    side wait for each other ten times as long as they compute."""
    if is_installed("torch"):
        import torch

        torch.set_num_threads(1)
    warnings.simplefilter("ignore", RuntimeWarning)  # a mutant may well overflow or divide by zero


def broken_checks(claims: Collection[str], processes: int = 2) -> dict[str, str]:
    """The checks that do not pass on what is unmutated, which therefore could not prove a kill: on the reference, and
    on the models that mutants of whole models are made from."""
    specimens = SPECIMENS if is_installed("torch") else ()
    scripts = SCRIPTS if is_installed("torch") else ()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_start_worker) as pool:
        outcomes = [*zip(claims, pool.map(_reference_outcome, claims, chunksize=8), strict=True)]
        for found in pool.map(_specimen_outcomes, specimens, [claims] * len(specimens)):
            outcomes += found.items()
        for found in pool.map(_script_outcomes, scripts, [claims] * len(scripts)):
            outcomes += found.items()
    return {claim: outcome for claim, outcome in outcomes if outcome not in (SURVIVED, NOT_PROVIDED)}


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _script_outcomes(name: str, claims: Collection[str]) -> dict[str, str]:
    """What the checks of the claims make of a training script."""
    mine = [claim for claim in claims if "training_run" in CHECKS[claim].roles and claim not in NOTED.get(name, ())]
    implementation = script_run(name) if mine else None
    return {claim: outcome(claim, implementation) for claim in mine}


def _reference_outcome(claim: str) -> str:
    return outcome(claim, ReferenceImplementation())


def _specimen_outcomes(specimen: Specimen, claims: Collection[str]) -> dict[str, str]:
    """What the checks of the claims make of a whole model, of those that build it."""
    mine = [claim for claim in claims if not {*specimen.roles}.isdisjoint(CHECKS[claim].roles)]
    implementation = specimen_as_it_is(specimen) if mine else None
    return {claim: outcome(claim, implementation) for claim in mine}
