"""A class graded for real: mistakes are found, cheats are caught, and nobody reads or changes what is not theirs."""

from __future__ import annotations

import os
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hand_ins_of_class import BY_HEART, NEIGHBOUR, READS_SUITE, RIGHT, TORCHS_OWN, UNSCALED, WRITER

import conformance
from conformance.cli import main
from conformance.grading import hosts
from conformance.grading.store import Store

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="hand-ins are not shut in here")

CLAIMS = "attention-scale-is-one-over-sqrt-d-head,multi-head-scales-by-the-width-of-one-head"
RUBRIC = f"""
points = 10
forbidden = ["torch.nn.MultiheadAttention", "torch.nn.functional.scaled_dot_product_attention"]
[[part]]
name = "All"
claims = "{CLAIMS}"
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class, graded by one command: the folder, the store, the exit code."""
    top = tmp_path_factory.mktemp("grading")
    folder, store = top / "class", top / "grades.sqlite"
    folder.mkdir()
    places = {"place": str(folder), "store": str(store)}
    hand_ins = {
        "alice": RIGHT,
        "bob": UNSCALED,
        "carol": TORCHS_OWN,
        "dave": READS_SUITE,
        "eve": BY_HEART,
        "frank": NEIGHBOUR.replace("{place!r}", repr(places["place"])),
        "grace": WRITER.replace("{store!r}", repr(places["store"])),
        "heidi": "raise SystemExit(3)",
    }
    for name, source in hand_ins.items():
        (folder / f"{name}.py").write_text(source)
    (top / "rubric.toml").write_text(RUBRIC)
    options = ["--claims", CLAIMS, "--rubric", str(top / "rubric.toml"), "--feedback", str(top / "feedback")]
    options += ["--seed", "hidden", "--workers", "1", "-o", str(top / "page.html"), "--export", str(top / "all.csv")]
    code = main(["grade", str(folder), "--file", ":MultiHeadAttention", "--store", str(store), *options])
    yield top, store, code
    hosts.close_all()


@pytest.fixture
def rows(graded):
    store = Store(graded[1])
    yield {row["id"]: row for row in store.grades(1)}
    store.close()


def points(graded, name):
    first = (graded[0] / "feedback" / f"{name}.txt").read_text().splitlines()[0]
    return float(first.split(": ")[1].split()[0])


def who_is_right_gets_all_points(graded, rows):
    assert rows["alice"]["broken"] == 0
    assert rows["alice"]["kept"] == 2
    assert points(graded, "alice") == 10.0
    assert graded[2] == 1  # others are not right


def a_mistake_is_told_with_its_line(graded, rows):
    assert rows["bob"]["broken"] >= 1
    text = (graded[0] / "feedback" / "bob.txt").read_text()
    assert "The scores are scaled by 1 (no scale)" in text
    assert re.search(r"bob\.py:\d+: scores = q @ k\.transpose\(-2, -1\)", text)
    assert points(graded, "bob") < 10.0


def torchs_own_module_raises_where_it_is_forbidden(graded, rows):
    assert "the task forbids torch.nn.MultiheadAttention" in (graded[0] / "feedback" / "carol.txt").read_text()
    assert points(graded, "carol") == 0.0


def code_that_reads_the_suite_gets_nothing(graded, rows):
    assert "it reads the suite: conformance (dave.py:1)" in (graded[0] / "feedback" / "dave.txt").read_text()
    assert points(graded, "dave") == 0.0


def answers_learned_by_heart_fail_on_other_examples(graded, rows):
    assert rows["eve"]["broken"] >= 1


def nobody_reads_a_neighbour(graded, rows):
    assert rows["frank"]["refused"]
    assert "Permission" in rows["frank"]["refused"]


def nobody_changes_the_results(graded, rows):
    assert rows["grace"]["refused"]
    assert rows["alice"]["kept"] == 2


def who_cannot_be_tested_is_told_why(graded, rows):
    assert "SystemExit" in rows["heidi"]["refused"] or "exit code" in rows["heidi"]["refused"]


