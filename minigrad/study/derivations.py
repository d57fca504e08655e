"""How every op's derivative is found: steps in words, then a last line that is evaluated and has to agree.

Notation. L is the loss, y the op's output, g = dL/dy what arrives from above, <u, v> the sum of u v over all elements.
To first order dL = <g, dy>; whoever writes this as <..., dx> has found dL/dx. (Where an input is itself called g or y,
the arriving gradient is h and the output z; a second output is y1, its gradient g1.) `sum` and `mean` run over the
last dimension unless one is named, and keep it with size 1. Last lines are numpy expressions over inputs, outputs,
attributes and the few words of `minigrad.study.notation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Derivation:
    """steps in words; `let` names intermediate values; `results` maps an input to its last line; `example` replaces
    the op's own sample: () -> (inputs, attributes)."""

    steps: tuple[str, ...]
    results: Mapping[str, str] = field(default_factory=dict)
    let: Mapping[str, str] = field(default_factory=dict)
    example: Callable[[], tuple[list[np.ndarray], dict[str, Any]]] | None = None


DERIVATIONS: dict[str, Derivation] = {}


def derive(name: str, *steps: str, let: Any = None, example: Any = None, **results: str) -> None:
    DERIVATIONS[name] = Derivation(steps, results, let or {}, example)


