"""Products and the steps that follow them in one kernel, on the device: against the steps one by one."""

import numpy as np
import pytest
from simulated_ops import bound

import minigrad as mg
import minigrad.functional as F
from minigrad import kernels
from minigrad.compiler import compile
from minigrad.compiler.epilogue import fuse_epilogues
from minigrad.kernels.cuda import epilogue, runtime
from minigrad.kernels.cuda.epilogue import Epilogue, fused_kernel, fused_matmul
from minigrad.kernels.cuda.matmul import LARGE, SMALL, Tiling
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.registry import OPS

TINY = Tiling(32, 32, 1, 1)
BIAS = ((("add", (0, 1)),), (2,))
BIAS_GELU = ((("add", (0, 1)), ("gelu", (2,))), (2, 3))  # the sum is kept for the backward pass
BIAS_RELU = ((("add", (1, 0)), ("relu", (2,))), (3,))
RESIDUAL = ((("add", (0, 1)), ("add", (2, 3))), (4,))


@pytest.fixture
def tiles(monkeypatch):
    """Let small tiles compute products of any size."""
    monkeypatch.setattr(epilogue, "choose", lambda *_: (TINY, 1))
    monkeypatch.setattr(epilogue, "route", lambda _: "tiled")


def check(inputs, program, seed=1, shape=None):
    """The binder's results are those of the steps; returns the kernels' names."""
    body, kept = program
    attrs = {"body": body, "kept": kept, "shape": shape or np.matmul(*inputs[:2]).shape}
    with np.errstate(invalid="ignore"):
        expected = OPS["fused_matmul"].evaluate(inputs, attrs)
    arrays = [x for x in inputs if x.ndim]
    numbers = {i: x for i, x in enumerate(inputs) if not x.ndim}

    def binder(calls, given, outputs):
        given = iter(given)
        return fused_matmul(calls, [numbers.get(i) if i in numbers else next(given) for i in range(len(inputs))],
                            outputs, **attrs)  # fmt: skip

    found, names = bound(binder, arrays, [(x.shape, x.dtype) for x in expected], seed)
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-6, atol=1e-5)
    return names


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("program", [BIAS, BIAS_GELU, BIAS_RELU])
def test_bias_and_activation(tiles, program):
    rng = np.random.default_rng(0)
    (name,) = check([normal(rng, 36, 20), normal(rng, 20, 40), normal(rng, 40)], program)
    assert name.startswith("matmul_float32_32x32_d4w4_")


def test_a_residual_at_ragged_edges_and_in_any_order_of_threads(tiles):
    rng = np.random.default_rng(1)
    arrays = [normal(rng, 35, 19), normal(rng, 19, 33), normal(rng, 33), normal(rng, 35, 33)]
    assert len(check(arrays, RESIDUAL, seed=None)) == len(check(arrays, RESIDUAL, seed=2)) == 1


def test_batches_columns_and_numbers(tiles):
    """A bias of rows, an array of some batches, a number between them: every layout of what is read besides."""
    rng = np.random.default_rng(2)
    arrays = [
        normal(rng, 2, 3, 9, 12),
        normal(rng, 2, 1, 12, 10),
        normal(rng, 9, 1),
        np.float32(0.5),
        normal(rng, 3, 1, 10),
    ]
    body = (("add", (0, 1)), ("mul", (4, 2)), ("add", (5, 3)))
    assert len(check([arrays[0], arrays[1], *map(np.asarray, arrays[2:])], (body, (6,)))) == 1


def test_batches_that_share_a_weight_are_rows_of_one_product(tiles):
    rng = np.random.default_rng(3)
    with runtime.use(SimulatedDriver()) as device:
        from minigrad.kernels.cuda.products import described

        x, w, c, bias, rest = (
            device.empty(s, np.float32) for s in ((4, 9, 12), (12, 10), (4, 9, 10), (10,), (4, 9, 10))
        )
        problem, (of_bias, of_rest) = described(x, w, c, [bias, rest])
        assert (problem.m, problem.batches) == (36, 1)
        assert (of_bias.row, of_bias.column, of_rest.row) == (0, 1, 10)
    check([normal(rng, 4, 9, 12), normal(rng, 12, 10), normal(rng, 10), normal(rng, 4, 9, 10)], RESIDUAL)


