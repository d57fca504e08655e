"""Checks of the autograd engine: the chain rule, accumulation, broadcasting, and the gradient of every op."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import of_those_provided
from conformance.differences import ERROR
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.programs import Program, evaluate, free_names, gradients, step
from conformance.reference import engine as f

Array = np.ndarray


def gradients_agree(
    impl: Any,
    program: Program,
    inputs: Mapping[str, Array],
    cotangent: Array | float = 1.0,
    expected: Mapping[str, Array] | None = None,
) -> Evidence:
    """The engine's gradients against `expected`, by default central differences of the program's numpy value."""
    subject = impl.build("autograd", {"program": program})
    seed = np.broadcast_to(np.asarray(cotangent, np.float64), evaluate(program, inputs).shape)
    got, _ = subject.vjp(inputs, seed)
    wanted = gradients(program, inputs, seed) if expected is None else expected
    size = sum(np.size(value) for value in inputs.values())
    parts = []
    for name, want in wanted.items():
        scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
        bound = tolerance(subject.dtype, size, scale, safety=64) + (ERROR * scale if expected is None else 0.0)
        parts.append(close(f"gradient of {name}", got[name], want, bound, "rounding, and the step of the differences"))
    return all_of(*parts)


def value_agrees(impl: Any, program: Program, inputs: Mapping[str, Array]) -> Evidence:
    """The engine's output against the program's numpy value."""
    subject = impl.build("autograd", {"program": program})
    want = evaluate(program, inputs)
    bound = tolerance(subject.dtype, sum(np.size(v) for v in inputs.values()), max(1.0, float(np.max(np.abs(want)))))
    return close("value", subject(**inputs)["out"], want, bound)


# --- the chain rule -----------------------------------------------------------------------------------

CHAIN = ("tanh", "sigmoid", "relu", "gelu", "silu", "exp", "neg")


@check("backpropagation-is-the-chain-rule", roles=("autograd",), needs=("autograd.vjp",))
def chain_rule(impl: Any, draw: Draw) -> Evidence:
    """The gradient through y = f3(f2(f1(w x))) is the product of the derivatives, evaluated from the back."""
    depth = draw.int("depth", 1, 5, 3)
    ops = [draw.choice(f"op{i}", CHAIN, CHAIN[i]) for i in range(depth)]
    # exp only once: differences cannot resolve exp(exp(exp(x)))
    ops = [op if op != "exp" or "exp" not in ops[:i] else "tanh" for i, op in enumerate(ops)]
    program = [step("h0", "mul", "w", "x")]
    for i, op in enumerate(ops):
        program.append(step(f"a{i}", op, f"h{i}"))
        program.append(step(f"h{i + 1}", "mul", f"a{i}", "w"))  # w in every layer
    away = np.where(draw.rng("sign").random(4) < 0.5, -1.0, 1.0)  # no kink of relu within the step of a difference
    inputs = {"x": away * draw.uniform("x", (4,), 0.3, 1.0), "w": draw.uniform("w", (4,), 0.4, 0.9)}
    return gradients_agree(impl, tuple(program), inputs, draw.normal("cotangent", (4,)))


@check("gradients-of-a-value-used-twice-add-up", roles=("autograd",), needs=("autograd.vjp",))
def reuse(impl: Any, draw: Draw) -> Evidence:
    """y = x x + x has dy/dx = 2x + 1 (7 at x = 3), and (a + b)(a - b) has 2a and -2b."""
    x, a, b = draw.float("x", -3, 3, 3.0), draw.float("a", -3, 3, 2.0), draw.float("b", -3, 3, 3.0)
    square = (step("s", "mul", "x", "x"), step("y", "add", "s", "x"))
    product = (step("p", "add", "a", "b"), step("m", "sub", "a", "b"), step("z", "mul", "p", "m"))
    return all_of(
        gradients_agree(impl, square, {"x": np.array(x)}, expected={"x": np.array(2 * x + 1)}),
        gradients_agree(
            impl,
            product,
            {"a": np.array(a), "b": np.array(b)},
            expected={"a": np.array(2 * a), "b": np.array(-2 * b)},
        ),
    )


@check("backward-waits-for-every-consumer", roles=("autograd",), needs=("autograd.vjp",))
def consumers_first(impl: Any, draw: Draw) -> Evidence:
    """A value's own rule runs once all that use it have: branches of unequal length join with the right gradient."""
    length = draw.int("branch", 1, 5, 3)
    program = [step("h", "tanh", "x"), step("b0", "mul", "h", "x")]
    program += [step(f"b{i + 1}", "sigmoid", f"b{i}") for i in range(length)]
    program += [step("j", "mul", f"b{length}", "h"), step("k", "add", "j", "b0"), step("y", "mul", "k", "h")]
    return gradients_agree(impl, tuple(program), {"x": draw.normal("x", (3,))}, draw.normal("cotangent", (3,)))