def the_database_and_the_export_say_the_same(graded):
    with sqlite3.connect(graded[1]) as database:
        (count,) = database.execute("SELECT count(*) FROM claims").fetchone()
    assert len((graded[0] / "all.csv").read_text().splitlines()) >= count + 1
    assert "alice" in (graded[0] / "page.html").read_text()


def the_second_time_the_store_answers(graded, capsys):
    options = ["--store", str(graded[1]), "--resume"]
    assert main(["grade", *options]) == 1
    assert "8 graded" in capsys.readouterr().out


def a_query_prints_a_table(graded, capsys):
    assert main(["grade", "--store", str(graded[1]), "--query", "SELECT count(*) AS many FROM submissions"]) == 0
    assert "many" in capsys.readouterr().out
    assert main(["grade", "--store", str(graded[1]), "--query", "SELEC"]) == 2


def a_file_that_cannot_be_written_is_one_sentence(graded, capsys):
    missing = graded[0] / "nowhere" / "all.csv"
    assert main(["grade", "--store", str(graded[1]), "--export", str(missing)]) == 2
    assert f"{missing} cannot be read or written: No such file or directory" in capsys.readouterr().err


@pytest.mark.slow
def test_a_class(graded, rows, capsys):
    """One test, for it is graded once."""
    who_is_right_gets_all_points(graded, rows)
    a_mistake_is_told_with_its_line(graded, rows)
    torchs_own_module_raises_where_it_is_forbidden(graded, rows)
    code_that_reads_the_suite_gets_nothing(graded, rows)
    answers_learned_by_heart_fail_on_other_examples(graded, rows)
    nobody_reads_a_neighbour(graded, rows)
    a_file_that_cannot_be_written_is_one_sentence(graded, capsys)
    nobody_changes_the_results(graded, rows)
    who_cannot_be_tested_is_told_why(graded, rows)
    the_database_and_the_export_say_the_same(graded)
    the_second_time_the_store_answers(graded, capsys)
    a_query_prints_a_table(graded, capsys)


@pytest.mark.slow
def test_a_reward_is_the_same_each_time_and_its_process_forks_with_one_thread(tmp_path):
    (tmp_path / "rubric.toml").write_text(RUBRIC)
    rubric = str(tmp_path / "rubric.toml")
    first, second = (conformance.reward(UNSCALED, "MultiHeadAttention", rubric, seed=5) for _ in range(2))
    assert first.value == second.value == 0.0
    assert first.reasons == second.reasons
    assert [m["claim"] for m in first.mistakes] == [m["claim"] for m in second.mistakes] != []
    with hosts.borrowed() as host:
        assert len(list(Path(f"/proc/{host.pid}/task").iterdir())) == 1
        os.kill(host.pid, 9)
        with pytest.raises(hosts.LostHost, match="exit code -9"):
            host.outcome({})
        host.close()
    hosts.close_all()


@pytest.mark.slow
def test_a_reward_has_a_hard_limit_of_processor_time():
    with hosts.borrowed() as host:
        pass
    before = hosts.used_by(host.pid)
    score = conformance.reward(f"{RIGHT}\nwhile True:\n    pass\n", "MultiHeadAttention", seconds=2.0)
    assert score.value == 0.0
    assert "used more than 2 s of processor time" in " ".join(score.reasons)
    assert 1.5 < hosts.used_by(host.pid) - before < 2.5
    hosts.close_all()


@pytest.mark.deep
def test_threads_may_ask_for_rewards_at_a_time():
    sources = [UNSCALED, RIGHT, UNSCALED, RIGHT]
    with ThreadPoolExecutor(2) as threads:
        scores = list(threads.map(lambda source: conformance.reward(source, "MultiHeadAttention"), sources))
    assert scores[0].reasons == scores[2].reasons
    assert scores[1].reasons == scores[3].reasons
    assert scores[1].value == 1.0 > scores[0].value
    hosts.close_all()
