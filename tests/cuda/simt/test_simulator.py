"""The SIMT simulator: what a kernel may do, and every way in which it is found wrong."""

import math
import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("greenlet")

from minigrad.simt import (
    DeadlockError,
    DivergenceError,
    OutOfBoundsError,
    RaceError,
    SimulationError,
    Simulator,
    this_thread,
)

cuda = object()  # what kernels call cuda; the simulator puts its own in place
FULL = 0xFFFFFFFF
SEEDS = (None, 0, 1, 2)


def run(kernel, *args, grid=1, block=32, seed=None, races=False, shared=0):
    Simulator(seed, races).launch(kernel, grid, block, args, shared)


# --- the model ----------------------------------------------------------------------------------------


def _positions(out):
    x, y = cuda.grid(2)
    width = cuda.gridDim.x * cuda.blockDim.x
    out[y * width + x] = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 100 * cuda.blockIdx.x + 1000 * cuda.blockIdx.y


@pytest.mark.parametrize("seed", SEEDS)
def test_every_thread_of_every_block_runs_once_at_its_position(seed):
    out = np.full(6 * 4, -1, np.int32)
    run(_positions, out, grid=(2, 2), block=(3, 2), seed=seed)
    want = [x % 3 + 10 * (y % 2) + 100 * (x // 3) + 1000 * (y // 2) for y in range(4) for x in range(6)]
    assert out.tolist() == want


def _reverse(x, n):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[n - 1 - i]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_orders_shared_memory(seed):
    x = np.arange(64, dtype=np.float32)
    run(_reverse, x, 64, block=64, seed=seed, races=True)
    assert x.tolist() == list(range(63, -1, -1))


def _dynamic(x):
    bytes_ = cuda.shared.array(0, np.float32)
    bytes_[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    x[cuda.threadIdx.x] = bytes_[cuda.threadIdx.x ^ 1]


def test_dynamic_shared_memory_has_the_launchs_size():
    x = np.arange(8, dtype=np.float32)
    run(_dynamic, x, block=8, shared=32)
    assert x.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    with pytest.raises(OutOfBoundsError, match=r"shared array\[7\]"):
        run(_dynamic, x, block=8, shared=28)


def _shuffles(x, out):
    lane = cuda.laneid
    value = x[lane]
    out[lane] = cuda.shfl_xor_sync(FULL, value, 5)
    out[32 + lane] = cuda.shfl_up_sync(FULL, value, 3)
    out[64 + lane] = cuda.shfl_down_sync(FULL, value, 3)
    out[96 + lane] = cuda.shfl_sync(FULL, value, 7)


@pytest.mark.parametrize("seed", SEEDS)
def test_shuffles(seed):
    x, out = np.arange(32, dtype=np.float32), np.zeros(128, np.float32)
    run(_shuffles, x, out, seed=seed)
    lanes = np.arange(32)
    assert out[:32].tolist() == (lanes ^ 5).tolist()
    assert out[32:64].tolist() == np.where(lanes < 3, lanes, lanes - 3).tolist()  # out of range: its own
    assert out[64:96].tolist() == np.where(lanes > 28, lanes, lanes + 3).tolist()
    assert (out[96:] == 7).all()


def _votes(x, out):
    yes = x[cuda.threadIdx.x] > 0
    out[0] = cuda.ballot_sync(FULL, yes)
    out[1] = cuda.any_sync(FULL, yes)
    out[2] = cuda.all_sync(FULL, yes)
    out[3] = cuda.syncthreads_count(yes)
    out[4] = cuda.syncthreads_or(yes)
    out[5] = cuda.syncthreads_and(yes)


def test_votes():
    x, out = np.zeros(32, np.int32), np.zeros(6, np.int64)
    x[[0, 4, 31]] = 1
    run(_votes, x, out)
    assert out.tolist() == [1 | 1 << 4 | 1 << 31, 1, 0, 3, 1, 0]


def _half_warps(x):
    lane = cuda.laneid
    if lane < 16:
        x[lane] = cuda.shfl_xor_sync(0x0000FFFF, x[lane], 1)
    else:
        x[lane] = cuda.shfl_xor_sync(0xFFFF0000, x[lane], 2)


def test_masks_let_parts_of_a_warp_go_their_ways():
    x = np.arange(32, dtype=np.int32)
    run(_half_warps, x, seed=3)
    assert x.tolist() == [i ^ 1 if i < 16 else i ^ 2 for i in range(32)]


def _add_all(x, out):
    cuda.atomic.add(out, 0, x[cuda.grid(1)])
    cuda.atomic.max(out, 1, x[cuda.grid(1)])


def test_atomics_are_no_race():
    x, out = np.arange(64, dtype=np.int32), np.zeros(2, np.int32)
    run(_add_all, x, out, grid=2, races=True)
    assert out.tolist() == [64 * 63 // 2, 63]


def _mathematics(x, out):
    i = cuda.threadIdx.x
    out[i] = math.exp(x[i]) + math.erf(x[i])
    out[4 + i] = math.log(x[i])


def test_mathematics_keeps_float32_and_gives_infinities():
    x = np.array([0.0, 1.0, 200.0, -1.0], np.float32)
    out = np.zeros(8, np.float32)
    run(_mathematics, x, out, block=4)
    assert out[:3].tolist() == [1.0, pytest.approx(math.e + math.erf(1), rel=1e-6), np.inf]
    assert out[4] == -np.inf
    assert np.isnan(out[7])


def _types(x, seen):
    seen.append(type(math.sqrt(x[0]) * x[0]))


def test_float32_arithmetic_stays_float32():
    kinds = []
    run(_types, np.ones(1, np.float32), kinds, block=1)
    assert kinds == [np.float32]


def helper(x):
    return cuda.laneid + x


def _calls(out):
    out[cuda.laneid] = helper(1)


def test_functions_that_a_kernel_calls_see_the_simulator_and_stay_unchanged():
    out = np.zeros(32, np.int32)
    run(_calls, out)
    assert out.tolist() == list(range(1, 33))
    assert helper.__globals__["cuda"] is cuda
    with pytest.raises(AttributeError):
        helper(1)


def _factory(width):
    def kernel(out):
        out[cuda.threadIdx.x] = width

    return kernel


def test_closures_are_kept():
    out = np.zeros(4, np.int32)
    run(_factory(7), out, block=4)
    assert out.tolist() == [7] * 4


class Collective:
    """A warp-wide sum, as an intrinsic carries its emulation."""

    @staticmethod
    def emulate(lanes):
        total = sum(values[0] for values in lanes.values())
        return dict.fromkeys(lanes, total)


class Single:
    """Remembers per thread, and reads memory."""

    @staticmethod
    def emulate_thread(memory, index):
        thread = this_thread()
        thread.state["calls"] = thread.state.get("calls", 0) + 1
        assert memory.address(index) % 4 == 0
        return memory.array[index] * thread.state["calls"]


warp_sum, twice = Collective(), Single()


def _intrinsics(x, out):
    i = cuda.threadIdx.x
    out[i] = warp_sum(x[i])
    out[32 + i] = twice(x, i) + twice(x, i)


@pytest.mark.parametrize("seed", SEEDS)
def test_intrinsics_are_emulated(seed):
    x, out = np.arange(32, dtype=np.int32), np.zeros(64, np.int32)
    run(_intrinsics, x, out, seed=seed)
    assert (out[:32] == 496).all()
    assert out[32:].tolist() == (3 * np.arange(32)).tolist()


def test_this_thread_exists_only_inside():
    with pytest.raises(RuntimeError, match="no simulated thread"):
        this_thread()


def _order(out, counter):
    counter.append(cuda.threadIdx.x)
    cuda.syncthreads()
    out[cuda.threadIdx.x] = 1


def test_a_seed_draws_the_order_of_threads_and_repeats_it():
    def order(seed):
        counter = []
        run(_order, np.zeros(128, np.int32), counter, block=128, seed=seed)
        return counter

    assert order(None) == sorted(order(4))
    assert order(4) == order(4)
    assert len({tuple(order(seed)) for seed in range(4)}) == 4


def _ahead(log):
    for _ in range(3):
        log.append(cuda.threadIdx.x >> 5)
        cuda.syncwarp()


def test_a_warp_may_run_far_ahead_of_another():
    logs = []
    for seed in range(20):
        log = []
        run(_ahead, log, block=64, seed=seed)
        logs.append([log[i] for i in range(0, 192, 32)])
    assert [0, 0, 0, 1, 1, 1] in logs or [1, 1, 1, 0, 0, 0] in logs


# --- found wrong ---------------------------------------------------------------------------------------


def _uninitialised(out):
    tile = cuda.shared.array(4, np.float32)
    mine = cuda.local.array(2, np.int32)
    out[0] = tile[2]
    out[1] = mine[1]


def test_shared_and_local_memory_are_poisoned():
    out = np.zeros(2, np.float32)
    run(_uninitialised, out, block=1)
    assert np.isnan(out[0])
    assert out[1] == -1


def _from_nobody(x, out):
    out[cuda.laneid] = cuda.shfl_down_sync(FULL, x[cuda.laneid], 8)


def test_what_comes_from_a_lane_that_takes_no_part_is_poison():
    out = np.zeros(16, np.float32)
    run(_from_nobody, np.ones(16, np.float32), out, block=16)
    assert (out[:8] == 1).all()
    assert np.isnan(out[8:]).all()


def _index(x, i):
    x[i] = x[i] + 1


@pytest.mark.parametrize("index", [4, -1, 100])
def test_out_of_bounds(index):
    with pytest.raises(OutOfBoundsError, match=r"kernel _index, block \(0, 0, 0\), thread \(0, 0, 0\), line \d+: x\["):
        run(_index, np.zeros(4, np.float32), index, block=1)


def _write_only(x, i):
    x[i] = 1.0


@pytest.mark.parametrize("index", [4, -1])
def test_writing_out_of_bounds(index):
    with pytest.raises(OutOfBoundsError):
        run(_write_only, np.zeros(4, np.float32), index, block=1)


def _two_dimensions(i, j):
    tile = cuda.shared.array((2, 3), np.float32)
    tile[i, j] = 0.0


def test_every_dimension_is_checked():
    run(_two_dimensions, 1, 2, block=1)
    for i, j in [(2, 0), (0, 3), (-1, 0), (0, -1)]:
        with pytest.raises(OutOfBoundsError):
            run(_two_dimensions, i, j, block=1)


def _left_out(x):
    if cuda.threadIdx.x < 40:
        return
    cuda.syncthreads()


def _two_barriers(x):
    if cuda.threadIdx.x < 40:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


def _barrier_against_shuffle(x):
    if cuda.laneid < 4:
        cuda.syncthreads()
    else:
        cuda.shfl_sync(FULL, 1, 0)


def _different_shuffles(x):
    if cuda.laneid < 4:
        cuda.shfl_xor_sync(FULL, 1, 1)
    else:
        cuda.shfl_sync(FULL, 1, 0)


def _outside_of_its_mask(x):
    cuda.shfl_sync(0xFF, 1, 0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kernel", "error", "text"),
    [
        (_left_out, DeadlockError, "24 threads wait at syncthreads"),
        (_two_barriers, DivergenceError, "waits at syncthreads"),
        (_barrier_against_shuffle, DivergenceError, "of the same warp at"),
        (_different_shuffles, DivergenceError, "shfl_"),
        (_outside_of_its_mask, DivergenceError, "not in the mask 0x000000ff"),
    ],
)
def test_meetings_that_fail(kernel, error, text, seed):
    with pytest.raises(error, match=text):
        run(kernel, np.zeros(1), block=64, seed=seed)


def _meet_anywhere(out):
    if cuda.laneid < 4:
        cuda.syncwarp()
    else:
        cuda.syncwarp()
    out[cuda.laneid] = 1


def test_a_syncwarp_may_be_met_from_two_lines():
    out = np.zeros(32, np.int32)
    run(_meet_anywhere, out)
    assert out.all()


def _no_barrier(x):
    tile = cuda.shared.array(64, np.float32)
    tile[cuda.threadIdx.x] = 1.0
    x[cuda.threadIdx.x] = tile[63 - cuda.threadIdx.x]


def _warp_barrier_within(x):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = 1.0
    cuda.syncwarp()
    x[i] = tile[i ^ 1]


def _warp_barrier_across(x):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = 1.0
    cuda.syncwarp()
    x[i] = tile[i ^ 32]


def _same_place(x):
    x[0] = 1.0


def _read_by_all(x, out):
    out[cuda.grid(1)] = x[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_races(seed):
    x = np.zeros(64, np.float32)
    for kernel in (_no_barrier, _warp_barrier_across, _same_place):
        with pytest.raises(RaceError, match="no barrier in between"):
            run(kernel, x, block=64, seed=seed, races=True)
    run(_warp_barrier_within, x, block=64, seed=seed, races=True)
    run(_read_by_all, np.ones(1, np.float32), x, grid=2, block=32, seed=seed, races=True)
    with pytest.raises(RaceError, match="two blocks"):
        run(_same_place, x, grid=2, block=1, seed=seed, races=True)


def _raises(x):
    if cuda.threadIdx.x == 3:
        raise KeyError("mine")


def test_an_error_of_the_kernel_comes_out_with_its_place():
    with pytest.raises(KeyError) as caught:
        run(_raises, np.zeros(1))
    assert "thread (3, 0, 0), line" in caught.value.__notes__[0]


@pytest.mark.parametrize(("grid", "block"), [(1, 0), (1, 1025), (0, 32), (1, (32, 33))])
def test_impossible_launches_are_refused(grid, block):
    with pytest.raises(ValueError, match="was launched with"):
        run(_same_place, np.zeros(1), grid=grid, block=block)


def test_the_simulator_is_faster_than_threads_of_the_system():
    """10,000 threads with a shuffle each; a guard against a scheduler that grows quadratically, not a benchmark."""
    x = np.array([random.random() for _ in range(32)], np.float32)
    out = np.zeros(32, np.float32)
    run(_from_nobody, x, out, grid=300)
    assert out[0] == x[8]
    assert issubclass(RaceError, SimulationError)


def test_the_page_about_it_says_what_happens():
    page = (Path(__file__).parents[3] / "docs" / "simt.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    exec(compile(example, "example", "exec"), {})
    with pytest.raises(RaceError, match=r"shared array\[1\] is read here and was written by thread \(32, 0, 0\)"):
        exec(compile(example.replace("    cuda.syncthreads()\n", ""), "example", "exec"), {})