@check("gradients-of-two-losses-add", roles=("autograd",), needs=("autograd.vjp",))
def two_losses(impl: Any, draw: Draw) -> Evidence:
    """The gradient of L1 + L2 is the sum of the two gradients: l = 3w gives 3, twice gives 6."""
    program = (step("one", "mul", "c", "w"), step("two", "mul", "d", "w"), step("loss", "add", "one", "two"))
    c, d, w = draw.normal("c", ()) + 3.0, draw.normal("d", ()) + 3.0, draw.normal("w", ())
    expected = {"c": w, "d": w, "w": c + d}
    inputs = {"c": np.array(c), "d": np.array(d), "w": np.array(w)}
    return gradients_agree(impl, program, inputs, expected={k: np.array(v) for k, v in expected.items()})


@check("gradients-start-from-zero-at-each-step", roles=("autograd",), needs=("autograd.vjp",), examples=3)
def cleared(impl: Any, draw: Draw) -> Evidence:
    """Two identical backward passes from a cleared gradient give the same gradient."""
    subject = impl.build("autograd", {"program": (step("y", "tanh", "x"),)})
    inputs, cotangent = {"x": draw.normal("x", (3,))}, draw.normal("cotangent", (3,))
    first = subject.vjp(inputs, cotangent)[0]["x"].copy()
    return same("gradient of the second step", subject.vjp(inputs, cotangent)[0]["x"], first)


# --- one neuron, one matrix product -------------------------------------------------------------------

NEURON = (
    step("wx", "mul", "w", "x"),
    step("z", "add", "wx", "b"),
    step("a", "sigmoid", "z"),
    step("e", "sub", "a", "y"),
    step("square", "mul", "e", "e"),
    step("L", "mul", "half", "square"),
)


@check("gradients-of-one-sigmoid-neuron", roles=("autograd",), needs=("autograd.vjp",))
def neuron(impl: Any, draw: Draw) -> Evidence:
    """L = (sigmoid(w x + b) - y)^2 / 2 has dL/dw = (a - y) a (1 - a) x and dL/db = (a - y) a (1 - a)."""
    names = {"x": 1.5, "w": 0.8, "b": -0.2, "y": 0.0}
    values = {name: draw.float(name, -2, 2, pin) for name, pin in names.items()}
    inputs = {name: np.array(value) for name, value in {**values, "half": 0.5}.items()}
    expected = {name: np.array(value) for name, value in f.neuron_gradients(**values).items()}
    return all_of(value_agrees(impl, NEURON, inputs), gradients_agree(impl, NEURON, inputs, expected=expected))


