"""Elementwise kernels on any layout: broadcast, with gaps, transposed, repeated and backwards; fused groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import agrees, as_is, computed

from minigrad.compiler.fusion import step_lines
from minigrad.kernels.cuda import elementwise, runtime
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.layout import collapse, divisor
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.expression import Value
from minigrad.ops.registry import OPS

SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -2.5, 0.5, 7.0], np.float32)


def special(rng, shape):
    return rng.choice(SPECIAL, shape).astype(np.float32)


def reversed_dims(x):
    return x.transpose(tuple(range(x.ndim))[::-1])


def every_other(x):
    return x[(slice(None),) * (x.ndim - 1) + (slice(None, None, 2),)]


@st.composite
def operands(draw):
    """Two arrays that broadcast, and for each a view of an array in memory."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    arrays, layouts = [], []
    for _ in range(2):
        kept = [n if draw(st.booleans()) else 1 for n in shape][draw(st.integers(0, len(shape) - 1)) :]
        layout = draw(st.sampled_from([as_is, reversed_dims, every_other]))
        stored = (
            kept[::-1] if layout is reversed_dims else [*kept[:-1], 2 * kept[-1]] if layout is every_other else kept
        )
        arrays.append(special(rng, stored))
        layouts.append(layout)
    return arrays, layouts


def test_arrays_too_large_to_be_counted_are_computed_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 700)).astype(np.float32), rng.standard_normal((1, 700)).astype(np.float32)
    monkeypatch.setattr(elementwise, "LARGEST", 2500)
    elementwise._planned.cache_clear()
    try:
        agrees("add", [x, y], {})
        agrees("leaky_relu", [x], {"negative_slope": 0.1})
        agrees("clone", [x], {}, layouts=[reversed_dims])
        agrees("slice_add", [x[:, :5]], {"shape": (3, 700), "index": (("slice", 0, 3, None), ("slice", 1, 6, None))})
        agrees("sum", [x.astype(np.float16)], {"dims": (1,), "keepdim": False})
    finally:
        elementwise._planned.cache_clear()


