"""Every emulation of an intrinsic does what the PTX manual says, in a warp of the simulator."""

import ml_dtypes
import numpy as np
import pytest

from minigrad.kernels.cuda import intrinsics
from minigrad.kernels.cuda.intrinsics import (
    COPY_ASYNC_WAIT,
    Intrinsic,
    bits_float,
    copy_async4_float32,
    copy_async16_float32,
    copy_async16_half,
    copy_async_commit,
    exp2,
    float_bits,
    ldmatrix,
    ldmatrix_transposed,
    load2,
    load4,
    load_bits,
    load_bits4,
    mma_bfloat16,
    mma_float16,
    mma_tf32,
    store2,
    store4,
    store_bits,
    to_tf32,
)
from minigrad.kernels.cuda.language import cuda, float32, uint16
from minigrad.simt import OutOfBoundsError, SimulationError, Simulator

HALF = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
WAIT0, WAIT1 = COPY_ASYNC_WAIT[0], COPY_ASYNC_WAIT[1]


def warp(function, *args, shared=0, seed=3):
    Simulator(seed).launch(function, 1, 32, args, shared)


def bits_of(values, kind):
    """Pairs of halves, packed: the low half first."""
    return np.ascontiguousarray(np.asarray(values, np.float32).astype(HALF[kind])).view(np.int32)


# --- fragments ------------------------------------------------------------------------------------------


def multiply_tf32(a, b, c, d):
    i = cuda.threadIdx.x
    r = mma_tf32(
        a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3], b[2 * i], b[2 * i + 1],
        c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3],
    )  # fmt: skip
    d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3] = r


def multiply_bfloat16(a, b, c, d):
    i = cuda.threadIdx.x
    r = mma_bfloat16(
        a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3], b[2 * i], b[2 * i + 1],
        c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3],
    )  # fmt: skip
    d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3] = r


def multiply_float16(a, b, c, d):
    i = cuda.threadIdx.x
    r = mma_float16(
        a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3], b[2 * i], b[2 * i + 1],
        c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3],
    )  # fmt: skip
    d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3] = r


def result_fragments(c):
    """(16 x 8) -> the registers of 32 lanes, by the manual's table."""
    return np.array(
        [[c[g, 2 * t], c[g, 2 * t + 1], c[g + 8, 2 * t], c[g + 8, 2 * t + 1]] for g in range(8) for t in range(4)]
    )


def test_tf32_products_follow_the_manuals_fragments():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(-8, 8, (16, 8)), rng.integers(-8, 8, (8, 8)), rng.integers(-8, 8, (16, 8))
    lanes = [(g, t) for g in range(8) for t in range(4)]
    fa = np.array([[a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4]] for g, t in lanes], np.float32)
    fb = np.array([[b[t, g], b[t + 4, g]] for g, t in lanes], np.float32)
    d = np.zeros(128, np.float32)
    warp(
        multiply_tf32, fa.view(np.int32).ravel(), fb.view(np.int32).ravel(), result_fragments(c).astype("f").ravel(), d
    )
    np.testing.assert_array_equal(d.reshape(32, 4), result_fragments(a @ b + c))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_products_follow_the_manuals_fragments(kind):
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(-8, 8, (16, 16)), rng.integers(-8, 8, (16, 8)), rng.integers(-8, 8, (16, 8))
    lanes = [(g, t) for g in range(8) for t in range(4)]
    fa = [
        [a[r, k : k + 2] for r, k in ((g, 2 * t), (g + 8, 2 * t), (g, 2 * t + 8), (g + 8, 2 * t + 8))] for g, t in lanes
    ]
    fb = [[b[k : k + 2, g] for k in (2 * t, 2 * t + 8)] for g, t in lanes]
    d = np.zeros(128, np.float32)
    function = multiply_bfloat16 if kind == "bfloat16" else multiply_float16
    warp(function, bits_of(fa, kind).ravel(), bits_of(fb, kind).ravel(), result_fragments(c).astype("f").ravel(), d)
    np.testing.assert_array_equal(d.reshape(32, 4), result_fragments(a @ b + c))


