"""Norms that are written as functions: LayerNorm and RMSNorm over the features of one token."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, near, noise, shown, tensor


@helper(
    "functions-that-normalise-take-each-token-alone",
    r"layer_?norm|rms_?norm|^norm$|^ln$",
    {
        "weight": r"(.*_)?(w|g|weights?|gain|gamma|scale)",
        "bias": r"(.*_)?(b|bias|beta|shift)",
        "shape": r"(normalized_)?(shape|dims?|size|d_model|hidden_size)",
        "eps": r"(.*_)?(eps|epsilon)",
        "x": r"x|inputs?|tensor|h|hidden(_states?)?",
    },
    ("x",),
)
def normalised(norm: Called) -> Iterator[Trouble]:
    """Numbers far from mean 0 and size 1, so that epsilon and its place count for nothing."""
    x = 3 * noise(2, 3, 8) + 1.5
    weight, bias = 1 + 0.3 * noise(8, seed=1), noise(8, seed=2)
    for shape in ([8], 8, -1):
        try:
            made = tensor(norm(x=x, weight=weight, bias=bias, eps=1e-6, shape=shape))
            break
        except (TypeError, RuntimeError, IndexError):
            continue
    else:
        raise OtherKind("it takes something else")
    if made.shape != x.shape:
        raise OtherKind("it gives another shape")
    says_rms, says_layer = (bool(re.search(word, norm.says)) for word in (r"rms|root mean", r"layer"))
    right = {"RMSNorm": _rms(x), "LayerNorm": _centred(x), "LayerNorm by n - 1": _centred(x) * (7 / 8) ** 0.5}
    if says_rms != says_layer:
        right = {name: rows for name, rows in right.items() if name.startswith("RMS") == says_rms}
    elif not any(near(made, _scaled(norm, rows, weight, bias), 1e-3) for rows in right.values()):
        raise OtherKind("nothing says which norm it is")
    expected = [_scaled(norm, rows, scale, bias) for rows in right.values() for scale in (weight, 1 + weight)]
    if not any(near(made, one, 1e-3) for one in expected):
        yield Trouble(
            f"{norm.name} does not compute {next(iter(right))} over the features of each token.",
            shown(expected[0][0, 0]),
            shown(made[0, 0]),
        )


def _rms(x: Tensor) -> Tensor:
    return x / x.pow(2).mean(-1, keepdim=True).sqrt()


def _centred(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True, unbiased=False).sqrt()


def _scaled(norm: Called, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Rows by the weight and bias that the function takes."""
    rows = rows * weight if norm.has("weight") else rows
    return torch.as_tensor(rows + bias if norm.has("bias") else rows)