@given(operands(), st.sampled_from(["add", "mul", "maximum", "lt", "div"]), st.sampled_from([None, 0, 1]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_two_operands_of_any_layout(case, name, seed):
    arrays, layouts = case
    agrees(name, arrays, {}, seed, layouts, rtol=1e-6, atol=0, twice=False)


@pytest.mark.parametrize(
    ("shape", "other"),
    [((7, 5), (5,)), ((6, 8), (8,)), ((6, 8), (6, 1)), ((2, 3, 8), (3, 1)), ((2, 3, 4, 8), (2, 1, 4, 1)), ((9,), ()),
     ((1030,), (1030,)), ((3,), (3,)), ((0, 4), (4,)), ((5, 300), (300,))],
)  # fmt: skip
def test_broadcasting(shape, other):
    rng = np.random.default_rng(0)
    for first, second in ((shape, other), (other, shape)):
        agrees("sub", [special(rng, first), special(rng, second)], {}, seed=1, rtol=0, atol=0)


def fused_on_both(op):
    """Of float32 or truth values, and without attributes."""
    dtype = "bool" if op.name.startswith("bitwise") else "float32"
    whole = op.tree is not None and not op.attributes and op.name not in ("where", "clone")
    return whole and step_lines(op.name, [Value("x", dtype)] * len(op.inputs), "y") is not None


@pytest.mark.parametrize("name", sorted(op.name for op in OPS.values() if fused_on_both(op)))
def test_special_values(name):
    op = OPS[name]
    booleans = name.startswith("bitwise")
    pairs = np.meshgrid(SPECIAL, SPECIAL)
    arrays = [np.ascontiguousarray(a).reshape(-1)[: None if len(op.inputs) > 1 else 144] for a in pairs]
    arrays = [a > 0 if booleans else a for a in arrays][: len(op.inputs)]
    agrees(name, arrays, {}, rtol=2e-6, atol=1e-38)


@pytest.mark.parametrize(
    "name", ["round", "floor", "ceil", "remainder", "floor_divide", "sign", "log1p", "expm1", "pow"]
)
def test_rounding_and_remainders(name):
    halves = np.concatenate([np.arange(-9, 10) * 0.5, [2.0**23 - 0.5, 2.0**23 + 1, -(2.0**22) - 0.5, 1e30]])
    x = halves.astype(np.float32)
    if len(OPS[name].inputs) == 1:
        agrees(name, [x], {}, rtol=1e-6, atol=1e-7)
    else:
        agrees(name, [x[:, None] + np.zeros(4, np.float32), np.array([1.5, -2.0, 0.25, -3.0], np.float32)], {})


def test_a_copy_of_any_layout_keeps_every_bit():
    rng = np.random.default_rng(1)
    for dtype in (np.uint8, np.float16, np.float32, np.int64):
        x = rng.integers(0, 256, (3, 4, 16 * np.dtype(dtype).itemsize), np.uint8).view(dtype)
        with runtime.use(SimulatedDriver(2)) as device:
            source = device.upload(x).transpose(2, 0, 1)
            target = device.empty((4, 16, 3), x.dtype).transpose(1, 2, 0)
            calls = DeviceCalls(device)
            calls.copy(target, source)
            calls.run()
            np.testing.assert_array_equal(
                device.download(target).view(np.uint8), x.transpose(2, 0, 1).copy().view(np.uint8)
            )


def test_flip_reads_backwards():
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    for dims in ((0,), (2,), (0, 1, 2), (1,)):
        agrees("flip", [x], {"dims": dims}, seed=1)
        agrees("flip", [x], {"dims": dims}, seed=1, layouts=[reversed_dims])


GELU_OF_A_LAYER = (("mul", (0, 1)), ("add", (4, 2)), ("gelu", (5,)), ("mul", (6, 3)))


@pytest.mark.parametrize(
    "shapes", [((6, 8), (8,), (6, 1), ()), ((2, 3, 5), (5,), (3, 1), (1,)), ((7,), (7,), (1,), (7,))]
)
def test_a_fused_group(shapes):
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    agrees("fused", arrays, {"body": GELU_OF_A_LAYER, "kept": (5, 7)}, seed=3)


def test_a_fused_group_with_numbers_and_conditions():
    rng = np.random.default_rng(3)
    x, mask = rng.standard_normal((4, 8)).astype(np.float32), rng.random((4, 1)) < 0.5
    body = (("where", (1, 0, 2)), ("mul", (4, 3)), ("gt", (5, 2)), ("bitwise_not", (6,)), ("cast", (7,)))
    low, scale = np.array(-np.inf, np.float32), np.array(0.1, np.float32)
    with runtime.use(SimulatedDriver(4)) as device:
        calls = DeviceCalls(device)
        given = [device.upload(x), device.upload(mask), low, scale]  # numbers come as they are
        outputs = [device.empty((4, 8), np.dtype(d)) for d in ("float32", "bool", "float32")]
        assert elementwise.fused(calls, given, outputs, body=body, kept=(5, 6, 8))
        calls.run()
        results = [device.download(output) for output in outputs]
    for result, want in zip(
        results, OPS["fused"].evaluate([x, mask, low, scale], {"body": body, "kept": (5, 6, 8)}), strict=True
    ):
        np.testing.assert_allclose(result, want, rtol=1e-6)


def test_a_result_may_lie_where_an_operand_lies():
    x = np.arange(1000, dtype=np.float32)
    with runtime.use(SimulatedDriver(1)) as device:
        array, calls = device.upload(x), DeviceCalls(device)
        assert elementwise.launch(calls, [("add", (0, 0))], [array], [array], [1])
        calls.run()
        np.testing.assert_array_equal(device.download(array), 2 * x)


def test_unaligned_arrays_are_not_loaded_as_vectors():
    x = np.arange(41, dtype=np.float32)
    for start in range(4):
        agrees("neg", [x], {}, layouts=[lambda a, start=start: a[start:]])


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_division_by_multiplication(size, number):
    _, magic, shift = divisor(size)
    assert -(2**31) <= magic < 2**31
    for i in {number, number // size * size, max(number // size * size - 1, 0), 2**31 - 1}:
        assert i * (magic % 2**32) < 2**63
        assert i * (magic % 2**32) >> shift == i // size


def test_dimensions_are_joined_where_all_arrays_allow_it():
    assert collapse((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ((24,), ((1,), (1,)))
    assert collapse((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ((2, 12), ((12, 1), (0, 1)))
    assert collapse((2, 1, 4), [(4, 9, 1), (0, 0, 1)]) == ((2, 4), ((4, 1), (0, 1)))
    assert collapse((), [()]) == collapse((1, 1), [(5, 5)]) == ((1,), ((0,),))


def test_integers_wrap_and_divide_as_numpys():
    x = np.array([-7, 7, -8, 100, -100, 127, -128, 3], np.int8)
    y = np.array([2, -2, 3, 100, 100, 127, -128, -3], np.int8)
    for name in ("add", "mul", "sub", "floor_divide", "remainder", "maximum", "bitwise_xor"):
        agrees(name, [x, y], {})
    whole = np.arange(-4, 5, dtype=np.int64)
    np.testing.assert_array_equal(computed("pow", [whole, np.full(9, 5)], {})[0], whole**5)
    lowest = np.array([np.iinfo(np.int64).min, 5])
    agrees("floor_divide", [lowest, np.array([-1, -1])], {})
    agrees("remainder", [lowest, np.array([-1, -1])], {})


WHOLE = ("floor_divide", "remainder")
EDGES = [0.0, 1e-45, 1.2e-38, 1e-8, 0.1, 0.3, 0.5, 1.0, 1.5, 7.0, 2.0**24 + 2, 1e30, 3.4e38, np.inf, np.nan]


def same_bits(found, wanted):
    """Equal bit for bit, signs of zeros included; any NaN is as good as another."""
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint8), wanted[~nan].view(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_whole_quotients_and_remainders_bit_for_bit(dtype):
    """Zeros, infinities, NaN, tiny numbers and huge quotients, of both signs, alone and as steps of a fused kernel."""
    with np.errstate(over="ignore"):
        edges = np.array([sign * x for x in EDGES for sign in (1, -1)], dtype)
    a, b = (np.ascontiguousarray(x).reshape(-1) for x in np.meshgrid(edges, edges))
    wanted = [OPS[name].evaluate([a, b], {})[0] for name in WHOLE]
    for name, want in zip(WHOLE, wanted, strict=True):
        same_bits(computed(name, [a, b], {}, twice=False)[0], want)
    if dtype == "float32":
        fused = {"body": tuple((name, (0, 1)) for name in WHOLE), "kept": (2, 3)}
        for found, want in zip(computed("fused", [a, b], fused, twice=False), wanted, strict=True):
            same_bits(found, want)


def test_each_step_that_refuses_values_notes_its_own():
    steps = (("add", (0, 1)), ("floor_divide", (0, 1)), ("remainder", (2, 0)), ("pow", (0, 1)))
    cases = {
        (4, 0): (ZeroDivisionError, "integer division by zero"),
        (0, 4): (ZeroDivisionError, "integer division by zero"),
        (4, -1): (ValueError, "pow: an integer to a negative"),
    }
    with runtime.use(SimulatedDriver(1)) as device:
        for (a, b), (error, sentence) in cases.items():
            x, y = device.upload(np.array([a, 6])), device.upload(np.array([b, 2]))
            outputs, calls = [device.empty((2,), np.int64) for _ in range(3)], DeviceCalls(device)
            assert elementwise.launch(calls, steps, [x, y], outputs, [3, 4, 5])
            calls.run()
            with pytest.raises(error, match=sentence):
                device.download(outputs[0])
            assert [device.download(output)[1] for output in outputs] == [3, 2, 36]


def test_what_refuses_nothing_takes_no_place_to_note_it():
    """Floating kernels of the same ops are launched with arrays and sizes alone."""
    for name in ("floor_divide", "remainder", "pow", "add"):
        with runtime.use(SimulatedDriver()) as device:
            x, calls = device.upload(np.ones(8, np.float32)), DeviceCalls(device)
            assert elementwise.launch(calls, [(name, (0, 1))], [x, x], [device.empty((8,), np.float32)], [2])
            ((_, (kernel, *_)),) = calls
            assert kernel.signature == ("float32*", "float32*", "float32*", "int32")
