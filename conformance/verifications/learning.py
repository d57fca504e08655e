"""What small models learn, in closed form or by a few steps of descent, and how deep stacks start."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.reference.attention import attention, softmax
from conformance.reference.norms import layer_norm
from conformance.reference.positions import frequencies, sinusoid
from conformance.reference.training import cross_entropy, cross_entropy_gradient
from conformance.verifications.base import erratum, rounds_to, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64, 16)


# --- learning on short sequences, used on long ones -----------------------------------------------------

TRAINED, BACK, WIDTH = 16, 2, 16


def features(kind: str, i: Array, j: Array) -> Array:
    """What a score of query position i and key position j can be linear in: ``(pairs, features)``."""
    if kind == "rope":
        angles = np.multiply.outer(i - j, frequencies(WIDTH))
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    codes = sinusoid(np.arange(128), WIDTH)
    return np.einsum("na,nb->nab", codes[i], codes[j]).reshape(len(i), -1)


def accuracy(kind: str, first: int, last: int) -> float:
    """Share of positions in [first, last) whose best key is the one two places back.

    The score is fitted by ridge regression to all pairs of positions below 16.
    """
    pairs = np.array([(i, j) for i in range(BACK, TRAINED) for j in range(i + 1)])
    known, wanted = features(kind, pairs[:, 0], pairs[:, 1]), pairs[:, 0] - pairs[:, 1] == BACK
    fitted = np.linalg.solve(known.T @ known + 0.01 * np.eye(known.shape[1]), known.T @ wanted)
    found = [np.argmax(features(kind, np.full(i + 1, i), np.arange(i + 1)) @ fitted) for i in range(first, last)]
    return float(np.mean(np.array(found) == np.arange(first, last) - BACK))


@verify("sinusoids-do-not-carry-a-fit-to-new-positions")
def sinusoids_do_not_carry() -> Evidence:
    return all_of(
        same("on the positions of the fit", accuracy("sinusoid", BACK, TRAINED), 1.0),
        true(
            "on as many new ones",
            accuracy("sinusoid", TRAINED, 32) < 0.2,
            got=accuracy("sinusoid", TRAINED, 32),
            expected="< 0.2",
        ),
    )


@verify("rotations-carry-a-fit-further-than-sinusoids")
def rotations_carry() -> Evidence:
    return same(
        "twice the length of the fit: rotations and sinusoids",
        [accuracy(k, TRAINED, 32) for k in ("rope", "sinusoid")],
        [1, 0],
    )


@verify("rotations-degrade-beyond-twice-the-trained-length")
def rotations_degrade() -> Evidence:
    near, far = accuracy("rope", TRAINED, 32), accuracy("rope", 32, 96)
    right = same("up to twice the length of the fit", near, 1.0)
    return erratum("accuracy of rotations at two to six times the length", near, far, right, by=0.3)


@verify("alibi-keeps-its-weights-at-new-lengths")
def alibi_keeps() -> Evidence:
    slope = 0.5

    def weights(n: int) -> Array:
        """Of the last query on the keys by distance, nearest first."""
        return softmax(-slope * np.arange(n))

    beyond = weights(64)[TRAINED:].sum()
    return all_of(
        close("mass on distances that training never saw", beyond, np.exp(-slope * TRAINED), 1e-6, "geometric series"),
        close("weights of the nearest 16", weights(64)[:TRAINED], weights(TRAINED), 1e-3, "that mass"),
    )


# --- alignment (000 2.12.4) ---------------------------------------------------------------------------------


@verify("alignment-is-learned-without-supervision")
def alignment() -> Evidence:
    n, vocabulary = 6, 10
    rng = np.random.default_rng(0)
    logits = np.zeros((n, n))
    for _ in range(200):
        source = rng.integers(0, vocabulary, (64, n))
        weights = softmax(logits)
        hits = source[:, None, :] == source[:, :, None]  # target word t is the translation of source word t
        probability = (weights * hits).sum(-1, keepdims=True)
        gradient = (weights * (1 - hits / probability)).mean(0)
        logits = logits - 2 * gradient
    diagonal = softmax(logits).diagonal()
    return all_of(
        true(
            "every target word attends mostly to its source word", diagonal.min() > 0.5, got=diagonal, expected="> 0.5"
        ),
        close("before training all weights were equal", softmax(np.zeros((n, n)))[0, 0], 1 / n, ROUNDING),
    )


# --- gradients of the loss -----------------------------------------------------------------------------------

WORDS = np.log([[0.01, 0.4, 0.1, 0.49]])


@verify("the-loss-lowers-wrong-scores-and-raises-the-right-one")
def wrong_and_right() -> Evidence:
    gradient = cross_entropy_gradient(WORDS, np.array([1]))[0]
    after = softmax(WORDS - gradient)[0]
    return all_of(
        close("probabilities minus the one-hot label", gradient, [0.01, -0.6, 0.1, 0.49], ROUNDING),
        true("after a step the right word gains", after[1] > 0.4, got=after, expected="> 0.4"),
    )


@verify("apple-love-and-hate-are-part-of-a-distribution")
def apple_love_hate() -> Evidence:
    probabilities = softmax(WORDS)[0]
    return all_of(
        close("softmax of the logarithms", probabilities[:3], [0.01, 0.4, 0.1], ROUNDING),
        close("what is left for the other words", probabilities[3:].sum(), 1 - 0.51, ROUNDING),
        rounds_to("loss of 'love'", cross_entropy(WORDS, np.array([1])), 0.9163, 4),
    )


# --- deep stacks at the start -----------------------------------------------------------------------------------

TOKENS, FEATURES = 8, 32


def normalise(x: Array) -> Array:
    return layer_norm(x, np.ones(x.shape[-1]), np.zeros(x.shape[-1]))


def normalised_gradient(x: Array, upstream: Array) -> Array:
    """The gradient of sum(layer_norm(x) * upstream) with respect to x."""
    unit = normalise(x)
    centred = upstream - upstream.mean(-1, keepdims=True) - unit * (upstream * unit).mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def deep_stack(layers: int, placement: str, scale: float = 1.0) -> tuple[float, float]:
    """Standard deviation of a stack's output, and gradient norm of its last FFN output matrix.

    Xavier-initialised attention and FFN layers; placement: 'pre', 'post' or 'none'. scale multiplies the output
    matrices of both sublayers. The upstream gradient, after the final norm, is standard normal.
    """
    rng = np.random.default_rng(0)
    x, hidden = rng.standard_normal((TOKENS, FEATURES)), np.zeros(0)

    def xavier(n_in: int, n_out: int) -> Array:
        bound = (6 / (n_in + n_out)) ** 0.5
        return rng.uniform(-bound, bound, (n_in, n_out))

    def before(y: Array) -> Array:
        return normalise(y) if placement == "pre" else y

    def after(y: Array) -> Array:
        return normalise(y) if placement == "post" else y

    summed = x
    for _ in range(layers):
        z = before(x)
        q, k, v = (z @ xavier(FEATURES, FEATURES) for _ in range(3))
        x = after(x + scale * attention(q, k, v)[0] @ xavier(FEATURES, FEATURES))
        hidden = np.maximum(before(x) @ xavier(FEATURES, 4 * FEATURES), 0)
        summed = x + scale * hidden @ xavier(4 * FEATURES, FEATURES)
        x = after(summed)
    gradient = normalised_gradient(summed, rng.standard_normal(x.shape))
    return float(x.std()), float(np.linalg.norm(hidden.T @ gradient))


@verify("pre-norm-gradients-fall-with-depth")
def pre_norm_gradients() -> Evidence:
    pre, post = ([deep_stack(layers, p)[1] for layers in (2, 48)] for p in ("pre", "post"))
    return all_of(
        true(
            "pre-norm: gradient of the last layer at depth 48 over 2",
            pre[1] / pre[0] < 0.35,
            got=pre[1] / pre[0],
            expected="< 0.35",
        ),
        true("post-norm: it does not fall", post[1] / post[0] > 0.7, got=post[1] / post[0], expected="> 0.7"),
    )


@verify("post-norm-gradients-stay-large-at-the-start")
def post_norm_gradients() -> Evidence:
    pre, post = (deep_stack(24, placement)[1] for placement in ("pre", "post"))
    return true("post-norm's over pre-norm's at depth 24", post > 2 * pre, got=post / pre, expected="> 2")


@verify("residual-streams-accumulate")
def accumulate() -> Evidence:
    deviations = np.array([deep_stack(layers, "pre")[0] for layers in (2, 12, 48)])
    return all_of(
        true("the output grows with depth", (np.diff(deviations) > 0).all(), got=deviations),
        close("like its square root: depth 48 over 12", deviations[2] / deviations[1], 2, 0.6, "random weights"),
    )


@verify("scaled-initialisation-keeps-deep-stacks-level")
def scaled_initialisation() -> Evidence:
    plain, scaled = deep_stack(24, "none")[0], deep_stack(24, "none", (2 * 24) ** -0.5)[0]
    return all_of(
        true("without norm and scale the output explodes", plain > 100, got=plain, expected="> 100"),
        close("with output matrices times (2 L)^-0.5", scaled, 1, 0.5, "random weights"),
    )


@verify("a-norm-speeds-training-up-at-moderate-rates-only")
def norm_and_rate() -> Evidence:
    def loss_after(steps: int, rate: float, norm: bool) -> float:
        """Squared error of six ReLU layers of width 16 after descent on tanh(x_0 x_1); inf when it diverged."""
        rng = np.random.default_rng(0)
        x = 5 * rng.uniform(-1, 1, (32, 16))
        y = np.tanh(x[:, :1] * x[:, 1:2])
        matrices = [rng.uniform(-1, 1, (16, n)) / 4 for n in (16,) * 6 + (1,)]
        error = y
        for _ in range(steps):
            hidden, tape = x, []
            for w in matrices[:-1]:
                summed = hidden @ w
                unit = normalise(summed) if norm else summed
                tape.append((hidden, summed, unit))
                hidden = np.maximum(unit, 0)
            error = hidden @ matrices[-1] - y
            if not np.abs(error).max() < 1e3:
                return float("inf")
            gradient = 2 * error / len(x)
            updates, gradient = [hidden.T @ gradient], gradient @ matrices[-1].T
            for (below, summed, unit), w in zip(reversed(tape), reversed(matrices[:-1]), strict=True):
                gradient = gradient * (unit > 0)
                gradient = normalised_gradient(summed, gradient) if norm else gradient
                updates.append(below.T @ gradient)
                gradient = gradient @ w.T
            matrices = [w - rate * g for w, g in zip(matrices, reversed(updates), strict=True)]
        return float((error**2).mean())

    moderate = [loss_after(15, 0.03, norm) for norm in (False, True)]
    large = [loss_after(15, 0.3, norm) for norm in (False, True)]
    right = true(
        "at rate 0.03 the normalised network is far ahead",
        moderate[1] < moderate[0] / 2,
        got=moderate,
        expected="less than half",
    )
    return erratum("at rate 0.3 it still trains (plain, normalised)", [True, True], np.isfinite(large), right)


@verify("deeper-products-need-smaller-rates")
def deeper_products() -> Evidence:
    """The simplest residual stack: y = prod(1 + w_l), fitted to 3 by descent on half the squared error."""

    def converges(layers: int, rate: float) -> bool:
        w = np.full(layers, 0.02)
        for _ in range(60):
            product = np.prod(1 + w)
            w = w - rate * (product - 3) * product / (1 + w)
            if np.abs(w).max() > 50:
                return False
        return bool(abs(np.prod(1 + w) - 3) < 1e-3)

    return all_of(
        same("rate 0.1 at depth 2 and 24", [converges(n, 0.1) for n in (2, 24)], [True, False]),
        true("depth 24 needs a twentieth of it", converges(24, 0.005)),
    )
