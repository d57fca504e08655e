"""Checks of linear maps, embeddings, activations, the feed-forward network and SwiGLU."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import gradient_bound, loaded, offered, sum_bound
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, refused, same, tolerance, true
from conformance.protocol import ROLES, Array, Subject
from conformance.reference import feed_forward as f


def sizes(draw: Draw) -> dict[str, Any]:
    """A width and a hidden width that differ, in either order."""
    d = draw.int("d_model", 1, 6, 3)
    d_ff = draw.int("d_ff", 1, 9, 7)
    return {"d_model": d, "d_ff": d_ff + (d_ff >= d)}


def tokens(draw: Draw, width: int) -> Array:
    return draw.normal("x", (draw.int("B", 1, 3, 2), draw.int("T", 1, 5, 4), width))


# --- linear and embedding -------------------------------------------------------------------------


@check("linear-layer-is-a-matrix-product", roles=("linear",))
def linear_formula(impl: Any, draw: Draw) -> Evidence:
    """out_j = sum_i x_i w_ij + b_j, for square and other shapes and any number of leading axes."""
    n_in = draw.int("n_in", 1, 6, 3)
    config = {"n_in": n_in, "n_out": draw.choice("n_out", (4, 7, n_in), pin=n_in), "bias": draw.bool("bias", pin=True)}
    subject, p = loaded(impl, draw, "linear", **config)
    x = draw.normal("x", (2, 3, n_in))
    expected = np.zeros((2, 3, config["n_out"])) + p.get("bias", 0.0)
    for i in range(n_in):
        expected += x[..., i, None] * p["weight"][:, i]
    return close("the double loop", subject(x=x)["out"], expected, sum_bound(subject, x, p["weight"]))


@check("embedding-refuses-ids-past-the-table", roles=("embedding",))
def embedding_range(impl: Any, draw: Draw) -> Evidence:
    """An id that is not below the vocabulary size is refused."""
    vocab = draw.int("vocab", 2, 9, 5)
    subject, _ = loaded(impl, draw, "embedding", vocab=vocab, d_model=3)
    ids = np.array([[0, vocab + draw.int("excess", 0, 2, 0)]])
    return refused(f"id {ids[0, 1]} of a vocabulary of {vocab}", lambda: subject(ids=ids))


@check("embedding-is-a-row-of-the-table", roles=("embedding",))
def embedding_rows(impl: Any, draw: Draw) -> Evidence:
    """The vector of a token is the row of the table with its id."""
    vocab, d = draw.int("vocab", 2, 9, 7), draw.int("d_model", 1, 6, 4)
    subject, p = loaded(impl, draw, "embedding", vocab=vocab, d_model=d)
    ids = draw.integers("ids", (draw.int("B", 1, 3, 2), draw.int("T", 1, 5, 3)), 0, vocab)
    bound = tolerance(subject.dtype, scale=float(np.abs(p["weight"]).max()))
    return close("rows", subject(ids=ids)["out"], p["weight"][ids], bound)


def _embedding_gradient(impl: Any, draw: Draw, padding_idx: int | None) -> tuple[Subject, Array, Array, Array]:
    """A batch with a repeated id and the pad, its cotangent, and the gradient of the table."""
    width = draw.int("d_model", 1, 3, 2)
    config = {"vocab": 6, "d_model": width, "padding_idx": padding_idx}
    subject, _ = loaded(impl, draw, "embedding", **config)
    ids = np.array([[1, 3, 1], [4, 0, 0]])
    cotangent = draw.normal("cotangent", (*ids.shape, width))
    _, gradients = subject.vjp({"ids": ids}, cotangent)
    return subject, ids, cotangent, gradients["weight"]


@check("embedding-trains-the-rows-in-use", roles=("embedding",), needs=("embedding.vjp",), examples=3)
def embedding_gradient(impl: Any, draw: Draw) -> Evidence:
    """The gradient of a row is the sum over the places where its id occurs; unused rows receive exactly none."""
    subject, ids, cotangent, got = _embedding_gradient(impl, draw, None)
    expected = np.stack([cotangent[ids == token].sum(0) for token in range(6)])
    bound = gradient_bound(subject, 3)
    return all_of(
        close("gradient of the table", got, expected, bound),
        same("gradient of the unused rows", got[[2, 5]], np.zeros_like(got[[2, 5]])),
    )


@check("padding-row-is-not-trained", roles=("embedding",), needs=("embedding.vjp",), examples=3)
def padding_row_gradient(impl: Any, draw: Draw) -> Evidence:
    """With padding_idx the row of the pad receives exactly no gradient, the others theirs."""
    subject, ids, cotangent, got = _embedding_gradient(impl, draw, 0)
    bound = gradient_bound(subject, 3)
    return all_of(
        same("gradient of the pad row", got[0], np.zeros_like(got[0])),
        close("gradient of a token's row", got[1], cotangent[ids == 1].sum(0), bound),
    )


@check("embedding-row-of-the-pad-starts-at-zero", roles=("embedding",))
def padding_row_start(impl: Any, draw: Draw) -> Evidence:
    """With padding_idx the row of the pad is zero in a new table, and only that row."""
    vocab = draw.int("vocab", 3, 9, 6)
    config = {"vocab": vocab, "d_model": 4, "padding_idx": draw.int("padding_idx", 0, 2, 1)}
    table = next(iter(impl.build("embedding", config).params().values()))
    empty = np.flatnonzero(~table.any(axis=1))
    return same("rows that are zero", empty.tolist(), [config["padding_idx"]])


# --- activations ----------------------------------------------------------------------------------


def _activation(impl: Any, draw: Draw, kind: str) -> Evidence:
    subject = impl.build("activation", {"kind": kind})
    x = np.concatenate([draw.normal("x", (3, 5), 2.0).ravel(), [-30.0, -1.0, 0.0, 1.0, 30.0]])
    return close(f"{kind}(x)", subject(x=x)["out"], f.ACTIVATIONS[kind](x), tolerance(subject.dtype, scale=8.0))


@check("relu-is-the-positive-part", roles=("activation",))
def relu_formula(impl: Any, draw: Draw) -> Evidence:
    """ReLU(x) = max(0, x)."""
    return _activation(impl, draw, "relu")


@check("gelu-uses-the-error-function", roles=("activation",))
def gelu_formula(impl: Any, draw: Draw) -> Evidence:
    """GELU(x) = x Phi(x), exact: the tanh approximation is up to 4.7e-4 away."""
    return _activation(impl, draw, "gelu")


@check("gelu-by-tanh-is-an-approximation", roles=("activation",))
def gelu_tanh_formula(impl: Any, draw: Draw) -> Evidence:
    """The tanh form is x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    return _activation(impl, draw, "gelu_tanh")


