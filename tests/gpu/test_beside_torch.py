"""Ops at real sizes on the GPU: values and gradients equal to torch's on the same GPU, the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad import optim

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a build of torch with CUDA")


def both(*shapes, dtype="float32", grad=True):
    """The same normal numbers as tensors of minigrad and of torch, on the GPU."""
    rng = np.random.default_rng(len(shapes) + sum(map(sum, shapes)))
    ours, theirs = [], []
    for shape in shapes:
        value = rng.standard_normal(shape).astype(np.float32)
        ours.append(mg.tensor(value, device="cuda").to(getattr(mg, dtype)).requires_grad_(grad))
        theirs.append(torch.tensor(value, device="cuda").to(getattr(torch, dtype)).requires_grad_(grad))
    return ours, theirs


def on_host(x):
    return x.detach().float().cpu().numpy()


def agree(function, their_function, ours, theirs, rtol):
    """Values and gradients, relative to the largest element; and again, bit for bit."""
    results = []
    for _ in range(2):
        out = function(*ours)
        results.append([out, *mg.grad(out.float().square().sum(), ours)])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(on_host(first), on_host(second))
    expected = their_function(*theirs)
    expected = [expected, *torch.autograd.grad(expected.float().square().sum(), theirs)]
    for found, wanted in zip(results[0], expected, strict=True):
        wanted = on_host(wanted)
        np.testing.assert_allclose(on_host(found), wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


@pytest.mark.parametrize(("m", "k", "n"), [(1024, 1024, 1024), (1000, 517, 333), (4096, 64, 129), (1, 2048, 768)])
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-5), ("bfloat16", 2e-2), ("float16", 4e-3)])
def test_matmul(m, k, n, dtype, rtol):
    ours, theirs = both((m, k), (k, n), dtype=dtype)
    agree(lambda a, b: a @ b, lambda a, b: a @ b, ours, theirs, rtol)


def test_batched_and_transposed_matmul():
    ours, theirs = both((6, 5, 130, 70), (6, 5, 90, 70))
    agree(lambda a, b: a @ b.mT, lambda a, b: a @ b.mT, ours, theirs, 2e-5)


FUNCTIONS = {
    "softmax": (lambda f, x: f.softmax(x, -1), (4096, 1000)),
    "log_softmax": (lambda f, x: f.log_softmax(x, -1), (512, 50257)),
    "gelu": (lambda f, x: f.gelu(x), (1 << 22,)),
    "sum": (lambda f, x: x.sum(1), (512, 4097)),
    "sum over rows": (lambda f, x: x.sum(0), (4097, 512)),
    "broadcasting": (lambda f, x: x * x[:, :1] + x[:1], (2049, 777)),
    "permuted": (lambda f, x: x.permute(2, 0, 1).reshape(300, -1) * 2, (64, 31, 300)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, shape = FUNCTIONS[name]
    ours, theirs = both(shape)
    agree(lambda x: function(F, x), lambda x: function(torch.nn.functional, x), ours, theirs, 3e-5)


@pytest.mark.parametrize("d", [64, 768, 4096, 5001])
def test_norms(d):
    ours, theirs = both((2048, d), (d,), (d,))
    agree(
        lambda x, w, b: F.layer_norm(x, (d,), w, b), lambda x, w, b: torch.nn.functional.layer_norm(x, (d,), w, b),
        ours, theirs, 5e-5,
    )  # fmt: skip
    agree(
        lambda x, w: F.rms_norm(x, w, 1e-6), lambda x, w: torch.nn.functional.rms_norm(x, (d,), w, 1e-6),
        ours[:2], theirs[:2], 5e-5,
    )  # fmt: skip


@pytest.mark.parametrize("head", [32, 64, 128])
@pytest.mark.parametrize(
    ("queries", "keys", "options"),
    [(515, 515, {}), (515, 515, {"is_causal": True}), (1, 515, {}), (9, 515, {})],
    ids=["all", "causal", "decoding", "few queries"],
)
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-4), ("bfloat16", 4e-2), ("float16", 1e-2)])
def test_attention(head, queries, keys, options, dtype, rtol):
    ours, theirs = both((2, 8, queries, head), (2, 8, keys, head), (2, 8, keys, head), dtype=dtype)
    agree(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options),
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, **options),
        ours, theirs, rtol,
    )  # fmt: skip


def test_attention_of_shared_heads():
    ours, theirs = both((2, 8, 300, 64), (2, 2, 300, 64), (2, 2, 300, 64))
    agree(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        ours, theirs, 1e-4,
    )  # fmt: skip


def test_embedding_and_cross_entropy():
    ids = np.random.default_rng(0).integers(0, 50257, 2048)
    (w,), (tw,) = both((50257, 128))
    mine, other = mg.tensor(ids, device="cuda"), torch.tensor(ids, device="cuda")
    agree(lambda w: F.embedding(mine, w), lambda w: torch.nn.functional.embedding(other, w), [w], [tw], 1e-5)
    (x,), (tx,) = both((2048, 50257))
    agree(
        lambda x: F.cross_entropy(x, mine, label_smoothing=0.1),
        lambda x: torch.nn.functional.cross_entropy(x, other, label_smoothing=0.1),
        [x], [tx], 1e-5,
    )  # fmt: skip


def test_adam():
    """Ten steps, far apart in size: the first ones correct their means most."""
    shapes = ((1000, 333), (333,))
    (w, b), (tw, tb) = both(*shapes)
    mine = optim.AdamW([w, b], lr=0.01, weight_decay=0.1)
    other = torch.optim.AdamW([tw, tb], lr=0.01, weight_decay=0.1)
    for step in range(10):
        gradients, their_gradients = both(*((1, *shape) for shape in shapes), grad=False)
        for x, g in zip((w, b), gradients, strict=True):
            x.grad = g[0] * 10.0 ** (step - 5)
        for x, g in zip((tw, tb), their_gradients, strict=True):
            x.grad = g[0] * 10.0 ** (step - 5)
        mine.step()
        other.step()
    for found, wanted in zip((w, b), (tw, tb), strict=True):
        np.testing.assert_allclose(on_host(found), on_host(wanted), rtol=1e-5, atol=1e-6)
