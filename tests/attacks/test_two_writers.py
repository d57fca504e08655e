"""Two processes that write to one place: of a run's folder the second is refused, and of a file one wins whole."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from minigrad.io import load_file
from minigrad.locks import NAME, only_writer
from transformer.training import checkpoint

TINY = ["--d-model", "8", "--n-heads", "2", "--n-layers", "1", "--d-ff", "12", "--batch-size", "4", "--max-len", "32"]
TINY += ["--no-compile", "--log-every", "1", "--save-every", "1"]

HOLDS = """
import sys
from pathlib import Path
from minigrad.locks import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

COUNTS = """
import sys
from pathlib import Path
from minigrad.locks import only_writer
folder, turns = Path(sys.argv[1]), 0
while turns < 25:
    try:
        with only_writer(folder):
            count = folder / "count"
            count.write_text(str(int(count.read_text()) + 1))
            turns += 1
    except BlockingIOError:
        pass
"""

WRITES = """
import sys
from pathlib import Path
from {module} import {write}
for turn in range(100):
    {call}
"""


def started(program: str, *arguments: object, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], **options)


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of tmp_path until its input ends."""
    with started(HOLDS, tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_in_a_sentence_that_names_the_first(tmp_path, holder):
    with pytest.raises(BlockingIOError) as refused, only_writer(tmp_path):
        pass
    assert str(refused.value) == (
        f"{tmp_path} is in use: process {holder.pid} writes to it; wait until it ends, or choose another folder"
    )


def test_who_comes_by_another_name_is_refused_too(tmp_path, holder):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(BlockingIOError), only_writer(tmp_path / "link"):
        pass


def test_the_lock_goes_with_its_block(tmp_path, holder):
    assert holder.communicate()[0] == ""
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_killed_process_is_none(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert (tmp_path / NAME).exists()
    with only_writer(tmp_path):
        assert (tmp_path / NAME).read_text() == f"{os.getpid()}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("left", [b"", b"1\n", b"\xff" * 1000, b"99999999999999999999"])
def test_what_stands_in_a_file_that_was_left_is_no_lock(tmp_path, left):
    """Not even the number of a process that lives."""
    (tmp_path / NAME).write_bytes(left)
    with only_writer(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_one_thread_may_come_again_and_another_may_not(tmp_path):
    refused = []

    def other():
        try:
            with only_writer(tmp_path):
                pass
        except BlockingIOError as error:
            refused.append(error)

    with only_writer(tmp_path):
        with only_writer(tmp_path):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert (tmp_path / NAME).exists()
    assert len(refused) == 1


def test_four_processes_come_in_turns(tmp_path):
    """Also at the moment when one removes the file that another has opened."""
    (tmp_path / "count").write_text("0")
    processes = [started(COUNTS, tmp_path) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    assert (tmp_path / "count").read_text() == "100"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_keeps_nobody_out(tmp_path, monkeypatch, number):
    fcntl = pytest.importorskip("fcntl")

    def lacks(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", lacks)
    with only_writer(tmp_path):
        pass


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="an interrupt is sent by os.kill")
def test_a_second_trainer_changes_nothing_of_the_first_ones_run(tmp_path):
    def train(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "transformer", "train", *arguments]

    run = tmp_path / "run"
    with subprocess.Popen(
        train("reverse", "--out", run, "--steps", "1000000", *TINY), stderr=subprocess.DEVNULL
    ) as first:
        try:
            while not (run / checkpoint.FILE).exists():
                assert first.poll() is None
                time.sleep(0.05)
            unfinished = run / ".of-the-first.tmp"  # as it has one while it writes
            unfinished.touch()
            settings = (run / "settings.toml").read_bytes()
            for arguments in (("--resume", run), ("--resume", run, "--steps", "2000000")):
                second = subprocess.run(train(*map(str, arguments)), capture_output=True, text=True, timeout=120)
                assert (second.returncode, second.stdout, second.stderr.count("\n")) == (2, "", 1)
                assert f"process {first.pid} writes to it; wait until it ends" in second.stderr
            assert unfinished.exists()
            assert (run / "settings.toml").read_bytes() == settings
            assert first.poll() is None
            first.send_signal(signal.SIGINT)
            assert first.wait(60) == 130
        finally:
            first.kill()
    assert load_file(run / checkpoint.FILE)
    assert not (run / NAME).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "write", "call"),
    [
        ("conformance.files", "write_text", "write_text(Path(sys.argv[1]), sys.argv[2] * 100_000)"),
        ("minigrad.files", "write_atomically", "write_atomically(sys.argv[1], [sys.argv[2].encode() * 100_000])"),
    ],
)
def test_of_two_writers_of_one_file_one_wins_whole(tmp_path, module, write, call):
    file = tmp_path / "report.json"
    program = WRITES.format(module=module, write=write, call=call)
    processes = [started(program, file, letter) for letter in "ab"]
    found = set()
    while any(process.poll() is None for process in processes):
        if file.exists():
            text = file.read_text()
            assert len(text) == 100_000
            found |= set(text)
            assert len(set(text)) == 1
    assert [process.returncode for process in processes] == [0, 0]
    assert found
    assert found <= {"a", "b"}
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
