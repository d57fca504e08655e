"""Checks of single-head self-attention: the projections W_Q, W_K, W_V around attention (document 000 section 2.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.attention import score_differences
from conformance.checks.subjects import POISON, loaded, offered, usual_mask
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import Array, Arrays
from conformance.reference import multi_head as f

# The three words of document 000 section 2.2.4, as one batch.
WORDS = np.array([[[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.2, 0.3, 0.4, 0.5]]])


def layer_bound(subject: Any, p: Arrays, query: Array, key: Array, value: Array) -> float:
    """Rounding through two projections, a softmax and a sum: see `attention_bound`; norms replace sums of products."""

    def longest(rows: Array) -> float:
        return float(np.linalg.norm(rows, axis=-1).max())

    q, k, v = f.project(p, "q_proj", query), f.project(p, "k_proj", key), f.project(p, "v_proj", value)
    out = longest(p["out_proj.weight"]) if "out_proj.weight" in p else 1.0
    scale = (1.0 + longest(q) * longest(k) / q.shape[-1] ** 0.5) * (1.0 + longest(v)) * (1.0 + out)
    return tolerance(subject.dtype, length=query.shape[-1] + key.shape[1], scale=scale)


def given(w_q: Any, w_k: Any, w_v: Any) -> Arrays:
    """Parameters from matrices as the documents write them: x W, W of shape (in, out)."""
    names = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
    return {name: np.asarray(w, np.float64).T for name, w in zip(names, (w_q, w_k, w_v), strict=True)}


def run(impl: Any, p: Arrays, x: Array) -> tuple[Array, Any]:
    """The output for given projections, and the subject's dtype."""
    d_k, d_model = p["q_proj.weight"].shape
    subject = impl.build("self_attention", {"d_model": d_model, "d_k": d_k})
    subject.load(p)
    return np.asarray(subject(x=x)["out"], np.float64), subject.dtype


@check("self-attention-projects-one-sequence-three-times", roles=("self_attention",))
def self_attention_formula(impl: Any, draw: Draw) -> Evidence:
    """Q = X W_Q, K = X W_K, V = X W_V of the same X, then attention: (B, T, d_model) to (B, T, d_k)."""
    d_model, d_k = draw.int("d_model", 1, 8, 6), draw.int("d_k", 1, 7, 4)
    x = draw.normal("x", (draw.int("B", 1, 3, 2), draw.int("T", 1, 6, 5), d_model))
    biases = (True, False) if draw.bool("bias", pin=True) else (False, True)
    config = offered(impl, "self_attention", {"d_model": d_model, "d_k": d_k}, bias=biases)
    subject, p = loaded(impl, draw, "self_attention", **config)
    mask = usual_mask(lambda x: subject(x=x), x)
    expected, _ = f.self_attention(p, x, None if mask is None else mask[:, 0])
    got = (subject(x=x) if mask is None else subject(x=x, mask=mask))["out"]
    return close("softmax(X W_Q (X W_K)^T / sqrt(d_k)) X W_V", got, expected, layer_bound(subject, p, x, x, x))


@check("projections-multiply-from-the-right", roles=("self_attention",), examples=0)
def projections_multiply_from_the_right(impl: Any, draw: Draw) -> Evidence:
    """With row vectors and weights on the right the three words give the printed-by-hand 3 x 4 output."""
    w_q = np.arange(16.0).reshape(4, 4) / 10
    got, dtype = run(impl, given(w_q, w_q.T - 0.5, np.triu(np.ones((4, 4)))), WORDS)
    expected = [
        [
            [0.3369132, 0.7738264, 1.3107396, 1.9476528],
            [0.4183867, 0.9367734, 1.5551601, 2.2735468],
            [0.3597968, 0.8195936, 1.3793904, 2.0391871],
        ]
    ]
    return close("output", got, expected, tolerance(dtype, 8, 8.0) + 1e-7)


