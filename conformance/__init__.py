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
    from concurrent.futures import Executor

    from conformance.grading.rubric import Score
    from conformance.in_process import Checked
    from conformance.watch.in_process import Watching

__all__ = ["check", "grade", "parametrize_with_claims", "reward", "watching"]


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

    model: an nn.Module of torch or minigrad (an instance, a class, or a function that makes torch's), or an object with
    a method ``build(role, config)``. inputs: what forward takes where it cannot be guessed, as --claims-input writes
    it: shapes with the batch first, ``"2x16:int"`` or ``"idx=2x16:int,mask=2x16"``. kind: what it is meant to be
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


def grade(subjects: str, store: str = "grades.sqlite", executor: Executor | None = None, **options: Any) -> int:
    """Grade many implementations, as ``conformance grade`` does; returns the number of the run in the store.

        with MPIPoolExecutor() as executor:
            run = conformance.grade("handins/", executor=executor)

    subjects: a folder, a glob, or a list (.toml, .csv, .jsonl). store: the database of the results. executor: anything
    with the interface of ``concurrent.futures``, on this machine or others, whose workers have this package; a process
    for each core of this machine when None. options: the fields of `conformance.grading.run.Options`, such as
    ``budget="default"`` and ``seed=7``. Raises GradingError (of `conformance.grading.submissions`), with a sentence.
    """
    from pathlib import Path

    from conformance.grading.run import Options
    from conformance.grading.run import grade as run
    from conformance.grading.store import Store
    from conformance.grading.submissions import found

    opened = Store(Path(store))
    try:
        return run(found(subjects), opened, Options(**options), executor=executor)
    finally:
        opened.close()


def reward(source: str, name: str = "", rubric: str | None = None, seed: int = 0, seconds: float = 30.0) -> Score:
    """How good the code of a Transformer or of a part of it is, for programs that learn to write one.

        score = conformance.reward(code, "Attention", seed=step)
        score.value, score.reasons, score.mistakes

    source: a file of Python, as text. name: the class or function in it; everything in it where empty. rubric: a file
    that says what counts (docs/grading.md). seed: of the examples; the same code and seed have the same reward.
    seconds: of processor time that the code may take, for all of it; claims that are left then are not kept. Any thread
    may call it. The code runs in a process of its own, on Linux in the sandbox. Raises GradingError for a wrong rubric.
    """
    import sys
    from pathlib import Path

    from conformance.grading.reward import reward as rewarded
    from conformance.grading.rubric import read
    from conformance.grading.run import Options

    found = read(Path(rubric)) if rubric else None
    return rewarded(source, name, found, Options(seed=seed, seconds=seconds, sandbox=sys.platform == "linux"))
