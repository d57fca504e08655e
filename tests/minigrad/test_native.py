"""Segments of a plan as machine code: the values of the calls they are made of, on one thread and on a team."""

import os
import threading
import weakref
from itertools import pairwise

import numpy as np
import pytest

import minigrad as mg
from minigrad import functional as F
from minigrad import nn, optim
from minigrad.compiler import compile
from minigrad.kernels import blas, native, serving, team, threads
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import gemm, layer_norm, matvec
from minigrad.kernels.numba.jit import kernel
from minigrad.nn.utils import clip_grad_norm_
from minigrad.ops.embedding import check_rows


@kernel
def _grow(start, stop, source, target, factor, shift, negative):
    for i in range(start, stop):
        value = source[i] * factor + np.float32(shift)
        target[i] = -value if negative else value


@kernel
def _late(start, stop, source, target):
    """target = source reversed, plus 1; the last row is written long after the first one."""
    for i in range(start, stop):
        word = np.int64(i + 1)
        for _ in range(50_000 * i):
            word = word * 1664525 + 1013904223
        target[i] = source[-1 - i] + np.float32(1 if word else 2)


def chain(length, links, work):
    """`links` kernels, each of which reads all of what the one before wrote, reversed."""
    calls = Calls()
    x = np.arange(length, dtype=np.float32)
    for i in range(links):
        y = np.empty_like(x)
        calls.over_rows(_grow, length, work, x[::-1], y, np.float32(1.5), 0.25 * i, i % 3 == 0)
        x = y
    return calls, x


@pytest.fixture(params=[1, 2, 3])
def count(request, monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 3)
    before = threads.get_num_threads()
    threads.set_num_threads(request.param)
    yield request.param
    threads.set_num_threads(before)


@pytest.mark.parametrize("work", [10, native.SHARED, native.TOGETHER])
def test_a_segment_computes_what_its_calls_do(count, work):
    calls, result = chain(1000, 30, work)
    calls.run()
    expected = result.copy()
    ((segment, arguments),) = native.assemble(calls)
    for _ in range(50):
        result[:] = 0
        segment(*arguments)
        np.testing.assert_array_equal(result, expected)


def test_a_call_waits_for_what_other_threads_write_before_it(count):
    """Whether both are cut over the team, or only the first, or only the second."""
    arrays = [np.zeros(6, np.float32) for _ in range(7)]
    calls = Calls()
    works = [native.TOGETHER, 10, native.TOGETHER, 10, native.TOGETHER, native.TOGETHER]
    for (source, target), work in zip(pairwise(arrays), works, strict=True):
        calls.over_rows(_late, 6, work, source, target)
    ((segment, arguments),) = native.assemble(calls)
    for _ in range(3):
        for array in arrays[1:]:
            array[:] = np.nan
        segment(*arguments)
        np.testing.assert_array_equal(arrays[-1], np.full(6, len(calls)))


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, serving.WHOLE // 7, serving.WHOLE // 2, serving.WHOLE - 1])
def test_results_do_not_depend_on_the_shares_of_threads(count, first):
    calls, result = chain(1000, 30, native.TOGETHER)
    calls.run()
    expected = result.copy()
    ((segment, arguments),) = native.assemble(calls)
    for _ in range(20):
        segment(*arguments)
        if count > 1:
            team._team.last[1:-1] = np.linspace(first, serving.WHOLE, count)[:-1]
        result[:] = 0
        segment(*arguments)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.skipif(not gemm.address(), reason="numpy bundles no OpenBLAS with 64-bit integers here")
@pytest.mark.parametrize(("m", "k", "n"), [(1089, 16, 2), (33, 257, 700), (900, 300, 257)])
def test_products_of_the_library_do_not_depend_on_the_shares_of_threads(count, m, k, n, monkeypatch):
    monkeypatch.setattr(gemm, "SERVED", False)
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    calls, result = Calls(), np.empty((m, n), np.float32)
    assert gemm.product(calls, a, b, result)
    ((function, (kernel, rows, _, *rest)),) = calls
    ((segment, arguments),) = native.assemble([(function, (kernel, rows, native.TOGETHER, *rest))])
    with blas.single():
        segment(*arguments)
        expected = result.copy()
        for part in np.linspace(0.01, 0.99, 30 if count > 1 else 0):
            team._team.last[1:-1] = np.linspace(part, 1, count)[:-1] * serving.WHOLE
            result[:] = 0
            segment(*arguments)
            np.testing.assert_array_equal(result, expected)


@kernel
def _marked(start, stop, marks, empty):
    for i in range(start, stop):
        marks[i] += 1
    if start >= stop:
        empty[0] += 1


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_a_thread_without_rows_is_not_called(count, rows):
    calls, marks, empty = Calls(), np.zeros(rows), np.zeros(1)
    for _ in range(4):
        calls.over_rows(_marked, rows, native.TOGETHER, marks, empty)
    ((segment, arguments),) = native.assemble(calls)
    segment(*arguments)
    for part in np.linspace(0, 1, 20 if count > 1 else 0):
        team._team.last[1:-1] = np.linspace(part, 1, count)[:-1] * serving.WHOLE
        marks[:] = 0
        segment(*arguments)
        np.testing.assert_array_equal(marks, 4)
    assert not empty.any()