@check("self-attention-scales-by-its-key-width", roles=("self_attention",))
def scales_by_its_key_width(impl: Any, draw: Draw) -> Evidence:
    """The scale is the root of the width of Q and K, not of d_model."""
    d_k, t = draw.choice("d_k", (2, 4, 9, 16), 4), 4
    d_model = draw.choice("d_model", (16, 25), 25)
    x = draw.normal("x", (1, t, d_model), 0.5)
    # Values that read the scores out: W_V maps the four inputs to unit vectors (or the first of them, if d_k < 4).
    w_v = np.linalg.pinv(x[0]) @ np.eye(t, max(t, d_k))[:, :d_k]
    w_q, w_k = (draw.normal(name, (d_model, d_k), d_model**-0.5) for name in ("W_Q", "W_K"))
    seen = min(t, d_k)
    got, dtype = run(impl, given(w_q, w_k, w_v), x)
    raw = (x[0] @ w_q) @ (x[0] @ w_k).T
    expected = score_differences(np.exp(raw / np.sqrt(d_k)))[:, :seen]
    scale = float(np.exp(abs(raw).max() / np.sqrt(d_k))) * (1.0 + float(abs(w_v).max()))
    with np.errstate(invalid="ignore"):
        differences = score_differences(got[0, :, :seen])
    return close("score differences", differences, expected, tolerance(dtype, d_model, 4 * scale))


@check("separate-projections-ask-and-answer-differently", roles=("self_attention",), examples=0)
def separate_projections(impl: Any, draw: Draw) -> Evidence:
    """With W_Q and W_K of their own, word 0 can prefer word 1 to itself while word 1 stays undecided."""
    got, dtype = run(impl, given(20 * np.eye(2), [[0, 0], [1, 0]], np.eye(2)), np.eye(2)[None])
    expected = [[[7.2135363e-7, 0.99999928], [0.5, 0.5]]]
    return close("weights", got, expected, tolerance(dtype, 2, 20.0) + 1e-8)


@check("equal-projections-make-scores-symmetric", roles=("self_attention",))
def equal_projections_are_symmetric(impl: Any, draw: Draw) -> Evidence:
    """Scores are symmetric when W_K = W_Q, and are not when each has its own values."""
    t, d = 4, 6
    x = draw.normal("x", (1, t, d), 0.6)
    w_v = np.linalg.pinv(x[0]) @ np.eye(t, d)
    w_q, w_k = draw.normal("W_Q", (d, d), d**-0.5), draw.normal("W_K", (d, d), d**-0.5)

    def asymmetry(keys: Array) -> tuple[float, float]:
        weights, dtype = run(impl, given(w_q, keys, w_v), x)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = np.log(weights[0, :, :t])
        smallest = float(np.nanmin(np.append(weights[0, :, :t], 1.0)))
        size = (1.0 + float(abs(w_v).max())) / max(smallest, 1e-6)
        return _circle(s), tolerance(dtype, d, 8 * size)

    tied, bound = asymmetry(w_q)
    free, _ = asymmetry(w_k)
    expected = _circle((x[0] @ w_q) @ (x[0] @ w_k).T / d**0.5)
    return all_of(
        close("asymmetry with W_K = W_Q", tied, 0.0, bound),
        close("asymmetry with W_K of its own", free, expected, 4 * bound),
    )


def _circle(s: Array) -> float:
    """How asymmetric scores are, each row of which is known up to a constant: the sum around the circle 0-1-2 cancels
    the three of them."""
    return float((s[0, 1] - s[1, 0]) + (s[1, 2] - s[2, 1]) + (s[2, 0] - s[0, 2]))


@check("identity-projections-still-discriminate", roles=("self_attention",), examples=0)
def identity_projections_discriminate(impl: Any, draw: Draw) -> Evidence:
    """With Q = K = V = X the rows of the weights still differ: (0.306, 0.373, 0.321) and (0.262, 0.440, 0.298)."""
    got, dtype = run(impl, given(np.eye(4), np.eye(4), np.eye(4)), WORDS)
    expected = [
        [
            [0.28140769, 0.38140769, 0.48140769, 0.58140769],
            [0.30589467, 0.40589467, 0.50589467, 0.60589467],
            [0.28744717, 0.38744717, 0.48744717, 0.58744717],
        ]
    ]
    return close("output of the three words", got, expected, tolerance(dtype, 4, 2.0) + 1e-8)


