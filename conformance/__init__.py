"""The claims of five Transformer tutorials as executable checks, for any implementation.

`pytest conformance/ --impl SPEC` runs them; see `conformance.protocol` for what an implementation is. In Python,
`check` tests a model in this process, `watching` a training loop, and `parametrize_with_claims` makes tests for one's
own suite. Importing this package imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import conformance.check  # first: imported later, the module would take the place of the function of its name

if TYPE_CHECKING:
    from conformance.in_process import Checked
    from conformance.watch.in_process import Watching

__all__ = ["check", "parametrize_with_claims", "watching"]


def check(
    model: Any,
    inputs: str | None = None,
    kind: str | None = None,
    reference: Any = None,
    budget: str = "default",
    claims: str | None = None,
) -> Checked:
    """Test a model against the claims, in this process; the model stays as it is.

        report = conformance.check(model)
        assert not report.failures, report

    model: an nn.Module (an instance, a class, or a function that makes one), or an object with a method
    ``build(role, config)``. inputs: what forward takes where it cannot be guessed, as --claims-input writes it: shapes
    with the batch first, ``"2x16:int"`` or ``"idx=2x16:int,mask=2x16"``. kind: what it is meant to be
    ("language_model", "masked_language_model", "sequence_to_sequence", "encoder_model", "classifier"), or the role of a
    component; inferred when None. reference: a second model with the same parameters; ``report.difference`` is then the
    first module whose output differs. budget: "quick", "default" or "deep". claims: which, as --claims selects them;
    all when None.

    Raises SpecificationError (of `conformance.adapters`) when the model cannot be run, CatalogueError (of
    `conformance.catalogue`) when `claims` selects none, and ValueError for another budget; each with one sentence.
    """
    from conformance.in_process import checked

    return checked(model, inputs or "", kind or "", reference, budget, claims)


def parametrize_with_claims(
    model: Any, kind: str | None = None, inputs: str | None = None, claims: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that makes one test of each claim, as scikit-learn's ``parametrize_with_checks`` does.

        @conformance.parametrize_with_claims(GPT(GPTConfig()))
        def test_claims(model, check):
            check(model)

    The test function takes ``model`` and ``check``. ``check(model)`` raises AssertionError, with all that is needed to
    mend it, when the claim is not kept. It skips the test when the model has no such component. model, kind, inputs,
    claims: as for `check`. The model is examined when the first test runs. Raises CatalogueError as `check` does.
    """
    from conformance.in_process import parametrized

    return parametrized(model, kind or "", inputs or "", claims)


def watching() -> Watching:
    """A context in which torch is watched while a loop trains, as ``conformance watch`` does with a script.

        with conformance.watching() as watch:
            train(model, data)
        report = watch.report()
        assert not report.failures, report

    The loop goes on to its end, and its numbers are what they are without watching.
    """
    from conformance.watch.in_process import Watching

    return Watching()
