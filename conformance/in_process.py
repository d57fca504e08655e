"""Claims on a model that is already in this process, without pytest's command line: `checked`, `parametrized`.

Nothing guards this process from the model: one that hangs, hangs. Global random generators are put back as they were.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from types import FunctionType
from typing import Any

import numpy as np

import conformance.checks  # noqa: F401 (registers them)
from conformance.adapters import Specification, SpecificationError, as_torch_module
from conformance.adapters.stated import Stated
from conformance.catalogue import Catalogue, CatalogueError, Claim, load
from conformance.check import CHECKS
from conformance.page import to_html
from conformance.protocol import ROLES
from conformance.report import Report, to_json
from conformance.runner import run_check
from conformance.settings import BUDGETS
from conformance.summary import broken_lines, summary_lines
from conformance.verdict import HELD, SHOWN_IN_FULL, Result, Verdict, judged

LINES = 60
"""How many lines the summary of a report takes as text, about."""


@dataclass(frozen=True)
class Checked(Report):
    """What `conformance.check` found. As text it is the summary, in a notebook the page.

    difference: the first module whose output differs from the reference's; None where none does, or none was given.
    """

    difference: Any = None

    @property
    def failures(self) -> list[Result]:
        """The results that do not hold, each with its root cause only, the most specific first."""
        return [result for result in self.folded().values() if result.verdict in SHOWN_IN_FULL]

    def __str__(self) -> str:
        return "\n".join(summary_lines(self, LINES))

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that a notebook's styles and the page's do not meet."""
        page = escape(to_html([to_json(self)]))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


def checked(model: Any, inputs: str, kind: str, reference: Any, budget: str, claims: str | None) -> Checked:
    """`conformance.check` with empty texts for what is not given."""
    if budget not in BUDGETS:
        raise ValueError(f"budget is {budget!r}; choose one of {', '.join(BUDGETS)}")
    catalogue = load()
    chosen = _chosen(catalogue, claims)
    with _generators_kept():
        implementation = implementation_of(model, kind, inputs, reference)
        results = {c.slug: judged(run_check(CHECKS[c.slug], implementation, budget), c) for c in chosen if c.is_tested}
    notes, untested, graph = (list(getattr(implementation, name, ())) for name in ("notes", "untested", "graph"))
    first = next(iter(results))
    results[first] = replace(results[first], notes=notes, untested=untested, graph=graph)
    return Checked(
        _name(model),
        getattr(implementation, "kind", None),
        budget,
        0,
        results,
        catalogue,
        chosen,
        lambda slug: f"conformance.check(model, claims={slug!r})",
        difference=getattr(implementation, "difference", None),
    )


def _chosen(catalogue: Catalogue, claims: str | None) -> list[Claim]:
    chosen = catalogue.select(claims) if claims else list(catalogue.claims.values())
    if not any(claim.is_tested for claim in chosen):
        raise CatalogueError(f"{claims} selects only claims about the documents; see `conformance errata`")
    return chosen


def implementation_of(model: Any, kind: str = "", inputs: str = "", reference: Any = None) -> Any:
    """The implementation that a model is: itself, or what is inferred of PyTorch code. Raises SpecificationError."""
    if kind and kind not in ROLES:
        raise SpecificationError(f"there is no kind {kind!r}; a kind is a role, such as language_model or classifier")
    stated = Stated(input=inputs)
    stated.check()
    model = as_torch_module(model)
    if hasattr(model, "build") and not _is_torch(model):
        return model() if isinstance(model, type) else model
    if not _is_torch(model) and not isinstance(model, FunctionType):
        raise SpecificationError(
            f"{_name(model)} is neither a torch.nn.Module (an instance, a class, or a function that makes one) nor an "
            "object with a method build(role, config)"
        )
    from conformance.adapters.whole.implementation import PointedImplementation

    other = None if reference is None else _pointed(as_torch_module(reference), kind)
    return PointedImplementation(*_pointed(model, kind), stated, other)


def _pointed(model: Any, kind: str) -> tuple[Any, Specification]:
    """The model, and the specification that would name it; a function without parameters is called."""
    if isinstance(model, FunctionType) and not model.__code__.co_argcount:
        model = model()
    name = _name(model)
    module = type(model).__module__ if not hasattr(model, "__name__") else model.__module__
    return model, Specification(name, module, name, role=kind)


def _is_torch(model: Any) -> bool:
    nn = sys.modules.get("torch.nn")
    if nn is None:
        return False
    return issubclass(model, nn.Module) if isinstance(model, type) else isinstance(model, nn.Module)


def _name(model: Any) -> str:
    return str(getattr(model, "__name__", type(model).__name__))


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Checks seed the global generators; put them back."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state(), torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if torch:
            torch.set_rng_state(states[2])


# --- as tests -------------------------------------------------------------------------------------


class _Examined:
    """A model whose implementation is made once, by the first claim that asks."""

    def __init__(self, model: Any, kind: str, inputs: str) -> None:
        self.model, self.kind, self.inputs = model, kind, inputs

    def of(self, model: Any) -> Any:
        """The implementation that a model is: made once for the one that was parametrised with."""
        return self._own if model is self.model else implementation_of(model, self.kind, self.inputs)

    @cached_property
    def _own(self) -> Any:
        return implementation_of(self.model, self.kind, self.inputs)


@dataclass(frozen=True)
class ClaimCheck:
    """One claim as a function of the model. It is shown as the claim's slug."""

    claim: Claim
    catalogue: Catalogue
    examined: _Examined

    def __call__(self, model: Any) -> None:
        """Raises AssertionError when the claim is not kept; skips the test when the model has no such component."""
        import pytest

        __tracebackhide__ = True
        with _generators_kept():
            implementation = self.examined.of(model)
            result = judged(run_check(CHECKS[self.claim.slug], implementation), self.claim)
        if result.verdict is Verdict.NOT_PROVIDED:
            pytest.skip(f"NOT PROVIDED: {result.message}")
        if result.verdict not in HELD:
            replay = f"check(model)  # {self.claim.slug}"
            report = Report(_name(model), None, "default", 0, {}, self.catalogue, [], lambda _: replay)
            raise AssertionError("\n".join(broken_lines(report, result)))

    def __repr__(self) -> str:
        return self.claim.slug


def parametrized(
    model: Any, kind: str, inputs: str, claims: str | None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`conformance.parametrize_with_claims` with empty texts for what is not given."""
    import pytest

    catalogue = load()
    examined = _Examined(model, kind, inputs)
    tested = [claim for claim in _chosen(catalogue, claims) if claim.is_tested]
    cases: Mapping[str, ClaimCheck] = {claim.slug: ClaimCheck(claim, catalogue, examined) for claim in tested}
    return pytest.mark.parametrize(("model", "check"), [(model, one) for one in cases.values()], ids=list(cases))
