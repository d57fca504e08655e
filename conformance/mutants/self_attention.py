"""Mutants of single-head self-attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.multi_head import SelfAttention
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import attention as f


@mutant(
    breaks=(
        "self-attention-projects-one-sequence-three-times",
        "separate-projections-ask-and-answer-differently",
        "equal-projections-make-scores-symmetric",
    )
)
class OneProjectionForQueriesAndKeys(SelfAttention):
    """Keys are projected with W_Q."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({**p, "k_proj.weight": p["q_proj.weight"]}, **inputs)


@mutant(breaks=("self-attention-projects-one-sequence-three-times",))
class ProjectionBiasesIgnored(SelfAttention):
    """The biases of the projections are never added."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({name: w for name, w in p.items() if name.endswith("weight")}, **inputs)


@mutant(breaks=("values-are-projected",))
class ValuesAreTheInput(SelfAttention):
    """The values are the first d_k features of the input itself."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        identity = np.eye(*p["v_proj.weight"].shape)
        return super().forward({**p, "v_proj.weight": identity}, **inputs)


@mutant(breaks=("projections-multiply-from-the-right",))
class SquareWeightsTransposed(SelfAttention):
    """A square weight matrix is applied transposed, which no shape betrays."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        square = self.config["d_model"] == self.config["d_k"]
        return super().forward({name: w.T if square and w.ndim == 2 else w for name, w in p.items()}, **inputs)


@mutant(breaks=("self-attention-scales-by-its-key-width", "self-attention-projects-one-sequence-three-times"))
class ScaledByInputWidth(SelfAttention):
    """The scores are divided by sqrt(d_model)."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return super().attend(query * np.sqrt(self.config["d_k"] / self.config["d_model"]), key, value, mask)


@mutant(breaks=("every-output-depends-on-every-input",))
class CausalByDefault(SelfAttention):
    """A causal mask is left on."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        causal = f.causal_mask(query.shape[-2])
        return super().attend(query, key, value, causal if mask is None else causal & mask)


@mutant(breaks=("every-output-depends-on-every-input",))
class LocalWindow(SelfAttention):
    """Only the three neighbours on each side are seen."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        place = np.arange(query.shape[-2])
        near = abs(place[:, None] - place) <= 3
        return super().attend(query, key, value, near if mask is None else near & mask)


@mutant(breaks=("meaning-depends-on-context",))
class AttendsToItself(SelfAttention):
    """The weights are the identity: the layer is position-wise."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return value, np.broadcast_to(np.eye(query.shape[-2]), (*query.shape[:-1], query.shape[-2]))


@mutant(breaks=("scores-depend-on-the-product-of-the-projections",))
class QueriesAndKeysNormalised(SelfAttention):
    """Queries and keys are brought to length sqrt(d_k)."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        def unit(x: Array) -> Array:
            return x * np.sqrt(x.shape[-1]) / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)

        return super().attend(unit(query), unit(key), value, mask)


@mutant(breaks=("identity-projections-still-discriminate", "projections-multiply-from-the-right"))
class SoftmaxTwice(SelfAttention):
    """Softmax runs over its own result once more."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        weights = f.masked_softmax(super().attend(query, key, value, mask)[1], mask)
        return weights @ value, weights


@mutant(breaks=("zero-queries-average-the-projected-values",))
class OwnValueAdded(SelfAttention):
    """Each word's own value is added to its output."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        out, weights = super().attend(query, key, value, mask)
        return out + value, weights


@mutant(breaks=("single-head-has-three-projections",))
class SingleHeadWithOutputProjection(SelfAttention):
    """The single head has an output projection too."""

    def initialise(self) -> Arrays:
        d_k = self.config["d_k"]
        return {**super().initialise(), "out_proj.weight": np.eye(d_k, dtype=self.dtype)}


@mutant(breaks=("single-head-has-three-projections",))
class KeysTiedToQueries(SelfAttention):
    """W_K and W_Q are one object: loading one loads the other."""

    def load(self, params: Mapping[str, Array]) -> None:
        super().load({**params, "k_proj.weight": params["q_proj.weight"]})


@mutant(breaks=("self-attention-mask-hides-keys-of-its-sequence",))
class MaskOfTheFirstSample(SelfAttention):
    """The mask of the first sample serves the batch."""

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return super().attend(query, key, value, None if mask is None else mask[:1])


@mutant(breaks=("projections-learn-from-the-output",))
class ScoresDetached(SelfAttention):
    """The weights are cut off from the graph: W_Q and W_K never learn."""

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        gradients, parameters = super().vjp(inputs, cotangent)
        return gradients, {name: 0 * g if name[0] in "qk" else g for name, g in parameters.items()}
