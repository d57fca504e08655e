"""Checks of LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import gradient_bound, loaded
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, same, tolerance
from conformance.protocol import Array, Arrays, Subject
from conformance.reference import norms as f


def build_norm(
    impl: Any, draw: Draw, role: str, width: int, params: Arrays | None = None, **config: Any
) -> tuple[Subject, Arrays]:
    """A norm of `width` features with random weight and bias, unless given; the bias is zero where there is none."""
    config = {"d_model": width, **config}
    if params is None:
        return loaded(impl, draw, role, **config)
    subject = impl.build(role, config)
    subject.load(params)
    return subject, params


def plain(width: int) -> Arrays:
    """Weight one and bias zero."""
    return {"weight": np.ones(width), "bias": np.zeros(width)}


def tokens(draw: Draw, low: int = 2, high: int = 16, pin: int = 5) -> Array:
    """Tokens of few features, where n and n - 1 differ much, each of its own scale and offset."""
    b, t, d = draw.int("B", 1, 3, 2), draw.int("T", 1, 5, 3), draw.int("d_model", low, high, pin)
    scale = 10.0 ** draw.uniform("scale", (b, t, 1), -1.0, 2.0)
    return draw.normal("x", (b, t, d)) * scale + draw.normal("offset", (b, t, 1)) * scale


def digits_lost(x: Array, eps: float) -> float:
    """By what factor centring magnifies the rounding of a token's features: they are rounded at their own size, and
    divided by a spread that is much smaller where they nearly agree."""
    return max(1.0, float((np.abs(x).max(-1) / np.sqrt(x.var(-1) + eps)).max()))


def norm_bound(subject: Subject, width: int, gain: float = 1.0) -> float:
    """Rounding of a normalised row: its mean is about as large as its spread, its entries at most sqrt(d)."""
    return tolerance(subject.dtype, width, max(gain, 1.0) * 4.0)


@check("layer-norm-formula", roles=("layer_norm",))
def layer_norm_formula(impl: Any, draw: Draw) -> Evidence:
    """LayerNorm(x) = gamma * (x - mean) / sqrt(var + eps) + beta over the last axis, var dividing by d."""
    x = tokens(draw)
    eps = draw.choice("eps", (1e-6, 1e-5, 1e-2), pin=1e-5)
    subject, p = build_norm(impl, draw, "layer_norm", x.shape[-1], eps=eps)
    expected = f.layer_norm(x, p["weight"], p["bias"], eps)
    bound = norm_bound(subject, x.shape[-1], np.abs(expected).max()) * digits_lost(x, eps)
    return close("LayerNorm(x)", subject(x=x)["out"], expected, bound)


@check("layer-norm-variance-divides-by-d", roles=("layer_norm",), examples=0)
def layer_norm_biased_variance(impl: Any, draw: Draw) -> Evidence:
    """[1, 2, 3, 4] has variance 1.25 and becomes +-1.3416, +-0.4472 (1.1619 with the divisor d - 1)."""
    subject, _ = build_norm(impl, draw, "layer_norm", 4, plain(4), eps=1e-6)
    got = subject(x=np.array([[[1.0, 2.0, 3.0, 4.0]]]))["out"]
    expected = np.array([[[-1.5, -0.5, 0.5, 1.5]]]) / np.sqrt(1.25 + 1e-6)
    return close("LayerNorm([1, 2, 3, 4])", got, expected, norm_bound(subject, 4))


@check("layer-norm-eps-stands-inside-the-root", roles=("layer_norm",))
def layer_norm_eps(impl: Any, draw: Draw) -> Evidence:
    """Where the variance is about eps the output is (x - mean) / sqrt(var + eps): not eps beside the root."""
    width, eps = draw.int("d_model", 2, 9, 4), draw.choice("eps", (1e-6, 1e-5), pin=1e-6)
    ratio = draw.choice("variance / eps", (0.1, 1.0, 10.0), pin=1.0)
    x = draw.uniform("x", (1, 1, width)) + np.linspace(-2, 2, width)  # no two alike: the scaling loses no digits
    x = (x - x.mean()) / x.std() * np.sqrt(ratio * eps)
    subject, _ = build_norm(impl, draw, "layer_norm", width, plain(width), eps=eps)
    expected = x / np.sqrt(eps * (1 + ratio))
    return close("LayerNorm at a tiny variance", subject(x=x)["out"], expected, norm_bound(subject, width))


@check("layer-norm-of-a-constant-is-its-bias", roles=("layer_norm",))
def layer_norm_constant(impl: Any, draw: Draw) -> Evidence:
    """A token of equal features has variance 0; eps makes the output beta, not NaN."""
    width = draw.int("d_model", 1, 8, 4)
    subject, p = build_norm(impl, draw, "layer_norm", width)
    value = float(draw.choice("value", (0.0, 0.5, 3.0, -2.0), pin=3.0))
    got = subject(x=np.full((1, 2, width), value))["out"]
    size = abs(value) * float(np.abs(p["weight"]).max()) / 1e-5**0.5
    return close(
        "LayerNorm of a constant",
        got,
        np.broadcast_to(p["bias"], got.shape),
        tolerance(subject.dtype, 1, 4.0 + size),
        "the mean's rounding, divided by sqrt(eps)",
    )


@check("layer-norm-is-per-token", roles=("layer_norm",))
def layer_norm_per_token(impl: Any, draw: Draw) -> Evidence:
    """Each token is normalised by its own statistics: enormous other tokens of sequence and batch change nothing."""
    b, t, width = draw.int("B", 2, 3, 2), draw.int("T", 2, 4, 3), draw.int("d_model", 2, 8, 5)
    x = draw.normal("x", (b, t, width))
    subject, p = build_norm(impl, draw, "layer_norm", width)
    poisoned = 1e5 * (1.0 + x)
    poisoned[0, 0] = x[0, 0]
    got = subject(x=poisoned)["out"][0, 0]
    return close(
        "the token among huge ones", got, f.layer_norm(x[0, 0], p["weight"], p["bias"]), norm_bound(subject, width)
    )


@check("layer-norm-does-not-depend-on-the-batch", roles=("layer_norm",))
def layer_norm_batch(impl: Any, draw: Draw) -> Evidence:
    """A sample gets the same output in a batch of eight and alone."""
    width = draw.int("d_model", 2, 8, 4)
    x = draw.normal("x", (8, 2, width))
    subject, _ = build_norm(impl, draw, "layer_norm", width)
    return close("sample 0 alone", subject(x=x[:1])["out"], subject(x=x)["out"][:1], norm_bound(subject, width))


@check("layer-norm-output-has-mean-zero-and-unit-variance", roles=("layer_norm",))
def layer_norm_statistics(impl: Any, draw: Draw) -> Evidence:
    """With gamma 1 and beta 0 each token has mean 0 and variance v / (v + eps)."""
    x = tokens(draw)
    width, eps = x.shape[-1], 1e-5
    subject, _ = build_norm(impl, draw, "layer_norm", width, plain(width), eps=eps)
    out = subject(x=x)["out"]
    variance = x.var(-1)
    bound = norm_bound(subject, width) * digits_lost(x, eps)
    return all_of(
        close("means", out.mean(-1), np.zeros(x.shape[:-1]), bound),
        close("variances", out.var(-1), variance / (variance + eps), bound),
    )


@check("layer-norm-ignores-shift-and-scale", roles=("layer_norm",))
def layer_norm_invariance(impl: Any, draw: Draw) -> Evidence:
    """LayerNorm(a x + c) = LayerNorm(x) for a > 0, up to eps; LayerNorm(-x) = -LayerNorm(x)."""
    width = draw.int("d_model", 2, 9, 5)
    x = draw.normal("x", (1, 2, width))
    a, c = draw.choice("a", (10.0, 1000.0), pin=10.0), draw.choice("c", (0.0, 7.0, -3.0), pin=7.0)
    eps = 1e-8
    subject, _ = build_norm(impl, draw, "layer_norm", width, plain(width), eps=eps)
    plainly = subject(x=x)["out"]
    size = float(np.abs(a * x + c).max() / (a * x.std(-1).min()))
    bound = norm_bound(subject, width, size) + eps / float(x.var(-1).min()) * width**0.5
    return all_of(
        close("LayerNorm(a x + c)", subject(x=a * x + c)["out"], plainly, bound, "rounding, and eps / variance"),
        close("LayerNorm(-x)", subject(x=-x)["out"], -plainly, bound),
    )


@check("layer-norm-survives-a-large-offset", roles=("layer_norm",))
def layer_norm_offset(impl: Any, draw: Draw) -> Evidence:
    """Features 10000 + noise: the variance must be taken of centred values, E[x^2] - E[x]^2 loses every digit."""
    width = draw.int("d_model", 8, 64, 64)
    subject, _ = build_norm(impl, draw, "layer_norm", width, plain(width))
    x = (1e4 + draw.uniform("x", (1, 1, width))).astype(subject.dtype).astype(np.float64)
    bound = tolerance(subject.dtype, width, 1e4 / float(x.std()), safety=4.0)
    return close("LayerNorm(10000 + noise)", subject(x=x)["out"], f.layer_norm(x), bound)


@check("layer-norm-gain-and-shift-are-elementwise", roles=("layer_norm",))
def layer_norm_affine(impl: Any, draw: Draw) -> Evidence:
    """Feature c of the output is gamma_c times the plain one plus beta_c."""
    x = tokens(draw)
    width = x.shape[-1]
    subject, p = build_norm(impl, draw, "layer_norm", width)
    got = subject(x=x)["out"]
    subject.load(plain(width))
    expected = p["weight"] * subject(x=x)["out"] + p["bias"]
    return close("gamma * plain + beta", got, expected, norm_bound(subject, width, np.abs(expected).max()))


@check("layer-norm-has-a-gain-and-a-shift-per-feature", roles=("layer_norm",))
def layer_norm_parameters(impl: Any, draw: Draw) -> Evidence:
    """gamma and beta have d entries each and start at 1 and 0."""
    width = draw.int("d_model", 1, 12, 6)
    got = impl.build("layer_norm", {"d_model": width}).params()
    return all_of(
        same("initial gamma", got.get("weight"), np.ones(width)),
        same("initial beta", got.get("bias"), np.zeros(width)),
        same("number of parameters", sum(a.size for a in got.values()), 2 * width),
    )


@check("layer-norm-gradients-of-gain-and-shift", roles=("layer_norm",), needs=("layer_norm.vjp",), examples=3)
def layer_norm_gradients(impl: Any, draw: Draw) -> Evidence:
    """d beta is the cotangent summed over tokens, d gamma the cotangent times the normalised x, summed."""
    b, t, width = draw.int("B", 1, 2, 2), draw.int("T", 1, 3, 3), draw.int("d_model", 2, 5, 4)
    x, cotangent = draw.normal("x", (b, t, width)), draw.normal("cotangent", (b, t, width))
    subject, p = build_norm(impl, draw, "layer_norm", width)
    of_inputs, got = subject.vjp({"x": x}, cotangent)
    normalised, lost = f.layer_norm(x), digits_lost(x, 1e-5)
    bound = gradient_bound(subject, b * t * width, 16.0) * lost
    slope = float((np.abs(p["weight"] * cotangent).max(-1) / np.sqrt(x.var(-1) + 1e-5)).max())
    beta = [close("gradient of beta", got["bias"], cotangent.sum((0, 1)), bound)] if "bias" in got else []
    return all_of(
        *beta,
        close("gradient of gamma", got["weight"], (cotangent * normalised).sum((0, 1)), bound),
        close(
            "gradient of x, summed over features",
            of_inputs["x"].sum(-1),
            np.zeros((b, t)),
            gradient_bound(subject, width, max(4.0, slope) * lost),
            "rounding of terms as large as the cotangent over the spread",
        ),
    )


@check("layer-norm-is-the-same-in-training", roles=("layer_norm",))
def layer_norm_train(impl: Any, draw: Draw) -> Evidence:
    """Training and inference compute the same; nothing is remembered between calls."""
    x = tokens(draw)
    subject, _ = build_norm(impl, draw, "layer_norm", x.shape[-1])
    before = subject(x=x)["out"]
    subject.train(True)
    during = subject(x=x)["out"]
    subject(x=x + 5.0)
    subject.train(False)
    return all_of(same("output in training", during, before), same("output afterwards", subject(x=x)["out"], before))


# --- RMSNorm --------------------------------------------------------------------------------------


@check("rms-norm-formula", roles=("rms_norm",))
def rms_norm_formula(impl: Any, draw: Draw) -> Evidence:
    """RMSNorm(x) = x / sqrt(mean(x^2) + eps) * weight; a zero token stays zero."""
    x = tokens(draw)
    x[0, 0] = 0.0
    eps = draw.choice("eps", (1e-6, 1e-2), pin=1e-6)
    subject, p = build_norm(impl, draw, "rms_norm", x.shape[-1], eps=eps)
    if is_bounded_below(subject, x, p["weight"], eps):
        return note("eps", "a lower bound of the denominator, and no part of the sum")
    if getattr(impl, "infers", False) and is_beside_the_root(subject, x, p["weight"]):
        return note("eps", "added to the root, as in bzhangGo/rmsnorm, the code of its authors")
    expected = f.rms_norm(x, p["weight"], eps)
    return close("RMSNorm(x)", subject(x=x)["out"], expected, norm_bound(subject, x.shape[-1], np.abs(expected).max()))


def is_beside_the_root(subject: Subject, x: Array, weight: Array) -> bool:
    """Whether it is x / (rms + eps) * weight, with one of the usual numbers for eps: for these tokens, and for ones so
    small that it makes a difference. Tokens of zeros tell nothing."""
    if not x.any():
        return False
    for eps in (1e-8, 1e-6, 1e-5, 1e-4):
        pairs = []
        for given in (x, 1e-3 * x):
            root = np.sqrt((given**2).mean(-1, keepdims=True))
            pairs.append((subject(x=given)["out"], given / (root + eps) * weight))
        if all(np.allclose(got, expected, rtol=1e-5, atol=1e-7) for got, expected in pairs):
            return True
    return False


def is_bounded_below(subject: Subject, x: Array, weight: Array, eps: float) -> bool:
    """Whether it is x / max(rms, eps) * weight, or that with a mean square of eps at least: for these tokens, and for
    tokens so small that the bound is what divides them."""
    width = x.shape[-1]
    for least in (eps, eps**0.5):
        small = np.linspace(0.5, 1.0, width).reshape(1, 1, width) * least / 4
        agrees = []
        for given in (x, small):
            expected = given / np.maximum(np.sqrt((given**2).mean(-1, keepdims=True)), least) * weight
            bound = norm_bound(subject, width, np.abs(expected).max())
            agrees.append(np.abs(subject(x=given)["out"] - expected).max() <= bound)
        if all(agrees):
            return True
    return False


@check("rms-norm-keeps-the-mean", roles=("rms_norm",))
def rms_norm_keeps_mean(impl: Any, draw: Draw) -> Evidence:
    """Nothing is subtracted: a positive constant vector becomes all ones, whatever its size."""
    width, value = draw.int("d_model", 1, 9, 4), draw.choice("value", (0.5, 3.0, 100.0), pin=3.0)
    subject, _ = build_norm(impl, draw, "rms_norm", width, {"weight": np.ones(width)}, eps=1e-9)
    got = subject(x=np.full((1, 1, width), value))["out"]
    return close("RMSNorm of a constant", got, np.ones((1, 1, width)), norm_bound(subject, width) + 1e-8)


@check("rms-norm-ignores-scale", roles=("rms_norm",))
def rms_norm_scale(impl: Any, draw: Draw) -> Evidence:
    """RMSNorm(a x) = RMSNorm(x) for a > 0, up to eps: the root is taken, and the mean, not the sum, has size 1."""
    width, a = draw.int("d_model", 2, 9, 4), draw.choice("a", (5.0, 0.1, 100.0), pin=5.0)
    x, eps = draw.normal("x", (1, 3, width)) + 0.5, 1e-10
    subject, _ = build_norm(impl, draw, "rms_norm", width, {"weight": np.ones(width)}, eps=eps)
    out = subject(x=x)["out"]
    bound = norm_bound(subject, width) + eps / float((x**2).mean(-1).min() * min(a, 1.0) ** 2) * width**0.5
    return all_of(
        close("RMSNorm(a x)", subject(x=a * x)["out"], out, bound, "rounding, and eps / mean square"),
        close("mean square of the output", (out**2).mean(-1), np.ones((1, 3)), bound),
    )


@check("layer-norm-is-rms-norm-of-the-centred-vector", roles=("layer_norm", "rms_norm"))
def layer_norm_by_rms_norm(impl: Any, draw: Draw) -> Evidence:
    """LayerNorm(x) with beta 0 equals RMSNorm(x - mean) with the same eps and gain."""
    x = tokens(draw)
    width, eps = x.shape[-1], 1e-5
    gain = draw.normal("gain", (width,))
    layer, _ = build_norm(impl, draw, "layer_norm", width, {"weight": gain, "bias": np.zeros(width)}, eps=eps)
    rms, _ = build_norm(impl, draw, "rms_norm", width, {"weight": gain}, eps=eps)
    centred = x - x.mean(-1, keepdims=True)
    bound = norm_bound(layer, width, float(np.abs(gain).max()) * width**0.5)
    return close("RMSNorm(x - mean)", rms(x=centred)["out"], layer(x=x)["out"], bound)


@check("rms-norm-has-one-gain-per-feature", roles=("rms_norm",))
def rms_norm_parameters(impl: Any, draw: Draw) -> Evidence:
    """d parameters, all one at the start: no shift."""
    width = draw.int("d_model", 1, 12, 6)
    got = impl.build("rms_norm", {"d_model": width}).params()
    return all_of(
        same("parameters", {name: a.shape for name, a in got.items()} == {"weight": (width,)}, True),
        same("initial weight", got.get("weight"), np.ones(width)),
    )