@check("a-small-step-against-the-gradient-lowers-the-loss", roles=("autograd",), needs=("autograd.vjp",))
def downhill(impl: Any, draw: Draw) -> Evidence:
    """w - eta dL/dw lowers the loss and w + eta dL/dw raises it, whatever the gradient's sign."""
    y = draw.choice("y", (0.0, 1.0), 0.0)
    inputs = {"x": 1.5, "w": draw.float("w", -1, 1, 0.8), "b": draw.float("b", -1, 1, -0.2), "y": y, "half": 0.5}
    arrays = {name: np.array(value) for name, value in inputs.items()}
    gradient, _ = impl.build("autograd", {"program": NEURON}).vjp(arrays, np.array(1.0))

    def loss(rate: float) -> float:
        moved = {name: arrays[name] - rate * np.asarray(gradient[name], np.float64) for name in ("w", "b")}
        return float(evaluate(NEURON, {**arrays, **moved}))

    down, here, up = loss(0.1), loss(0.0), loss(-0.1)
    return true("L(w - 0.1 g) < L(w) < L(w + 0.1 g)", down < here < up, got=(down, here, up))


@check("sensitivity-of-a-weighted-sum-is-its-weights", roles=("autograd",), needs=("autograd.vjp",))
def sensitivity(impl: Any, draw: Draw) -> Evidence:
    """d(x . w + b)/dx = w: a large weight gives its feature a large say, a negative one works against the score."""
    n = draw.int("features", 1, 6, 3)
    inputs = {"x": draw.normal("x", (n,)), "w": draw.normal("w", (n,)), "b": draw.normal("b", ())}
    program = (step("dot", "matmul", "x", "w"), step("score", "add", "dot", "b"))
    return gradients_agree(impl, program, inputs, expected={"x": inputs["w"], "w": inputs["x"], "b": np.array(1.0)})


@check("gradient-of-a-matrix-product", roles=("autograd",), needs=("autograd.vjp",))
def matrix_product(impl: Any, draw: Draw) -> Evidence:
    """Y = X W has dL/dW = X^T delta, summed over the rows of X, and dL/dX = delta W^T; so has a batch of products."""
    rows, n_in, n_out = draw.int("rows", 1, 4, 2), draw.int("d_in", 1, 4, 3), draw.int("d_out", 1, 4, 3)
    x, w = draw.normal("X", (rows, n_in)), draw.normal("W", (n_in, n_out))
    delta = draw.normal("delta", (rows, n_out))
    program = (step("Y", "matmul", "X", "W"),)
    batch = draw.choice("batch", (((2, 3), (3,)), ((2,), ()), ((2, 1), (3,))), ((2, 3), (3,)))
    matrices = ((*batch[0], rows, n_in), (*batch[1], n_in, n_out))

    def product(left: tuple[int, ...], right: tuple[int, ...]) -> Evidence:
        inputs = {"X": draw.normal("left", left), "W": draw.normal("right", right)}
        return gradients_agree(impl, program, inputs, draw.normal("g", evaluate(program, inputs).shape))

    single = partial(gradients_agree, impl, program, {"X": x, "W": w}, delta, {"X": delta @ w.T, "W": x.T @ delta})
    shapes = (matrices, ((n_in,), (2, n_in, n_out)), ((2, rows, n_in), (n_in,)))
    many = ((f"{left} @ {right}", partial(product, left, right)) for left, right in shapes)
    return of_those_provided(draw, [("a product of two matrices", single), *many])


@check("an-activation-derivative-enters-delta-once", roles=("autograd",), needs=("autograd.vjp",), examples=4)
def delta_once(impl: Any, draw: Draw) -> Evidence:
    """With A = act(X W), dL/dW = X^T (dL/dA * act'(Y)); with Y itself as output, delta is dL/dY alone."""
    x, w, g = draw.normal("X", (2, 3)), draw.normal("W", (3, 4)), draw.normal("g", (2, 4))
    bare = (step("Y", "matmul", "X", "W"),)
    inputs = {"X": x, "W": w}
    parts = {"matmul": partial(gradients_agree, impl, bare, inputs, g, {"W": x.T @ g})}
    for op in ("sigmoid", "tanh", "relu"):
        delta = g * f.derivative(op, x @ w)
        parts[op] = partial(gradients_agree, impl, (*bare, step("A", op, "Y")), inputs, g, {"W": x.T @ delta})
    return of_those_provided(draw, parts.items())