@check("silu-is-x-times-sigmoid", roles=("activation",))
def silu_formula(impl: Any, draw: Draw) -> Evidence:
    """SiLU(x) = x sigmoid(x), also where exp(-x) overflows."""
    return _activation(impl, draw, "silu")


@check("silu-is-smooth-at-zero", roles=("activation",), examples=0)
def silu_slope(impl: Any, draw: Draw) -> Evidence:
    """SiLU has the slope 1/2 on both sides of 0, ReLU 0 and 1."""
    step = 1e-2
    at = np.array([-step, 0.0, step])
    silu, relu = (impl.build("activation", {"kind": kind}) for kind in ("silu", "relu"))
    slopes, kinked = np.diff(silu(x=at)["out"]) / step, np.diff(relu(x=at)["out"]) / step
    bound = step / 2 + tolerance(silu.dtype)
    return all_of(
        close("slopes of SiLU", slopes, np.full(2, 0.5), bound, "its second derivative is at most 1/2"),
        close("slopes of ReLU", kinked, np.array([0.0, 1.0]), tolerance(relu.dtype)),
    )


# --- feed-forward ---------------------------------------------------------------------------------


def any_activation(impl: Any, config: dict[str, Any]) -> dict[str, Any]:
    """A configuration for claims that hold with every activation: the one that the implementation has."""
    return offered(impl, "feed_forward", config, activation=("relu", "gelu", "gelu_tanh", "silu"))


