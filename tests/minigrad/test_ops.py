"""Every registered op, on its own samples: derivatives against differences, shape rules, decompositions, dtypes."""

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional
import minigrad.optim
from minigrad.ops.registry import OPS
from minigrad.study import gradcheck, gradgradcheck
from minigrad.tensor import Tensor

SAMPLES = [(name, i) for name, op in OPS.items() for i, _ in enumerate(op.samples(np.random.default_rng(0)))]


def sample(name, i):
    inputs, attrs = list(OPS[name].samples(np.random.default_rng(0)))[i]
    return OPS[name], [np.asarray(x) for x in inputs], attrs


def tensors(arrays, grad=True):
    result = []
    for array in arrays:
        tensor = Tensor(array.copy())
        if grad and array.dtype == np.float64:
            tensor.requires_grad_()
        result.append(tensor)
    return result


def differentiable_outputs(op, result):
    results = result if isinstance(result, tuple) else (result,)
    return tuple(results[: len(results) - op.aux])


def test_adding_at_places_costs_an_addition_for_each_element():
    assert OPS["scatter_add_zeros"].flops([((3, 2), np.dtype(float))], [((3, 4), np.dtype(float))]) == 6


def test_every_op_has_samples_and_a_formula():
    for op in OPS.values():
        assert op.samples is not None, f"{op.name} has no samples"
        assert op.formula, f"{op.name} has no formula"
        assert op.shape_rule is not None or op.view, f"{op.name} has no shape rule"


@pytest.mark.parametrize(("name", "i"), SAMPLES)
def test_shape_rule_agrees_with_the_reference(name, i):
    op, arrays, attrs = sample(name, i)
    if op.view or any(a.dtype == bool and op.name in ("take", "put_add") for a in arrays):
        pytest.skip("views run for real; a boolean index has no shape before its values are known")
    outputs = op.evaluate(arrays, attrs)
    metas = op.output_metas([(a.shape, a.dtype) for a in arrays], attrs)
    assert [(o.shape, o.dtype) for o in outputs] == [(tuple(s), d) for s, d in metas]


@pytest.mark.parametrize(("name", "i"), SAMPLES)
def test_gradient(name, i):
    op, arrays, attrs = sample(name, i)
    if not op.differentiable or not op.has_vjp:
        pytest.skip("not differentiable")
    if op.name == "cast":
        pytest.skip("a cast rounds")
    inputs = tensors(arrays)

    def function(*given):
        return differentiable_outputs(op, op(*given, **attrs))

    if op.name == "rope":  # its tables are constants
        for table in inputs[1:]:
            table.needs_grad = False
    if op.name.endswith("_grad") and op.decomposition is not None:
        # the saved statistics are functions of the other inputs: only those count
        names = op.inputs
        for tensor, label in zip(inputs, names, strict=False):
            if label in ("average", "rstd", "log_probs", "weights", "result", "lse"):
                tensor.needs_grad = False
    gradcheck(function, inputs) if not op.name.endswith("_grad") or "softmax" in op.name else None
    if op.name in ("relu", "abs", "maximum", "minimum", "leaky_relu", "floor", "ceil", "round", "amax", "amin"):
        return
    if not op.name.endswith("_grad"):
        gradgradcheck(function, inputs)


@pytest.mark.parametrize(("name", "i"), [(n, i) for n, i in SAMPLES if OPS[n].decomposition is not None])
def test_decomposition_agrees(name, i):
    op, arrays, attrs = sample(name, i)
    if op.reference is None:
        pytest.skip("defined by its decomposition")
    if arrays[0].size == 0 and op.name in ("softmax", "log_softmax"):
        pytest.skip("the decomposition takes a maximum over nothing")
    expected = op.evaluate(arrays, attrs)
    with mg.no_grad():
        result = op.decomposition(*tensors(arrays, grad=False), **attrs)
    results = result if isinstance(result, tuple) else (result,)
    for got, want in zip(results, expected, strict=False):
        np.testing.assert_allclose(got.array, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "i"), SAMPLES)
def test_float32_stays_float32(name, i):
    op, arrays, attrs = sample(name, i)
    arrays = [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]
    if op.name == "cast":
        pytest.skip("a cast changes the dtype")
    for output in op.evaluate(arrays, attrs):
        assert output.dtype != np.float64


@pytest.mark.parametrize("name", ["scatter", "scatter_add"])
def test_of_a_source_larger_than_its_index_a_corner_is_taken(name):
    rng = np.random.default_rng(0)
    x, source = (mg.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((2, 3), (3, 2)))
    index = mg.tensor([[2], [0]])

    def moved(x, source):
        return getattr(x, name)(1, index, source)

    np.testing.assert_array_equal(moved(x, source).detach(), moved(x, source[:2, :1]).detach())
    assert gradcheck(moved, [x, source])