def test_a_product_that_is_reshaped(tiles):
    """The rows of a batch are one matrix, and the layer's other arrays have the batch's shape."""
    rng = np.random.default_rng(7)
    arrays = [normal(rng, 36, 12), normal(rng, 12, 10), normal(rng, 1, 1, 10), normal(rng, 4, 9, 10)]
    assert len(check(arrays, RESIDUAL, shape=(4, 9, 10))) == 1


def test_an_infinite_input_goes_through_the_steps_as_in_float32(tiles):
    rng = np.random.default_rng(4)
    arrays = [normal(rng, 20, 20), normal(rng, 20, 20), normal(rng, 20)]
    arrays[0][3, 5] = np.inf
    check(arrays, BIAS_RELU)


def test_what_tiles_do_not_compute_is_stepped_through_afterwards():
    rng = np.random.default_rng(5)
    names = check([normal(rng, 2, 64), normal(rng, 64, 48), normal(rng, 48)], BIAS_GELU)  # few rows
    assert [name.split("_")[0] for name in names] == ["matvec", "fused"]
    names = check([normal(rng, 9, 0), normal(rng, 0, 10), normal(rng, 10)], BIAS)
    assert names[-1].startswith("fused")


# --- the pass ---------------------------------------------------------------------------------------


def test_plans_fuse_the_layers_of_a_step(monkeypatch):
    """Bias, activation, residual of a feed-forward net are computed with its products, forward and backward."""
    monkeypatch.setattr(epilogue, "route", lambda _: "tiled")
    monkeypatch.setattr(epilogue, "choose", lambda *_: (TINY, 1))
    rng = np.random.default_rng(6)
    values = [normal(rng, *shape) for shape in ((2, 5, 8), (12, 8), (12,), (8, 12), (8,))]

    def prepared(device):
        tensors = [mg.tensor(value, device=device, requires_grad=True) for value in values]

        def step():
            x, w1, b1, w2, b2 = tensors
            y = x + F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)
            (y * y).sum().backward()
            return y

        return step, tensors

    def results(run, tensors):
        y = run()
        return [y.detach().numpy(), *(t.grad.numpy() for t in tensors)]

    with runtime.use(SimulatedDriver()), kernels.use("always"):
        step, tensors = prepared("cuda")
        run = compile(step)
        found = results(run, tensors)
        ((plan, _),) = run.plans.values()
        bodies = [node.attrs["body"] for node in plan.graph.nodes if node.op == "fused_matmul"]
        assert [[name for name, _ in body[:2]] for body in bodies] == [
            ["add", "gelu"],
            ["add", "add"],
            ["mul"],
            ["add"],
        ]
        assert not plan.runtime.host_ops
    for value, wanted in zip(found, results(*prepared("cpu")), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=1e-5)


def test_a_product_that_others_read_stays_apart():
    x = mg.tensor(np.ones((40, 40), np.float32))

    def step(x):
        product = x @ x
        return product + 1, product

    run = compile(step)
    run(x)
    ((_, stages),) = run.plans.values()
    assert not [node for node in fuse_epilogues(stages[-1][1]).nodes if node.op == "fused_matmul"]


# --- compiled ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiling", "layout", "program"),
    [
        pytest.param(LARGE, (True, True, True, True), BIAS_GELU, id="large-gelu"),
        *(
            pytest.param(tiling, layout, program, marks=pytest.mark.deep)
            for tiling in (LARGE, SMALL)
            for layout in ((True,) * 4, (True, False, True, True), (True, True, True, False), (False,) * 4)
            for program in (BIAS, BIAS_GELU, BIAS_RELU, RESIDUAL)
        ),
    ],
)
def test_it_compiles_within_its_means(tiling, layout, program):
    pytest.importorskip("numba_cuda", reason="compiling kernels needs the extra [cuda]")
    from minigrad.kernels.cuda import compiler

    body, kept = program
    kernel = fused_kernel(tiling, *layout, Epilogue(body, (None,) * (2 if program is RESIDUAL else 1), kept))
    report = compiler.report(kernel, (9, 0))
    assert (report.spills, report.float64, report.calls, report.local) == (0, (), (), ())
    assert kernel.threads * max(kernel.blocks, 1) * report.registers <= 65536
