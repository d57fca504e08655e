"""Verifications of the documents' statements on gradients, layers and recurrent networks."""

from __future__ import annotations

import time

import numpy as np

from conformance.checks.engine import NEURON
from conformance.differences import differences
from conformance.evidence import Evidence, all_of, close, same, true
from conformance.programs import gradients, step
from conformance.protocol import ROLES
from conformance.reference import engine as gradient
from conformance.reference import networks as f
from conformance.reference import training
from conformance.reference.attention import softmax
from conformance.reference.feed_forward import sigmoid
from conformance.verifications.base import erratum, verify

Array = np.ndarray

# --- back propagation and residuals -------------------------------------------------------------------


@verify("an-activation-derivative-enters-delta-once")
def delta_once() -> Evidence:
    """At z = 1 the sigmoid's slope is 0.1966; applying it to delta = dL/dY of a bare product shrinks it so."""
    x, w = np.array([[1.0, 0.5]]), np.array([[0.5], [1.0]])
    bare = gradients((step("Y", "matmul", "X", "W"),), {"X": x, "W": w}, 1.0)["W"]
    active = gradients((step("Y", "matmul", "X", "W"), step("A", "sigmoid", "Y")), {"X": x, "W": w}, 1.0)["W"]
    slope = float(gradient.derivative("sigmoid", x @ w)[0, 0])
    return erratum(
        "dL/dW of Y = X W with L = sum(Y)",
        x.T * slope,
        bare,
        close("delta is dL/dY alone", bare, x.T, 1e-8),
        close("with A = sigmoid(Y) as output, the slope enters once", active, x.T * slope, 1e-8),
        by=0.1,
    )


TANH_WEIGHTS, TANH_INPUT = (0.5, -1.5, 2.0), 0.7


@verify("gradient-of-stacked-residual-blocks-is-a-product")
def residual_product() -> Evidence:
    slopes, x = [], TANH_INPUT
    for w in TANH_WEIGHTS:
        slopes.append(w * (1.0 - np.tanh(w * x) ** 2))
        x += np.tanh(w * x)

    def output(x0: float) -> float:
        for w in TANH_WEIGHTS:
            x0 += np.tanh(w * x0)
        return x0

    measured = (output(TANH_INPUT + 1e-6) - output(TANH_INPUT - 1e-6)) / 2e-6
    return erratum(
        "gradient through three residual blocks",
        1.0 + sum(slopes),
        measured,
        close("the product of 1 + f'", np.prod([1.0 + s for s in slopes]), measured, 1e-8),
        close("as printed in the example", measured, 3.1430684331, 1e-8),
        by=0.05,
    )


@verify("a-bare-skip-path-passes-the-gradient-unchanged")
def post_norm_loses() -> Evidence:
    x, ones = np.array([0.3, -1.2, 0.8, 2.0]), np.ones(4)
    normed = gradients((step("y", "layer_norm", "x", "w", "b"),), {"x": x, "w": ones, "b": np.zeros(4)}, ones)["x"]
    bare = gradients((step("y", "add", "x", "dead"),), {"x": x, "dead": np.zeros(4)}, ones)["x"]
    return erratum(
        "gradient of ones through a dead post-norm block",
        ones,
        normed,
        close("the norm removes the component along 1", normed, np.zeros(4), 1e-8),
        close("a bare skip path copies it", bare, ones, 1e-8),
        by=0.5,
    )


@verify("a-residual-block-can-stop-the-gradient")
def residual_stops() -> Evidence:
    program = (step("f", "neg", "x"), step("y", "add", "x", "f"))
    got = gradients(program, {"x": np.array([0.7])})["x"]
    return erratum("gradient through x + f(x) with f(x) = -x", [1.0], got, close("it is 0", got, [0.0], 0.0), by=0.5)


# --- layers and their limits --------------------------------------------------------------------------

XOR_INPUTS, XOR = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]]), np.array([0.0, 1, 1, 0])


@verify("a-layer-with-bias-is-affine-not-linear")
def affine() -> Evidence:
    x, w, b = np.array([2.0, -1.0, 0.5]), np.array([0.4, 0.3, -0.2]), 0.1
    return erratum(
        "f(2x) of the printed node against 2 f(x)",
        2 * (x @ w + b),
        (2 * x) @ w + b,
        close("they differ by the bias", 2 * (x @ w + b) - ((2 * x) @ w + b), b, 1e-12),
        by=0.05,
    )


