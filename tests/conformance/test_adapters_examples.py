"""The examples of implementations in other frameworks, where those are installed: which claims they keep."""

from __future__ import annotations

from pathlib import Path

import pytest

import conformance.adapters.examples
import conformance.checks
from conformance.adapters import resolve
from conformance.check import CHECKS
from conformance.runner import run_check
from conformance.verdict import Verdict

FOLDER = Path(conformance.adapters.examples.__file__).parent


@pytest.mark.parametrize(
    ("example", "needs", "roles", "faults"),
    [
        ("numpy_class.py:NumpyTransformer", "numpy", {"attention", "layer_norm"}, set()),
        # tinygrad's softmax of a row that sees no key is NaN, and so are gradients behind it.
        (
            *("tinygrad_functions.py:TinygradTransformer", "tinygrad", {"attention", "softmax"}),
            {"a-row-without-keys-does-not-poison-gradients"},
        ),
        ("flax_modules.py:FlaxTransformer", "flax", {"layer_norm", "rms_norm", "softmax"}, set()),
    ],
)
def test_an_example_keeps_what_it_provides(example, needs, roles, faults):
    framework = pytest.importorskip(needs)
    if needs == "tinygrad":
        try:
            framework.Tensor([1.0]).numpy()
        except Exception as error:
            pytest.skip(f"tinygrad has no device here: {error}")
    implementation = resolve(f"{FOLDER / example}")
    claims = [claim for claim, check in CHECKS.items() if roles & {*check.roles}]
    results = {claim: run_check(CHECKS[claim], implementation, "quick") for claim in claims}
    assert {c for c, r in results.items() if r.verdict not in (Verdict.PASS, Verdict.NOT_PROVIDED)} == faults
    assert sum(r.verdict is Verdict.PASS for r in results.values()) >= 5
