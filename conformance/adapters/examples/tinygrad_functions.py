"""Functions of tinygrad as an implementation: convert arrays at this boundary, return numpy.

One claim is broken, by tinygrad itself: gradients are NaN where a query sees no key. (Where there is no compiler,
DEV=PYTHON in the environment runs tinygrad slowly, in Python.)

pytest conformance/ --impl conformance/adapters/examples/tinygrad_functions.py:TinygradTransformer
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tinygrad import Tensor

from conformance.protocol import Array, Arrays, NotProvided


class TinygradTransformer:
    """Scaled dot-product attention and softmax, with their gradients."""

    name = "tinygrad"

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        if role == "softmax":
            return Softmax(config["dim"])
        if role == "attention" and not config["dropout"]:
            return Attention(config["causal"])
        raise NotProvided(f"this example has no {role}")


class Function:
    """What both share: `forward` on tensors, called and differentiated with numpy arrays."""

    dtype = np.dtype(np.float32)

    def forward(self, **inputs: Any) -> Tensor:
        raise NotImplementedError

    def __call__(self, **inputs: Any) -> Arrays:
        return {"out": self.forward(**{name: _tensor(value) for name, value in inputs.items()}).numpy()}

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        """The gradients of sum(out * cotangent) of the floating inputs; there are no parameters."""
        tensors = {name: _tensor(value) for name, value in inputs.items()}
        floating = {name: x for name, x in tensors.items() if isinstance(x, Tensor) and x.is_floating_point()}
        out = self.forward(**tensors)
        gradients = (out * _tensor(cotangent)).sum().gradient(*floating.values())
        return {name: g.numpy() for name, g in zip(floating, gradients, strict=True)}, {}


class Softmax(Function):
    def __init__(self, dim: int) -> None:
        self.dim = dim

    def forward(self, **inputs: Any) -> Tensor:
        return inputs["x"].softmax(self.dim)


class Attention(Function):
    def __init__(self, causal: bool) -> None:
        self.causal = causal

    def forward(self, **inputs: Any) -> Tensor:
        if self.causal:
            raise NotProvided("this example passes masks, and leaves tinygrad's own causal option alone")
        query: Tensor = inputs["query"]
        return query.scaled_dot_product_attention(inputs["key"], inputs["value"], attn_mask=inputs.get("mask"))


def _tensor(value: Any) -> Any:
    """Floating arrays in float32, masks and integers as they are."""
    if not isinstance(value, np.ndarray):
        return value
    return Tensor(value.astype(np.float32) if value.dtype.kind == "f" else value)
