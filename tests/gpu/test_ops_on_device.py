"""Ops on the GPU, at real sizes: equal to the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
import minigrad.optim  # it registers an op
from minigrad import kernels
from minigrad.compiler import compile
from minigrad.ops.flash import flash_attention
from minigrad.ops.registry import OPS


def on_host(x):
    return x.detach().float().cpu().numpy()


@pytest.mark.parametrize(
    "name", sorted({name for name, op in OPS.items() if kernels.specs(op, "cuda")} - {"random_uniform"})
)
def test_every_kernel_on_its_ops_samples(gpu, name):
    op = OPS[name]
    for arrays, attrs in op.samples(np.random.default_rng(0)):
        inputs = [np.asarray(a, np.float32) if np.asarray(a).dtype.kind == "f" else np.asarray(a) for a in arrays]
        found = [value.numpy() for value in kernels.run(op, [gpu.upload(x) for x in inputs], attrs)]
        for value, wanted in zip(found, op.evaluate(inputs, attrs), strict=True):
            np.testing.assert_allclose(value, wanted, rtol=3e-5, atol=3e-6)


def test_dropout_is_the_cpus():
    mg.manual_seed(3)
    here = F.dropout(mg.ones(1 << 20), 0.3)
    mg.manual_seed(3)
    np.testing.assert_array_equal(F.dropout(mg.ones(1 << 20, device="cuda"), 0.3).numpy(), here.numpy())


ATTENTION = {
    "window": {"causal": True, "window": 100},
    "slopes": {"causal": True, "slopes": tuple(2.0**-i for i in range(1, 9))},
    "dropout": {"causal": True, "dropout": 0.25},
    "all of it": {"window": 300, "slopes": (0.125,) * 8, "dropout": 0.1},
}


def check_attention(options, device, tokens, head):
    """`flash_attention` there is the CPU's, forward and backward: dropout drops the same weights."""
    rng = np.random.default_rng(5)
    values = [rng.standard_normal((2, heads, tokens, head)).astype(np.float32) for heads in (8, 2, 2)]
    results = []
    for where in ("cpu", device):
        inputs = [mg.tensor(value, device=where, requires_grad=True) for value in values]
        out = flash_attention(*inputs, generator=mg.Generator(7), **options)
        results.append([on_host(x) for x in (out, *mg.grad((out * out).sum(), inputs))])
    for found, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("head", [32, 64, 128])
def test_attention_with_a_window_slopes_and_dropout(name, head):
    check_attention(ATTENTION[name], "cuda", 515, head)


def check_products_of_infinities(device, n):
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    a[1, 2], a[3, 4], a[5, 6], b[7, 8] = np.inf, np.nan, np.finfo(np.float32).max, -np.inf
    found = (mg.tensor(a, device=device) @ mg.tensor(b, device=device)).numpy()
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = (a.astype(np.float64) @ b).astype(np.float32)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    ordinary = finite & (np.abs(wanted) < 1e30)  # beside the largest float, its own error is what counts
    terms = np.abs(np.nan_to_num(a, posinf=0.0)).astype(np.float64) @ np.abs(np.nan_to_num(b, neginf=0.0))
    assert (np.abs(found - wanted)[ordinary] <= n * 2.0**-24 * terms[ordinary]).all()
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-3, atol=1e-3)


def test_products_of_infinities_are_those_of_float32():
    check_products_of_infinities("cuda", 640)


def check_layers(device, rows, width):
    """Products with bias, activation and residual, compiled, learn as op by op on the CPU."""
    rng = np.random.default_rng(8)
    shapes = ((4, rows, width), (4 * width, width), (4 * width,), (width, 4 * width), (width,))
    values = [rng.standard_normal(shape).astype(np.float32) / shape[-1] ** 0.5 for shape in shapes]

    def results(where, build):
        x, w1, b1, w2, b2 = tensors = [mg.tensor(value, device=where, requires_grad=True) for value in values]

        def step():
            for tensor in tensors:
                tensor.grad = None
            y = x + F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)
            (y * y).sum().backward()
            return y

        run = build(step)
        for _ in range(3):
            y = run()
        return [on_host(value) for value in (y, *(tensor.grad for tensor in tensors))]

    for found, wanted in zip(results(device, compile), results("cpu", lambda step: step), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_layers_of_a_compiled_step():
    check_layers("cuda", 300, 192)