@check("values-are-projected", roles=("self_attention",))
def values_are_projected(impl: Any, draw: Draw) -> Evidence:
    """V is X W_V, not X: doubling W_V doubles the output, and a feature with a zero row in W_V is not passed on."""
    d, row = 5, draw.int("row", 0, 4, 2)
    x = draw.normal("x", (2, 4, d))
    p = {f"{name}_proj.weight": draw.normal(name, (3, d), d**-0.5) for name in "qkv"}
    for name in "qkv":
        p[f"{name}_proj.weight"][:, row] = 0.0
    doubled = {**p, "v_proj.weight": 2 * p["v_proj.weight"]}
    moved = x + 7.0 * np.eye(d)[row]
    once, dtype = run(impl, p, x)
    bound = tolerance(dtype, d + 4, 4 * float(abs(once).max()) + 8.0)
    return all_of(
        close("W_V doubled", run(impl, doubled, x)[0], 2 * once, bound),
        close("a feature that no projection reads", run(impl, p, moved)[0], once, bound),
    )


@check("every-output-depends-on-every-input", roles=("self_attention",))
def every_output_depends_on_every_input(impl: Any, draw: Draw) -> Evidence:
    """In one unmasked layer every word reaches every output, its own included, at any distance."""
    t = draw.choice("T", (2, 5, 7, 24), 7)
    x = draw.normal("x", (1, t, 6))
    subject, p = loaded(impl, draw, "self_attention", d_model=6, d_k=4)
    changed = np.repeat(x, t, 0)
    changed[np.arange(t), np.arange(t)] += draw.normal("change", (6,)) + 1.0
    reach = abs(subject(x=changed)["out"] - subject(x=x)["out"]).max(-1)  # (changed word, output)
    smallest = float(reach.min())
    expected = abs(f.self_attention(p, changed)[0] - f.self_attention(p, x)[0]).max(-1)
    floor = layer_bound(subject, p, changed, changed, changed)
    draw.bites(expected.min() > floor, "the smallest influence is above rounding")
    at = tuple(int(i) for i in np.unravel_index(reach.argmin(), reach.shape))
    enough = expected.min() <= floor or smallest > 0.1 * expected.min()
    return true(f"influence of word {at[0]} on output {at[1]}", enough, got=smallest, expected=float(expected.min()))


@check("meaning-depends-on-context", roles=("self_attention",))
def meaning_depends_on_context(impl: Any, draw: Draw) -> Evidence:
    """The same word in two sentences gets two representations, whatever is at its own place."""
    x = np.repeat(draw.normal("x", (1, 5, 6)), 2, 0)
    place = draw.int("place", 0, 4, 2)
    others = np.arange(5) != place
    x[1, others] = draw.normal("other words", (4, 6))
    subject, _ = loaded(impl, draw, "self_attention", d_model=6, d_k=4)
    out = subject(x=x)["out"]
    change = float(abs(out[0, place] - out[1, place]).max())
    return true("change of the word's representation", change > 1e-3, got=change, expected="more than 0.001")


@check("scores-depend-on-the-product-of-the-projections", roles=("self_attention",))
def scores_depend_on_the_product(impl: Any, draw: Draw) -> Evidence:
    """Changing the coordinates of Q by A and of K by A^-T changes nothing: only W_Q W_K^T counts."""
    d, d_k = 6, 4
    x = draw.normal("x", (2, 5, d))
    w_q, w_k, w_v = (draw.normal(name, (d, d_k), d**-0.5) for name in ("W_Q", "W_K", "W_V"))
    a = np.linalg.qr(draw.normal("A", (d_k, d_k)))[0] * np.linspace(0.5, 2.0, d_k)  # condition number 4
    before, dtype = run(impl, given(w_q, w_k, w_v), x)
    after, _ = run(impl, given(w_q @ a, w_k @ np.linalg.inv(a).T, w_v), x)
    bound = tolerance(dtype, d + 5, 4 * (1.0 + float(abs(x).max())) ** 2)
    return close("output in other coordinates", after, before, bound)


