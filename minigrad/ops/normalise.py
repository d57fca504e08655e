"""Composites over the last or a chosen dimension: softmax, log-softmax, log-sum-exp, layer norm, RMS norm.

Each has a decomposition into simpler tensor ops, which defines it, and a derivative in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import filled
from minigrad.ops.derivation import Example, derive, grid
from minigrad.ops.elementwise import exp, log, rsqrt
from minigrad.ops.logic import isfinite
from minigrad.ops.operands import cast, floating
from minigrad.ops.reduce import Dims, amax, mean, rounded_once, sum
from minigrad.ops.registry import HALVES, Array, Meta, Op, Sample, op
from minigrad.ops.rules import normalise_dim
from minigrad.ops.selection import where
from minigrad.ops.shape import detach
from minigrad.tensor import Tensor


def _rows(*vectors: int) -> Example:
    """x ``(2, 3)`` and a vector ``(3,)`` for each seed."""
    return lambda: ([grid(2, 3), *[grid(3, seed=seed) for seed in vectors]], {"eps": 1e-5})


def _norm_grad_example(centre: bool) -> Example:
    g, x, weight = grid(2, 3, seed=3), grid(2, 3), grid(3, seed=1)
    average = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(np.mean((x - average * centre) ** 2, 1, keepdims=True) + 1e-5)
    return lambda: ([g, x, weight, *([average] if centre else []), rstd], {"eps": 1e-5})


def _along(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, dim in (((5,), 0), ((3, 4), 1), ((3, 4), 0), ((2, 3, 4), 1), ((2, 0), 0)):
        yield (rng.standard_normal(shape) * 2,), {"dim": dim}


# --- softmax ----------------------------------------------------------------------------------------


def _softmax(x: Array, *, dim: int) -> Array:
    if not x.size:
        return np.array(x)
    x = np.asarray(x, order="C")  # so is the result
    e = np.exp(x - np.max(x, axis=dim, keepdims=True))
    return e / np.sum(e, axis=dim, keepdims=True)


def _softmax_steps(x: Tensor, *, dim: int) -> Tensor:
    e = exp(x - detach(amax(x, dim, keepdim=True)))  # the shift cancels: its gradient is zero
    return e / sum(e, dim, keepdim=True)


softmax_op = op(
    "softmax",
    _softmax,
    {"x": lambda g, out, dim: softmax_grad_op(g, out, dim=dim)},
    decomposition=_softmax_steps,
    row_major=True,
    shape=rules.like_first,
    flops=rules.per_element(14),
    samples=_along,
    formula="e^(x_i - max x) / sum_j e^(x_j - max x)",
    source="document 000 section 2.2.3 step 3",
    kernels={"numba.softmax": "float32", "cuda.softmax": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "y_i = e^(x_i) / Z, Z = sum_j e^(x_j); ln y_i = x_i - ln Z",
        "dy_i / y_i = dx_i - dZ / Z, and dZ / Z = sum_j y_j dx_j",
        "dL = sum_i g_i y_i (dx_i - sum_j y_j dx_j) = sum_j y_j (g_j - sum_i g_i y_i) dx_j",
        x="y * (g - sum(g * y, dim))",
    ),
)


def _softmax_grad(g: Array, y: Array, *, dim: int) -> Array:
    weighted = g * y
    return weighted - y * np.sum(weighted, axis=dim, keepdims=True)


def _softmax_grad_steps(g: Tensor, y: Tensor, *, dim: int) -> Tensor:
    return y * (g - sum(g * y, dim, keepdim=True))


softmax_grad_op: Op = op(
    "softmax_grad",
    _softmax_grad,
    decomposition=_softmax_grad_steps,
    shape=rules.like_first,
    flops=rules.per_element(4),
    samples=lambda rng: [((rng.standard_normal((3, 4)), rng.random((3, 4))), {"dim": 1})],
    formula="y (g - sum_j g_j y_j)",
    kernels={"numba.softmax": "float32", "cuda.softmax": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "z = y (g - s), s = sum g y: linear in g, and symmetric as softmax's Jacobian is",
        "dz_i = dy_i (g_i - s) - y_i sum_j g_j dy_j",
        "<h, dz> = sum_i h_i (g_i - s) dy_i - (sum_i h_i y_i) sum_j g_j dy_j",
        g="y * (h - sum(h * y, dim))",
        y="h * (g - sum(g * y, dim)) - g * sum(h * y, dim)",
    ),
)


def softmax(x: Tensor, dim: int, dtype: np.dtype | None = None) -> Tensor:
    """e^x / sum e^x along `dim`, shifted by the maximum so that it cannot overflow. A row of -inf gives NaN."""
    x = floating(x if dtype is None else cast(x, dtype=dtype))
    d = normalise_dim(dim, x.array.ndim)
    return softmax_op(x, dim=d) if x.array.ndim else x * 0.0 + 1.0


def _log_softmax(x: Array, *, dim: int) -> Array:
    if not x.size:
        return np.array(x)
    x = np.asarray(x, order="C")  # so is the result
    shifted = x - np.max(x, axis=dim, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


def _log_softmax_steps(x: Tensor, *, dim: int) -> Tensor:
    shifted = x - detach(amax(x, dim, keepdim=True))
    return shifted - log(sum(exp(shifted), dim, keepdim=True))


def _log_softmax_vjp(g: Tensor, out: Tensor, dim: int) -> Tensor:
    return g - exp(out) * sum(g, dim, keepdim=True)


log_softmax_op = op(
    "log_softmax",
    _log_softmax,
    {"x": _log_softmax_vjp},
    decomposition=_log_softmax_steps,
    row_major=True,
    shape=rules.like_first,
    flops=rules.per_element(15),
    samples=_along,
    formula="x_i - ln sum_j e^(x_j)",
    kernels={"cuda.softmax": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "y_i = x_i - ln Z, so dy_i = dx_i - sum_j p_j dx_j with p = softmax(x) = e^y",
        "dL = sum_j (g_j - p_j sum_i g_i) dx_j",
        x="g - exp(y) * sum(g, dim)",
    ),
)


def log_softmax(x: Tensor, dim: int, dtype: np.dtype | None = None) -> Tensor:
    """ln softmax along `dim`, without underflow."""
    x = floating(x if dtype is None else cast(x, dtype=dtype))
    d = normalise_dim(dim, x.array.ndim)
    return log_softmax_op(x, dim=d) if x.array.ndim else x * 0.0


def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """ln sum e^x along `dim`, without overflow; -inf where all are -inf, and over nothing."""
    return _logsumexp(floating(x), dim, keepdim)


@rounded_once
def _logsumexp(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if not x.array.size:
        return log(sum(exp(x), dim, keepdim))
    peak = detach(amax(x, dim, keepdim=True))
    peak = where(isfinite(peak), peak, 0.0)
    result = log(sum(exp(x - peak), dim, keepdim=True)) + peak
    return result if keepdim else result.squeeze(dim)


# --- layer norm -------------------------------------------------------------------------------------


def _layer_norm(x: Array, weight: Array, bias: Array, *, eps: float) -> tuple[Array, Array, Array]:
    x = np.asarray(x, order="C")  # so is the result
    average = np.mean(x, axis=-1, keepdims=True)
    centred = x - average
    rstd = (1 / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps)).astype(x.dtype, copy=False)
    return centred * rstd * weight + bias, average, rstd


def _layer_norm_steps(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    centred = x - mean(x, -1, keepdim=True)
    return centred * rsqrt(mean(centred * centred, -1, keepdim=True) + eps) * weight + bias


def _row_stats(meta: Meta) -> Meta:
    return (*meta[0][:-1], 1), meta[1]


def _norm_inputs(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((3, 5), (2, 3, 4), (0, 4)):
        d = shape[-1]
        yield (rng.standard_normal(shape), rng.standard_normal(d), rng.standard_normal(d)), {"eps": 1e-5}


layer_norm_op = op(
    "layer_norm",
    _layer_norm,
    lambda g, x, weight, out1, out2, eps: layer_norm_grad_op(g, x, weight, out1, out2, eps=eps),
    decomposition=_layer_norm_steps,
    aux=2,
    row_major=True,
    shape=lambda metas, *, eps: [metas[0], _row_stats(metas[0]), _row_stats(metas[0])],
    flops=rules.per_element(8),
    samples=_norm_inputs,
    formula="(x - mean) / sqrt(var + eps) * weight + bias, var = mean of (x - mean)^2",
    source="document 000 section 2.8.2; Ba et al. 2016",
    kernels={"numba.layer_norm": "float32", "cuda.norms": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "y = n w + b, n = c r, c = x - mean(x), r = (mean(c^2) + eps)^(-1/2)",
        "dy = w dn + n dw + db; with s = g w: dL = <s, dn> + <g n, dw> + <g, db>",
        "dn = r dc + c dr; dc = dx - mean(dx); dr = -r^3 mean(c dx) = -r^2 mean(n dx)",
        "so dn = r (dx - mean(dx) - n mean(n dx)): x loses its part along 1 and along n",
        "this map is symmetric, so it acts on s in the same way; w and b serve every row and collect from all",
        let={"r": "y2", "n": "(x - y1) * r", "s": "g * weight"},
        example=_rows(1, 2),
        x="r * (s - mean(s) - n * mean(s * n))",
        weight="sum(g * n, 0)",
        bias="sum(g, 0)",
    ),
)


def _layer_norm_grad(
    g: Array, x: Array, weight: Array, average: Array, rstd: Array, *, eps: float
) -> tuple[Array, Array, Array]:
    normal = (x - average) * rstd
    scaled = g * weight
    dx = rstd * (
        scaled - np.mean(scaled, axis=-1, keepdims=True) - normal * np.mean(scaled * normal, axis=-1, keepdims=True)
    )
    rows = tuple(range(x.ndim - 1))
    return dx, np.sum(g * normal, axis=rows), np.sum(g, axis=rows)


def _layer_norm_grad_steps(
    g: Tensor, x: Tensor, weight: Tensor, average: Tensor, rstd: Tensor, *, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """From x alone: the statistics are functions of it, so that the second derivative sees all of x."""
    centred = x - mean(x, -1, keepdim=True)
    rstd = rsqrt(mean(centred * centred, -1, keepdim=True) + eps)
    normal = centred * rstd
    scaled = g * weight
    dx = rstd * (scaled - mean(scaled, -1, keepdim=True) - normal * mean(scaled * normal, -1, keepdim=True))
    rows = tuple(range(x.array.ndim - 1))
    return (dx, sum(g * normal, rows), sum(g, rows)) if rows else (dx, g * normal, g)


def _grad_inputs(rng: np.random.Generator) -> Iterable[Sample]:
    for inputs, attrs in _norm_inputs(rng):
        x, weight = inputs[0], inputs[1]
        _, average, rstd = _layer_norm(x, weight, weight, eps=1e-5)
        yield (rng.standard_normal(x.shape), x, weight, average, rstd), attrs


layer_norm_grad_op: Op = op(
    "layer_norm_grad",
    _layer_norm_grad,
    decomposition=_layer_norm_grad_steps,
    shape=lambda metas, *, eps: [metas[1], metas[2], metas[2]],
    flops=rules.per_input(12),
    samples=_grad_inputs,
    formula="dx = rstd (s - mean(s) - n mean(s n)), s = g weight, n the normalised x; dweight = sum g n; dbias = sum g",
    kernels={"numba.layer_norm": "float32", "cuda.norms": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "three outputs: dx = r (s - mean(s) - n mean(s n)) with s = g w, dw = sum g n, db = sum g",
        "L = <h, dx> + <h1, dw> + <h2, db>",
        "the map s -> dx is symmetric: <h, dx> = <P, s> with P = r (h - mean(h) - n mean(h n)); this gives g and w",
        "through n: N = -r (h mean(s n) + s mean(h n)) + h1 g; through r directly: R = <h, dx> / r of the row",
        "dn = r (dx - mean(dx) - n mean(n dx)) and dr = -r^2 mean(n dx) carry N and R to x",
        let={
            "n": "(x - average) * rstd",
            "s": "g * weight",
            "P": "rstd * (h - mean(h) - n * mean(h * n))",
            "N": "h1 * g - rstd * (h * mean(s * n) + s * mean(h * n))",
            "R": "sum(h * z) / rstd",
        },
        example=_norm_grad_example(True),
        g="P * weight + h1 * n + h2",
        x="rstd * (N - mean(N) - n * mean(N * n)) - R * rstd**2 * n / x.shape[-1]",
        weight="sum(P * g, 0)",
    ),
)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float = 1e-5) -> Tensor:
    """Normalise the last dimension to mean 0 and variance 1 (biased), then scale and shift.

    x ``(..., d)``, weight and bias ``(d,)`` or None. Raises ValueError where d disagrees.
    """
    x = floating(x)
    d = x.array.shape[-1] if x.array.ndim else 0
    if weight is None:
        weight = filled((d,), 1, x.array.dtype, x.storage.device)
    if bias is None:
        bias = filled((d,), 0, x.array.dtype, x.storage.device)
    _check("layer_norm", x, weight)
    _check("layer_norm", x, bias)
    dtype = x.array.dtype
    return layer_norm_op(x, cast(weight, dtype=dtype), cast(bias, dtype=dtype), eps=float(eps))[0]


def _check(name: str, x: Tensor, weight: Tensor) -> None:
    if not x.array.ndim or weight.array.shape != x.array.shape[-1:]:
        raise ValueError(
            f"{name}: the last dimension of the input {list(x.array.shape)} must be {weight.array.size}, "
            "the size of the weight"
        )


# --- RMS norm ---------------------------------------------------------------------------------------


def _rms_norm(x: Array, weight: Array, *, eps: float) -> tuple[Array, Array]:
    x = np.asarray(x, order="C")  # so is the result
    rstd = (1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)).astype(x.dtype, copy=False)
    return x * rstd * weight, rstd


def _rms_norm_steps(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return x * rsqrt(mean(x * x, -1, keepdim=True) + eps) * weight


rms_norm_op = op(
    "rms_norm",
    _rms_norm,
    lambda g, x, weight, out1, eps: rms_norm_grad_op(g, x, weight, out1, eps=eps),
    decomposition=_rms_norm_steps,
    aux=1,
    row_major=True,
    shape=lambda metas, *, eps: [metas[0], _row_stats(metas[0])],
    flops=rules.per_element(5),
    samples=lambda rng: [(inputs[:2], attrs) for inputs, attrs in _norm_inputs(rng)],
    formula="x / sqrt(mean(x^2) + eps) * weight",
    source="document 002 'GPT: Decoder-Only'; Zhang and Sennrich 2019",
    kernels={"numba.rms_norm": "float32", "cuda.norms": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "y = n w, n = x r, r = (mean(x^2) + eps)^(-1/2); with s = g w: dL = <s, dn> + <g n, dw>",
        "dn = r dx + x dr, dr = -r^3 mean(x dx) = -r^2 mean(n dx), so dn = r (dx - n mean(n dx))",
        "as layer norm, but the mean is not taken out: x loses its part along n only",
        let={"r": "y1", "n": "x * r", "s": "g * weight"},
        example=_rows(1),
        x="r * (s - n * mean(s * n))",
        weight="sum(g * n, 0)",
    ),
)


def _rms_norm_grad(g: Array, x: Array, weight: Array, rstd: Array, *, eps: float) -> tuple[Array, Array]:
    normal = x * rstd
    scaled = g * weight
    dx = rstd * (scaled - normal * np.mean(scaled * normal, axis=-1, keepdims=True))
    return dx, np.sum(g * normal, axis=tuple(range(x.ndim - 1)))


def _rms_norm_grad_steps(g: Tensor, x: Tensor, weight: Tensor, rstd: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    rstd = rsqrt(mean(x * x, -1, keepdim=True) + eps)
    normal = x * rstd
    scaled = g * weight
    dx = rstd * (scaled - normal * mean(scaled * normal, -1, keepdim=True))
    rows = tuple(range(x.array.ndim - 1))
    return dx, sum(g * normal, rows) if rows else g * normal


rms_norm_grad_op: Op = op(
    "rms_norm_grad",
    _rms_norm_grad,
    decomposition=_rms_norm_grad_steps,
    shape=lambda metas, *, eps: [metas[1], metas[2]],
    flops=rules.per_input(9),
    samples=lambda rng: [
        ((rng.standard_normal(x.shape), x, weight, _rms_norm(x, weight, eps=1e-5)[1]), attrs)
        for (x, weight, _), attrs in _norm_inputs(rng)
    ],
    formula="dx = rstd (s - n mean(s n)), s = g weight, n = x rstd; dweight = sum g n",
    kernels={"numba.rms_norm": "float32", "cuda.norms": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "two outputs: dx = r (s - n mean(s n)) with s = g w, dw = sum g n; L = <h, dx> + <h1, dw>",
        "the map s -> dx is symmetric: <h, dx> = <P, s> with P = r (h - n mean(h n)); this gives g and w",
        "through n: N = -r (h mean(s n) + s mean(h n)) + h1 g; through r directly: R = <h, dx> / r of the row",
        "dn = r (dx - n mean(n dx)) and dr = -r^2 mean(n dx) carry N and R to x",
        let={
            "n": "x * rstd",
            "s": "g * weight",
            "P": "rstd * (h - n * mean(h * n))",
            "N": "h1 * g - rstd * (h * mean(s * n) + s * mean(h * n))",
            "R": "sum(h * z) / rstd",
        },
        example=_norm_grad_example(False),
        g="P * weight + h1 * n",
        x="rstd * (N - n * mean(N * n)) - R * rstd**2 * n / x.shape[-1]",
        weight="sum(P * g, 0)",
    ),
)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Divide the last dimension by its root mean square, then scale. x ``(..., d)``, weight ``(d,)`` or None.

    float16 and bfloat16 inputs are squared in float32, so that values near 300 do not overflow.
    """
    x = floating(x)
    if weight is None:
        weight = filled(x.array.shape[-1:], 1, x.array.dtype, x.storage.device)
    _check("rms_norm", x, weight)
    return rms_norm_op(x, cast(weight, dtype=x.array.dtype), eps=float(eps))[0]


expect_tensors(globals())