@check("feed-forward-formula", roles=("feed_forward",))
def feed_forward_formula(impl: Any, draw: Draw) -> Evidence:
    """FFN(x) = ReLU(x W1 + b1) W2 + b2, for any hidden width."""
    config = sizes(draw)
    subject, p = loaded(impl, draw, "feed_forward", **config)
    x = tokens(draw, config["d_model"])
    expected = f.feed_forward(p, x)
    return close("FFN(x)", subject(x=x)["out"], expected, sum_bound(subject, x, p["linear2.weight"], expected))


@check("feed-forward-with-gelu", roles=("feed_forward",))
def feed_forward_gelu(impl: Any, draw: Draw) -> Evidence:
    """FFN(x) = GELU(x W1 + b1) W2 + b2 with the exact GELU."""
    config = {**sizes(draw), "activation": "gelu"}
    subject, p = loaded(impl, draw, "feed_forward", **config)
    x = tokens(draw, config["d_model"])
    expected = f.feed_forward(p, x, "gelu")
    return close("FFN(x)", subject(x=x)["out"], expected, sum_bound(subject, x, p["linear2.weight"], expected))


@check("feed-forward-treats-positions-independently", roles=("feed_forward",))
def feed_forward_positionwise(impl: Any, draw: Draw) -> Evidence:
    """The output of a position is that of its token alone, though the other tokens are enormous."""
    config = any_activation(impl, sizes(draw))
    subject, _ = loaded(impl, draw, "feed_forward", **config)
    t = draw.int("T", 2, 5, 4)
    x = draw.normal("x", (2, t, config["d_model"]))
    at = draw.int("position", 0, t - 1, 1)
    poisoned = 1e4 * (1.0 + np.abs(x))
    poisoned[0, at] = x[0, at]
    alone = subject(x=x[:1, at : at + 1])["out"][0, 0]
    return close("the token among huge ones", subject(x=poisoned)["out"][0, at], alone, sum_bound(subject, x, alone))


@check("feed-forward-is-non-linear", roles=("feed_forward",))
def feed_forward_non_linear(impl: Any, draw: Draw) -> Evidence:
    """FFN(a) + FFN(-a) differs from 2 FFN(0): the network is no affine map."""
    config = any_activation(impl, {"d_model": draw.int("d_model", 2, 6, 3), "d_ff": draw.int("d_ff", 4, 9, 8)})
    subject, _ = loaded(impl, draw, "feed_forward", **config)
    x = 10.0 * tokens(draw, config["d_model"])  # past the kinks, which the biases move
    bend = subject(x=x)["out"] + subject(x=-x)["out"] - 2 * subject(x=0 * x)["out"]
    return true("largest bend > 1e-3", np.abs(bend).max() > 1e-3, got=float(np.abs(bend).max()))