# --- broadcasting -------------------------------------------------------------------------------------


@check("gradient-of-a-broadcast-value-is-summed", roles=("autograd",), needs=("autograd.vjp",))
def broadcast(impl: Any, draw: Draw) -> Evidence:
    """A bias added to a batch gets the sum over the batch: repeated axes, leading or of length one, are summed."""
    small = draw.choice("shape", ((4,), (1, 4), (3, 1), (2, 1, 4), (1, 1, 1), ()), (3, 1))
    inputs = {"x": draw.normal("x", (2, 3, 4)), "b": draw.uniform("b", small, 0.5, 1.5)}
    cotangent = draw.normal("cotangent", (2, 3, 4))
    programs = {op: (step("y", op, "x", "b"),) for op in ("add", "sub", "mul", "div")}
    parts = {op: partial(gradients_agree, impl, program, inputs, cotangent) for op, program in programs.items()}
    expand = (step("y", "expand", "b", size=(2, 3, 4)),)
    parts["expand"] = partial(gradients_agree, impl, expand, {"b": inputs["b"]}, cotangent)
    return of_those_provided(draw, parts.items())


# --- activations --------------------------------------------------------------------------------------


@check("derivative-of-the-sigmoid", roles=("autograd",), needs=("autograd.vjp",))
def sigmoid_derivative(impl: Any, draw: Draw) -> Evidence:
    """sigmoid'(z) = sigmoid(z) (1 - sigmoid(z)): 0.25 at 0, 0.1966119332 at 1, the same at -z."""
    z = np.concatenate([[-2.0, 0.0, 1.0, 2.0], draw.normal("z", (4,), 3.0)])
    a = 1.0 / (1.0 + np.exp(-z))
    return gradients_agree(impl, (step("a", "sigmoid", "z"),), {"z": z}, expected={"z": a * (1.0 - a)})


@check("relu-passes-positive-values-and-their-gradients", roles=("autograd",), needs=("autograd.vjp",))
def relu(impl: Any, draw: Draw) -> Evidence:
    """relu(x) is 0 below 0 and x above, at -inf and inf too; its slope is 0 below and 1 above (at 0 a convention)."""
    x = np.concatenate([[-np.inf, -5000.0, 0.0, 1e-30, 5000.0, np.inf], draw.normal("x", (6,))])
    subject = impl.build("autograd", {"program": (step("y", "relu", "x"),)})
    finite = x[np.isfinite(x) & (x != 0)]
    gradient, _ = subject.vjp({"x": finite}, np.ones_like(finite))
    values = np.maximum(x, 0.0).astype(subject.dtype)
    return all_of(
        same("relu(x)", subject(x=x)["out"], values), same("slope of relu", gradient["x"], (finite > 0).astype(float))
    )


@check("activations-stay-finite-at-large-inputs", roles=("autograd",), needs=("autograd.vjp",), examples=3)
def saturation(impl: Any, draw: Draw) -> Evidence:
    """At sums of -5000 and 5000 activations take their limits, and gradients are finite and 0 where saturated."""
    x, g = np.array([-5000.0, 0.5, 5000.0]) + draw.int("shift", -50, 50, 0), np.array([0.5, 0.25, 2.0])
    wanted = {op: g * f.derivative(op, x) for op in ("sigmoid", "tanh", "relu", "silu", "gelu")}
    wanted |= {"softmax": f.softmax_gradient(x, g), "log_softmax": f.log_softmax_gradient(x, g)}

    def limits(op: str) -> Evidence:
        program = (step("y", op, "x", dim=-1) if "softmax" in op else step("y", op, "x"),)
        value = value_agrees(impl, program, {"x": x})
        return all_of(value, gradients_agree(impl, program, {"x": x}, g, {"x": wanted[op]}))

    return of_those_provided(draw, ((op, partial(limits, op)) for op in wanted))


