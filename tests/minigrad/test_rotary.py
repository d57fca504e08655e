"""Rotary positions: the kernel against turns written in complex numbers, for every layout, forward and backward."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import kernels
from minigrad.compiler import compile
from minigrad.ops.registry import OPS
from minigrad.ops.rotary import rope
from minigrad.study import gradcheck


def turned(x, angles, interleaved):
    """x with its pairs as complex numbers times e^(i angle), float64."""
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    z = (a + 1j * b) * np.exp(1j * angles)
    if interleaved:
        return np.stack([z.real, z.imag], -1).reshape(x.shape)
    return np.concatenate([z.real, z.imag], -1)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    lead=st.lists(st.integers(1, 4), max_size=2),
    length=st.integers(1, 40),
    half=st.integers(1, 40),
    interleaved=st.booleans(),
    back=st.booleans(),
    layout=st.sampled_from(["C", "heads inside", "strided"]),
    seed=st.integers(0, 99),
)
def test_the_kernel_turns_pairs(lead, length, half, interleaved, back, layout, seed):
    rng = np.random.default_rng(seed)
    shape = (*lead, length, 2 * half)

    x = rng.standard_normal(shape).astype(np.float32)
    out = np.full(shape, 7, np.float32)
    if layout == "heads inside" and len(lead) > 1:
        x, out = (np.ascontiguousarray(np.swapaxes(array, -3, -2)).swapaxes(-3, -2) for array in (x, out))
    elif layout == "strided":
        x, out = (np.repeat(array, 2, axis=-1)[..., ::2] for array in (x, out))
    angles = rng.standard_normal((length, half))
    tables = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    calls = kernels.bind(OPS["rope"], [x, *tables], [out], {"interleaved": interleaved, "back": back})
    assert calls is not None, "the kernel declined"
    calls.run()
    np.testing.assert_allclose(out, turned(x.astype(np.float64), -angles if back else angles, interleaved), atol=1e-5)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("mode", ["reference", "always"])
def test_gradients_are_turned_back(interleaved, mode):
    rng = np.random.default_rng(1)
    x, g, angles = rng.standard_normal((2, 3, 5, 8)), rng.standard_normal((2, 3, 5, 8)), rng.standard_normal((5, 4))
    tables = [mg.tensor(table.astype(np.float32)) for table in (np.cos(angles), np.sin(angles))]
    given = mg.tensor(x.astype(np.float32), requires_grad=True)
    with kernels.use(mode):
        rope(given, *tables, interleaved).backward(mg.tensor(g.astype(np.float32)))
    np.testing.assert_allclose(given.grad.numpy(), turned(g, -angles, interleaved), atol=1e-5)


def test_tables_that_are_learned_get_their_gradients():
    rng = np.random.default_rng(0)
    inputs = [mg.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((2, 4, 6), (4, 3), (4, 3))]
    gradcheck(lambda *given: rope(*given, interleaved=True), inputs)


def test_a_compiled_step_turns_heads_where_they_lie():
    """Queries and keys come from a projection and go to attention without a copy."""
    from transformer import GroupedQueryAttention, RoPE

    layer = GroupedQueryAttention(64, 4, 2, rope=RoPE(16))

    def step(x):
        y = layer(x, mg.ones(33, 33, dtype=mg.bool).tril())
        y.square().sum().backward()
        return y

    x = mg.randn(2, 33, 64)
    compiled = compile(step)
    expected = step(x).detach().numpy()
    gradients = {name: parameter.grad.numpy().copy() for name, parameter in layer.named_parameters()}
    for _ in range(2):
        for parameter in layer.parameters():
            parameter.grad = None
        np.testing.assert_allclose(compiled(x).detach().numpy(), expected, atol=1e-5)
        for name, parameter in layer.named_parameters():
            np.testing.assert_allclose(parameter.grad.numpy(), gradients[name], rtol=1e-4, atol=1e-4)
    plan, _ = next(iter(compiled.plans.values()))
    assert sum(node.op == "rope" for node in plan.graph.nodes) == 4
    copies = [arguments for function, arguments in plan.calls if function is np.copyto]
    assert not [a for a in copies if a[0].ndim == 4 and a[0].dtype == np.float32], "a head was copied"