def test_tensor_cores_read_ten_fraction_bits_and_round_towards_zero():
    x = np.float32(1 + 2.0**-11)  # the last bit is below tf32
    a, b = np.zeros((32, 4), np.float32), np.zeros((32, 2), np.float32)
    a[:, 0], b[:, 0] = x, 1
    c = np.full((32, 4), 2.0**-24, np.float32)
    d = np.zeros(128, np.float32)
    warp(multiply_tf32, a.view(np.int32).ravel(), b.view(np.int32).ravel(), c.ravel(), d)
    np.testing.assert_array_equal(d.reshape(32, 4)[:, 0], np.float32(4))  # four k of 1 * 1; 2^-24 is cut off
    assert intrinsics.truncated(np.array([-4 - 2.0**-24]))[0] == -4
    assert intrinsics.truncated(np.array([1 + 1.9 * 2.0**-24]))[0] == 1  # to nearest it would be 1 + 2^-23


# --- memory ---------------------------------------------------------------------------------------------


def both_ldmatrix(x, plain, flipped):
    shared = cuda.shared.array(256, uint16)
    i = cuda.threadIdx.x
    for j in range(8):
        shared[8 * i + j] = x[8 * i + j]
    cuda.syncthreads()
    a, b = ldmatrix(shared, 8 * i), ldmatrix_transposed(shared, 8 * i)
    for j in range(4):
        plain[4 * i + j] = a[j]
        flipped[4 * i + j] = b[j]


def test_ldmatrix_gives_every_lane_its_part_of_four_matrices():
    x = np.random.default_rng(2).integers(0, 60000, (4, 8, 8)).astype(np.uint16)
    plain, flipped = np.zeros(128, np.int32), np.zeros(128, np.int32)
    warp(both_ldmatrix, x.ravel(), plain, flipped)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for m in range(4):
            assert plain[4 * lane + m].tobytes() == x[m, g, 2 * t : 2 * t + 2].tobytes()
            assert flipped[4 * lane + m].tobytes() == np.ascontiguousarray(x[m, 2 * t : 2 * t + 2, g]).tobytes()


def moved(x, y, h, k):
    i = cuda.threadIdx.x
    a = load4(x, 4 * i)
    store4(y, 4 * i, a[3], a[2], a[1], a[0])
    b = load2(y, 4 * i)
    store2(y, 4 * i, b[1], b[0])
    store_bits(k, 8 * i, load_bits(h, 8 * i))
    w = load_bits4(h, 8 * i)
    for j in range(1, 4):
        store_bits(k, 8 * i + 2 * j, w[j])


def test_vector_loads_and_stores():
    x, h = np.arange(128, dtype=np.float32), np.arange(256, dtype=np.uint16)
    y, k = np.zeros_like(x), np.zeros_like(h)
    warp(moved, x, y, h, k)
    np.testing.assert_array_equal(y.reshape(32, 4), x.reshape(32, 4)[:, [2, 3, 1, 0]])
    np.testing.assert_array_equal(k, h)


def misaligned(x):
    load4(x, cuda.threadIdx.x)


def beyond(x):
    load4(x, 4 * cuda.threadIdx.x + 4)


def test_misaligned_and_outside_loads_are_found():
    with pytest.raises(ValueError, match="not aligned to 16 bytes"):
        warp(misaligned, np.zeros(128, np.float32))
    with pytest.raises(OutOfBoundsError):
        warp(beyond, np.zeros(128, np.float32))


