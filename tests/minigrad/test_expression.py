"""An elementwise op's reference, written down: what it may be, how it reads, and what kernels are made of it."""

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad.compiler.fusion import step_lines
from minigrad.kernels.cuda import runtime, words
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.elementwise import elementwise
from minigrad.ops.expression import Symbol, Value, shown, written
from minigrad.ops.registry import OPS, op


def tree(function, *names):
    return written("an_op", function, names, ())


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda a, b: (a + b) * a - b / (a - b), "(a + b) * a - b / (a - b)"),
        (lambda a, b: a - (b - 1.5), "a - (b - 1.5)"),
        (lambda a, b: a / (b * b) / a, "a / b**2 / a"),
        (lambda a, b: -a * -a * b, "(-a)**2 * b"),
        (lambda a, b: (-a) ** b, "(-a) ** b"),
        (lambda a, b: np.where(a > 0, a, -2.0 * abs(b)), "where(a > 0, a, -2 * abs(b))"),
        (lambda a, b: (a > b) & (b <= 1), "(a > b) & (b <= 1)"),
        (lambda a, b: np.square(a + b), "(a + b)**2"),
    ],
)
def test_a_tree_reads_as_the_function_that_it_is_of(function, text):
    names = ("a", "b")
    assert shown(tree(function, *names), names) == text
    values = {"a": np.array([0.5, -1.5, 3.0]), "b": np.array([1.5, 2.0, -0.5]), "where": np.where}
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(eval(text, values), function(values["a"], values["b"]))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x if x > 0 else 0 * x, "branches on a value: choose with np.where"),
        (lambda x: x.astype(np.float32), "no attribute 'astype'"),
        (lambda x: np.sum(x), "Symbol"),
        (lambda x: np.add.reduce(x), "Symbol"),
        (lambda x: 3.0, "returns a float"),
    ],
)
def test_what_is_no_expression_is_refused_where_it_is_declared(function, why):
    with pytest.raises(TypeError, match=f"op 'refused': its reference is no expression of single elements.*{why}"):
        op("refused", function, elementwise=True)
    assert "refused" not in OPS


def test_a_name_can_be_declared_once():
    before = mg.exp
    with pytest.raises(ValueError, match="op 'exp' is declared twice"):
        elementwise("exp", lambda x: np.exp(x), lambda g, out: g * out)
    assert mg.exp is before is mg.Tensor.exp


def test_an_op_is_fused_only_where_its_words_are_known():
    x = Value("x", "float32")
    assert step_lines("gelu", [x], "y") is not None
    assert step_lines("sin", [x], "y") is None
    assert step_lines("add", [x, Value("m", "bool")], "y") is None
    assert step_lines("bitwise_and", [Value("m", "bool")] * 2, "y") == (["y = m and m"], "bool")
    assert words.serve(OPS["sin"], "float16")
    assert not words.serve(OPS["sin"], "int64")
    assert not words.serve(OPS["neg"], "bool")


def test_names_of_ops_are_found_where_they_ask_to_be():
    import minigrad.torch as torch
    from minigrad.ops.registry import NAMES

    for name, function in NAMES["mg"].items():
        assert getattr(mg, name) is getattr(mg.Tensor, name) is getattr(torch, name) is function
    for name in NAMES["functional"]:
        assert callable(getattr(F, name))
        assert callable(getattr(torch.nn.functional, name))
    assert {"exp", "tanh"} <= set(NAMES["mg"])
    assert {"softplus", "silu"} <= set(NAMES["functional"])


def test_a_word_without_a_function_of_numpy_stays_a_word():
    assert tree(lambda x: Symbol("bernoulli", (x, 2)), "x").word == "bernoulli"


def test_log1p_and_softplus_in_a_fused_kernel():
    special = [0.0, -0.0, np.inf, -1.0, np.nan, 1e-30, -1e-30, 1e-7, 3e38, -0.99999994]
    rng = np.random.default_rng(0)
    x = np.concatenate([special, rng.standard_normal(3000), 10.0 ** rng.uniform(-30, 30, 3000)]).astype(np.float32)
    with np.errstate(all="ignore"):
        right, soft = np.log1p(x.astype(np.float64)), np.logaddexp(0, x.astype(np.float64))
    found = mg.compile(lambda x: x.log1p() * 1.0)(mg.tensor(x)).numpy()
    np.testing.assert_allclose(found, right, rtol=3e-7, atol=0)
    found = mg.compile(lambda x: F.softplus(x) * 1.0)(mg.tensor(x)).numpy()
    np.testing.assert_allclose(found, soft, rtol=4e-7, atol=1e-37)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_attributes_are_numbers_of_fused_kernels(device):
    values = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)

    def step(x):
        y = (F.leaky_relu(x, 0.25) * 2 + F.leaky_relu(-x, 0.5)).sum()
        return y, *mg.grad(y, [x])

    wanted = [found.detach().numpy() for found in step(mg.tensor(values, requires_grad=True))]
    with runtime.use(SimulatedDriver(0)):
        compiled = mg.compile(step)
        for _ in range(2):
            results = compiled(mg.tensor(values, device=device, requires_grad=True))
        for found, right in zip(results, wanted, strict=True):
            np.testing.assert_allclose(found.detach().numpy(), right, rtol=1e-5)
        ((plan, _),) = compiled.plans.values()
    steps = [name for node in plan.graph.nodes for name, _ in node.attrs.get("body", ())]
    assert steps.count("leaky_relu") == 2