@check("activations-act-element-by-element", roles=("autograd",), needs=("autograd.vjp",), examples=3)
def elementwise(impl: Any, draw: Draw) -> Evidence:
    """The Jacobian of an activation is diagonal: output i answers to input i alone."""
    n = draw.int("n", 2, 6, 5)
    x = draw.normal("x", (n,))

    def diagonal(op: str) -> Evidence:
        subject = impl.build("autograd", {"program": (step("y", op, "x"),)})
        jacobian = np.stack([subject.vjp({"x": x}, row)[0]["x"] for row in np.eye(n)])
        bound = tolerance(subject.dtype, 1, 2.0)
        return all_of(
            same(f"off-diagonal of {op}'s Jacobian", jacobian * (1.0 - np.eye(n)), np.zeros((n, n))),
            close(f"diagonal of {op}'s Jacobian", np.diag(jacobian), f.derivative(op, x), bound),
        )

    return of_those_provided(draw, ((op, partial(diagonal, op)) for op in ("relu", "sigmoid", "tanh", "gelu", "silu")))


@check("an-activation-is-not-linear", roles=("autograd",), examples=3)
def not_linear(impl: Any, draw: Draw) -> Evidence:
    """An activation fails additivity: act(x + y) differs from act(x) + act(y)."""
    x = draw.float("x", 0.5, 3.0, 1.0)
    one, other = np.array([x]), np.array([-2 * x])

    def bent(op: str) -> Evidence:
        subject = impl.build("autograd", {"program": (step("y", op, "x"),)})
        gap = abs(subject(x=one + other)["out"] - subject(x=one)["out"] - subject(x=other)["out"]).item()
        return true(f"|{op}(x + y) - {op}(x) - {op}(y)| > 0.03", gap > 0.03, got=gap, expected="> 0.03")

    return of_those_provided(draw, ((op, partial(bent, op)) for op in ("relu", "sigmoid", "tanh")))


@check("a-bare-matrix-product-is-linear", roles=("autograd",))
def linear(impl: Any, draw: Draw) -> Evidence:
    """T(x) = x W is homogeneous, T(a x) = a T(x), and additive, T(x + y) = T(x) + T(y)."""
    n, m = draw.int("n", 1, 6, 5), draw.int("m", 1, 7, 4)
    a = draw.choice("a", (-3.0, 0.0, 0.5, 1e6), -3.0)
    w, x, y = draw.normal("W", (n, m)), draw.normal("x", (2, n)), draw.normal("y", (2, n))
    subject = impl.build("autograd", {"program": (step("T", "matmul", "x", "W"),)})

    def t(value: Array) -> Array:
        return np.asarray(subject(x=value, W=w)["out"], np.float64)

    scale = 8.0 * float(abs(w).max())
    return all_of(
        close("T(a x) = a T(x)", t(a * x), a * t(x), tolerance(subject.dtype, n, scale * max(abs(a), 1.0))),
        close("T(x + y) = T(x) + T(y)", t(x + y), t(x) + t(y), tolerance(subject.dtype, n, scale)),
    )


# --- softmax, layer normalisation, selection, everything ----------------------------------------------


@check("gradient-of-softmax", roles=("autograd",), needs=("autograd.vjp",))
def softmax_gradient(impl: Any, draw: Draw) -> Evidence:
    """dx = y (g - sum(g y)): probabilities move against each other; log-softmax: dx = g - softmax(x) sum(g)."""
    shape = (draw.int("rows", 1, 3, 2), draw.int("n", 1, 6, 4))
    dim = draw.choice("dim", (-1, 0), -1)
    x, g = draw.normal("x", shape, 2.0), draw.normal("g", shape)
    return all_of(
        gradients_agree(impl, (step("y", "softmax", "x", dim=dim),), {"x": x}, g, {"x": f.softmax_gradient(x, g, dim)}),
        gradients_agree(
            impl, (step("y", "log_softmax", "x", dim=dim),), {"x": x}, g, {"x": f.log_softmax_gradient(x, g, dim)}
        ),
    )


