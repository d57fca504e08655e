"""How a submission's claims are asked: in an order, several at a time, and who ends the process is found among them."""

from __future__ import annotations

import contextlib

import pytest

from conformance.catalogue import load
from conformance.grading import trial
from conformance.grading.run import Options, in_order
from conformance.host import Host
from conformance.supervisor import Died, judgements
from conformance.verdict import Result, Verdict

pytest.importorskip("torch")


def test_what_a_claim_depends_on_stands_before_it():
    order = in_order(Options().slugs(), {"multi-head-formula": 5})
    place, catalogue = {claim: at for at, claim in enumerate(order)}, load()
    assert sorted(order) == sorted(Options().slugs())
    for claim in order:
        assert all(place[one] < place[claim] for one in catalogue.claims[claim].depends if one in place)
    first = {"multi-head-formula", *catalogue.ancestors("multi-head-formula")}
    assert set(order[: place["multi-head-formula"] + 1]) <= first


def test_an_answer_to_several_claims_has_results_of_the_first_ones():
    absent = {"claim": "a", "verdict": "NOT PROVIDED"}
    kept = {"claim": "b", "verdict": "PASS"}
    assert [one.claim for one in judgements({"results": [absent, kept]}, ["a", "b", "c"])] == ["a", "b"]
    for wrong in (
        {"results": []},
        {"results": [absent, kept, kept]},
        {"results": [kept]},
        {"results": [{**kept, "claim": "a", "verdict": "FAIL"}, kept]},
        {"results": ["a"]},
        {"results": [absent], "more": 1},
        {},
    ):
        with pytest.raises(ValueError, match=r"result|about the claim"):
            judgements(wrong, ["a", "b"])


class FakeChild:
    """Answers questions about claims as a host does: `provided` are kept, and the process ends at `deadly` ones."""

    def __init__(self, provided, deadly):
        self.provided, self.deadly, self.asked = provided, deadly, []
        self.started = {"kind": ""}

    def ask(self, kind, values, read, seconds):
        self.asked.append(list(values["claims"]))
        results = []
        for claim in values["claims"]:
            if claim in self.deadly:
                raise Died("ended its process with exit code 7")
            verdict = "PASS" if claim in self.provided else "NOT PROVIDED"
            results.append({"claim": claim, "verdict": verdict})
            if claim in self.provided:
                break
        return read({"results": results})


@pytest.fixture
def asked(monkeypatch):
    """Run a trial of the first claims of the catalogue by a fake child: the verdicts, and what was asked."""

    def run(provided=(), deadly=(), count=12):
        claims = in_order(Options().slugs(), {})[:count]
        child = FakeChild({claims[at] for at in provided}, {claims[at] for at in deadly})
        monkeypatch.setattr(trial, "_child", lambda *_: contextlib.nullcontext(child))
        monkeypatch.setattr(trial.os, "chdir", lambda _: None)
        task = {"impl": "reference", "folder": "", "claims": claims, "budget": "quick", "seed": 0, "seconds": 30.0}
        results = trial.outcome({**task, "until_broken": False})["parts"][0]["results"]
        verdicts = {one["claim"]: (one["verdict"], one.get("message", "")) for one in results}
        return [verdicts[claim] for claim in claims], [[claims.index(one) for one in asked] for asked in child.asked]

    return run


def test_claims_about_what_is_not_there_are_one_question(asked):
    verdicts, questions = asked(provided=(3, 5))
    assert questions == [list(range(12)), list(range(4, 12)), list(range(6, 12))]
    assert [at for at, (verdict, _) in enumerate(verdicts) if verdict == "PASS"] == [3, 5]


def test_a_host_goes_on_until_a_claim_does_not_hold_or_time_is_over(monkeypatch):
    verdicts = {"a": "PASS", "b": "NOT PROVIDED", "c": "NOTE", "d": "FAIL", "e": "PASS"}
    monkeypatch.setattr(Host, "claim", lambda self, claim, *_: {"claim": claim, "verdict": verdicts[claim]})
    results = Host().claims(list("abcde"), [], "quick", 0)["results"]
    assert [one["claim"] for one in results] == list("abcd")
    monkeypatch.setattr("conformance.host.AT_A_TIME", -1.0)
    assert len(Host().claims(list("abcde"), [], "quick", 0)["results"]) == 1


def test_a_result_travels_without_what_is_empty():
    result = Result("a", Verdict.NOT_PROVIDED, message="it has no heads", roles=["attention"], examples=1)
    assert set(result.brief()) == {"claim", "verdict", "message", "roles", "examples"}
    assert Result.from_json(result.brief()) == result


def test_of_several_claims_the_one_that_ended_the_process_is_blamed(asked):
    verdicts, questions = asked(provided=(1,), deadly=(4,))
    assert verdicts[4] == ("ERROR", "the implementation ended its process with exit code 7")
    assert [at for at, (verdict, _) in enumerate(verdicts) if verdict == "ERROR"] == [4]
    assert questions == [list(range(12)), list(range(2, 12)), *([at] for at in range(2, 12))]


def test_a_step_has_the_same_limit_whatever_was_used_before(monkeypatch):
    clock = trial._Clock(30.0)
    monkeypatch.setattr(trial._Clock, "_used", staticmethod(lambda: clock.began + 3.0))
    assert clock.step == 7.5
    monkeypatch.setattr(trial._Clock, "_used", staticmethod(lambda: clock.began + 28.0))
    assert clock.step == pytest.approx(2.0)
    assert trial._Clock(2.0).step == pytest.approx(2.0, abs=0.1)
