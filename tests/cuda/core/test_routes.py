"""Every op of the registry is computed on the device, or is one of a short list that the host computes on purpose."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.compiler
import minigrad.functional as F
import minigrad.optim
from minigrad import kernels
from minigrad.nn.utils import clip_grad_norm_
from minigrad.ops.registry import OPS

DATA = {"where": "bool", "random_uniform": "int64", "within": "int64",
        "bitwise_and": "bool", "bitwise_or": "bool", "bitwise_xor": "bool",
        "bitwise_not": "bool"}  # fmt: skip  # ops whose first input is not float32


def has_a_route(op):
    kernel = kernels.spec(op, "cuda", DATA.get(op.name, "float32")) is not None
    return kernel or op.view or bool(op.on_host) or op.name == "to_device"


@pytest.mark.parametrize("name", sorted(op.name for op in OPS.values() if op.reference is not None))
def test_every_op_has_a_route(name):
    assert has_a_route(OPS[name]), f"{name} has no kernel for CUDA, and does not say why (on_host)"


def test_what_is_on_the_host_has_no_kernel():
    on_host = [op for op in OPS.values() if op.on_host]
    assert on_host
    for op in on_host:
        assert len(op.on_host) > 20
        assert not kernels.specs(op, "cuda")


def test_an_op_on_the_host_is_right_and_counted(cuda):
    x = mg.tensor([3.0, 1.0, 2.0], device="cuda")
    assert x.argsort().tolist() == [1, 2, 0]
    assert cuda.host_ops == {"argsort": 1}
    values, order = x.topk(2)
    assert (values.tolist(), order.tolist()) == ([3.0, 2.0], [0, 2])
    assert x[x > 1.5].tolist() == [3.0, 2.0]  # its shape depends on values
    assert cuda.host_ops == {"argsort": 2, "take": 1}


def test_the_loss_of_no_rows_is_the_hosts(cuda):
    x, weight = mg.zeros(0, 4, device="cuda"), mg.ones(5, 4, device="cuda", requires_grad=True)
    loss = F.linear_cross_entropy(x, weight, mg.zeros(0, device="cuda").long(), reduction="sum")
    loss.backward()
    assert loss.item() == 0
    assert weight.grad.tolist() == [[0.0] * 4] * 5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [mg.bfloat16, mg.float16])
def test_training_in_halves_asks_nothing_of_the_host(cuda, dtype):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8,), (5, 8))]

    def trained(device):
        weight, scale, x = (mg.tensor(value).to(dtype).to(device).requires_grad_() for value in values)
        optimizer = minigrad.optim.AdamW([weight, scale], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            rows = F.gelu(F.rms_norm(x, scale)).softmax(-1) + x
            F.linear_cross_entropy(rows, weight, mg.tensor([0, 1, 5, 2, 2], device=device)).backward()
            clip_grad_norm_([weight, scale], 1.0)
            optimizer.step()
        return [parameter.detach().cpu().float().numpy() for parameter in (weight, scale)]

    for found, wanted in zip(trained("cuda"), trained("cpu"), strict=True):
        np.testing.assert_allclose(found, wanted, atol=0.03)
    assert cuda.host_ops == {}


def test_a_dtype_without_a_kernel_is_computed_on_the_host(cuda):
    x = mg.tensor(np.array([[1.0, 2.0]]), device="cuda")
    np.testing.assert_allclose(x.softmax(-1).numpy(), x.cpu().softmax(-1).numpy(), rtol=1e-12)
    assert cuda.host_ops == {"softmax": 1}