@check("gradient-of-layer-norm", roles=("autograd",), needs=("autograd.vjp",))
def layer_norm_gradient(impl: Any, draw: Draw) -> Evidence:
    """Layer norm's gradient goes through x, the mean and the variance, and those of its weight and bias sum rows."""
    rows, d = draw.int("rows", 1, 4, 3), draw.int("d", 2, 8, 4)
    inputs = {"w": draw.uniform("w", (d,), 0.5, 1.5), "b": draw.normal("b", (d,))}
    inputs["x"] = draw.normal("x", (2, rows, d), 0.3) + np.linspace(-1, 1, d)  # a spread for the step
    eps = draw.choice("eps", (1e-5, 1e-2), 1e-5)
    return gradients_agree(
        impl, (step("y", "layer_norm", "x", "w", "b", eps=eps),), inputs, draw.normal("g", (2, rows, d))
    )


@check("gradient-of-a-repeated-row-adds", roles=("autograd",), needs=("autograd.vjp",))
def repeated_row(impl: Any, draw: Draw) -> Evidence:
    """A table row that is looked up twice gets both gradients, one that is not looked up gets zero."""
    rows, n, dim = draw.int("rows", 2, 6, 5), draw.int("look-ups", 1, 6, 3), draw.choice("dim", (0, 1), 0)
    index = draw.integers("index", (n,), 0, rows)
    index = np.append(index, index[0])
    table = draw.normal("table", (rows, 3) if dim == 0 else (3, rows))
    g = draw.normal("g", (n + 1, 3) if dim == 0 else (3, n + 1))
    one_hot = np.eye(rows)[index]
    expected = {"W": one_hot.T @ g if dim == 0 else g @ one_hot}
    program = (step("y", "index_select", "W", "ids", dim=dim),)
    return gradients_agree(impl, program, {"W": table, "ids": index}, g, expected)


def _cases() -> dict[str, Program]:
    """A program for each form of each op, over the inputs of `every_op`."""
    cases: dict[str, Program] = {
        "matmul": (step("y", "matmul", "x", "matrix"),),
        "pow": (step("y", "pow", "x", exponent=3),),
        "pow of positive values": (step("y", "pow", "x", exponent=-1.5),),
        "gelu tanh": (step("y", "gelu", "x", approximate="tanh"),),
        "layer_norm": (step("y", "layer_norm", "x", "row", "row2"),),
        "softmax": (step("y", "softmax", "x", dim=1),),
        "log_softmax": (step("y", "log_softmax", "x", dim=0),),
        "reshape": (step("y", "reshape", "x", shape=(4, 6)),),
        "transpose": (step("y", "transpose", "x", dim0=0, dim1=-1),),
        "permute": (step("y", "permute", "x", dims=(2, 0, 1)),),
        "reshape after transpose": (
            step("t", "transpose", "x", dim0=0, dim1=1),
            step("y", "reshape", "t", shape=(6, 4)),
        ),
        "narrow after permute": (
            step("p", "permute", "x", dims=(2, 0, 1)),
            step("n", "narrow", "p", dim=0, start=1, length=2),
            step("y", "mul", "n", "n"),
        ),
        "sum after expand": (step("e", "expand", "column", size=(2, 3, 4)), step("y", "sum", "e", dim=(0, -1))),
        "expand": (step("y", "expand", "column", size=(2, 3, 4)),),
        "cat": (step("y", "cat", "x", "slab", "x", dim=1),),
        "narrow": (step("y", "narrow", "x", dim=1, start=1, length=2),),
        "index_select": (step("y", "index_select", "x", "index", dim=1),),
        "where": (step("y", "where", "condition", "x", "column"),),
        "masked_fill": (step("y", "masked_fill", "x", "mask", value=-1.5),),
    }
    for op in ("add", "sub", "mul", "div"):
        cases[op] = (step("y", op, "x", "column"),)
    for op in ("neg", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "gelu", "silu"):
        cases[op] = (step("y", op, "x"),)
    for op in ("sum", "mean", "amax"):
        cases[f"{op} over one axis"] = (step("y", op, "x", dim=1),)
        cases[f"{op} over two axes"] = (step("y", op, "x", dim=(0, 2)),)
        cases[f"{op} keeping the axis"] = (step("y", op, "x", dim=-1, keepdim=True),)
    for op in ("sum", "mean"):
        cases[f"{op} of all"] = (step("y", op, "x"),)
    return cases