@verify("stacked-affine-layers-collapse-into-one-affine-map")
def affine_collapse() -> Evidence:
    rng = np.random.default_rng(0)
    (w1, w2), (b1, b2) = rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3))
    x = rng.standard_normal((4, 3))
    stacked = (x @ w1 + b1) @ w2 + b2
    one_map = close("one matrix and one bias", x @ (w1 @ w2) + (b1 @ w2 + b2), stacked, 1e-12)
    return erratum("two layers with biases as one multiplication", x @ (w1 @ w2), stacked, one_map, by=0.1)


@verify("an-activation-keeps-layers-from-collapsing")
def activation_and_associativity() -> Evidence:
    x, w1, w2 = np.array([[1.0, 1.0]]), np.array([[1.0, -1.0], [1.0, -1.0]]), np.array([[1.0], [1.0]])
    return erratum(
        "whether relu(x W1) W2 differs from x (W1 W2), always",
        [1.0, 1.0],
        [float(np.any(np.maximum(x @ a, 0) @ w2 != x @ (a @ w2))) for a in (w1, abs(w1))],
        close("2 against 0 in the example", np.maximum(x @ w1, 0) @ w2 - x @ (w1 @ w2), [[2.0]], 1e-12),
        same("products stay associative", (x @ w1) @ w2, x @ (w1 @ w2)),
        by=0.5,
    )


@verify("a-linear-model-cannot-fit-xor")
def linear_xor() -> Evidence:
    design = np.hstack([XOR_INPUTS, np.ones((4, 1))])
    best, *_ = np.linalg.lstsq(design, XOR, rcond=None)
    grid = np.linspace(-2, 2, 9)
    correct = max(
        int(np.sum((XOR_INPUTS @ [a, b] + c > 0) == (XOR > 0.5))) for a in grid for b in grid for c in grid + 0.1
    )
    return all_of(
        close("best weights and bias", best, [0.0, 0.0, 0.5], 1e-12),
        close("mean squared error", np.mean((design @ best - XOR) ** 2), 0.25, 1e-12),
        same("points that a threshold gets right", correct, 3),
    )


@verify("linear-depth-can-only-lose-rank")
def linear_rank() -> Evidence:
    rng = np.random.default_rng(1)
    total = rng.standard_normal((5, 7)) @ rng.standard_normal((7, 3)) @ rng.standard_normal((3, 6))
    kept = np.linalg.svd(np.eye(4))[1]
    return erratum(
        "rank of a 5-7-3-6 linear stack against one 5 x 6 layer",
        np.linalg.matrix_rank(rng.standard_normal((5, 6))),
        np.linalg.matrix_rank(total),
        same("bounded by the narrowest width", np.linalg.matrix_rank(total), 3),
        close("least squared error of rank 1 for I4", np.sum(kept[1:] ** 2), 3.0, 1e-12),
    )


@verify("one-hidden-layer-approximates")
def approximation() -> Evidence:
    """Interpolating sin with n pieces by one ReLU layer, and x^3 by any width of t^2 (polynomials of degree 2)."""
    x = np.linspace(0, 2 * np.pi, 4001)
    errors = []
    for n in (8, 16, 32, 64):
        knots = np.linspace(0, 2 * np.pi, n + 1)
        slopes = np.diff(np.sin(knots)) / np.diff(knots)
        hidden = np.maximum(x[:, None] - knots[:-1], 0)
        errors.append(np.abs(hidden @ np.diff(slopes, prepend=0.0) - np.sin(x)).max())
    t, weights = np.polynomial.legendre.leggauss(8)
    fit = np.polynomial.polynomial.polyfit(t, t**3, 2, w=np.sqrt(weights))
    rms = np.sqrt(np.sum(weights * (t**3 - np.polynomial.polynomial.polyval(t, fit)) ** 2) / 2)
    return erratum(
        "error of x^3 on [-1, 1] with activation t^2, however wide",
        0.0,
        rms,
        close("it stays 2 / (5 sqrt 7)", rms, 2 / (5 * 7**0.5), 1e-9),
        close(
            "one hidden ReLU layer on sin: 8, 16, 32, 64 pieces", errors, [0.07038, 0.01885, 0.004792, 0.001203], 5e-6
        ),
        by=0.1,
    )


