"""CPU kernels against numpy references in float64: NaN and infinities, several thread counts, a forked child."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
import minigrad.compiler  # with the ops of plans
import minigrad.functional
import minigrad.optim
from minigrad import kernels, later
from minigrad.kernels import team, threads
from minigrad.kernels.numba.jit import kernel
from minigrad.ops.registry import OPS
from minigrad.study import NotFinite, find_nan

ROWS = ["layer_norm", "layer_norm_grad", "rms_norm", "rms_norm_grad", "softmax", "softmax_grad"]
CASES = [*ROWS, "cross_entropy", "cross_entropy_grad", "embedding", "embedding_grad", "adam", "sum",
         "linear_cross_entropy", "linear_cross_entropy_grad"]  # fmt: skip


def inputs(name, shape, seed):
    """float32 inputs of an op whose first operand has `shape`."""
    rng = np.random.default_rng(seed)

    def normal(*size):
        return rng.standard_normal(size).astype(np.float32)

    d = shape[-1]
    x, g, weight, bias = normal(*shape), normal(*shape), normal(d), normal(d)
    if name == "softmax":
        return [x * 4], {"dim": len(shape) - 1}
    if name == "softmax_grad":
        return [g, OPS["softmax"].reference(x, dim=len(shape) - 1)], {"dim": len(shape) - 1}
    if name == "layer_norm":
        return [x, weight, bias], {"eps": 1e-5}
    if name.startswith("rms_norm"):
        if name == "rms_norm":
            return [x, weight], {"eps": 1e-6}
        return [g, x, weight, OPS["rms_norm"].reference(x, weight, eps=1e-6)[1]], {"eps": 1e-6}
    if name == "sum":
        return [normal(3, *shape)], {"dims": tuple(range(len(shape) + seed // 2 % 2)), "keepdim": bool(seed % 2)}
    rows = int(np.prod(shape[:-1]))
    ids = rng.integers(0, d, rows)
    if name.startswith("cross_entropy"):
        reduction = ("mean", "sum", "none")[seed % 3]
        attrs = {
            "ignore_index": (None, 1)[seed % 2],
            "label_smoothing": (0.0, 0.1)[seed // 2 % 2],
            "reduction": reduction,
        }
        logits = normal(rows, d) * 3
        if name == "cross_entropy":
            return [logits, ids], attrs
        up = normal(rows) if reduction == "none" else normal()
        return [np.asarray(up), logits, ids, OPS["log_softmax"].reference(logits, dim=1)], attrs
    if name.startswith("linear_cross_entropy"):
        attrs = {"ignore_index": (None, 1)[seed % 2], "label_smoothing": (0.0, 0.1)[seed // 2 % 2]}
        attrs["reduction"] = ("mean", "sum")[seed % 3 == 1]
        arrays = [normal(rows, 5), normal(d, 5), ids]
        return [np.asarray(normal()), *arrays] if name.endswith("grad") else arrays, attrs
    if name == "embedding":
        return [normal(d, 5), ids.reshape(shape[:-1])], {"padding_idx": None}
    if name == "embedding_grad":
        return [normal(rows, 5), ids], {"shape": (d, 5), "padding_idx": (None, 0)[seed % 2]}
    if name == "adam":
        attrs = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "decay": (0.0, 0.1)[seed % 2], "decoupled": seed % 3 > 0}
        one = [x, g, normal(*shape), normal(*shape) ** 2, np.asarray(float(seed))]
        return [*one, np.asarray(0.01)], attrs
    _, average, rstd = OPS["layer_norm"].reference(x, weight, bias, eps=1e-5)
    return [g, x, weight, average, rstd], {"eps": 1e-5}


def fast(name, arrays, attrs):
    metas = OPS[name].output_metas([(a.shape, a.dtype) for a in arrays], attrs)
    outputs = [np.full(shape, 7, dtype) for shape, dtype in metas]
    calls = kernels.bind(OPS[name], arrays, outputs, attrs)
    assert calls is not None, "the kernel declined"
    calls.run()
    once = [output.copy() for output in outputs]
    calls.run()
    for first, second in zip(once, outputs, strict=True):
        np.testing.assert_array_equal(first, second)  # a second run of the same calls gives the same
    return outputs


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 9), min_size=0, max_size=2),
    d=st.integers(2, 70),
    seed=st.integers(0, 100),
    layout=st.sampled_from(["C", "strided"]),
)
def test_kernel_equals_reference(name, shape, d, seed, layout):
    arrays, attrs = inputs(name, (*shape, d), seed)
    if layout == "strided":
        arrays = [np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a for a in arrays]
    got = fast(name, arrays, attrs)
    expected = OPS[name].evaluate([a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays], attrs)
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == (np.float64 if name == "adam" and not e.ndim else np.float32)
        assert g.shape == e.shape
        np.testing.assert_allclose(g, e, rtol=2e-5, atol=2e-6 * max(1.0, float(np.abs(e).max(initial=0))) * d**0.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("t_query", "t_key", "d", "d_value"),
    [(1, 9, 4, 6), (5, 7, 4, 6), (7, 5, 4, 6), (64, 64, 16, 16), (130, 200, 8, 8), (200, 130, 8, 12)],
)
def test_flash_attention_equals_the_formula(t_query, t_key, d, d_value, masked, causal):
    rng = np.random.default_rng(0)
    shapes = ((2, t_query, 3, d), (2, t_key, 3, d), (2, t_key, 3, d_value))
    arrays = [rng.standard_normal(shape).astype(np.float32).transpose(0, 2, 1, 3) for shape in shapes]
    if t_query == 1:  # a step of decoding: contiguous caches
        arrays = [np.ascontiguousarray(a) for a in arrays]
    rest = []
    if masked:
        rest = [rng.random((2, 1, t_query, t_key)) < 0.6]
        rest[0][0, 0, 0] = False  # a row that sees nothing
    attrs = {"scale": d**-0.5, "causal": causal}
    wide = [a.astype(np.float64) for a in arrays]
    out, lse = fast("flash_attention", [*arrays, *rest], attrs)
    expected = OPS["flash_attention"].evaluate([*wide, *rest], attrs)
    np.testing.assert_allclose(out, expected[0], atol=3e-6)
    np.testing.assert_allclose(lse, expected[1], atol=3e-6)
    g = rng.standard_normal(out.shape).astype(np.float32)
    got = fast("flash_attention_grad", [g, *arrays, out, lse, *rest], attrs)
    wanted = OPS["flash_attention_grad"].evaluate([g.astype(np.float64), *wide, *expected, *rest], attrs)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, -3e38, -np.nan])
def test_softmax_treats_nan_and_infinities_as_numpy_does(bad):
    x = np.random.default_rng(0).standard_normal((3, 33)).astype(np.float32)
    x[1, 7] = bad
    with np.errstate(all="ignore"):
        expected = OPS["softmax"].reference(x, dim=1)
    (got,) = fast("softmax", [x], {"dim": 1})
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["softmax", "cross_entropy", "linear_cross_entropy"])
def test_rows_without_a_positive_number_have_a_peak_too(name):
    arrays, attrs = inputs(name, (4, 9), 0)
    arrays[0] = -200 * np.abs(arrays[0])
    if name.startswith("linear"):
        arrays[1] = np.abs(arrays[1])
    expected = OPS[name].evaluate([a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays], attrs)
    for got, wanted in zip(fast(name, arrays, attrs), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("dims", [(1,), (0, 2), (1, 2)])
def test_a_sum_over_other_dimensions_than_the_first_is_left_to_numpy(dims):
    x = np.ones((2, 3, 4), np.float32)
    total = np.empty(np.sum(x, axis=dims).shape, np.float32)
    assert kernels.bind(OPS["sum"], [x], [total], {"dims": dims, "keepdim": False}) is None


def test_the_first_nan_is_the_largest_as_in_numpy():
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    x[1, [7, 30]], x[2, [0, 39]], x[3, [3, 20]], x[4] = np.nan, np.nan, np.inf, -np.inf
    (got,) = fast("argmax", [x], {"dim": 1, "keepdim": False})
    np.testing.assert_array_equal(got, np.argmax(x, axis=1))


def test_softmax_of_a_row_of_minus_infinity_is_nan_like_torch():
    (got,) = fast("softmax", [np.full((2, 5), -np.inf, np.float32)], {"dim": 1})
    assert np.isnan(got).all()


def test_the_loss_beside_classes_that_are_ruled_out_is_finite():
    """Logits of minus infinity; such a class must not be the target, nor take part in label smoothing."""
    attrs = {"ignore_index": None, "label_smoothing": 0.0, "reduction": "mean"}
    logits, ids = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32), np.array([0, 2, 8, 0])
    logits[:, 3:6] = -np.inf
    loss, log_probs = fast("cross_entropy", [logits, ids], attrs)
    (gradient,) = fast("cross_entropy_grad", [np.asarray(1, np.float32), logits, ids, log_probs], attrs)
    wide = logits.astype(np.float64)
    expected = OPS["cross_entropy"].evaluate([wide, ids], attrs)
    (wanted,) = OPS["cross_entropy_grad"].evaluate([np.asarray(1.0), wide, ids, expected[1]], attrs)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-6)
    np.testing.assert_allclose(gradient, wanted, atol=1e-7)
    x, weight = np.abs(logits[:, :2]), np.ones((9, 2), np.float32)
    weight[3:6] = -np.inf
    (projected,) = fast("linear_cross_entropy", [x, weight, ids], attrs)
    np.testing.assert_allclose(projected, np.log(6), rtol=1e-6)


def test_layer_norm_passes_nan_on():
    x = np.ones((4, 8), np.float32)
    x[2, 3] = np.nan
    y, *_ = fast("layer_norm", [x, np.ones(8, np.float32), np.zeros(8, np.float32)], {"eps": 1e-5})
    assert np.isnan(y[2]).all()
    assert np.isfinite(np.delete(y, 2, 0)).all()


@pytest.mark.parametrize("name", CASES)
def test_results_do_not_depend_on_the_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(threads, "GRAIN", 1)
    monkeypatch.setattr(threads, "available", lambda: 5)
    before = threads.get_num_threads()
    arrays, attrs = inputs(name, (37, 50), 1)
    results = []
    try:
        for count in (1, 2, 3, 5):
            threads.set_num_threads(count)
            results.append(fast(name, arrays, attrs))
    finally:
        threads.set_num_threads(before)
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


@kernel
def _check(start, stop, x):
    for i in range(start, stop):
        if x[i] < 0:
            raise ValueError("a number is negative")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_error_in_any_thread_reaches_the_caller(count, monkeypatch):
    monkeypatch.setattr(threads, "GRAIN", 1)
    monkeypatch.setattr(threads, "available", lambda: 3)
    monkeypatch.setattr(threads, "_threads", count)
    for place in (0, 50, 99):
        x = np.ones(100, np.float32)
        team.over_rows(_check, 100, 100, x)
        x[place] = -1
        with pytest.raises(ValueError, match="a number is negative"):
            team.over_rows(_check, 100, 100, x)


@kernel
def _mark(start, stop, marks, x):
    for i in range(start, stop):
        marks[i] = start
        x[i] += 1


@pytest.mark.parametrize(("work", "ranges"), [(0, 1), (1, 1), (2, 2), (3, 3), (1e9, 3)])
def test_work_decides_over_how_many_threads_rows_are_cut(work, ranges, monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 3)
    monkeypatch.setattr(threads, "_threads", 3)
    marks, x = np.full(30, -1, np.int64), np.zeros(30, np.float32)
    team.over_rows(_mark, 30, work * threads.GRAIN, marks, x)
    assert len(set(marks)) == ranges
    np.testing.assert_array_equal(x, 1)  # every row once


def test_rows_are_done_where_another_thread_has_the_team(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(threads, "_threads", 2)
    marks, x = np.full(30, -1, np.int64), np.zeros(30, np.float32)
    words = team._members(2)._mailboxes
    words[0] = 1
    team.over_rows(_mark, 30, 1e9, marks, x)
    words[0] = 0
    assert set(marks) == {0}
    np.testing.assert_array_equal(x, 1)


def test_the_number_of_threads_must_be_positive():
    with pytest.raises(ValueError, match="at least 1"):
        threads.set_num_threads(0)


def test_unknown_kernel_mode_is_named():
    with pytest.raises(ValueError, match="turbo"):
        kernels.set_mode("turbo")


def test_modes_choose_between_kernel_and_reference():
    x = np.ones((2, 3), np.float32)
    calls = []
    spec = kernels.spec(OPS["softmax"], "cpu", "float32")
    original = later.load(spec)
    later._loaded[spec] = lambda *a, **k: calls.append(1) or original(*a, **k)
    try:
        for mode, expected in (("reference", 0), ("auto", 0), ("always", 1)):
            with kernels.use(mode):
                kernels.run(OPS["softmax"], [x], {"dim": 1})
            assert len(calls) == expected, mode
    finally:
        later._loaded[spec] = original


SCRIPT = """
import os, sys
import numpy as np
from minigrad.kernels import threads
threads.GRAIN = 1
threads.set_num_threads(2)
import minigrad as mg
from minigrad import kernels
kernels.set_mode("always")
def softmax(x): return mg.tensor(x).softmax(1).numpy()
x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
y = softmax(x)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(softmax(x), y) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_threads_of_its_own():
    assert subprocess.run([sys.executable, "-c", SCRIPT], timeout=60).returncode == 0


def test_a_mode_and_a_watcher_are_of_the_thread_that_asks_for_them():
    seen: list[str] = []

    def elsewhere():
        seen.append(kernels.get_mode())
        assert (mg.tensor([0.0]) / 0.0).isnan().item()

    with kernels.use("always"), find_nan():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert kernels.get_mode() == "always"
        with pytest.raises(NotFinite):
            mg.tensor([0.0]) / 0.0
    assert seen == [kernels.get_mode()] == ["auto"]
