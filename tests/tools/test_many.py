"""Thousands of subjects: the same ones each time; two runs compare by their table; the model of a million adds up."""

import csv

import pytest

from conformance.grading.run import Options
from conformance.grading.store import Store
from conformance.grading.submissions import Submission
from tools.many import hostile, model, runs, subjects


@pytest.mark.slow
def test_fewer_subjects_are_the_first_of_more_and_no_two_are_the_same_file():
    many = list(subjects.made(300))
    assert many[:20] == list(subjects.made(20))
    assert len({one.source for one in many}) == len({one.id for one in many}) == 300
    assert len({one.kind for one in many}) > 10
    for one in many:
        compile(one.source, one.id, "exec")
        assert f"class {one.name}(" in one.source


@pytest.mark.slow
def test_half_are_mutants_that_come_once():
    texts = [one.source.partition("\n")[2] for one in subjects.made(400)]
    mutants = texts[1::2]
    assert len(set(mutants)) == 200
    assert set(texts[::2]) & {text for text in texts if texts.count(text) > 1}


@pytest.mark.slow
def test_a_list_is_written_once(tmp_path):
    path = subjects.write(tmp_path / "new", 12)
    rows = list(csv.DictReader(path.open(newline="")))
    assert [row["id"] for row in rows] == [f"{number:06d}" for number in range(12)]
    assert all((path.parent / row["impl"].partition(":")[0]).is_file() for row in rows)
    with pytest.raises(OSError, match="is not empty"):
        subjects.write(tmp_path / "new", 12)


RESULT = {
    **dict.fromkeys(("root", "diagnosis", "what", "expected", "got", "place", "mend", "message"), ""),
    **{"verdict": "PASS", "error": 0.0, "bound": 1.0, "example": {"n": 1}},
}


def stored(path, ids, seconds, verdict="PASS"):
    store = Store(path)
    run = store.begin([Submission(id, f"{id}.py:A") for id in ids], {})
    for id in ids:
        results = [{**RESULT, "claim": claim, "verdict": verdict, "seconds": seconds} for claim in ("b", "a")]
        part = {"name": "", "kind": "", "refused": "", "results": results}
        outcome = {"parts": [part], "refused": "", "suspicions": [], "seconds": seconds}
        store.add(run, id, f"{id} {seconds}", outcome)
    store.close()
    return runs.table_of(path)


def test_tables_are_the_same_whatever_the_order_and_the_time(tmp_path):
    one = stored(tmp_path / "one.sqlite", ["x", "y"], 1.0)
    assert one == stored(tmp_path / "two.sqlite", ["y", "x"], 2.0)
    assert len(one.splitlines()) == 1 + 4
    assert one != stored(tmp_path / "three.sqlite", ["x", "y"], 1.0, "FAIL")
    assert one != stored(tmp_path / "four.sqlite", ["x"], 1.0)


@pytest.mark.slow
def test_giving_out_is_measured_with_answers_that_are_there_at_once(tmp_path):
    part = {"name": "", "kind": "", "refused": "", "results": [{**RESULT, "claim": "softmax-formula", "seconds": 0.0}]}
    from conformance.grading import work

    outcome = {"parts": [part], "refused": "", "seconds": 0.0, "versions": work.versions()}
    outcome["processor"] = work.processor()
    options = Options(claims="softmax-formula")
    took, size = model.giver(tmp_path, 30, outcome, options)
    assert 0 < took < 1
    assert size > 100
    store = Store(tmp_path / "given.sqlite")
    assert len(store.grades(1)) == 30
    store.close()


PARTS = model.Parts(giver=0.01, client=0.002, scheduler=0.001, stored=150_000.0, sent=20_000, received=250_000)


def test_the_model_adds_up():
    hours = {name: value for name, _, value in model.rows(PARTS, 1.8)[len(model.CORES) :]}
    assert hours["the process that gives out and stores"] == pytest.approx(12_000 / 3600)
    assert hours["its network"] == pytest.approx(250e9 / 0.125e9 / 3600)
    workers = [value for _, _, value in model.rows(PARTS, 1.8)[: len(model.CORES)]]
    assert workers == pytest.approx([1.8e6 / 100 / cores / 3600 for cores in model.CORES])
    assert "feeds 150 cores" in model.table(PARTS, 1.8)


@pytest.mark.deep
def test_who_does_harm_is_stopped_and_costs_little(tmp_path):
    found = hostile.costs(tmp_path, Options(), times=1)
    assert not found[hostile.RIGHT].refused
    assert "processes, and 16 are the most" in found["a fork bomb"].refused
    assert "MemoryError" in found["takes all memory"].refused
    assert "took longer" in found["a sleeper"].refused
    assert "File too large" in found["a flooder"].refused
    assert sum(found[name].processor for name in hostile.HARM) < 0.1 * hostile.OTHERS * found[hostile.RIGHT].processor


@pytest.mark.deep
def test_the_others_are_graded_while_harm_is_done(tmp_path):
    took = hostile.others_done(tmp_path / "class", 2, Options(claims="softmax-formula"), 8, harm=True)
    assert 0 < took < 1e4
    store = Store(tmp_path / "class" / "grades.sqlite")
    grades = {row["id"]: row for row in store.grades(store.last_run())}
    store.close()
    assert [bool(row["refused"]) for row in grades.values()].count(True) == len(hostile.HARM)
    assert not any(grades[f"{number:03d}"]["refused"] for number in range(8))