@verify("matrix-form-pays-on-a-cpu-too")
def matrix_form() -> Evidence:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 48, 48))
    start = time.perf_counter()
    looped = [[sum(a[i, k] * b[k, j] for k in range(48)) for j in range(48)] for i in range(48)]
    middle = time.perf_counter()
    product = a @ b
    ratio = (middle - start) / max(time.perf_counter() - middle, 1e-9)
    return erratum(
        "gain of the matrix form on this CPU",
        1.0,
        ratio,
        close("the same numbers", product, looped, 1e-12),
        true("more than 10-fold", ratio > 10, got=ratio, expected="> 10 (about 4600 for 64 x 64)"),
    )


@verify("two-sigmoids-are-no-distribution")
def two_sigmoids() -> Evidence:
    return erratum(
        "sum of two sigmoid outputs at 1.5",
        1.0,
        2 * sigmoid(np.array(1.5)),
        close("softmax(ln 4, 0)", softmax(np.array([np.log(4.0), 0.0])), [0.8, 0.2], 1e-12),
        close("sigmoids of the same logits", sigmoid(np.array([np.log(4.0), 0.0])), [0.8, 0.5], 1e-12),
        by=0.5,
    )


def _gradient_step(params: dict[str, Array], x: Array, labels: Array, rate: float) -> dict[str, Array]:
    """One step of gradient descent on the cross-entropy of a relu network, by differences."""
    moved = {name: value.copy() for name, value in params.items()}

    def loss() -> float:
        layers = [(moved[f"w{i}"], moved[f"b{i}"]) for i in range(len(moved) // 2)]
        return float(training.cross_entropy(f.mlp(x, layers, "relu"), labels))

    slopes = {name: differences(loss, moved[name]) for name in moved}
    return {name: value - rate * slopes[name] for name, value in params.items()}


@verify("equal-weights-stay-equal")
def equal_weights() -> Evidence:
    rng = np.random.default_rng(3)
    x, labels = rng.standard_normal((8, 3)), rng.integers(0, 2, 8)
    params = {"w0": np.full((4, 3), 0.3), "b0": np.full(4, 0.3), "w1": np.full((2, 4), 0.3), "b1": np.full(2, 0.3)}
    start = params["w0"]
    for _ in range(5):
        params = _gradient_step(params, x, labels, 0.5)
    spread = np.ptp(params["w0"], axis=0).max()
    moved = float(np.abs(params["w0"] - start).max())
    return erratum(
        "whether four nodes with their own weights look from different angles",
        1.0,
        float(spread > 1e-6),
        true("their weights moved and stayed equal", moved > 1e-3 and spread < 1e-6, got=(moved, spread)),
    )


@verify("backward-computes-gradients-and-changes-nothing")
def update_is_the_optimizers() -> Evidence:
    values = {"x": 1.5, "w": 0.8, "b": -0.2, "y": 0.0, "half": 0.5}
    inputs = {name: np.array(value) for name, value in values.items()}
    slope = gradients(NEURON, inputs)["w"]
    sgd = ROLES["optimizer"].settings({"kind": "sgd", "lr": 0.1})
    ((updated,),) = training.optimize([inputs["w"]], [[slope]], sgd)
    return erratum(
        "the weight of the printed neuron after back propagation",
        updated,
        inputs["w"],
        close("its gradient", slope, 0.2156022607, 1e-8),
        close("after the optimizer's step", updated, 0.7784397739, 1e-8),
        by=0.01,
    )


@verify("the-graph-is-recorded-in-the-forward-pass")
def recorded_forward() -> Evidence:
    """y = x x at 3, x then set to 5: a rule that keeps what forward saw gives 6, a graph built at backward 10."""
    x = np.array(3.0)
    recorded = x.copy()
    x[...] = 5.0
    built_late, kept = 2 * x, 2 * recorded
    measured = gradients((step("y", "mul", "x", "x"),), {"x": recorded})["x"]
    return erratum(
        "dy/dx of the y that was computed", built_late, measured, close("recorded", kept, measured, 1e-8), by=1
    )


@verify("a-gradient-is-a-local-slope")
def local_slope() -> Evidence:
    w, curvature = 1.0, 100.0
    raw = w - curvature * w
    return erratum(
        "where a whole gradient step of L = 50 w^2 leads from 1",
        0.0,
        raw,
        same("the loss grows from 50 to", 50 * raw**2, 490050.0),
        close("with the rate 1 / 100 it reaches the minimum", w - 0.01 * curvature * w, 0.0, 1e-15),
        by=1,
    )


@verify("training-can-stop-short-of-the-minimum")
def zero_start() -> Evidence:
    zero = {"w0": np.zeros((4, 2)), "b0": np.zeros(4), "w1": np.zeros((2, 4)), "b1": np.zeros(2)}
    after = _gradient_step(zero, XOR_INPUTS, XOR.astype(int), 1.0)
    moved = max(float(np.abs(value).max()) for value in after.values())
    loss = training.cross_entropy(np.zeros((4, 2)), XOR.astype(int))
    return erratum(
        "loss where gradient descent from zeros stops on XOR",
        0.0,
        loss,
        close("it never moves", moved, 0.0, 1e-9),
        close("from ln 2", loss, np.log(2), 1e-12),
        by=0.5,
    )


@verify("contradictory-labels-leave-a-loss")
def contradictory() -> Evidence:
    gaps = np.linspace(-5, 5, 1001)
    losses = [training.cross_entropy(np.array([[0.0, g], [0.0, g]]), np.array([0, 1])) for g in gaps]
    return erratum(
        "least loss of equal inputs with labels 0 and 1",
        0.0,
        min(losses),
        close("ln 2, at equal logits", min(losses), np.log(2), 1e-12),
        by=0.5,
    )


@verify("an-epoch-is-a-pass-over-the-data")
def epoch() -> Evidence:
    starts = range(0, 1000, 64)
    seen = np.concatenate([np.arange(start, min(start + 64, 1000)) for start in starts])
    return erratum(
        "iterations in an epoch of 1000 samples, 64 a batch",
        1,
        len(starts),
        same("each sample once", seen, np.arange(1000)),
        same("15 when the last is dropped", 1000 // 64, 15),
    )


@verify("layer-slopes-depend-on-activation-and-scale")
def slopes() -> Evidence:
    rng, depth, width = np.random.default_rng(4), 20, 16
    weights = [rng.standard_normal((width, width)) / width**0.5 for _ in range(depth)]
    norms = {}
    for name, squash in (("tanh", np.tanh), ("sigmoid", sigmoid)):
        x, jacobian = rng.standard_normal(width), np.eye(width)
        for w in weights:
            jacobian = (w * gradient.derivative(name, w @ x)[:, None]) @ jacobian
            x = squash(w @ x)
        norms[name] = np.linalg.norm(jacobian, 2)
    f2 = -1.5 * (1 - np.tanh(-1.5 * np.tanh(0.5 * 0.7)) ** 2)
    return erratum(
        "|f'| of the second layer in the printed chain of three",
        0.9,
        abs(f2),
        close("it is 1.1747", abs(f2), 1.1746875140, 1e-9),
        true(
            "sigmoid layers vanish, well-scaled tanh layers do not",
            norms["sigmoid"] < 1e-9 < 1e-2 < norms["tanh"],
            got=norms,
        ),
        by=0.1,
    )


@verify("residual-gradients-can-grow")
def residual_growth() -> Evidence:
    rng, width = np.random.default_rng(5), 16
    norms, x, jacobian = [], 0.1 * rng.standard_normal(width), np.eye(width)
    for _ in range(50):
        w = (3.0 / width) ** 0.5 * rng.uniform(-1, 1, (width, width))
        jacobian = (np.eye(width) + w * (1 - np.tanh(w @ x) ** 2)[:, None]) @ jacobian
        x = x + np.tanh(w @ x)
        norms.append(np.linalg.norm(jacobian, 2))
    return erratum(
        "gradient norm through 50 residual blocks without normalisation",
        1.0,
        norms[-1],
        true("it grows", norms[2] < norms[19] < norms[-1] and norms[-1] > 10, got=[norms[i] for i in (2, 19, 49)]),
        by=5,
    )


# --- recurrent networks ----------------------------------------------------------------


@verify("a-one-hot-vector-has-a-single-one")
def one_hot() -> Evidence:
    wide = np.eye(10_000, 1, -2)[:, 0]
    return all_of(
        same("one_hot(2, 5)", np.eye(5)[2], [0, 0, 1, 0, 0]),
        same("of the third of 10,000 words", (wide.size, wide.sum(), wide.argmax()), (10_000, 1, 2)),
    )


COLUMN = {"weight_ih": np.array([[0.5, -0.5], [0.25, 0.75]]), "weight_hh": np.zeros((2, 2))}


@verify("rnn-state-is-tanh-of-input-state-and-bias")
def missing_bias() -> Evidence:
    x, bias = np.array([[[1.0, 0.0]]]), np.array([0.1, -0.1])
    with_bias, without = f.rnn(x, **COLUMN, bias=bias)[0, 0], f.rnn(x, **COLUMN, bias=0 * bias)[0, 0]
    row = np.tanh(x[0, 0] @ COLUMN["weight_ih"] + bias)
    return erratum(
        "first state of the listing, without bias",
        without,
        with_bias,
        close("the formula", with_bias, [0.537049567, 0.148885034], 1e-9),
        close("the listing", without, [0.462117157, 0.244918662], 1e-9),
        close("row notation with the same matrix", row, [0.5370496, -0.5370496], 1e-7),
        by=0.05,
    )


def _random_rnn(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "weight_ih": rng.standard_normal((3, 2)),
        "weight_hh": rng.standard_normal((3, 3)) / 2,
        "bias": rng.standard_normal(3),
    }


@verify("an-rnn-run-is-an-iteration-of-one-cell")
def stale_variable() -> Evidence:
    rng = np.random.default_rng(6)
    params = {
        "weight_ih": rng.standard_normal((3, 2)),
        "weight_hh": rng.standard_normal((3, 3)) / 3,
        "bias": np.zeros(3),
    }
    sentences = rng.standard_normal((2, 4, 2))
    stale = np.broadcast_to(rng.standard_normal(2), sentences.shape)
    printed, read = f.rnn(stale, **params)[:, -1], f.rnn(sentences, **params)[:, -1]
    return erratum(
        "distance of two sentences' final states in the printed loop",
        np.abs(printed[0] - printed[1]).max(),
        np.abs(read[0] - read[1]).max(),
        same("the printed loop cannot tell them apart", printed[0], printed[1]),
        by=0.05,
    )


@verify("an-rnn-is-parallel-over-the-batch")
def parallel_over_batch() -> Evidence:
    """Of B T cell evaluations only T are in sequence: with a batch of 8 an eighth of the work is a chain."""
    rng, batch, steps = np.random.default_rng(7), 8, 4
    params = {
        "weight_ih": rng.standard_normal((3, 2)),
        "weight_hh": rng.standard_normal((3, 3)) / 3,
        "bias": np.zeros(3),
    }
    x = rng.standard_normal((batch, steps, 2))
    alone = np.concatenate([f.rnn(row[None], **params) for row in x])
    return erratum(
        "cell evaluations at once",
        1,
        batch,
        close("together as one by one", f.rnn(x, **params), alone, 1e-12),
    )


def _influence(recurrent: Array, inputs: Array) -> Array:
    """Spectral norms of d s_t / d s_0 of a tanh recurrence, t = 1 .. T."""
    state, jacobian, norms = np.zeros(len(recurrent)), np.eye(len(recurrent)), []
    for x in inputs:
        state = np.tanh(recurrent @ state + x)
        jacobian = (1 - state**2)[:, None] * (recurrent @ jacobian)
        norms.append(np.linalg.norm(jacobian, 2))
    return np.array(norms)


@verify("a-recurrence-near-the-identity-keeps-its-information")
def near_identity() -> Evidence:
    inputs = np.random.default_rng(8).standard_normal((100, 32))
    contracting = _influence(0.9 * np.roll(np.eye(32), 1, axis=0), inputs)
    identity = _influence(np.eye(32), 1e-4 * inputs)
    return erratum(
        "influence of s_0 after 100 steps, in every recurrence",
        contracting[-1],
        identity[-1],
        true(
            "contracting: within 0.9^t",
            bool((contracting <= 0.9 ** np.arange(1, 101) + 1e-12).all()),
            got=contracting[-1],
        ),
        true("near the identity: kept", identity[-1] > 0.99, got=identity[-1], expected="> 0.99"),
        by=0.9,
    )


@verify("lstm-gates-ease-forgetting")
def lstm_gates() -> Evidence:
    gates = sigmoid(np.array([1.0, 5.0]))
    kept = gates**100
    return all_of(
        close("sigmoid(1)^100 and sigmoid(5)^100", kept / [2.4844e-14, 0.51092], [1.0, 1.0], 1e-4),
        true("more than a factor of 0.5 keeps, less than all", 0.5**100 < kept[0] < kept[1] < 1, got=kept),
    )


@verify("an-lstm-cell-path-need-not-vanish")
def lstm_path() -> Evidence:
    open_gate, half_gate = sigmoid(np.array([10.0, 0.0])) ** 100
    return erratum(
        "d c_100 / d c_0 with a forget gate of sigmoid(10)",
        0.0,
        open_gate,
        close("it is 0.99547", open_gate, 0.9954704, 1e-6),
        close("a gate of 0.5 forgets", half_gate, 0.5**100, 1e-40),
        by=0.9,
    )


@verify("one-rnn-can-map-n-tokens-to-m")
def one_rnn() -> Evidence:
    params, rng = _random_rnn(9), np.random.default_rng(10)
    source, target = rng.standard_normal((1, 5, 2)), rng.standard_normal((1, 3, 2))
    context = f.rnn(source, **params)[:, -1]
    decoder = f.rnn(target, **params, state=context)
    single = f.rnn(np.concatenate([source, target], axis=1), **params)[:, 5:]
    return erratum(
        "networks needed for N tokens to M", 2, 1, close("one run has the states of both", single, decoder, 1e-12)
    )


@verify("a-decoder-without-attention-sees-one-vector")
def context_only() -> Evidence:
    """Two sources with the same last state give the same decode; the decoder never meets their other states."""
    params, rng = _random_rnn(11), np.random.default_rng(12)
    first, words = rng.standard_normal((1, 4, 2)), rng.standard_normal((1, 3, 2))
    context = f.rnn(first, **params)[:, -1]
    # another source of one token that ends in the same state: solve W_x x = atanh(h) - b for a square W_x
    square = {**params, "weight_ih": rng.standard_normal((3, 3))}
    other = np.linalg.solve(square["weight_ih"], (np.arctanh(context) - params["bias"])[0])
    same_context = f.rnn(other[None, None], **square)[:, -1]
    decoded = f.rnn(words, **params, state=context)
    return all_of(
        close("two sources, one context vector", same_context, context, 1e-9),
        close("one decode", f.rnn(words, **params, state=same_context), decoded, 1e-8),
        true("which starts from it", bool(np.abs(f.rnn(words, **params) - decoded).max() > 1e-3)),
    )


@verify("a-decoder-also-uses-its-own-words")
def own_words() -> Evidence:
    params, rng = _random_rnn(13), np.random.default_rng(14)
    context, words = rng.standard_normal((1, 3)), rng.standard_normal((1, 3, 2))
    other = words.copy()
    other[:, 0] += 1.0
    states, changed = f.rnn(words, **params, state=context), f.rnn(other, **params, state=context)
    gap = float(np.abs(states[:, -1] - changed[:, -1]).max())
    return erratum(
        "what another first word changes in later states, s_0 being equal",
        0.0,
        gap,
        same("with words fixed, s_0 alone decides", states, f.rnn(words, **params, state=context.copy())),
        by=1e-3,
    )


@verify("a-bidirectional-rnn-labels-late")
def bidirectional() -> Evidence:
    forward, backward, rng = _random_rnn(15), _random_rnn(16), np.random.default_rng(17)
    x = rng.standard_normal((1, 4, 2))
    later = x.copy()
    later[:, -1] += 1.0

    def first_output(params: dict[str, Array], tokens: Array, reverse: bool) -> Array:
        return f.rnn(tokens[:, ::-1], **params)[:, ::-1][0, 0] if reverse else f.rnn(tokens, **params)[0, 0]

    one_way = np.abs(first_output(forward, x, False) - first_output(forward, later, False)).max()
    other_way = np.abs(first_output(backward, x, True) - first_output(backward, later, True)).max()
    return erratum(
        "what the last word changes in the first label of a bidirectional network",
        0.0,
        other_way,
        same("in a one-directional network", one_way, 0.0),
        by=1e-4,
    )
