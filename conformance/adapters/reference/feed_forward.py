"""Reference subjects of linear maps, embeddings, activations, feed-forward networks and mixtures of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Array, Arrays
from conformance.reference import feed_forward as f


def dropout_of(subject: ReferenceSubject) -> Callable[[Array], Array]:
    """Inverted dropout at the subject's rate while it trains, else nothing."""
    p = subject.config["dropout"]
    if not subject.training or p == 0.0:
        return f.unchanged
    return lambda x: x * (subject.rng.random(x.shape) >= p) / (1.0 - p)


@reference("activation")
class Activation(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.ACTIVATIONS[self.config["kind"]](inputs["x"])}


@reference("linear")
class Linear(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.linear(inputs["x"], p["weight"], p.get("bias"))}


@reference("embedding")
class Embedding(ReferenceSubject):
    """The row of `padding_idx` starts at zero and receives no gradient."""

    def initialise(self) -> Arrays:
        weights = super().initialise()
        if self.config["padding_idx"] is not None:
            weights["weight"][self.config["padding_idx"]] = 0.0
        return weights

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": p["weight"][inputs["ids"]]}

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        of_inputs, of_params = super().vjp(inputs, cotangent)
        if self.config["padding_idx"] is not None:
            of_params["weight"][self.config["padding_idx"]] = 0.0
        return of_inputs, of_params


@reference("feed_forward")
class FeedForward(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.feed_forward(p, inputs["x"], self.config["activation"], dropout_of(self))}


@reference("swiglu")
class SwiGLU(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.swiglu(p, inputs["x"])}


@reference("mixture_of_experts")
class MixtureOfExperts(ReferenceSubject):
    """In the steps that a mutant can get wrong: router, gates, sum over experts."""

    def gates(self, logits: Array) -> Array:
        return f.gates(logits, self.config["top_k"], self.config["renormalise"])

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        tokens = x.reshape(-1, x.shape[-1])
        out = f.mixture(p, tokens, self.gates(f.linear(tokens, p["router.weight"])))
        return {"out": out.reshape(x.shape)}