CASES = _cases()
SHAPES = {"x": (2, 3, 4), "column": (3, 1), "matrix": (4, 2), "row": (4,), "row2": (4,), "slab": (2, 1, 4)}


@check("every-op-has-the-gradient-of-its-value", roles=("autograd",), needs=("autograd.vjp",), examples=2)
def every_op(impl: Any, draw: Draw) -> Evidence:
    """Each op of the program language has its value, and the gradient that central differences of it show."""

    def one_op(name: str) -> Evidence:
        program = CASES[name]
        inputs = {"index": np.array([2, 0, 2, 1, 2])}
        inputs |= {"condition": draw.mask(f"{name}.condition", (3, 4)), "mask": draw.mask(f"{name}.mask", (2, 1, 4))}
        for key, shape in SHAPES.items():
            # a shuffled grid without 0: no ties and no kinks within a difference step
            count = int(np.prod(shape))
            low = 0.3 if name in ("log", "sqrt", "div", "pow of positive values") else -0.1 * (count // 2)
            inputs[key] = draw.rng(f"{name}.{key}").permutation(count).reshape(shape) * 0.1 + 0.05 + low
        inputs = {key: inputs[key] for key in free_names(program)}
        cotangent = draw.normal(f"{name}.cotangent", evaluate(program, inputs).shape)
        found = all_of(value_agrees(impl, program, inputs), gradients_agree(impl, program, inputs, cotangent))
        if not found.ok:
            draw.values["op"] = name
        return found

    return of_those_provided(draw, ((name, partial(one_op, name)) for name in CASES))


# --- depth and shortcuts ------------------------------------------------------------------------------


@check("gradient-of-a-deep-sigmoid-chain-vanishes", roles=("autograd",), needs=("autograd.vjp",))
def vanishing(impl: Any, draw: Draw) -> Evidence:
    """Through n sigmoids the gradient is a product of slopes of at most 1/4: below 0.25^n, yet not zero."""
    depth = draw.int("depth", 2, 20, 20)
    program = tuple(step(f"x{i + 1}", "sigmoid", f"x{i}") for i in range(depth))
    x0 = draw.float("x", -2.0, 2.0, 0.0)
    subject = impl.build("autograd", {"program": program})
    got = float(subject.vjp({"x0": np.array([x0])}, np.ones(1))[0]["x0"][0])
    want = f.sigmoid_chain_gradient(x0, depth)
    bound = want * tolerance(subject.dtype, depth, depth)
    return all_of(
        close("product of the slopes", got, want, bound, "relative rounding of a product of `depth` factors"),
        true("0 < gradient <= 0.25^n", 0.0 < got <= 0.25**depth * 1.001, got=got, expected=0.25**depth),
    )


@check("a-product-of-factors-below-one-vanishes", roles=("autograd",), examples=3)
def product_of_factors(impl: Any, draw: Draw) -> Evidence:
    """0.9 multiplied 100 times is 2.7e-5: about 0, and not 0."""
    factor, count = draw.float("factor", 0.85, 0.95, 0.9), draw.int("count", 60, 100, 100)
    program = [step("p1", "mul", "f", "f")] + [step(f"p{i}", "mul", f"p{i - 1}", "f") for i in range(2, count)]
    subject = impl.build("autograd", {"program": tuple(program)})
    got, want = float(subject(f=np.array(factor))["out"]), factor**count
    return close(f"{factor}^{count}", got, want, want * tolerance(subject.dtype, count, count), "relative rounding")


@check("a-residual-block-adds-its-upstream-gradient", roles=("autograd",), needs=("autograd.vjp",))
def residual(impl: Any, draw: Draw) -> Evidence:
    """x + f(x) has the Jacobian I + J_f: the upstream gradient copied unchanged, plus its path through f."""
    n = draw.int("width", 1, 5, 4)
    x, w, g = draw.normal("x", (2, n)), draw.normal("W", (n, n)), draw.normal("g", (2, n))
    program = (step("h", "matmul", "x", "W"), step("f", "tanh", "h"), step("y", "add", "x", "f"))
    slope = 1.0 - np.tanh(x @ w) ** 2
    return gradients_agree(impl, program, {"x": x, "W": w}, g, {"x": g + (g * slope) @ w.T})


@check("gradient-of-stacked-residual-blocks-is-a-product", roles=("autograd",), needs=("autograd.vjp",))
def residual_product(impl: Any, draw: Draw) -> Evidence:
    """Through residual blocks the gradient is the product of the factors 1 + f': 3.1430684331 in the example."""
    x = draw.float("x", -1.0, 1.0, 0.7)
    w = np.array([draw.float(f"w{i}", -2.0, 2.0, pin) for i, pin in enumerate((0.5, -1.5, 2.0))])
    program, here, product = [], x, 1.0
    for i, weight in enumerate(w):
        program += [
            step(f"h{i}", "mul", f"w{i}", f"x{i}"),
            step(f"f{i}", "tanh", f"h{i}"),
            step(f"x{i + 1}", "add", f"x{i}", f"f{i}"),
        ]
        product *= 1.0 + weight * (1.0 - np.tanh(weight * here) ** 2)
        here += np.tanh(weight * here)
    inputs = {"x0": np.array(x), **{f"w{i}": np.array(value) for i, value in enumerate(w)}}
    return gradients_agree(impl, tuple(program), inputs, expected={"x0": np.array(product)})


@check("a-bare-skip-path-passes-the-gradient-unchanged", roles=("autograd",), needs=("autograd.vjp",))
def skip_path(impl: Any, draw: Draw) -> Evidence:
    """With dead blocks (f = 0) a bare skip copies the gradient; with a norm on the path, ones upstream give zero."""
    blocks, d = draw.int("blocks", 1, 50, 30), draw.int("d", 3, 8, 8)
    x, g = draw.normal("x", (d,)), draw.normal("g", (d,))
    bare = tuple(step(f"x{i + 1}", "add", f"x{i}", "dead") for i in range(blocks))
    inputs = {"x0": x, "dead": np.zeros(d)}
    normed = (step("s", "add", "x0", "dead"), step("y", "layer_norm", "s", "one", "zero"))
    affine = {"one": np.ones(d), "zero": np.zeros(d)}
    return all_of(
        gradients_agree(impl, bare, inputs, g, {"x0": g}),
        gradients_agree(impl, normed, {**inputs, **affine}, np.ones(d), {"x0": np.zeros(d)}),
    )


@check("a-residual-block-can-stop-the-gradient", roles=("autograd",), needs=("autograd.vjp",), examples=3)
def residual_stops(impl: Any, draw: Draw) -> Evidence:
    """Where f' = -1 the factor 1 + f' is 0: f(x) = -x gives x + f(x) = 0 and a gradient of exactly 0."""
    program = (step("f", "neg", "x"), step("y", "add", "x", "f"))
    subject = impl.build("autograd", {"program": program})
    x = draw.normal("x", (3,))
    gradient, _ = subject.vjp({"x": x}, draw.normal("g", (3,)))
    return all_of(same("x + f(x)", subject(x=x)["out"], np.zeros(3)), same("its gradient", gradient["x"], np.zeros(3)))
