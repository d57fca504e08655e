"""The runner: a verdict for each kind of outcome, exploration, shrinking, determinism."""

from __future__ import annotations

import json

import numpy as np
import pytest
from miniatures import Correct, Nothing, Overwrites, Raises, Unscaled, WithoutWeights

from conformance.check import CHECKS, Check
from conformance.checks import attention as _attention  # noqa: F401 (registers its checks)
from conformance.evidence import Evidence, close, note, same, true
from conformance.runner import evidence_of, run_check
from conformance.verdict import Result, Verdict

SCALED = "attention-is-scaled-by-sqrt-d-k"


def a_check(function, examples=20):
    return Check("a-claim", ("attention",), (), examples, function)


def formula(impl, draw):
    """out is the mean of the values when every score is zero."""
    n, d = draw.int("n", 1, 9, 4), draw.int("d", 1, 9, 5)
    value = draw.normal("value", (1, 1, n, d))
    zeros = np.zeros((1, 1, n, d))
    got = impl.build("attention", {})(query=zeros, key=zeros, value=value)["out"]
    return close("mean of the values", got, np.broadcast_to(value.mean(-2, keepdims=True), value.shape), 1e-5)


def test_a_claim_that_holds_passes_on_every_example():
    result = run_check(a_check(formula), Correct())
    assert result.verdict is Verdict.PASS
    assert result.examples == 21
    assert result.margin > 1
    assert result.attributes == {"attention": {"masked_row": "zero"}}


def test_the_pinned_example_comes_first_and_alone_when_nothing_is_explored():
    seen = []

    def check(impl, draw):
        seen.append((draw.int("n", 1, 9, 4), draw.choice("c", "abc", "b"), draw.bool("b"), draw.float("f", 0, 1, 0.5)))
        return true("anything", True)

    run_check(a_check(check, examples=0), Correct())
    assert seen == [(4, "b", False, 0.5)]


def test_a_failure_is_shrunk_to_its_smallest_example():
    def check(impl, draw):
        n, d = draw.int("n", 1, 50, 40), draw.int("d", 1, 50, 30)
        return true("n + d < 10 or d < 3", n + d < 10 or d < 3)

    result = run_check(a_check(check), Correct())
    assert result.verdict is Verdict.FAIL
    assert result.example["n"] + result.example["d"] == 10
    assert result.example["d"] >= 3


def test_a_failure_beside_the_pinned_example_is_found():
    def check(impl, draw):
        return true("n is not over 20", draw.int("n", 0, 100, 0) <= 20)

    result = run_check(a_check(check), Correct())
    assert (result.verdict, result.example) == (Verdict.FAIL, {"n": 21})


def test_shrinking_does_not_slip_into_another_kind_of_failure():
    def check(impl, draw):
        n = draw.int("n", 0, 100, 60)
        if n < 20:
            raise RuntimeError("too small")
        return true("n is not over 50", n <= 50)

    result = run_check(a_check(check), Correct())
    assert (result.verdict, result.example) == (Verdict.FAIL, {"n": 51})


def test_two_runs_of_one_seed_agree_and_seeds_differ():
    def seeds(seed):
        seen = []

        def check(impl, draw):
            seen.append(draw.int("n", 0, 10**6, 0))
            return true("anything", True)

        run_check(a_check(check), Correct(), seed=seed)
        return seen

    assert seeds(0) == seeds(0)
    assert seeds(0) != seeds(1)


@pytest.mark.parametrize(("budget", "examples"), [("quick", 7), ("default", 21), ("deep", 201)])
def test_the_budget_scales_the_number_of_examples(budget, examples):
    assert run_check(a_check(formula), Correct(), budget).examples == examples


def test_a_check_that_draws_nothing_runs_once():
    assert run_check(a_check(lambda impl, draw: true("anything", True)), Correct()).examples == 1


def test_an_implementation_that_raises_is_an_error_with_the_innermost_line():
    result = run_check(a_check(formula), Raises())
    assert result.verdict is Verdict.ERROR
    assert result.message == "RuntimeError: out of <b>luck</b>"
    assert "miniatures.py" in result.place
    assert 'raise RuntimeError("out of <b>luck</b>")' in result.place


def test_what_is_missing_is_not_provided():
    result = run_check(a_check(formula), Nothing())
    assert (result.verdict, result.message) == (Verdict.NOT_PROVIDED, "nothing, so no attention")


def test_an_optional_output_that_is_missing_is_not_provided():
    def check(impl, draw):
        one = np.ones((1, 1, 1, 1))
        return close("weight", impl.build("attention", {})(query=one, key=one, value=one)["weights"], one, 0.0)

    assert run_check(a_check(check), Correct()).verdict is Verdict.PASS
    result = run_check(a_check(check), WithoutWeights())
    assert (result.verdict, result.message) == (Verdict.NOT_PROVIDED, "the attention returns no 'weights'")
    assert run_check(a_check(formula), WithoutWeights()).verdict is Verdict.PASS


def test_a_method_that_is_missing_is_not_provided():
    def check(impl, draw):
        impl.build("attention", {}).vjp({}, np.ones(()))
        return true("anything", True)

    assert run_check(a_check(check), Correct()).verdict is Verdict.NOT_PROVIDED