@check("zero-queries-average-the-projected-values", roles=("self_attention",))
def zero_queries_average(impl: Any, draw: Draw) -> Evidence:
    """With W_Q = 0 every word gets mean(x) W_V."""
    x = draw.normal("x", (2, 5, 6))
    w_k, w_v = draw.normal("W_K", (6, 4), 0.4), draw.normal("W_V", (6, 4), 0.4)
    got, dtype = run(impl, given(np.zeros((6, 4)), w_k, w_v), x)
    expected = np.broadcast_to(x.mean(1, keepdims=True) @ w_v, got.shape)
    return close("mean(x) W_V", got, expected, tolerance(dtype, 11, float(abs(x).max())))


@check("single-head-has-three-projections", roles=("self_attention",), examples=2)
def single_head_has_three_projections(impl: Any, draw: Draw) -> Evidence:
    """W_Q, W_K and W_V are three separate parameters, and a single head has no output projection."""
    d_model, d_k = draw.int("d_model", 2, 9, 8), draw.int("d_k", 1, 9, 5)
    subject = impl.build("self_attention", {"d_model": d_model, "d_k": d_k})
    names = ("k_proj.weight", "q_proj.weight", "v_proj.weight")
    shapes = {name: value.shape for name, value in subject.params().items()}
    inventory = same("parameters and their shapes", shapes, dict.fromkeys(names, (d_k, d_model)))
    if not inventory.ok:
        return inventory
    p = {name: draw.normal(name, (d_k, d_model)) for name in names}
    subject.load(p)
    kept, bound = subject.params(), tolerance(subject.dtype, 1, 4.0)
    return all_of(inventory, *(close(f"{name} keeps its own values", kept[name], p[name], bound) for name in names))


@check("self-attention-mask-hides-keys-of-its-sequence", roles=("self_attention",))
def self_attention_mask(impl: Any, draw: Draw) -> Evidence:
    """A padding mask of sample 1 leaves sample 0 alone, and cuts sample 1 to its real words."""
    t, real = 5, draw.int("real words", 1, 4, 3)
    x = draw.normal("x", (2, t, 6))
    mask = np.ones((2, 1, t, t), bool)
    mask[1, ..., real:] = False
    poisoned = x.copy()
    poisoned[1, real:] = POISON
    subject, p = loaded(impl, draw, "self_attention", d_model=6, d_k=4)
    got = subject(x=poisoned, mask=mask)["out"]
    bound = layer_bound(subject, p, x, x, x)
    return all_of(
        close("sample without padding", got[:1], subject(x=x[:1])["out"], bound),
        close("real words of the padded sample", got[1:, :real], subject(x=x[1:, :real])["out"], bound),
    )


@check("projections-learn-from-the-output", roles=("self_attention",), needs=("self_attention.vjp",), examples=1)
def projections_learn(impl: Any, draw: Draw) -> Evidence:
    """W_Q, W_K and W_V all receive the gradient of the formula, found by central differences."""
    x, cotangent = draw.normal("x", (1, 4, 5)), draw.normal("cotangent", (1, 4, 3))
    subject, p = loaded(impl, draw, "self_attention", d_model=5, d_k=3)
    _, gradients = subject.vjp({"x": x}, cotangent)
    parts, step = [], 1e-5
    for name, value in p.items():
        direction = draw.normal(f"direction {name}", value.shape)
        above, below = (
            float((f.self_attention({**p, name: value + sign * step * direction}, x)[0] * cotangent).sum())
            for sign in (1, -1)
        )
        bound = 4 * layer_bound(subject, p, x, x, x) * float(np.abs(direction).sum()) + 1e-7  # step^2 error and 1e-9
        got = float((gradients[name] * direction).sum())
        parts.append(close(f"derivative along a direction of {name}", got, (above - below) / (2 * step), bound))
    return all_of(*parts)
