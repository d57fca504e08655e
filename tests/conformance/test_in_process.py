"""`conformance.check` and `conformance.parametrize_with_claims`: claims on a model in this process."""

from __future__ import annotations

import random
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from miniatures import Correct, Nothing, Raises, Unfinished, Unscaled

import conformance
from conformance.adapters import SpecificationError
from conformance.catalogue import CatalogueError, load
from conformance.in_process import ClaimCheck, Report
from conformance.verdict import Verdict

SCALED = "attention-is-scaled-by-sqrt-d-k"
POSITIONS = next(claim.slug for claim in load().tested() if claim.topic == "positions")
pytest_plugins = ["pytester"]


# --- check ----------------------------------------------------------------------------------------


def test_a_failure_is_told_as_on_the_terminal():
    report = conformance.check(Unscaled(), claims=SCALED)
    assert isinstance(report, Report)
    assert [(failure.claim, failure.verdict) for failure in report.failures] == [(SCALED, Verdict.FAIL)]
    lines = str(report).splitlines()
    assert lines[0] == "FAIL It looks like this mistake: The scores are not divided by sqrt(d_k)."
    assert lines[-1] == "0 of 1 claims kept: 0 PASS, 1 FAIL, 0 NOT PROVIDED"
    assert f"    replay    conformance.check(model, claims='{SCALED}')" in lines
    html = report._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert html.count("<") == 2


def test_a_class_is_made_and_what_is_kept_is_no_failure():
    report = conformance.check(Correct, claims=f"{SCALED},{POSITIONS}")
    assert (report.failures, report.untested, report.difference) == ([], [], None)
    assert report.results[POSITIONS].verdict is Verdict.NOT_PROVIDED


def test_what_the_model_says_of_itself_is_there():
    assert conformance.check(Unfinished(), claims=SCALED).untested == list(Unfinished.untested)


def test_an_error_of_the_model_is_a_failure():
    (failure,) = conformance.check(Raises(), claims=SCALED).failures
    assert failure.verdict is Verdict.ERROR


def test_the_global_generators_are_left_alone():
    random.seed(3)
    np.random.seed(3)
    expected = random.random(), np.random.rand()
    random.seed(3)
    np.random.seed(3)
    conformance.check(Correct(), claims=SCALED)
    assert (random.random(), np.random.rand()) == expected


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"model": 3}, SpecificationError, "int is neither a torch.nn.Module .* nor an object with a method build"),
        ({"model": print}, SpecificationError, "print is neither"),
        ({"kind": "poem"}, SpecificationError, "there is no kind 'poem'"),
        ({"inputs": "2x"}, SpecificationError, "--claims-input 2x: 2x is no shape"),
        ({"budget": "huge"}, ValueError, "budget is 'huge'; choose one of quick, default, deep"),
        ({"claims": "no-such-claim"}, CatalogueError, "no-such-claim"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(arguments, error, sentence):
    with pytest.raises(error, match=sentence) as raised:
        conformance.check(**{"model": Correct(), "claims": SCALED, **arguments})
    assert "\n" not in str(raised.value)


def test_a_running_module_is_tested_and_stays_as_it_is():
    torch = pytest.importorskip("torch")
    from torch import nn

    class Model(nn.Module):
        """It looks ahead: the mean is over all tokens."""

        def __init__(self):
            super().__init__()
            self.tokens, self.mix, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20)

        def forward(self, idx):
            x = self.tokens(idx)
            return self.head(x + self.mix(x).mean(1, keepdim=True))

    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    report = conformance.check(model, kind="language_model", claims="language-model-is-causal", budget="quick")
    assert [failure.claim for failure in report.failures] == ["language-model-is-causal"]
    assert (report.kind, report.implementation) == ("language_model", "Model")
    assert any("token ids of 20" in note for note in report.notes)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    made = conformance.check(lambda: Model(), kind="language_model", claims="language-model-is-causal", budget="quick")
    assert [failure.claim for failure in made.failures] == ["language-model-is-causal"]
    other = Model()
    other.mix = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    found = conformance.check(
        model, reference=other, kind="language_model", claims="language-model-is-causal"
    ).difference
    assert found.path == "mix"


# --- parametrize_with_claims ----------------------------------------------------------------------


def test_tests_are_made_one_a_claim(pytester):
    pytester.makepyfile(
        f"""
        import conformance
        from miniatures import Nothing, Unscaled

        @conformance.parametrize_with_claims(Unscaled(), claims="{SCALED},{POSITIONS}")
        def test_claims(model, check):
            check(model)
        """
    )
    result = pytester.runpytest_inprocess("-v", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [f"*::test_claims[[]{SCALED}] FAILED*", "E *AssertionError: FAIL It looks like this mistake*", "E *expected *"]
    )


def test_the_model_is_examined_once():
    @conformance.parametrize_with_claims(Correct(), claims="attention")
    def decorated(model, check):
        check(model)

    (mark,) = decorated.pytestmark
    assert mark.args[0] == ("model", "check")
    model, first = mark.args[1][0]
    assert isinstance(first, ClaimCheck)
    assert [repr(check) for _, check in mark.args[1]] == mark.kwargs["ids"]
    assert first.examined.of(model) is mark.args[1][1][1].examined.of(model)
    assert isinstance(first.examined.of(Nothing()), Nothing)


def test_claims_that_are_none_are_refused_where_the_decorator_stands():
    with pytest.raises(CatalogueError):
        conformance.parametrize_with_claims(Correct(), claims="no-such-claim")


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, conformance; conformance.check\n"
        "print([n for n in ('numpy', 'torch', 'pytest') if n in sys.modules])\n"
        "from conformance.check import CHECKS; import conformance.checks\n"
        "print(len(CHECKS) > 300, conformance.check.__name__, type(conformance.check).__name__)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.splitlines() == ["[]", "True check function"]


TYPED = """
from torch import nn

class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 8), nn.Linear(8, 7)

    def forward(self, ids):
        return self.head(self.embedding(ids).cumsum(1))
"""


def test_a_model_that_was_typed_in_is_tested_without_a_file(monkeypatch):
    """As in a notebook, whose module has no file at all."""
    pytest.importorskip("torch")
    notebook = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    exec(TYPED, vars(notebook))
    report = conformance.check(notebook.Typed(), inputs="2x5:int", budget="quick", claims="model-*")
    assert report.results
    assert not report.failures
