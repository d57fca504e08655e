"""Interrupts leave no work behind: parameters are those of before a step or after it, and the next call is right."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.kernels import blas, team, threads
from minigrad.kernels.serving import LINE
from minigrad.signals import uninterrupted

ROOT = Path(__file__).parents[2]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def interrupt(job, how, count, seconds=110):
    command = [sys.executable, str(ROOT / "tests" / "interrupts.py"), job, how, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("job", "count"), [("compiled", 60), ("parts", 30), ("update", 40), ("decode", 60)])
def test_an_interrupt_at_any_place_leaves_no_work_behind(job, count):
    interrupt(job, "points", count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "count"), [("compiled", 60), ("parts", 30), ("eager", 60), ("decode", 30), ("decode-eager", 17)]
)
def test_an_interrupt_at_any_time_leaves_no_work_behind(job, count):
    interrupt(job, "moments", count)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("job", "count"), [("compiled", 4000), ("parts", 1000), ("eager", 3000), ("decode", 1500), ("decode-eager", 470)]
)
def test_thousands_of_interrupts_leave_no_work_behind(job, count):
    interrupt(job, "moments", count, 3600)


@pytest.mark.deep
@pytest.mark.parametrize("job", ["compiled", "parts", "update", "decode"])
def test_an_interrupt_at_every_place_leaves_no_work_behind(job):
    interrupt(job, "points", 0, 3600)


# --- the team ---------------------------------------------------------------------------------------


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(threads, "_threads", 2)
    monkeypatch.setattr(team, "_team", None)


def heavy(size=1 << 16):
    """A compiled function that the team runs together, an argument, and what it gives."""
    x = mg.tensor(np.linspace(-1, 1, size, dtype=np.float32).reshape(-1, 64))
    return mg.compile(lambda x: mg.functional.softmax(mg.functional.gelu(x) * 2.0, -1)), x


def test_a_team_whose_threads_cannot_start_is_smaller_and_works(two_threads, monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 4)
    monkeypatch.setattr(threads, "_threads", 4)
    start, started = threading.Thread.start, []

    def refuse(thread):
        if thread.name.startswith("minigrad-team"):
            if started:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    step, x = heavy()
    expected = step(x).numpy()
    assert team._team.count == 2
    np.testing.assert_array_equal(step(x).numpy(), expected)
    assert team._team._mailboxes[0] == 0


def test_a_team_without_any_thread_works(two_threads, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError("no thread")))
    step, x = heavy()
    expected = step(x).numpy()
    assert team._team.count == 1
    np.testing.assert_array_equal(step(x).numpy(), expected)


def test_an_interrupt_while_a_team_starts_ends_the_threads_that_have_started(two_threads, monkeypatch):
    start = threading.Thread.start
    workers = []

    def stop(thread):
        workers.append(thread)
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", stop)
    with pytest.raises(KeyboardInterrupt):
        team._Team(2)
    workers[0].join(10)
    assert not workers[0].is_alive()


def test_a_team_of_another_size_is_made_while_the_old_one_works(two_threads):
    """The old one's threads end when nobody has it any more."""
    old = team._members(2)
    old._mailboxes[0] = 1  # another thread has it
    threads.set_num_threads(1)
    assert team._members(2) is None
    threads.set_num_threads(2)
    team._team = None
    new = team._members(2)
    assert new is not old
    assert old._mailboxes[LINE + 2] == 0
    old._mailboxes[0] = 0


# --- forks ------------------------------------------------------------------------------------------


def child_says(question) -> int:
    """The exit code of a forked child: 0 where `question()` holds; it is killed after 20 seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if question() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_fork
def test_a_child_forked_while_another_thread_runs_a_plan_works(two_threads):
    step, x = heavy(1 << 21)
    expected = step(x).numpy()
    ((plan, _),) = step.plans.values()
    over = threading.Event()

    def replay():
        while not over.is_set():
            step(x)

    other = threading.Thread(target=replay)
    other.start()
    try:
        for _ in range(5):
            while not plan.running.locked():
                pass
            assert child_says(lambda: np.array_equal(step(x).numpy(), expected)) == 0
    finally:
        over.set()
        other.join()


@needs_fork
def test_a_child_forked_while_another_thread_holds_blas_to_one_thread_has_all_of_them():
    libraries = blas.libraries()
    if not libraries:
        pytest.skip("this BLAS library's threads cannot be set")
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(2)
    try:
        with blas.single():
            assert [library.get_num_threads() for library in libraries] == [1] * len(libraries)
            assert (
                child_says(lambda: {library.get_num_threads() for library in libraries} == {2} and not blas._depth) == 0
            )
    finally:
        for library, count in zip(libraries, before, strict=True):
            library.set_num_threads(count)


# --- signals ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def interruptible():
    """Ctrl-C raises, also where a shell's background job inherits it as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def alarm():
    """Give SIGALRM a handler; gives back who was called."""
    before = signal.getsignal(signal.SIGALRM)

    def give(handler):
        signal.signal(signal.SIGALRM, handler)

    yield give
    signal.signal(signal.SIGALRM, before)


def test_handlers_of_all_signals_wait_for_the_end_and_are_back_behind_it(alarm):
    order = []
    alarm(lambda number, frame: order.append("alarm"))

    def work():
        for number in (signal.SIGINT, signal.SIGALRM):
            signal.raise_signal(number)
        order.append("work")
        return 3

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert order == ["work", "alarm"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == before
    assert uninterrupted(lambda: 3) == 3


def test_an_error_of_the_work_is_not_lost():
    def fail():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("of the work")

    with pytest.raises(KeyboardInterrupt) as raised:
        uninterrupted(fail)
    assert isinstance(raised.value.__context__, ValueError)
    with pytest.raises(ValueError, match="other work"):
        uninterrupted(lambda: (_ for _ in ()).throw(ValueError("other work")))


def test_work_of_another_thread_does_not_wait_for_signals():
    found = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: found.append(uninterrupted(signal.getsignal, signal.SIGINT)))
    thread.start()
    thread.join()
    assert found == [before]


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
def test_an_interrupt_during_an_update_comes_behind_it(make):
    """Whichever parameter's update it comes in."""
    for interrupted in range(3):
        parameters = [mg.ones(4, requires_grad=True) for _ in range(3)]
        optimizer = make(parameters, lr=0.1)
        update, count = optimizer.update, [0]

        def counted(*arguments, update=update, count=count, interrupted=interrupted):
            if count[0] == interrupted:
                signal.raise_signal(signal.SIGINT)
            count[0] += 1
            update(*arguments)

        optimizer.update = counted
        sum((parameter * parameter).sum() for parameter in parameters).backward()
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()
        assert all((parameter.detach().numpy() != 1).all() for parameter in parameters)
        assert mg.is_grad_enabled()
