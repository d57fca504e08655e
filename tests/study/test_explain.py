"""explain: for every registered op the derivation's last line equals the engine's rule and the numeric gradient."""

from dataclasses import replace

import numpy as np
import pytest

import minigrad as mg
import minigrad.compiler
import minigrad.optim
from minigrad.cli import main
from minigrad.ops.registry import OPS
from minigrad.study import explain
from minigrad.study.derivations import derivation_of
from minigrad.study.explain import work

BUILT_IN = [name for name, op in OPS.items() if list(op.samples(np.random.default_rng(0)))]  # not users' composites


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_last_line_equals_the_rule_and_the_numeric_gradient(name):
    op, derivation = OPS[name], derivation_of(OPS[name])
    worked = work(op)
    assert worked is not None
    if not op.differentiable:
        assert not derivation.results
        inputs = [mg.tensor(a, requires_grad=a.dtype == np.float64) for a in worked.arrays]
        results = op(*inputs, **worked.attrs)
        assert not any(r.requires_grad for r in (results if isinstance(results, tuple) else (results,)))
        return
    rules = dict(zip(op.inputs, op.rules, strict=False))
    for label in op.inputs:  # no input with a rule is left out
        assert label in derivation.results or not rules or rules[label] is None, f"{name}: no derivation for {label}"
    assert worked.derived
    assert worked.error() < 1e-7, name


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_op_is_explained(name):
    text = explain(name)
    for part in ("formula", "derivative", "saved for the backward pass", "cost", "runs as", "example"):
        assert f"\n{part}\n" in text
    assert ("agree to" in text) == OPS[name].differentiable


def test_a_derivation_begins_with_its_reason():
    text = explain("round")
    assert text.index("constant between its jumps") < text.index("the jumps go unseen")


@pytest.mark.parametrize(
    ("name", "wrong"), [("mul", "g * a"), ("softmax", "y * g"), ("layer_norm", "r * (s - mean(s))"), ("sum", "0 * x")]
)
def test_a_wrong_last_line_is_seen(name, wrong, monkeypatch):
    right = derivation_of(OPS[name])
    first = next(iter(right.results))
    results = {**right.results, first: wrong}
    monkeypatch.setattr(OPS[name], "derivation", replace(right, results=results))
    assert work(OPS[name]).error() > 1e-3


def test_a_users_composite_is_explained_by_its_decomposition():
    @mg.composite
    def cube_for_explain(x):
        return x * x * x

    cube_for_explain(mg.ones(2))
    text = explain("cube_for_explain")
    assert "decomposition" in text
    assert "all inputs" in text


def test_what_is_saved_is_what_the_engine_saves():
    assert "nothing" in _saved("add")
    assert "the output: ∂L/∂x reads it" in _saved("exp")
    assert "b: ∂L/∂a reads it" in _saved("mul")
    assert "a: ∂L/∂b reads it" in _saved("mul")
    assert "x:" not in _saved("softmax")


def _saved(name):
    return explain(name, notation=True).split("saved for the backward pass\n")[1].split("\n\n")[0]


def test_kernels_are_named():
    assert "minigrad.kernels.numba.softmax" in explain("softmax")
    assert "kernel on cpu" not in explain("sin")
    assert "minigrad/ops/elementwise.py:" in explain("sin")


def test_an_unknown_op_gets_near_names():
    with pytest.raises(ValueError, match=r"there is no op 'sofmax', and no function .*: did you mean softmax"):
        explain("sofmax")


def test_command(capsys):
    assert main(["explain", "softmax", "mul"]) == 0
    out = capsys.readouterr().out
    assert "∂L/∂x = y · (g − Σ(g · y, dim))" in out
    assert "∂L/∂a = g · b" in out
    assert main(["explain"]) == 0
    assert "softmax " in capsys.readouterr().out
    assert main(["explain", "mean", "conv2d"]) == 2
    told = capsys.readouterr()
    assert "made of\n  sum, div" in told.out
    assert "there is no op 'conv2d', and no function of that name" in told.err
    assert "did you mean" not in told.err


# --- tensors ------------------------------------------------------------------------------------------


def test_a_tensor_who_made_it_who_reads_it_and_each_path():
    x = mg.tensor([1.0, 2.0], dtype=mg.float64, requires_grad=True)
    h = x.tanh()
    loss = (h * h + 3 * h).sum()
    text = explain(h, of=loss)
    assert "made by tanh" in text
    assert "test_explain.py" in text
    assert "read by 3 ops" in text
    assert "path by path (3)" in text
    parts = [_numbers(line) for line in text.split("path by path (3):\n")[1].splitlines()]
    (gradient,) = mg.grad(loss, [h])
    np.testing.assert_allclose(sum(parts), gradient.numpy(), rtol=1e-3)


def _numbers(line):
    return np.array([float(word) for word in line.rsplit("[", 1)[1].rstrip("]").split()])


def test_the_loss_is_found_without_being_named():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    assert "gradient of loss = sum: [2. 4.]" in explain(x)
    assert "it is the loss itself" in explain(loss)


def test_tensors_without_a_gradient_to_show():
    assert "requires no gradient" in explain(mg.ones(2))
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    other = mg.tensor([1.0], requires_grad=True)
    assert "does not depend on it" in explain(other, of=loss)
    loss.backward()
    assert "freed by an earlier backward pass" in explain(x, of=loss)
    assert x.grad is not None


def test_explaining_leaves_gradients_alone():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    explain(x, of=loss)
    assert x.grad is None
    loss.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("mean", "sum, div"),
        ("linear", "permute, matmul, add"),
        ("transpose", "permute"),
        ("scaled_dot_product_attention", "flash_attention"),
        ("masked_fill", "where"),
    ],
)
def test_a_function_that_is_no_op_is_told_by_what_it_is_made_of(name, ops):
    text = explain(name)
    assert text.startswith(f"{name}(")
    assert f"made of\n  {ops}\n" in text
    assert "minigrad:" not in text


@pytest.mark.parametrize("name", ["conv2d", "Tensor", "add_", "__add__", "no_grad", "zeros", "numpy"])
def test_what_leaves_no_program_is_refused(name):
    with pytest.raises(ValueError, match=f"there is no op {name!r}, and no function"):
        explain(name)