def test_an_option_that_only_some_examples_need_does_not_hide_the_others():
    class NotCausal(Correct):
        """It has no causal option."""

        def build(self, role, config):
            return Nothing().build(role, config) if config["causal"] else super().build(role, config)

    def check(impl, draw):
        impl.build("attention", {"causal": draw.bool("causal")})
        return true("n is not over 20", draw.int("n", 0, 100, 0) <= 20)

    result = run_check(a_check(check), NotCausal())
    assert (result.verdict, result.example) == (Verdict.FAIL, {"causal": False, "n": 21})


@pytest.mark.parametrize(("infers", "verdict"), [(False, Verdict.VACUOUS), (True, Verdict.NOT_PROVIDED)])
def test_a_precondition_that_never_held_is_vacuous_and_untested_where_the_call_was_found_out(infers, verdict):
    def check(impl, draw):
        n = draw.int("n", 0, 5, 2)
        draw.bites(n > 9, "something is hidden")
        return true("anything", True)

    implementation = Correct()
    implementation.infers = infers
    result = run_check(a_check(check), implementation)
    assert (result.verdict, result.message) == (
        verdict,
        "no example met the precondition: something is hidden",
    )


def test_a_precondition_that_held_once_is_enough():
    def check(impl, draw):
        draw.bites(draw.int("n", 0, 5, 2) > 4, "n is large")
        return true("anything", True)

    assert run_check(a_check(check), Correct()).verdict is Verdict.PASS


def test_an_implementation_that_overwrites_its_inputs_does_not_spoil_the_check():
    def check(impl, draw):
        value = draw.normal("value", (1, 1, 3, 2))
        before = value.copy()
        impl.build("attention", {})(query=value, key=value, value=value)
        return close("value", value, before, 0.0)

    assert run_check(a_check(check), Overwrites()).verdict is Verdict.PASS


def test_a_check_must_return_evidence():
    result = run_check(a_check(lambda impl, draw: True), Correct())
    assert result.verdict is Verdict.ERROR
    assert "returned True, not Evidence" in result.message


def test_a_real_check_tells_the_miniatures_apart():
    assert run_check(CHECKS[SCALED], Correct()).verdict is Verdict.PASS
    result = run_check(CHECKS[SCALED], Unscaled())
    assert result.verdict is Verdict.FAIL
    assert result.margin < 1
    evidence, draw = evidence_of(CHECKS[SCALED], Unscaled())
    assert not evidence.ok
    assert draw.values


def test_a_result_survives_json():
    result = run_check(a_check(formula), Unscaled())
    assert Result.from_json(result.to_json()) == result


def test_large_arrays_are_shown_by_their_worst_element():
    want = np.zeros((4, 5))
    got = want.copy()
    got[2, 3] = 0.25
    expected, seen = close("x", got, want, 0.0).sides()
    assert (expected, seen) == ("0 at [2, 3] of shape (4, 5)", "0.25")
    assert Evidence(True, "x", np.ones((30, 2)), np.eye(2)).sides() == (
        "float64 array of shape (30, 2), 1 to 1",
        "[[1., 0.], [0., 1.]]",
    )


def test_a_result_carries_what_the_evidence_says_over_a_process_boundary():
    def check(impl, draw):
        return close("x", np.array([[np.nan, 1 / 3]]), np.ones((1, 2)), 1e-6).saying(
            diagnosis="It divides by zero.", place="model.py:7", mend="divide by n"
        )

    result = run_check(a_check(check), Correct())
    again = Result.from_json(json.loads(json.dumps(result.to_json())))
    assert (again.diagnosis, again.place, again.mend) == ("It divides by zero.", "model.py:7", "divide by n")
    assert again.pictures["expected"] == [[1.0, 1.0]]
    assert again.pictures["got"][0][1] == 0.3333


def test_what_is_kept_has_no_pictures_of_its_own():
    assert run_check(a_check(lambda impl, draw: close("x", np.eye(3), np.eye(3), 1e-6)), Correct()).pictures == {}


def noted(fails_above):
    def check(impl, draw):
        n = draw.int("n", 1, 9, 4)
        return same("n", n, 0) if n > fails_above else note("window", 4) if n > 2 else true("n", True)

    return a_check(check)


def test_a_note_is_a_verdict_of_its_own():
    result = run_check(noted(fails_above=9), Correct())
    assert (result.verdict, result.what, result.got) == (Verdict.NOTE, "window", "4")


def test_a_failure_outweighs_a_note():
    assert run_check(noted(fails_above=6), Correct()).verdict is Verdict.FAIL


def test_what_is_explained_is_neither_shrunk_nor_compared_with_known_mistakes(monkeypatch):
    def check(impl, draw):
        n = draw.int("n", 1, 50, 1)
        return true("n < 5", n < 5)

    monkeypatch.setattr("conformance.runner.lookalike", lambda *_: pytest.fail("no diagnosis is needed"))
    result = run_check(a_check(check), Correct(), is_explained=True)
    assert result.verdict is Verdict.FAIL
    assert result.example["n"] > 5

    def always(impl, draw):
        return true("no", draw.int("n", 1, 50, 40) < 0)

    result = run_check(a_check(always), Correct(), is_explained=True)
    assert (result.verdict, result.examples, result.example) == (Verdict.FAIL, 1, {"n": 40})
    assert run_check(a_check(formula), Correct(), is_explained=True).verdict is Verdict.PASS
