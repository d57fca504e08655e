"""Checks of multi-layer perceptrons and recurrent networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from conformance.check import check
from conformance.differences import ERROR, differences
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, refused, same, tolerance, true
from conformance.protocol import ROLES
from conformance.reference import networks as f
from conformance.reference import training

Array = np.ndarray


def load_mlp(impl: Any, sizes: Sequence[int], activation: str, params: Mapping[str, Array], bias: bool = True) -> Any:
    subject = impl.build("mlp", {"sizes": tuple(sizes), "activation": activation, "bias": bias})
    subject.load(params)
    return subject


def draw_params(draw: Draw, role: str, **config: Any) -> dict[str, Array]:
    return draw.params(ROLES[role].params(ROLES[role].settings(config)))


def layers_of(params: Mapping[str, Array]) -> list[f.Layer]:
    count = len({name.split(".")[1] for name in params})
    return [(params[f"layers.{i}.weight"], params.get(f"layers.{i}.bias")) for i in range(count)]


def bound_of(subject: Any, *arrays: Array) -> float:
    """Rounding of a few layers of the size of these numbers."""
    scale = max(1.0, *(float(np.max(np.abs(a), initial=0.0)) for a in arrays))
    return tolerance(subject.dtype, max(a.size for a in arrays), scale)


# --- one layer ----------------------------------------------------------------------------------------


@check("a-node-is-a-weighted-sum-plus-bias", roles=("mlp",))
def node(impl: Any, draw: Draw) -> Evidence:
    """sum = f1 w1 + f2 w2 + f3 w3 + b, one number: 0.5 for x = (2, -1, 0.5), w = (0.4, 0.3, -0.2), b = 0.1."""
    subject = load_mlp(
        impl, (3, 1), "relu", {"layers.0.weight": np.array([[0.4, 0.3, -0.2]]), "layers.0.bias": np.array([0.1])}
    )
    worked = subject(x=np.array([[2.0, -1.0, 0.5]]))["out"]
    n = draw.int("features", 1, 6, 4)
    w, b, x = draw.normal("w", (1, n)), draw.normal("b", (1,)), draw.normal("x", (3, n))
    other = load_mlp(impl, (n, 1), "relu", {"layers.0.weight": w, "layers.0.bias": b})
    expected = np.array([[sum(x[i, j] * w[0, j] for j in range(n)) + b[0]] for i in range(3)])
    return all_of(
        close("worked example", worked, np.array([[0.5]]), tolerance(subject.dtype, 3)),
        close("weighted sum plus bias", other(x=x)["out"], expected, bound_of(other, w, x, expected)),
    )


@check("a-layer-refuses-inputs-of-another-width", roles=("mlp",), examples=3)
def wrong_width(impl: Any, draw: Draw) -> Evidence:
    """A network of 3 inputs takes (B, 3) and refuses (B, 4): nothing is broadcast or cut silently."""
    n = draw.int("inputs", 2, 5, 3)
    subject = load_mlp(impl, (n, 4, 2), "relu", draw_params(draw, "mlp", sizes=(n, 4, 2)))
    takes = same("shape of the output", np.shape(subject(x=draw.normal("x", (5, n)))["out"]), (5, 2))
    others = (np.ones((5, width)) for width in (n + 1, n - 1, 1))
    return all_of(takes, *(refused(f"{x.shape[1]} features", partial(subject, x=x)) for x in others))


@check("each-hidden-node-has-its-own-weights", roles=("mlp",))
def own_weights(impl: Any, draw: Draw) -> Evidence:
    """Node j answers to column j of the connections alone, and a connection scales its own signal."""
    n, m = draw.int("inputs", 1, 4, 3), draw.int("nodes", 2, 5, 4)
    i, j = draw.int("i", 0, n - 1, 0), draw.int("j", 0, m - 1, 1)
    params = draw_params(draw, "mlp", sizes=(n, m))
    x = draw.normal("x", (3, n))
    subject = load_mlp(impl, (n, m), "relu", params)
    before = np.array(subject(x=x)["out"], np.float64)
    changed = {name: value.copy() for name, value in params.items()}
    changed["layers.0.weight"][j, i] += 1.0
    subject.load(changed)
    after = np.array(subject(x=x)["out"], np.float64)
    moved = np.zeros((3, m))
    moved[:, j] = x[:, i]
    others = np.arange(m) != j
    return all_of(
        same("the other nodes", after[:, others], before[:, others]),
        close("the change", after - before, moved, bound_of(subject, x, before)),
    )


@check("a-layer-with-bias-is-affine-not-linear", roles=("mlp",))
def affine(impl: Any, draw: Draw) -> Evidence:
    """f(0) = b and f(x + y) - f(x) - f(y) = -b; without the bias both are 0."""
    n, m = draw.int("inputs", 1, 5, 3), draw.int("outputs", 1, 5, 4)
    x, y = draw.normal("x", (2, n)), draw.normal("y", (2, n))
    parts = []
    for bias in (True, False):
        params = draw_params(draw, "mlp", sizes=(n, m), bias=bias)
        subject = load_mlp(impl, (n, m), "relu", params, bias)
        b = np.broadcast_to(params.get("layers.0.bias", np.zeros(m)), (2, m))

        def value(at: Array, subject: Any = subject) -> Array:
            return np.asarray(subject(x=at)["out"], np.float64)

        bound = bound_of(subject, value(x), value(y), b)
        parts.append(close("f(0)", value(0.0 * x), b, bound))
        parts.append(close("f(x + y) - f(x) - f(y)", value(x + y) - value(x) - value(y), -b, bound))
    return all_of(*parts)


@check("layers-compose-activated-weighted-sums", roles=("mlp",), examples=5)
def composition(impl: Any, draw: Draw) -> Evidence:
    """h = act(x W1 + b1), then h W2 + b2: weighted sum first, then the activation, and none after the last layer."""
    sizes = tuple(draw.int(f"width{i}", 1, 6, pin) for i, pin in enumerate((3, 5, 4, 2)))
    params, x = draw_params(draw, "mlp", sizes=sizes), draw.normal("x", (4, sizes[0]), 2.0)
    parts = []
    for activation in ("relu", "sigmoid", "tanh", "gelu"):
        subject = load_mlp(impl, sizes, activation, params)
        expected = f.mlp(x, layers_of(params), activation)
        bound = bound_of(subject, x, expected, *params.values())
        parts.append(close(f"output with {activation}", subject(x=x)["out"], expected, bound))
    return all_of(*parts)


# --- several layers -----------------------------------------------------------------------------------


@check("stacked-linear-layers-collapse-into-one", roles=("mlp",))
def collapse(impl: Any, draw: Draw) -> Evidence:
    """Without activations x W1 W2 ... Wn = x (W1 W2 ... Wn), however many layers are stacked."""
    depth = draw.int("layers", 2, 6, 3)
    sizes = tuple(draw.int(f"width{i}", 1, 7, 5 + i % 3) for i in range(depth + 1))
    params, x = draw_params(draw, "mlp", sizes=sizes, bias=False), draw.normal("x", (4, sizes[0]))
    subject = load_mlp(impl, sizes, "identity", params, bias=False)
    total = np.linalg.multi_dot([params[f"layers.{i}.weight"].T for i in range(depth)])
    return close("x W_total", subject(x=x)["out"], x @ total, bound_of(subject, x, x @ total, *params.values()))


@check("stacked-affine-layers-collapse-into-one-affine-map", roles=("mlp",))
def affine_collapse(impl: Any, draw: Draw) -> Evidence:
    """With biases three layers are x (W1 W2 W3) + ((b1 W2 + b2) W3 + b3): one matrix and one bias."""
    sizes = tuple(draw.int(f"width{i}", 1, 7, pin) for i, pin in enumerate((5, 7, 3, 6)))
    params, x = draw_params(draw, "mlp", sizes=sizes), draw.normal("x", (4, sizes[0]))
    (w1, b1), (w2, b2), (w3, b3) = ((w.T, b) for w, b in layers_of(params))
    expected = x @ (w1 @ w2 @ w3) + ((b1 @ w2 + b2) @ w3 + b3)
    subject = load_mlp(impl, sizes, "identity", params)
    return close("one affine map", subject(x=x)["out"], expected, bound_of(subject, x, expected, *params.values()))


@check("an-activation-keeps-layers-from-collapsing", roles=("mlp",), examples=0)
def no_collapse(impl: Any, draw: Draw) -> Evidence:
    """act(x W1) W2 is 2 with relu and 1 with sigmoid where x (W1 W2) is 0; where no sum is negative relu agrees."""
    x, w1, w2 = np.array([[1.0, 1.0]]), np.array([[1.0, -1.0], [1.0, -1.0]]), np.array([[1.0], [1.0]])
    parts = []
    for activation, first, expected in (("relu", w1, 2.0), ("sigmoid", w1, 1.0), ("relu", abs(w1), 4.0)):
        params = {"layers.0.weight": first.T, "layers.1.weight": w2.T}
        subject = load_mlp(impl, (2, 2, 1), activation, params, bias=False)
        parts.append(close(activation, subject(x=x)["out"], np.array([[expected]]), tolerance(subject.dtype, 4, 4.0)))
    return all_of(*parts)


@check("a-relu-network-computes-xor", roles=("mlp",), examples=0)
def xor(impl: Any, draw: Draw) -> Evidence:
    """h1 = relu(x1 + x2), h2 = relu(x1 + x2 - 1), h1 - 2 h2 is XOR, which no linear model is."""
    params = {
        "layers.0.weight": np.ones((2, 2)),
        "layers.0.bias": np.array([0.0, -1.0]),
        "layers.1.weight": np.array([[1.0, -2.0]]),
        "layers.1.bias": np.zeros(1),
    }
    subject = load_mlp(impl, (2, 2, 1), "relu", params)
    table = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    return same("XOR", subject(x=table)["out"], np.array([[0.0], [1], [1], [0]]))


@check("fresh-weights-are-random-and-only-guess", roles=("mlp",), examples=0)
def fresh_weights(impl: Any, draw: Draw) -> Evidence:
    """Untrained weights are random and moderate: nodes differ, and two classes cost about ln 2."""
    subject = impl.build("mlp", {"sizes": (3, 16, 2)})
    first = np.asarray(subject.params()["layers.0.weight"], np.float64)
    apart = min(np.abs(first[i] - first[j]).max() for i in range(16) for j in range(i))
    x, labels = draw.normal("x", (64, 3)), draw.integers("labels", (64,), 0, 2)
    loss = float(training.cross_entropy(np.asarray(subject(x=x)["out"], np.float64), labels))
    return all_of(
        true("no two hidden nodes have the same weights", apart > 1e-3, got=apart, expected="> 1e-3"),
        true("the loss is near ln 2 = 0.69", 0.4 < loss < 1.3, got=loss, expected="between 0.4 and 1.3"),
    )


@check("every-weight-gets-its-gradient", roles=("mlp",), needs=("mlp.vjp",), examples=4)
def weight_gradients(impl: Any, draw: Draw) -> Evidence:
    """From right to left, every weight and bias of a network gets the slope that central differences show."""
    sizes = (3, draw.int("hidden", 1, 5, 4), 2)
    params, x = draw_params(draw, "mlp", sizes=sizes), draw.normal("x", (5, 3))
    cotangent = draw.normal("cotangent", (5, 2))
    subject = load_mlp(impl, sizes, "tanh", params)
    inputs, weights = subject.vjp({"x": x}, cotangent)
    moved = {"x": x.copy(), **{name: value.copy() for name, value in params.items()}}

    def value() -> float:
        layers = layers_of({name: array for name, array in moved.items() if name != "x"})
        return float(np.sum(f.mlp(moved["x"], layers, "tanh") * cotangent))

    parts = []
    for name in moved:
        want = differences(value, moved[name])
        got = inputs["x"] if name == "x" else weights[name]
        parts.append(close(f"gradient of {name}", got, want, bound_of(subject, x, want, cotangent) + 10 * ERROR))
    return all_of(*parts)


@check("gradient-descent-lowers-the-loss-of-a-network", roles=("mlp",), needs=("mlp.vjp",))
def descent(impl: Any, draw: Draw) -> Evidence:
    """A small step against the gradient lowers the batch loss, and the same step along it raises it."""
    sizes = (3, draw.int("hidden", 2, 6, 4), 2)
    params, x = draw_params(draw, "mlp", sizes=sizes), draw.normal("x", (6, 3))
    target = draw.normal("target", (6, 2))
    subject = load_mlp(impl, sizes, "tanh", params)
    error = np.asarray(subject(x=x)["out"], np.float64) - target
    _, gradient = subject.vjp({"x": x}, error)

    def loss(rate: float) -> float:
        stepped = {name: value - rate * np.asarray(gradient[name], np.float64) for name, value in params.items()}
        return float(np.sum((f.mlp(x, layers_of(stepped), "tanh") - target) ** 2) / 2)

    down, here, up = loss(1e-3), loss(0.0), loss(-1e-3)
    return true("down < here < up", down < here < up, got=(down, here, up))


@check("backward-computes-gradients-and-changes-nothing", roles=("mlp",), needs=("mlp.vjp",), examples=3)
def backward_changes_nothing(impl: Any, draw: Draw) -> Evidence:
    """Forward and backward passes leave every parameter as it was; only an optimizer step changes them."""
    params, x = draw_params(draw, "mlp", sizes=(3, 4, 2)), draw.normal("x", (5, 3))
    subject = load_mlp(impl, (3, 4, 2), "sigmoid", params)
    before = {name: np.array(value) for name, value in subject.params().items()}
    subject(x=x)
    subject.vjp({"x": x}, draw.normal("cotangent", (5, 2)))
    after = subject.params()
    return all_of(*(same(f"{name} after backward", after[name], before[name]) for name in before))


# --- recurrent networks -------------------------------------------------------------------------------


def load_rnn(impl: Any, params: Mapping[str, Array]) -> Any:
    d_hidden, d_input = params["weight_ih"].shape
    subject = impl.build("rnn", {"d_input": d_input, "d_hidden": d_hidden})
    subject.load(params)
    return subject


WORKED_RNN = {
    "weight_ih": np.array([[0.5, -0.5], [0.25, 0.75]]),
    "weight_hh": np.array([[0.1, 0.2], [-0.3, 0.4]]),
    "bias": np.array([0.1, -0.1]),
}


@check("rnn-state-is-tanh-of-input-state-and-bias", roles=("rnn",))
def rnn_formula(impl: Any, draw: Draw) -> Evidence:
    """h_t = tanh(W_x x_t + W_h h_(t-1) + b) from h_0 = 0, with the bias that the listing leaves out."""
    worked = load_rnn(impl, WORKED_RNN)(x=np.array([[[1.0, 0], [0, 1], [1, 1]]]))["out"]
    printed = np.array([[0.537049567, 0.148885034], [-0.306355127, 0.499349467], [0.167637038, 0.831088760]])
    d, h, steps = draw.int("d_input", 1, 5, 3), draw.int("d_hidden", 1, 5, 4), draw.int("T", 1, 7, 5)
    params = draw_params(draw, "rnn", d_input=d, d_hidden=h)
    x = draw.normal("x", (2, steps, d))
    subject = load_rnn(impl, params)
    return all_of(
        close("worked example", worked[0], printed, 1e-9 + tolerance(subject.dtype, 3), "nine printed digits"),
        close("every state", subject(x=x)["out"], f.rnn(x, **params), bound_of(subject, x, *params.values())),
    )


@check("an-rnn-state-depends-on-all-earlier-inputs-and-no-later-one", roles=("rnn",))
def rnn_chain(impl: Any, draw: Draw) -> Evidence:
    """Change x_t: h_1 .. h_(t-1) stay as they are and h_t .. h_n all change, one chain of n dependent steps."""
    steps = draw.int("T", 2, 6, 4)
    at = draw.int("t", 0, steps - 1, 1)
    params = draw_params(draw, "rnn", d_input=2, d_hidden=3)
    subject = load_rnn(impl, params)
    x = draw.normal("x", (2, steps, 2))
    changed = x.copy()
    changed[:, at] += 1.0
    before, after = subject(x=x)["out"], subject(x=changed)["out"]
    moved = np.abs(np.asarray(after, np.float64) - before).max(axis=-1)
    want = np.broadcast_to(np.arange(steps) >= at, moved.shape)
    draw.bites(at > 0, "an earlier state exists")
    return same("which states changed", moved > 0, want)


@check("an-rnn-yields-one-state-per-token", roles=("rnn",))
def rnn_shapes(impl: Any, draw: Draw) -> Evidence:
    """T tokens give T states, and the last has the hidden size whether the sentence has 5 words or 100."""
    steps = draw.choice("T", (1, 2, 5, 100), 5)
    subject = load_rnn(impl, draw_params(draw, "rnn", d_input=2, d_hidden=3))
    out = subject(x=draw.normal("x", (2, steps, 2)))["out"]
    return same("shape (B, T, d_hidden)", np.shape(out), (2, steps, 3))


@check("an-rnn-run-is-an-iteration-of-one-cell", roles=("rnn",))
def rnn_iteration(impl: Any, draw: Draw) -> Evidence:
    """Token by token, each state is one cell applied to the next word vector and the state before it."""
    steps = draw.int("T", 2, 6, 4)
    params = draw_params(draw, "rnn", d_input=2, d_hidden=3)
    subject = load_rnn(impl, params)
    x = draw.normal("x", (1, steps, 2))
    states = np.asarray(subject(x=x)["out"], np.float64)
    previous = np.concatenate([np.zeros((1, 1, 3)), states[:, :-1]], axis=1)
    cell = np.tanh(x @ params["weight_ih"].T + previous @ params["weight_hh"].T + params["bias"])
    return close("cell(x_t, h_(t-1))", states, cell, bound_of(subject, x, *params.values()))


@check("the-last-rnn-state-keeps-traces-of-every-token", roles=("rnn",), needs=("rnn.vjp",), examples=3)
def rnn_memory(impl: Any, draw: Draw) -> Evidence:
    """The final state, the context vector, has a gradient to every token of the input."""
    steps = draw.int("T", 1, 5, 5)
    subject = load_rnn(impl, WORKED_RNN)
    cotangent = np.zeros((1, steps, 2))
    cotangent[:, -1] = 1.0
    gradient, _ = subject.vjp({"x": draw.normal("x", (1, steps, 2))}, cotangent)
    reach = np.abs(gradient["x"]).max(axis=-1)[0]
    return true("|d h_T / d x_t| > 0 for every t", (reach > 1e-9).all(), got=reach, expected="> 1e-9")


@check("an-rnn-is-sensitive-to-order", roles=("rnn",), examples=3)
def rnn_order(impl: Any, draw: Draw) -> Evidence:
    """Reversed tokens end in another state: order is implicit in an RNN, and the mean of embeddings has none."""
    subject = load_rnn(impl, WORKED_RNN)
    x = np.array([[[1.0, 0], [0, 1], [1, 1]]]) * draw.float("scale", 0.5, 1.5, 1.0)
    forward, backward = subject(x=x)["out"][:, -1], subject(x=x[:, ::-1].copy())["out"][:, -1]
    gap = float(np.abs(forward - backward).max())
    return true("|h_T(x) - h_T(reversed x)| > 0.1", gap > 0.1, got=gap, expected="> 0.1")


@check("rnn-weights-are-shared-over-time", roles=("rnn",), needs=("rnn.vjp",), examples=3)
def rnn_shared(impl: Any, draw: Draw) -> Evidence:
    """W_x, W_h and b serve every step: the gradient of each is the sum over the steps of untied copies."""
    steps = draw.int("T", 1, 4, 4)
    params = draw_params(draw, "rnn", d_input=2, d_hidden=3)
    x, cotangent = draw.normal("x", (2, steps, 2)), draw.normal("cotangent", (2, steps, 3))
    subject = load_rnn(impl, params)
    _, got = subject.vjp({"x": x}, cotangent)
    untied = [{name: value.copy() for name, value in params.items()} for _ in range(steps)]

    def value() -> float:
        state, total = np.zeros((2, 3)), 0.0
        for t, copy in enumerate(untied):
            state = f.rnn(x[:, t : t + 1], **copy, state=state)[:, 0]
            total += float(np.sum(state * cotangent[:, t]))
        return total

    parts = []
    for name in params:
        want = np.sum([differences(value, copy[name]) for copy in untied], axis=0)
        parts.append(close(f"gradient of {name}", got[name], want, bound_of(subject, x, want, cotangent) + 10 * ERROR))
    return all_of(*parts)


@check("an-rnn-is-parallel-over-the-batch", roles=("rnn",))
def rnn_batch(impl: Any, draw: Draw) -> Evidence:
    """Sequences of a batch do not touch each other: together or one by one the states are the same."""
    batch, steps = draw.int("B", 2, 4, 3), draw.int("T", 1, 5, 4)
    params = draw_params(draw, "rnn", d_input=2, d_hidden=3)
    subject = load_rnn(impl, params)
    x = draw.normal("x", (batch, steps, 2))
    alone = np.concatenate([subject(x=row[None])["out"] for row in x])
    return close("together = one by one", subject(x=x)["out"], alone, bound_of(subject, x, *params.values()))


def _influence(subject: Any, x: Array) -> Array:
    """The norm of d h_T / d x_t for each t."""
    steps, d_hidden = x.shape[1], len(subject.params()["bias"])
    rows = []
    for unit in np.eye(d_hidden):
        cotangent = np.zeros((1, steps, d_hidden))
        cotangent[0, -1] = unit
        rows.append(np.asarray(subject.vjp({"x": x}, cotangent)[0]["x"], np.float64)[0])
    return np.array([np.linalg.norm(np.stack([row[t] for row in rows]), 2) for t in range(steps)])


def _cyclic(n: int) -> Array:
    """The cyclic shift: an orthogonal matrix that is not symmetric."""
    return np.roll(np.eye(n), 1, axis=0)


@check("early-tokens-fade-in-a-contracting-rnn", roles=("rnn",), needs=("rnn.vjp",), examples=2)
def rnn_fades(impl: Any, draw: Draw) -> Evidence:
    """With a recurrent norm of 0.6 the influence of a token is at most 0.6^distance |W_x|, yet never cut off."""
    steps, h = draw.int("T", 4, 10, 8), 3
    w = draw.uniform("W_x", (h, 2), 0.3, 0.6)
    subject = load_rnn(impl, {"weight_ih": w, "weight_hh": 0.6 * _cyclic(h), "bias": np.zeros(h)})
    influence = _influence(subject, draw.normal("x", (1, steps, 2), 0.5))
    ceiling = 0.6 ** np.arange(steps - 1, -1, -1) * np.linalg.norm(w, 2) * 1.001
    return true(
        "0 < |d h_T / d x_t| <= 0.6^(T - t) |W_x|",
        ((influence > 0) & (influence <= ceiling)).all(),
        got=influence,
        expected=ceiling,
    )


@check("an-rnn-gradient-can-explode", roles=("rnn",), needs=("rnn.vjp",), examples=2)
def rnn_explodes(impl: Any, draw: Draw) -> Evidence:
    """With a recurrent norm of 1.5 and unsaturated states the influence of a token grows with its distance."""
    steps, h = draw.int("T", 4, 10, 8), 3
    w = draw.uniform("W_x", (h, 2), 0.3, 0.6)
    subject = load_rnn(impl, {"weight_ih": w, "weight_hh": 1.5 * _cyclic(h), "bias": np.zeros(h)})
    influence = _influence(subject, draw.uniform("x", (1, steps, 2)) * 1e-4)
    growth = influence[:-1] / influence[1:]
    return close("growth per step back", growth, np.full(steps - 1, 1.5), 0.01, "tanh' is 1 to 1e-4 at such inputs")


@check("a-recurrence-near-the-identity-keeps-its-information", roles=("rnn",), needs=("rnn.vjp",), examples=2)
def rnn_keeps(impl: Any, draw: Draw) -> Evidence:
    """With W_h = I and small inputs the influence of the first token stays what it was."""
    steps, h = draw.int("T", 4, 12, 12), 3
    w = draw.uniform("W_x", (h, 2), 0.3, 0.6)
    subject = load_rnn(impl, {"weight_ih": w, "weight_hh": np.eye(h), "bias": np.zeros(h)})
    influence = _influence(subject, draw.uniform("x", (1, steps, 2)) * 1e-4)
    return close("influence over its last value", influence / influence[-1], np.ones(steps), 1e-3, "tanh' is 1 to 1e-5")