def copied(x, h, early, late, halves):
    shared = cuda.shared.array(256, float32)
    words = cuda.shared.array(256, uint16)
    i = cuda.threadIdx.x
    copy_async16_float32(shared, 4 * i, x, 4 * i, i & 3)
    copy_async16_half(words, 8 * i, h, 8 * i, i & 7)
    copy_async_commit()
    copy_async4_float32(shared, 128 + i, x, i, i & 1)
    copy_async_commit()
    early[i] = shared[4 * i]
    WAIT1()
    for j in range(4):
        late[4 * i + j] = shared[4 * i + j]
    for j in range(8):
        halves[8 * i + j] = words[8 * i + j]
    early[32 + i] = shared[128 + i]
    WAIT0()
    early[64 + i] = shared[128 + i]


def test_copies_arrive_at_the_wait_and_fill_up_with_zeros():
    x, h = np.arange(1, 129, dtype=np.float32), np.arange(1, 257, dtype=np.uint16)
    early, late, halves = np.zeros(96, np.float32), np.zeros(128, np.float32), np.zeros(256, np.uint16)
    warp(copied, x, h, early, late, halves)
    assert np.isnan(early[:64]).all()  # not there yet
    lanes = np.arange(32)
    np.testing.assert_array_equal(early[64:], np.where(lanes % 2, x[:32], 0))
    np.testing.assert_array_equal(
        late.reshape(32, 4), np.where(np.arange(4) < (lanes % 4)[:, None], x.reshape(32, 4), 0)
    )
    np.testing.assert_array_equal(
        halves.reshape(32, 8), np.where(np.arange(8) < (lanes % 8)[:, None], h.reshape(32, 8), 0)
    )


def part_of_a_warp(x):
    if cuda.threadIdx.x < 16:
        shared = cuda.shared.array(256, uint16)
        ldmatrix(shared, 8 * cuda.threadIdx.x)
    else:
        cuda.syncwarp()


def test_a_warp_operation_needs_the_whole_warp():
    with pytest.raises(SimulationError):
        warp(part_of_a_warp, np.zeros(1, np.float32))


# --- numbers --------------------------------------------------------------------------------------------


def test_rounding_to_tf32():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.standard_normal(200) * 10.0 ** rng.integers(-20, 20, 200), [0, -0.0, np.inf, -np.inf]])
    for value in x.astype(np.float32):
        bits = to_tf32.emulate_thread(value)
        assert bits & 0x1FFF == 0
        rounded = bits_float.emulate_thread(bits)
        assert float_bits.emulate_thread(rounded) == bits
        if np.isfinite(value):
            assert abs(float(rounded) - float(value)) <= 2.0**-11 * abs(float(value))
        else:
            assert rounded == value
    assert np.isnan(bits_float.emulate_thread(to_tf32.emulate_thread(np.float32(np.nan))))
    assert bits_float.emulate_thread(to_tf32.emulate_thread(np.float32(1 + 2.0**-11))) == 1 + 2.0**-10  # a tie: away
    assert exp2.emulate_thread(np.float32(-np.inf)) == 0


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_halves_are_packed_and_widened(kind):
    part = {
        name: getattr(intrinsics, f"{name}_{kind}").emulate_thread
        for name in ("pack", "low", "high", "widen", "narrow")
    }
    for low, high in ((1.5, -2.25), (3.14159, 1e-3), (np.inf, -0.0)):
        bits = part["pack"](np.float32(low), np.float32(high))
        assert bits == bits_of([low, high], kind)[0]
        wanted = np.array([low, high], np.float32).astype(HALF[kind]).astype(np.float32)
        assert (part["low"](bits), part["high"](bits)) == tuple(wanted)
        assert part["widen"](part["narrow"](np.float32(low))) == wanted[0]


def test_every_intrinsic_has_one_emulation_and_no_meaning_outside():
    found = [x for x in vars(intrinsics).values() if isinstance(x, Intrinsic)]
    assert len(found) > 25
    for intrinsic in (*found, *COPY_ASYNC_WAIT):
        assert (intrinsic.emulate is None) != (intrinsic.emulate_thread is None)
        with pytest.raises(RuntimeError, match=intrinsic.__name__):
            intrinsic()