@check("feed-forward-computes-xor", roles=("feed_forward",), examples=0)
def feed_forward_xor(impl: Any, draw: Draw) -> Evidence:
    """Two ReLU units compute XOR, which no affine map can: relu(a + b) - 2 relu(a + b - 1)."""
    subject = impl.build("feed_forward", {"d_model": 2, "d_ff": 2})
    subject.load(
        {
            "linear1.weight": np.ones((2, 2)),
            "linear1.bias": np.array([0.0, -1.0]),
            "linear2.weight": np.array([[1.0, -2.0], [0.0, 0.0]]),
            "linear2.bias": np.zeros(2),
        }
    )
    got = subject(x=np.array([[[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]]))["out"][0, :, 0]
    return close("XOR of 00, 01, 10, 11", got, np.array([0.0, 1.0, 1.0, 0.0]), tolerance(subject.dtype))


@check("feed-forward-is-a-key-value-memory", roles=("feed_forward",))
def feed_forward_memory(impl: Any, draw: Draw) -> Evidence:
    """FFN(x) = b2 + sum_i act(x . k_i + b1_i) v_i: the rows of W1 are keys, the columns of W2 values."""
    config = any_activation(impl, sizes(draw))
    subject, p = loaded(impl, draw, "feed_forward", **config)
    x = tokens(draw, config["d_model"])
    activation = f.ACTIVATIONS[config["activation"]]
    recalled = np.broadcast_to(p["linear2.bias"], x.shape).copy()
    for key, threshold, value in zip(p["linear1.weight"], p["linear1.bias"], p["linear2.weight"].T, strict=True):
        recalled += activation(x @ key + threshold)[..., None] * value
    return close(
        "sum over memories", subject(x=x)["out"], recalled, sum_bound(subject, x, p["linear2.weight"], recalled)
    )


@check("feed-forward-has-two-affine-layers", roles=("feed_forward",))
def feed_forward_parameters(impl: Any, draw: Draw) -> Evidence:
    """Two weights and two biases: 2 d d_ff + d_ff + d parameters, the hidden layer d_ff wide."""
    config = any_activation(impl, sizes(draw))
    d, d_ff = config["d_model"], config["d_ff"]
    shapes = {name: a.shape for name, a in impl.build("feed_forward", config).params().items()}
    return all_of(
        true("shapes of the parameters", shapes == ROLES["feed_forward"].params({**config, "bias": True}), got=shapes),
        same("number of parameters", sum(int(np.prod(s)) for s in shapes.values()), 2 * d * d_ff + d_ff + d),
    )


@check("feed-forward-drops-hidden-activations", roles=("feed_forward",), examples=2)
def feed_forward_dropout(impl: Any, draw: Draw) -> Evidence:
    """Dropout falls between activation and second layer, survivors are scaled by 1/(1-p), and evaluation has none."""
    p, d = draw.choice("p", (0.1, 0.5), pin=0.1), 40
    config = any_activation(impl, {"d_model": d, "d_ff": d, "dropout": p})
    subject = impl.build("feed_forward", config)
    shift = 1.0 + draw.uniform("b2", (d,))
    subject.load(
        {"linear1.weight": np.eye(d), "linear1.bias": np.zeros(d), "linear2.weight": np.eye(d), "linear2.bias": shift}
    )
    x = 1.0 + np.abs(draw.normal("x", (10, 20, d)))
    active = f.ACTIVATIONS[config["activation"]](x)
    quiet = subject(x=x)["out"]
    subject.train(True)
    hidden = subject(x=x)["out"] - shift
    bound = tolerance(subject.dtype, d, float(x.max()) / (1 - p))
    dropped = np.abs(hidden) <= bound
    expected = np.where(dropped, 0.0, active / (1 - p))
    count = x.size
    return all_of(
        close("evaluation", quiet, active + shift, bound),
        close("survivors over 1 - p", hidden, expected, bound),
        close(
            "share of dropped units", dropped.mean(), p, 5 * (p * (1 - p) / count) ** 0.5, "five standard deviations"
        ),
    )


# --- SwiGLU ---------------------------------------------------------------------------------------


@check("swiglu-formula", roles=("swiglu",))
def swiglu_formula(impl: Any, draw: Draw) -> Evidence:
    """down_proj(SiLU(gate_proj(x)) * up_proj(x)): SiLU on the gate, a product element by element, then a linear map."""
    config = sizes(draw)
    subject, p = loaded(impl, draw, "swiglu", **config)
    x = tokens(draw, config["d_model"]) * 2.0
    expected = f.swiglu(p, x)
    return close(
        "SwiGLU(x)", subject(x=x)["out"], expected, sum_bound(subject, x, p["down_proj.weight"], expected, x * x)
    )


@check("swiglu-has-three-matrices-without-bias", roles=("swiglu",))
def swiglu_parameters(impl: Any, draw: Draw) -> Evidence:
    """gate and up (d_ff, d), down (d, d_ff), no bias: 3 d d_ff parameters."""
    config = sizes(draw)
    shapes = {name: a.shape for name, a in impl.build("swiglu", config).params().items()}
    return all_of(
        true("shapes of the parameters", shapes == ROLES["swiglu"].params(config), got=shapes),
        same(
            "number of parameters",
            sum(int(np.prod(s)) for s in shapes.values()),
            3 * config["d_model"] * config["d_ff"],
        ),
    )
