"""Results are kept whole, once, and a run that loses workers or is broken off comes to the same table."""

from __future__ import annotations

import csv
import random
import sqlite3
from concurrent.futures import Executor, Future

import pytest

from conformance.grading import work
from conformance.grading.run import Options, go_on, grade
from conformance.grading.store import Store, export
from conformance.grading.submissions import GradingError, Submission
from conformance.verdict import Result, Verdict

OPTIONS = Options(claims="attention-*")


class Fakes(Executor):
    """Answers without running anything: the verdict is written in the file. loses: the share of tasks that are lost.
    stops: after so many, as at Ctrl-C."""

    def __init__(self, loses=0.0, stops=None):
        self.random, self.loses, self.stops, self.count = random.Random(0), loses, stops, 0

    def submit(self, fn, task):
        assert fn is work.graded
        self.count += 1
        if self.count == self.stops:
            raise KeyboardInterrupt
        future = Future()
        if self.random.random() < self.loses:
            future.set_exception(RuntimeError("the worker is gone"))
            return future
        verdict = Verdict.FAIL if task["archive"].digest[0] < "8" else Verdict.PASS
        results = [Result(claim, verdict, seconds=self.random.random()).to_json() for claim in task["claims"]]
        part = {"name": "", "kind": "", "refused": "", "results": results}
        values = {"parts": [part], "refused": "", "seconds": 1.0}
        future.set_result({**values, "versions": work.versions(), "processor": work.processor()})
        return future


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "grades.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def submissions(tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    for number in range(20):
        (folder / f"s{number:02}.py").write_text(f"x = {number % 15}\n")  # five are copies, under other names
    return [Submission(f"s{number:02}", f"s{number:02}.py:A", base=folder) for number in range(20)]


def table(store, run):
    return store.query(f"SELECT id, part, claim, verdict, root FROM claims WHERE run = {run} ORDER BY 1, 2, 3")[1]


def test_lost_workers_change_nothing(store, submissions, tmp_path):
    calm = table(store, grade(submissions, store, OPTIONS, executor=Fakes()))
    other = Store(tmp_path / "other.sqlite")
    lossy = Fakes(loses=0.2)
    assert table(other, grade(submissions, other, OPTIONS, executor=lossy)) == calm
    assert len(calm) == 20 * len(OPTIONS.slugs())
    assert lossy.count > 20
    other.close()


def test_a_run_that_was_broken_off_goes_on_where_it_was(store, submissions, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        grade(submissions, store, OPTIONS, executor=Fakes(stops=8), in_flight=2)
    run = store.last_run()
    left = len(store.waiting(run))
    assert 0 < left < 20
    rest = Fakes()
    go_on(run, store, executor=rest)
    assert rest.count <= left
    assert not store.waiting(run)
    other = Store(tmp_path / "other.sqlite")
    assert table(store, run) == table(other, grade(submissions, other, OPTIONS, executor=Fakes()))
    other.close()


def test_a_worker_that_is_always_lost_is_told_and_the_rest_is_kept(store, submissions):
    with pytest.raises(GradingError, match=r"20 submissions are not graded, .* lost .* --resume"):
        grade(submissions, store, OPTIONS, executor=Fakes(loses=1.0))
    assert len(store.waiting(store.last_run())) == 20


def test_what_did_not_change_is_not_graded_again(store, submissions):
    grade(submissions, store, OPTIONS, executor=Fakes())
    again, told = Fakes(), []
    grade(submissions, store, OPTIONS, executor=again, notice=told.append)
    assert again.count == 0
    assert all(progress.known for progress in told)
    other_seed = Fakes()
    grade(submissions, store, Options(claims="attention-*", seed=1), executor=other_seed)
    assert other_seed.count >= 15
    anew = Fakes()
    grade(submissions, store, OPTIONS, executor=anew, fresh=True)
    assert anew.count >= 15


def test_a_result_that_comes_twice_is_one_row(store, submissions):
    run = grade(submissions, store, OPTIONS, executor=Fakes())
    before = table(store, run)
    (key,) = store.query(f"SELECT key FROM submissions WHERE run = {run} AND id = 's03'")[1][0]
    part = {"name": "", "kind": "", "refused": "", "results": [Result(before[0][2], Verdict.ERROR).to_json()]}
    store.add(run, "s03", key, {"parts": [part], "refused": "", "suspicions": [], "seconds": 9.0})
    assert table(store, run) == before


def test_a_worker_with_other_versions_is_refused(store, submissions, monkeypatch):
    executor = Fakes()
    mine = {**work.versions(), "torch": "0.1"}
    submit = executor.submit

    def of_another_machine(fn, task):
        future = Future()
        future.set_result({**submit(fn, task).result(), "versions": mine})
        return future

    monkeypatch.setattr(executor, "submit", of_another_machine)
    with pytest.raises(GradingError, match="another version of torch"):
        grade(submissions, store, OPTIONS, executor=executor)


def test_a_submission_that_cannot_be_packed_is_told_and_the_others_go_on(store, submissions):
    missing = Submission("zzz", "nobody.py:A", base=submissions[0].base)
    run = grade([*submissions, missing], store, OPTIONS, executor=Fakes())
    (last,) = [row for row in store.grades(run) if row["refused"]]
    assert last["id"] == "zzz"
    assert "there is no file" in last["refused"]


def test_a_query_reads_and_never_writes(store):
    assert store.query("SELECT 1 AS one") == (["one"], [(1,)])
    with pytest.raises(GradingError, match="readonly"):
        store.query("DELETE FROM runs")
    with pytest.raises(GradingError, match="no such table"):
        store.query("SELECT * FROM nowhere")


def test_files_that_are_no_database_or_too_new_are_refused(tmp_path):
    (tmp_path / "text").write_text("this is no database, and it is long enough to be sure of that" * 10)
    with pytest.raises(GradingError, match="no database of results"):
        Store(tmp_path / "text")
    Store(tmp_path / "new").close()
    with sqlite3.connect(tmp_path / "new") as database:
        database.execute("PRAGMA user_version = 999")
    with pytest.raises(GradingError, match=r"version 999 .*update the suite"):
        Store(tmp_path / "new")


def test_tables_are_exported(tmp_path):
    export(["a", "b"], [(1, "x,y"), (2, 'say "z"')], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["a", "b"], ["1", "x,y"], ["2", 'say "z"']]
    with pytest.raises(GradingError, match=r"end in \.csv or \.parquet"):
        export([], [], tmp_path / "t.txt")
    parquet = pytest.importorskip("pyarrow.parquet")
    export(["a", "b"], [(1, "x")], tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == [{"a": 1, "b": "x"}]