def grid(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers with two decimals."""
    return np.round(np.random.default_rng(seed).standard_normal(shape), 2)


# --- arithmetic -------------------------------------------------------------------------------------

derive("add", "y = a + b, so dy = da + db", "dL = <g, da> + <g, db>", a="g", b="g")
derive("sub", "y = a - b, so dy = da - db", "dL = <g, da> + <-g, db>", a="g", b="-g")
derive("mul", "y = a b, so dy = b da + a db", "dL = <g b, da> + <g a, db>", a="g * b", b="g * a")
derive("div", "y = a / b, so dy = da / b - a / b^2 db", "a / b is y: dy = (da - y db) / b", a="g / b", b="-g * y / b")
derive(
    "pow",
    "y = a^b = e^(b ln a), so dy = y (b / a da + ln a db)",
    "y b / a = b a^(b-1), which has no pole at a = 0 where b >= 1; where b = 0 it is taken as 0",
    "0^b stays 0 for every b > 0: there, and at 0^0, the rule gives b the slope 0 (y ln a would be NaN)",
    a="g * b * a ** (b - 1)",
    b="g * y * log(a)",
)
for _name, _sign in (("maximum", ">"), ("minimum", "<")):
    derive(
        _name,
        f"y = a where a {_sign} b, so there dy = da; elsewhere dy = db",
        "at a tie both one-sided derivatives are right: each side gets half",
        a=f"g * where(a {_sign} b, 1, where(a == b, 0.5, 0))",
        b=f"g * where(b {_sign} a, 1, where(a == b, 0.5, 0))",
    )
derive(
    "remainder",
    "y = a - b q, q = floor(a / b)",
    "q is constant between its jumps: dy = da - q db",
    a="g",
    b="-g * floor(a / b)",
)
derive("neg", "y = -x, so dy = -dx", x="-g")
derive("abs", "y = x where x > 0, -x where x < 0", "at 0 the slope is taken as 0", x="g * sign(x)")
for _name in ("sign", "floor", "ceil", "round"):
    derive(_name, "constant between its jumps, so dy = 0", "the jumps go unseen: no way to train", x="0 * g")

# --- functions of one number ------------------------------------------------------------------------

derive("exp", "y = e^x is its own derivative: dy = y dx", x="g * y")
derive("expm1", "y = e^x - 1, dy = e^x dx, and e^x = y + 1", x="g * (y + 1)")
derive("log", "x = e^y, so dx = x dy and dy = dx / x", x="g / x")
derive("log1p", "with u = 1 + x: dy = du / u, du = dx", x="g / (1 + x)")
derive("log2", "y = ln x / ln 2", x="g / (x * log(2))")
derive("log10", "y = ln x / ln 10", x="g / (x * log(10))")
derive("sqrt", "y^2 = x, so 2 y dy = dx", x="g / (2 * y)")
derive("rsqrt", "y = x^(-1/2), dy = -x^(-3/2) / 2 dx, and x^(-3/2) = y^3", x="-g * y**3 / 2")
derive("reciprocal", "x y = 1, so x dy + y dx = 0", "dy = -y / x dx = -y^2 dx", x="-g * y**2")
derive("square", "y = x x, so dy = 2 x dx", x="g * 2 * x")
derive("sin", "dy = cos x dx", x="g * cos(x)")
derive("cos", "dy = -sin x dx", x="-g * sin(x)")
derive(
    "atan2",
    "tan y = a / b, so (1 + (a / b)^2) dy = da / b - a / b^2 db",
    a="g * b / (a**2 + b**2)",
    b="-g * a / (a**2 + b**2)",
)
derive("tanh", "y = sinh x / cosh x", "dy = (cosh^2 x - sinh^2 x) / cosh^2 x dx = (1 - y^2) dx", x="g * (1 - y**2)")
derive(
    "sigmoid",
    "y = 1 / (1 + e^-x), dy = e^-x / (1 + e^-x)^2 dx",
    "e^-x / (1 + e^-x) = 1 - y, so dy = y (1 - y) dx",
    x="g * y * (1 - y)",
)
derive("erf", "the derivative of an integral is what stands under it: dy = 2 / sqrt(pi) e^(-x^2) dx",
       x="g * 2 / sqrt(pi) * exp(-x**2)")  # fmt: skip
derive("relu", "y = x where x > 0, else 0: dy = dx or 0", "at 0 the slope is taken as 0", x="g * (x > 0)")
derive("leaky_relu", "y = x where x > 0, else s x", x="g * where(x > 0, 1, negative_slope)")
derive(
    "gelu",
    "y = x Phi(x), Phi the normal distribution function, whose derivative is the density phi",
    "dy = (Phi + x phi) dx",
    let={"Phi": "(1 + erf(x / sqrt(2))) / 2", "phi": "exp(-(x**2) / 2) / sqrt(2 * pi)"},
    x="g * (Phi + x * phi)",
)
derive(
    "gelu_tanh",
    "y = x (1 + t) / 2, t = tanh(u), u = c (x + 0.044715 x^3), c = sqrt(2 / pi)",
    "dt = (1 - t^2) du, du = c (1 + 3 * 0.044715 x^2) dx",
    let={
        "t": "tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))",
        "du": "sqrt(2 / pi) * (1 + 3 * 0.044715 * x**2)",
    },
    x="g * ((1 + t) / 2 + x / 2 * (1 - t**2) * du)",
)
derive(
    "silu",
    "y = x s, s = sigmoid(x), ds = s (1 - s) dx",
    "dy = s dx + x ds",
    let={"s": "1 / (1 + exp(-x))"},
    x="g * (s + x * s * (1 - s))",
)
derive("softplus", "y = ln(1 + e^x)", "dy = e^x / (1 + e^x) dx, which is sigmoid(x) dx", x="g / (1 + exp(-x))")

# --- choice -----------------------------------------------------------------------------------------

derive(
    "where",
    "y = a where the condition holds, else b",
    "each element of y is one element of a or of b; the other has no part in it",
    a="where(condition, g, 0)",
    b="where(condition, 0, g)",
)
derive("cast", "y = x but for rounding, so dy = dx", "the driver casts the gradient back to the dtype of x", x="g")

# --- moving elements --------------------------------------------------------------------------------

_MOVES = {
    "alias": "y is x, the same memory",
    "clone": "y is x, in other memory",
    "to_device": "y is x, on another device",
    "reshape": "y has the elements of x in their order",
    "permute": "y has the elements of x in another order of dimensions",
    "flip": "y has the elements of x in reverse order",
    "expand": "y repeats elements of x",
    "diagonal": "y has some elements of x",
    "unfold": "y repeats elements of x",
    "as_strided": "y is a window on the memory of x",
    "slice": "y has some of the elements of x",
    "gather": "y takes elements of x, some perhaps more than once",
}
for _name, _what in _MOVES.items():
    derive(
        _name,
        f"{_what}: y_i = x_s(i), where s(i) is found by moving the numbers 0, 1, 2, ... instead of x",
        "dL = sum_i g_i dx_s(i): x_j collects g_i from every i with s(i) = j",
        let={"s": "moved(numbers(x))"},
        example=(lambda: ([grid(2, 3), np.array([[0, 0], [2, 1]])], {"dim": 1})) if _name == "gather" else None,
        x="collect(g, s, x)",
    )
derive(
    "take",
    "y_i = x_s(i), where s(i) is found by taking from the numbers 0, 1, 2, ... instead of x",
    "dL = sum_i g_i dx_s(i): an element that was taken twice collects twice",
    let={"s": "moved(numbers(x))"},
    example=lambda: ([grid(2, 3), np.array([1, 0, 1])], {"index": ("tensor",)}),
    x="collect(g, s, x)",
)
derive(
    "embedding",
    "row t of y is row ids_t of the weight",
    "dL = sum_t <g_t, dweight_ids(t)>: a word that stands twice in the text gets both gradients",
    "the row padding_idx, where there is one, gets none: on purpose, it stays as it is",
    let={"s": "moved(numbers(weight))"},
    example=lambda: ([grid(2, 3), np.array([1, 0, 1])], {"padding_idx": None}),
    weight="collect(g, s, weight)",
)
_BACK = "y = M g with the 0-1 matrix M that puts elements in their places; dL = <h, M dg> = <M^T h, dg>"
_THERE = "M^T looks up what has arrived at the place where each element went"
derive(
    "slice_add", _BACK, _THERE, g="at(h, index)",
    example=lambda: ([grid(1, 2)], {"shape": (2, 3), "index": (("slice", 1, 2, None), ("slice", None, None, 2))}),
)  # fmt: skip
derive(
    "put_add", _BACK, _THERE, g="at(h, index, *indices)",
    example=lambda: ([grid(3, 3), np.array([1, 0, 1])], {"shape": (2, 3), "index": ("tensor",)}),
)  # fmt: skip
derive("strided_add", _BACK, _THERE, g="window(h, shape, strides, offset)")
derive(
    "scatter_add_zeros", "y = M src with the 0-1 matrix M that puts elements in place; dL = <M^T g, dsrc>", _THERE,
    src="take_along_axis(g, index, dim)",
    example=lambda: ([grid(2, 2), np.array([[0, 0], [2, 1]])], {"dim": 1, "shape": (2, 3)}),
)  # fmt: skip
derive(
    "embedding_grad", "row v of y is the sum of the g_t with ids_t = v", "each g_t went to row ids_t, and nowhere else",
    g="h[ids]", example=lambda: ([grid(3, 3), np.array([1, 0, 1])], {"shape": (2, 3), "padding_idx": None}),
)  # fmt: skip
_REPLACED = "hit is 1 where the old element was replaced: there the new value takes the gradient, elsewhere the old one"
derive(
    "strided_scatter", "y is the base with a window replaced", _REPLACED,
    let={"hit": "moved(0 * base, 0 * value + 1)"}, base="g * (1 - hit)", value="window(g, shape, strides, offset)",
)  # fmt: skip
derive(
    "put", "y is x with the elements at index replaced", _REPLACED,
    let={"hit": "moved(0 * x, 0 * value + 1)"}, x="g * (1 - hit)", value="at(g, index, *indices)",
    example=lambda: ([grid(2, 3), grid(1, 3, seed=1)], {"index": (("slice", 1, 2, None),)}),
)  # fmt: skip
derive(
    "scatter", "y is x with x[i][index[i][j]] replaced by src[i][j]", _REPLACED,
    let={"hit": "moved(0 * x, 0 * src + 1)"}, x="g * (1 - hit)", src="take_along_axis(g, index, dim)",
    example=lambda: ([grid(2, 3), grid(2, 2, seed=1), np.array([[0, 1], [2, 0]])], {"dim": 1}),
)  # fmt: skip
derive(
    "cat", "y is the tensors side by side", "each gets its own part of g", tensors="split(g, tensors, dim)",
    example=lambda: ([grid(2, 3), grid(2, 1, seed=1)], {"dim": 1}),
)  # fmt: skip
derive(
    "join", "y is zeros with each part at its own place", "each gets what has arrived at its place",
    parts="[at(g, index) for index in indices]",
    example=lambda: (
        [grid(1, 3), grid(1, 2, seed=1)],
        {"shape": (2, 3), "indices": ((("slice", 0, 1, None),), (("slice", 1, 2, None), ("slice", 0, 2, None)))},
    ),
)  # fmt: skip
derive("tril", "y = M x, M 1 on and below the diagonal, else 0", x="tril(g, diagonal)")
derive("triu", "y = M x, M 1 on and above the diagonal, else 0", x="triu(g, diagonal)")

# --- products and reductions ------------------------------------------------------------------------

derive(
    "matmul",
    "Y = A B, so dY = dA B + A dB",
    "<G, dA B> = trace(G^T dA B) = trace(B G^T dA) = <G B^T, dA>",
    "<G, A dB> = trace(G^T A dB) = <A^T G, dB>",
    a="g @ T(b)",
    b="T(a) @ g",
    example=lambda: ([grid(2, 3), grid(3, 2, seed=1)], {}),
)
derive("sum", "y = sum_i x_i, so dy = sum_i dx_i: every x_i gets the whole g", x="spread(g, x, dims)")
derive(
    "prod",
    "y = prod_i x_i, so dy = sum_i (product of all but x_i) dx_i",
    "the product of the others is y / x_i, where x_i is not 0 (the rule multiplies from both sides: exact at 0, too)",
    x="spread(g, x, dims) * spread(y, x, dims) / x",
    example=lambda: ([np.array([[0.5, 2.0, -1.0], [1.5, -0.4, 3.0]])], {"dims": (1,), "keepdim": False}),
)
for _name in ("amax", "amin"):
    derive(
        _name,
        "y = x_k for the chosen k, so dy = dx_k",
        "where several are equal they share the gradient",
        let={"hit": "x == spread(y, x, dims)"},
        x="spread(g, x, dims) * hit / sum(hit, dims)",
    )
derive(
    "norm",
    "y^2 = sum_i x_i^2, so 2 y dy = sum_i 2 x_i dx_i",
    "where y = 0 it has a corner, and the slope is taken as 0",
    x="spread(g, x, dims) * x / spread(y, x, dims)",
)
derive(
    "cumsum",
    "y_i = sum of x_j over j <= i: x_j is part of y_j, y_(j+1), ...",
    "dL/dx_j = sum of g_i over i >= j: a running sum from the other end",
    x="flip(cumsum(flip(g, dim), dim), dim)",
)

# --- softmax and its relatives ----------------------------------------------------------------------

derive(
    "softmax",
    "y_i = e^(x_i) / Z, Z = sum_j e^(x_j); ln y_i = x_i - ln Z",
    "dy_i / y_i = dx_i - dZ / Z, and dZ / Z = sum_j y_j dx_j",
    "dL = sum_i g_i y_i (dx_i - sum_j y_j dx_j) = sum_j y_j (g_j - sum_i g_i y_i) dx_j",
    x="y * (g - sum(g * y, dim))",
)
derive(
    "softmax_grad",
    "z = y (g - s), s = sum g y: linear in g, and symmetric as softmax's Jacobian is",
    "dz_i = dy_i (g_i - s) - y_i sum_j g_j dy_j",
    "<h, dz> = sum_i h_i (g_i - s) dy_i - (sum_i h_i y_i) sum_j g_j dy_j",
    g="y * (h - sum(h * y, dim))",
    y="h * (g - sum(g * y, dim)) - g * sum(h * y, dim)",
)
derive(
    "log_softmax",
    "y_i = x_i - ln Z, so dy_i = dx_i - sum_j p_j dx_j with p = softmax(x) = e^y",
    "dL = sum_j (g_j - p_j sum_i g_i) dx_j",
    x="g - exp(y) * sum(g, dim)",
)
_SMOOTH = {"V": "logits.shape[1]", "t": "(1 - label_smoothing) * one_hot(targets, V) + label_smoothing / V"}


def _classified(*before: Any) -> Callable[[], tuple[list[np.ndarray], dict[str, Any]]]:
    attrs = {"ignore_index": None, "label_smoothing": 0.1, "reduction": "mean"}
    logits, targets = grid(2, 3), np.array([2, 0])
    after = [logits - np.log(np.exp(logits).sum(1, keepdims=True))] if before else []
    return lambda: ([*[np.asarray(b) for b in before], logits, targets, *after], attrs)


derive(
    "cross_entropy",
    "L_n = -sum_v t_nv ln p_nv, p = softmax(logits), t the smoothed targets, whose row sums are 1",
    "dL_n = -sum_v t_nv (dx_v - sum_w p_nw dx_w) = sum_v (p_nv - t_nv) dx_v",
    "the mean over N kept positions divides by N",
    let=_SMOOTH,
    example=_classified(),
    logits="g * (softmax(logits) - t) / logits.shape[0]",
)
derive(
    "cross_entropy_grad",
    "z = g (p - t) / N, p = softmax(logits)",
    "linear in g; and dp_v = p_v (dx_v - sum_w p_w dx_w)",
    "<h, dz> = g / N sum_v p_v (h_v - sum_w h_w p_w) dx_v for every position",
    let={**_SMOOTH, "p": "softmax(logits)"},
    example=_classified(0.7),
    g="(h * (p - t)).sum() / logits.shape[0]",
    logits="g / logits.shape[0] * p * (h - sum(h * p))",
)


def _projected(*before: Any) -> Callable[[], tuple[list[np.ndarray], dict[str, Any]]]:
    attrs = {"ignore_index": None, "label_smoothing": 0.1, "reduction": "mean"}
    inputs = [*[np.asarray(b) for b in before], grid(2, 2), grid(3, 2, seed=1), np.array([2, 0])]
    return lambda: (inputs, attrs)


derive(
    "linear_cross_entropy",
    "the loss of logits z = x W^T, whose gradient is D = g (p - t) / N",
    "<D, dz> = <D, dx W^T> + <D, x dW^T> = <D W, dx> + <D^T x, dW>: a sum over rows, so that chunks of rows add up",
    let={"logits": "x @ T(weight)", **_SMOOTH, "D": "g * (softmax(logits) - t) / x.shape[0]"},
    example=_projected(),
    x="D @ weight",
    weight="T(D) @ x",
)
derive(
    "linear_cross_entropy_grad",
    "three outputs: D W, D^T x and the loss, with D = g E, E = (p - t) / N, p = softmax(z), z = x W^T",
    "L = <h, D W> + <h1, D^T x> + h2 loss = g <M, E> + h2 loss with M = h W^T + x h1^T",
    "through z: K = g / N p (M - sum M p) + h2 E carries K W to x and K^T x to W; h1 and h reach x and W directly",
    let={
        "logits": "x @ T(weight)",
        **_SMOOTH,
        "p": "softmax(logits)",
        "E": "(p - t) / x.shape[0]",
        "M": "h @ T(weight) + x @ T(h1)",
        "K": "g / x.shape[0] * p * (M - sum(M * p)) + h2 * E",
    },
    example=_projected(0.7),
    g="(M * E).sum()",
    x="g * E @ h1 + K @ weight",
    weight="g * T(E) @ h + T(K) @ x",
)

# --- normalisation ----------------------------------------------------------------------------------


def _rows(*vectors: int) -> Callable[[], tuple[list[np.ndarray], dict[str, Any]]]:
    """x ``(2, 3)`` and a vector ``(3,)`` for each seed."""
    return lambda: ([grid(2, 3), *[grid(3, seed=seed) for seed in vectors]], {"eps": 1e-5})


def _norm_grad_example(centre: bool) -> Callable[[], tuple[list[np.ndarray], dict[str, Any]]]:
    g, x, weight = grid(2, 3, seed=3), grid(2, 3), grid(3, seed=1)
    average = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(np.mean((x - average * centre) ** 2, 1, keepdims=True) + 1e-5)
    return lambda: ([g, x, weight, *([average] if centre else []), rstd], {"eps": 1e-5})


derive(
    "layer_norm",
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
)
derive(
    "rms_norm",
    "y = n w, n = x r, r = (mean(x^2) + eps)^(-1/2); with s = g w: dL = <s, dn> + <g n, dw>",
    "dn = r dx + x dr, dr = -r^3 mean(x dx) = -r^2 mean(n dx), so dn = r (dx - n mean(n dx))",
    "as layer norm, but the mean is not taken out: x loses its part along n only",
    let={"r": "y1", "n": "x * r", "s": "g * weight"},
    example=_rows(1),
    x="r * (s - n * mean(s * n))",
    weight="sum(g * n, 0)",
)
derive(
    "layer_norm_grad",
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
)
derive(
    "rms_norm_grad",
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
)

# --- attention --------------------------------------------------------------------------------------

_CHAIN = (
    "O = P V, P = softmax(S), S = scale Q K^T; as in matmul dV = P^T G and dP = G V^T",
    "softmax's rule, row by row: dS = P (dP - rowsum(dP P)); a hidden key has P = 0 and gets nothing",
)
_LAST = {"query": "scale * dS @ key", "key": "scale * T(dS) @ query", "value": "T(P) @ g"}


def _qkv(flash: bool, grad: bool) -> Callable[[], tuple[list[np.ndarray], dict[str, Any]]]:
    """Two queries, two keys of width 3; flash attention is causal, so that its mask has a part."""
    q, k, v = (grid(2, 3, seed=seed) for seed in range(3))
    scale = 3**-0.5
    scores = np.where(np.tri(2, dtype=bool) | (not flash), q @ k.T * scale, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    kept = [weights @ v, np.log(np.exp(scores).sum(-1))] if flash else [weights]
    attrs = {"scale": scale, "causal": True} if flash else {"scale": scale}
    return lambda: ([*([grid(2, 3, seed=3)] if grad else []), q, k, v, *(kept if grad else [])], attrs)


derive(
    "attention", *_CHAIN, "S = scale Q K^T: dQ = scale dS K, dK = scale dS^T Q",
    let={"P": "y1", "dP": "g @ T(value)", "dS": "P * (dP - sum(dP * P))"}, example=_qkv(False, False), **_LAST,
)  # fmt: skip
derive(
    "flash_attention", *_CHAIN,
    "P is not kept, but its row's ln sum e^S is (y1): P = e^(S - y1) is made again, block by block",
    "rowsum(dP P) = rowsum(G V^T P) = rowsum(G O): one number a row, known before any block is visited",
    let={
        "S": "hide(scale * query @ T(key), causal)", "P": "exp(S - y1[..., None])",
        "dS": "P * (g @ T(value) - sum(g * y))",
    },
    example=_qkv(True, False), **_LAST,
)  # fmt: skip
for _name, _weights in (
    ("attention_grad", {"P": "weights"}),
    ("flash_attention_grad", {"S": "hide(scale * query @ T(key), causal)", "P": "exp(S - lse[..., None])"}),
):
    derive(
        _name,
        "three outputs: A = scale dS K, B = scale dS^T Q, C = P^T g, with dS = P (dP - rowsum(dP P)), dP = g V^T",
        "L = <h, A> + <h1, B> + <h2, C>: what arrives at dS is E = scale (h K^T + Q h1^T)",
        "dS is linear in dP and symmetric: F = P (E - rowsum(E P)) arrives at dP",
        "what arrives at P: W = E (dP - rowsum(dP P)) - dP rowsum(E P) + g h2^T; softmax carries it to S: U",
        "Q and K are read by S and, directly, by A and B",
        let={
            **_weights,
            "dP": "g @ T(value)",
            "dS": "P * (dP - sum(dP * P))",
            "E": "scale * (h @ T(key) + query @ T(h1))",
            "F": "P * (E - sum(E * P))",
            "W": "E * (dP - sum(dP * P)) - dP * sum(E * P) + g @ T(h2)",
            "U": "P * (W - sum(W * P))",
        },
        example=_qkv(_name.startswith("flash"), True),
        g="F @ value + P @ h2",
        query="scale * (U @ key + dS @ h1)",
        key="scale * (T(U) @ query + T(dS) @ h)",
        value="T(F) @ g",
    )

# --- dropout and positions --------------------------------------------------------------------------

derive(
    "dropout",
    "y = f x (+ the residual, which gets g), f what the draw says: 0 or 1 / (1 - p), whatever x is",
    "dL = <g f, dx>: the same draw, made again",
    let={"f": "y / x"},
    x="g * f",
)


def _one_pair() -> tuple[list[np.ndarray], dict[str, Any]]:
    angles = grid(2, 1, seed=1)
    return [grid(2, 2), np.cos(angles), np.sin(angles)], {"interleaved": True, "back": False}


derive(
    "rope",
    "a pair (a, b) becomes (a cos - b sin, a sin + b cos); the angles are constants",
    "dL = u (da cos - db sin) + v (da sin + db cos) for the pair (u, v) of g",
    "so (u cos + v sin, v cos - u sin) arrives at (a, b): g turned back by the same angle",
    example=_one_pair,
    x="g * cos + where(numbers(g) % 2 == 0, 1, -1) * sin * flip(g, -1)",
)

# --- without a derivative ---------------------------------------------------------------------------

for _name in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"):
    derive(_name, "the result is true or false: it has no rate of change, and no gradient flows through it")
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"):
    derive(_name, "inputs and result are booleans or integers: there is nothing to differentiate")
for _name in ("argmax", "argmin", "argsort"):
    derive(_name, "the result is an index, an integer that stays when x moves a little: no gradient flows through it")
derive("within", "the result is the index itself, an integer: there is nothing to differentiate")
derive("floor_divide", "constant between its jumps: its derivative is 0 wherever it has one, so none is recorded")
derive("detach", "y = x, cut off from its history on purpose: what follows treats it as a constant")
derive("random_uniform", "drawn from a key, not computed from values: there is nothing to differentiate")
derive("bernoulli", "the result is 0 or 1 by a random draw: it has no rate of change, and no gradient flows through it")
derive("fused", "a step of a compiled plan: the derivative was taken before its ops were fused")
derive("fused_sum", "a step of a compiled plan: the derivative was taken before its ops were fused")
derive("matmul_sum", "a step of a compiled plan: the derivative was taken before product and sum were joined")
derive("fused_matmul", "a step of a compiled plan: the derivative was taken before its ops were fused")
derive("adam_all", "a step of a compiled plan: updates run after the backward pass and are not recorded")
derive("adam", "an update rule: it runs after the backward pass, on gradients, and is not recorded itself")