@kernel
def _steep(start, stop, turns, target):
    """The first half of the rows takes no time beside the second."""
    for row in range(start, stop):
        for turn in range(turns[row]):
            target[row] = np.sin(target[row] + np.float32(turn))


def test_a_thread_that_takes_longer_gets_less(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(threads, "_threads", 2)
    rows = 1000
    calls = Calls()
    turns = np.where(np.arange(rows) < rows // 2, 1, 40)
    for _ in range(4):
        calls.over_rows(_steep, rows, 200_000, turns, np.zeros(rows, np.float32))
    ((segment, arguments),) = native.assemble(calls)
    segment(*arguments)
    team._team.last[1] = serving.WHOLE // 2
    for _ in range(100):
        segment(*arguments)
    assert team._team.last[1] > 0.6 * serving.WHOLE  # both take as long at 0.75


def test_a_thread_that_got_nothing_gets_something_again(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(threads, "_threads", 2)
    calls = Calls()
    for _ in range(4):
        calls.over_rows(_steep, 2, 200_000, np.full(2, 1000), np.zeros(2, np.float32))
    ((segment, arguments),) = native.assemble(calls)
    segment(*arguments)
    team._team.last[1] = 0.9 * serving.WHOLE  # both rows are the first thread's
    least = serving.WHOLE
    for _ in range(100):
        segment(*arguments)
        least = min(least, team._team.last[1])
    assert least < 0.75 * serving.WHOLE


def test_calls_that_only_python_can_make_stay_between_segments():
    calls = Calls()
    x, y = np.ones((4, 8), np.float32), np.empty((4, 8), np.float32)
    seen = []
    calls.over_rows(_grow, 8, 1, x[0], y[0], np.float32(2), 0.0, False)
    calls.add(lambda: seen.append(y[0].copy()))
    calls.over_rows(_grow, 8, 1, y[0], y[1], np.float32(2), 0.0, False)
    program = native.assemble(calls)
    assert [isinstance(part, native.Segment) for part, _ in program] == [True, False, True]
    for part, arguments in program:
        part(*arguments)
    np.testing.assert_array_equal(seen, [[2.0] * 8])
    np.testing.assert_array_equal(y[1], 4)


@pytest.mark.parametrize("work", [10, 10 * native.TOGETHER])
def test_a_failing_call_raises_what_python_says_and_stops_the_segment(count, work):
    calls, _ = chain(100, 5, work)
    ids = np.array([1, 7])
    calls.add(check_rows, ids, 5)
    after = np.zeros(100, np.float32)
    calls.over_rows(_grow, 100, work, np.ones(100, np.float32), after, np.float32(1), 1.0, False)
    ((segment, _),) = native.assemble(calls)
    for _ in range(10):
        with pytest.raises(IndexError, match="id 7 is outside the vocabulary of 5"):
            segment()
        assert not after.any()
    ids[:] = 2
    segment()
    np.testing.assert_array_equal(after, 2)


@pytest.mark.skipif(not (gemm.SERVED or gemm.address()), reason="products are numpy's here")
def test_a_training_step_is_one_segment_and_says_which_target_is_no_class():
    mg.manual_seed(0)
    embedding, heads, head = nn.Embedding(40, 32), nn.Linear(32, 96), nn.Linear(32, 40)
    parameters = [*embedding.parameters(), *heads.parameters(), *head.parameters()]
    optimizer = optim.AdamW(parameters, lr=1e-3)

    @compile
    def step(ids, targets):
        optimizer.zero_grad()
        query, key, value = heads(embedding(ids)).view(2, 24, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        loss = F.cross_entropy(head(mixed.transpose(1, 2).reshape(48, 32)), targets)
        loss.backward()
        clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    ids, targets = mg.arange(48).remainder(40).view(2, 24), np.arange(48) % 40
    losses = [float(step(ids, mg.from_numpy(targets))) for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]
    ((plan, _),) = step.plans.values()
    assert len(plan.program) == 1
    before = head.weight.detach().numpy().copy()
    targets[5] = 40
    with pytest.raises(ValueError, match="target 40 is not a class id from 0 to 39"):
        step(ids, mg.from_numpy(targets))
    np.testing.assert_array_equal(head.weight.detach().numpy(), before)


def test_targets_of_which_none_is_ignored_are_checked_too():
    logits, targets = mg.randn(4, 3), mg.tensor([0, 2, 1, 1])
    loss = compile(lambda x, t: mg.functional.cross_entropy(x, t, ignore_index=None))
    assert loss(logits, targets).item() == pytest.approx(mg.functional.cross_entropy(logits, targets).item(), rel=1e-5)
    with pytest.raises(ValueError, match="target 3 is not a class id from 0 to 2"):
        loss(logits, mg.tensor([0, 3, 1, 1]))


def test_a_product_of_one_row_reads_either_layout():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 37)).astype(np.float32)
    for matrix in (
        rng.standard_normal((37, 53)).astype(np.float32),
        rng.standard_normal((53, 37)).astype(np.float32).T,
    ):
        calls, y = Calls(), np.empty((1, 53), np.float32)
        assert matvec.matmul(calls, (x, matrix), (y,))
        calls.run()
        np.testing.assert_allclose(y, x @ matrix, rtol=1e-5, atol=1e-5)
    assert not matvec.matmul(Calls(), (np.ones((2, 37), np.float32), matrix), (np.empty((2, 53), np.float32),))


def test_results_are_bit_equal_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 4)
    rng = np.random.default_rng(0)
    x, g = (rng.standard_normal((500, 64)).astype(np.float32) for _ in range(2))
    weight = rng.standard_normal(64).astype(np.float32)
    statistics = x.mean(1), 1 / x.std(1)
    found = []
    before = threads.get_num_threads()
    for number in (1, 2, 3, 4):
        threads.set_num_threads(number)
        calls = Calls()
        outputs = np.empty_like(x), np.empty_like(weight), np.empty_like(weight)
        layer_norm.layer_norm_grad(calls, (g, x, weight, *statistics), outputs, eps=1e-5)
        for part, arguments in native.assemble(calls):
            part(*arguments)
        found.append(outputs)
    threads.set_num_threads(before)
    for outputs in found[1:]:
        for got, want in zip(outputs, found[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_threads_of_python_may_replay_plans_at_once(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 2)
    x = mg.randn(300, 64)
    step = compile(lambda x: mg.functional.softmax(mg.functional.gelu(x) * 2.0, -1))
    others = [compile(lambda x, i=i: mg.functional.softmax(x * float(i), -1)) for i in range(3)]
    expected = [f(x).numpy().copy() for f in (step, *others)]
    wrong = []

    def replay(which):
        for _ in range(30):
            got = (step, *others)[which](x).numpy()
            if not np.array_equal(got, expected[which]):
                wrong.append(which)

    running = [threading.Thread(target=replay, args=(i % 4,)) for i in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_team_of_its_own(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 2)
    calls, result = chain(1000, 10, native.TOGETHER)
    ((segment, _),) = native.assemble(calls)
    segment()
    expected = result.copy()
    child = os.fork()
    if child == 0:
        result[:] = 0
        segment()
        segment()
        os._exit(0 if np.array_equal(result, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    segment()
    np.testing.assert_array_equal(result, expected)


def test_a_team_has_at_most_as_many_threads_as_a_word_tells_apart(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 100)
    monkeypatch.setattr(threads, "_threads", 100)
    target = np.empty(200, np.float32)
    for _ in range(3):
        target[:] = np.nan
        team.over_rows(_grow, 200, 1e9, np.ones(200, np.float32), target, np.float32(2), 1.0, False)
        np.testing.assert_array_equal(target, 3)
    assert team._team.count == team.MOST


def test_workers_keep_their_mailboxes_while_they_live():
    """One that is awake when the team is dismissed looks into its own some more times."""
    members = team._Team(3)
    memory = weakref.ref(members._mailboxes.base)
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("minigrad-team")][-2:]
    held = workers[0]._args[2]  # as a worker that has not ended yet
    del members
    assert memory() is not None
    del held
    for worker in workers:
        worker.join()
    assert memory() is None


@pytest.mark.parametrize("served", [True, False])
def test_only_plans_whose_products_the_library_makes_hold_it_to_one_thread(served, monkeypatch):
    if served and not gemm.SERVED:
        pytest.skip("all products are the library's on this processor")
    monkeypatch.setattr(gemm, "SERVED", served)
    step, a = compile(lambda a: a @ a), mg.randn(64, 64)
    step(a)
    ((plan, _),) = step.plans.values()
    assert plan.alone is (not served and gemm.address() != 0)
    np.testing.assert_allclose(step(a).numpy(), a.numpy() @ a.numpy(), rtol=1e-4, atol=1e-4)


def test_a_worker_that_is_woken_soon_stays_awake_for_longer_once(monkeypatch):
    now, patience = [0.0], []
    monkeypatch.setattr(team.time, "perf_counter", lambda: now[0])

    class Waits:
        """Tasks that come after these seconds of sleep; then the worker is dismissed."""

        def __init__(self, *seconds):
            self.seconds = iter(seconds)

        def wait(self):
            slept = next(self.seconds, None)
            now[0] += slept or 0
            mailbox[serving.DISMISSED] = slept is None

    late, soon = 2 * team.SOON, team.SOON / 2
    mailbox, bell = np.zeros(8, np.int64), Waits(late, soon, soon, soon, late)
    team._serve(lambda *arguments: patience.append(arguments[2]), bell, mailbox, 1)
    short, long = serving.PATIENCE, team.PATIENT
    assert patience == [short, long, short, long, short]


def test_a_team_in_use_leaves_others_to_run_alone():
    calls, result = chain(100, 4, 10 * native.TOGETHER)
    ((segment, _),) = native.assemble(calls)
    segment()
    expected = result.copy()
    result[:] = 0
    team._team._mailboxes[0] = 1  # another thread has it
    segment()
    team._team._mailboxes[0] = 0
    np.testing.assert_array_equal(result, expected)
