"""Mutants of residuals, norm placement, encoder and decoder layers, and their stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.attention import Attention
from conformance.adapters.reference.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference.attention import causal_mask
from conformance.reference.layers import Layers, Params, layers_of, part

Sublayer = Callable[[Array], Array]

# --- residuals and norms --------------------------------------------------------------------------


class _NoAttentionResidual(Layers):
    def encoder_layer(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        x = self.norm(part(p, "norm1"), self.attention(part(p, "self_attn"), x, x, mask))
        return self.residual(part(p, "norm2"), x, lambda y: self.feed_forward(part(p, "feed_forward"), y))


@mutant(breaks=("post-norm-encoder-layer-formula",), known_as="L01")
class AttentionWithoutResidual(EncoderLayer):
    """LN(MHA(x)): the residual around attention is missing."""

    formulas = _NoAttentionResidual


class _ResidualFromTheNorm(Layers):
    def residual(self, p_norm: Params, x: Array, sublayer: Sublayer) -> Array:
        if not self.norm_first:
            return super().residual(p_norm, x, sublayer)
        normed = self.norm(p_norm, x)
        return normed + self.drop(sublayer(normed))


@mutant(
    breaks=(
        "pre-norm-encoder-layer-formula",
        "pre-norm-layer-without-sublayers-is-the-identity",
        "gradient-passes-the-skip-path",
        "residual-adds-the-sublayer",
    ),
    known_as="L02",
)
class ResidualFromTheNormalised(EncoderLayer):
    """Pre-norm takes the residual after the norm: LN(x) + SubLayer(LN(x))."""

    formulas = _ResidualFromTheNorm


@mutant(breaks=("deep-pre-norm-stack-keeps-its-input", "encoder-applies-its-layers-in-order"))
class StackResidualFromTheNormalised(Encoder):
    """Each pre-norm layer of the stack takes the residual after the norm."""

    formulas = _ResidualFromTheNorm


class _NormInsideTheResidual(Layers):
    def residual(self, p_norm: Params, x: Array, sublayer: Sublayer) -> Array:
        return x + self.drop(self.norm(p_norm, sublayer(x)))


@mutant(
    breaks=(
        "post-norm-encoder-layer-formula",
        "pre-norm-encoder-layer-formula",
        "post-norm-output-is-normalised",
    ),
    known_as="L05",
)
class NormInsideTheResidual(EncoderLayer):
    """x + LN(SubLayer(x)) in both modes."""

    formulas = _NormInsideTheResidual


class _AlwaysPreNorm(Layers):
    def residual(self, p_norm: Params, x: Array, sublayer: Sublayer) -> Array:
        return x + self.drop(sublayer(self.norm(p_norm, x)))


@mutant(breaks=("post-norm-encoder-layer-formula", "post-norm-output-is-normalised"))
class NormFirstAlways(EncoderLayer):
    """The norm stands before the sublayer, whatever was asked for."""

    formulas = _AlwaysPreNorm


class _SecondResidualFromTheInput(Layers):
    def encoder_layer(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        if not self.norm_first:
            return super().encoder_layer(p, x, mask)
        h = self.residual(part(p, "norm1"), x, lambda y: self.attention(part(p, "self_attn"), y, y, mask))
        return x + self.drop(self.feed_forward(part(p, "feed_forward"), self.norm(part(p, "norm2"), h)))


@mutant(breaks=("pre-norm-encoder-layer-formula", "residual-adds-the-sublayer"))
class SecondResidualFromTheInput(EncoderLayer):
    """The second residual adds the layer's input, not the result after attention."""

    formulas = _SecondResidualFromTheInput


class _ScaledResidual(Layers):
    def residual(self, p_norm: Params, x: Array, sublayer: Sublayer) -> Array:
        return super().residual(p_norm, x, sublayer) * (0.5**0.5 if self.norm_first else 1.0)


@mutant(
    breaks=(
        "residual-adds-the-sublayer",
        "pre-norm-layer-without-sublayers-is-the-identity",
        "gradient-passes-the-skip-path",
    )
)
class ResidualScaled(EncoderLayer):
    """Each sum is scaled by 1/sqrt(2) to keep its variance."""

    formulas = _ScaledResidual


class _OneNorm(Layers):
    def encoder_layer(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        shared = {f"norm2.{name}": value for name, value in part(p, "norm1").items()}
        return super().encoder_layer({**p, **shared}, x, mask)


@mutant(breaks=("post-norm-encoder-layer-formula", "pre-norm-encoder-layer-formula", "post-norm-output-is-normalised"))
class OneNormForBoth(EncoderLayer):
    """Both sublayers use the first norm."""

    formulas = _OneNorm


# --- masks and dropout ----------------------------------------------------------------------------


class _MaskIgnored(Layers):
    def attention(self, p: Params, query: Array, memory: Array, mask: Array | None) -> Array:
        return super().attention(p, query, memory, None)


@mutant(breaks=("encoder-layer-obeys-its-mask", "post-norm-encoder-layer-formula"))
class LayerIgnoresItsMask(EncoderLayer):
    """The mask is accepted and not passed on."""

    formulas = _MaskIgnored


@mutant(breaks=("causal-mask-shows-the-order", "encoder-applies-its-layers-in-order"))
class StackIgnoresItsMask(Encoder):
    """The stack does not pass the mask to its layers."""

    formulas = _MaskIgnored


class _MaskInverted(Layers):
    def attention(self, p: Params, query: Array, memory: Array, mask: Array | None) -> Array:
        return super().attention(p, query, memory, None if mask is None else ~mask)


@mutant(breaks=("encoder-layer-obeys-its-mask", "post-norm-encoder-layer-formula"))
class LayerInvertsItsMask(EncoderLayer):
    """True hides."""

    formulas = _MaskInverted


class _CausalAlways(Layers):
    def encoder_layer(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        causal = causal_mask(x.shape[1])[None, None]
        return super().encoder_layer(p, x, causal if mask is None else mask & causal)


@mutant(breaks=("encoder-layer-sees-the-whole-input", "unmasked-attention-is-permutation-equivariant"))
class EncoderLayerAlwaysCausal(EncoderLayer):
    """The encoder's self-attention is causal."""

    formulas = _CausalAlways


class _NoMixing(Layers):
    def attention(self, p: Params, query: Array, memory: Array, mask: Array | None) -> Array:
        return super().attention(p, query, query[:, :1], None)


@mutant(breaks=("encoder-layer-sees-the-whole-input", "unmasked-attention-is-permutation-equivariant"))
class EncoderLayerSeesTheFirstTokenOnly(EncoderLayer):
    """Keys and values are those of the first token."""

    formulas = _NoMixing


class _PositionBlind(Layers):
    def encoder_layer(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        return super().encoder_layer(p, x - x.mean(0, keepdims=True) if len(x) > 1 else 0 * x, mask)


@mutant(breaks=("position-codes-make-the-order-visible",))
class EncoderLayerCentresTheBatch(EncoderLayer):
    """The batch's mean is subtracted at every position: what all samples share, the position code, is lost."""

    formulas = _PositionBlind


@mutant(breaks=("attention-weights-move-with-the-tokens",))
class AttentionPrefersNeighbours(Attention):
    """A bias for near keys is added to the scores."""

    def scores(self, query: Array, key: Array) -> Array:
        distance = np.abs(np.subtract.outer(np.arange(query.shape[-2]), np.arange(key.shape[-2])))
        return super().scores(query, key) - 0.1 * distance


@mutant(breaks=("layer-dropout-falls-on-sublayer-outputs",))
class LayerDropsTheResidual(EncoderLayer):
    """Dropout falls on the sum, residual and all."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        drop = self.steps().drop

        class DropTheSum(Layers):
            def residual(self, p_norm: Params, x: Array, sublayer: Sublayer) -> Array:
                return drop(super().residual(p_norm, x, sublayer))

        return {"out": DropTheSum(self.config["n_heads"], self.config["norm_first"]).encoder_layer(p, **inputs)}


@mutant(breaks=("layer-dropout-falls-on-sublayer-outputs",))
class LayerForgetsItsDropout(EncoderLayer):
    """Training drops nothing."""

    def train(self, mode: bool = True) -> None:
        self.training = False


class _PostNormKeepsAll(Layers):
    def residual(self, p_norm: Params, x: Array, sublayer: Sublayer) -> Array:
        return super().residual(p_norm, x, sublayer) if self.norm_first else self.norm(p_norm, x + sublayer(x))


@mutant(breaks=("post-norm-layer-drops-both-sublayers",))
class PostNormForgetsItsDropout(EncoderLayer):
    """Dropout is applied with pre-norm only."""

    formulas = _PostNormKeepsAll


@mutant(breaks=("layer-in-evaluation-drops-nothing",))
class LayerStaysInTraining(EncoderLayer):
    """Once trained, dropout stays active in evaluation."""

    def train(self, mode: bool = True) -> None:
        self.training = self.training or mode


# --- the decoder layer ----------------------------------------------------------------------------


class _KeysFromTheDecoder(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        x = self.residual(part(p, "norm1"), x, lambda y: self.attention(part(p, "self_attn"), y, y, mask))
        x = self.residual(part(p, "norm2"), x, lambda y: self.exchanged(part(p, "cross_attn"), y, memory))
        return self.residual(part(p, "norm3"), x, lambda y: self.feed_forward(part(p, "feed_forward"), y))

    def exchanged(self, p: Params, x: Array, memory: Array) -> Array:
        """Queries from the encoder; as many rows of the result as the decoder has (the last repeated)."""
        rows = self.attention(p, memory, x, None)
        return rows[:, np.minimum(np.arange(x.shape[1]), rows.shape[1] - 1)]


@mutant(
    breaks=(
        "decoder-layer-formula",
        "cross-attention-hides-masked-source-tokens",
        "every-target-token-sees-the-whole-source",
        "decoder-layer-hides-the-future",
    ),
    known_as="L08",
)
class CrossAttentionExchanged(DecoderLayer):
    """Cross-attention takes its queries from the encoder, keys and values from the decoder."""

    formulas = _KeysFromTheDecoder


class _NoCross(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        x = self.residual(part(p, "norm1"), x, lambda y: self.attention(part(p, "self_attn"), y, y, mask))
        return self.residual(part(p, "norm3"), x, lambda y: self.feed_forward(part(p, "feed_forward"), y))


@mutant(
    breaks=(
        "decoder-layer-formula",
        "every-target-token-sees-the-whole-source",
        "gradient-reaches-every-source-token",
    )
)
class DecoderWithoutCrossAttention(DecoderLayer):
    """The memory is never read."""

    formulas = _NoCross


class _CrossFirst(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        x = self.residual(part(p, "norm1"), x, lambda y: self.attention(part(p, "self_attn"), y, y, mask))
        x = self.residual(part(p, "norm3"), x, lambda y: self.feed_forward(part(p, "feed_forward"), y))
        return self.residual(
            part(p, "norm2"), x, lambda y: self.attention(part(p, "cross_attn"), y, memory, memory_mask)
        )


@mutant(breaks=("decoder-layer-formula",))
class FeedForwardBeforeCrossAttention(DecoderLayer):
    """The feed-forward network follows the self-attention directly; cross-attention comes last."""

    formulas = _CrossFirst


class _OneAttention(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        shared = {f"cross_attn.{name}": value for name, value in part(p, "self_attn").items()}
        return super().decoder_layer({**p, **shared}, x, memory, mask, memory_mask)


@mutant(breaks=("decoder-layer-formula",))
class OneAttentionForBoth(DecoderLayer):
    """Cross-attention uses the parameters of the self-attention."""

    formulas = _OneAttention


class _MemoryMaskLost(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        return super().decoder_layer(p, x, memory, mask, None)


@mutant(breaks=("cross-attention-hides-masked-source-tokens", "decoder-layer-formula"))
class MemoryMaskLost(DecoderLayer):
    """The source mask is not passed to cross-attention."""

    formulas = _MemoryMaskLost


class _TargetMaskLost(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        return super().decoder_layer(p, x, memory, None, memory_mask)


@mutant(breaks=("decoder-layer-hides-the-future", "decoder-layer-formula"))
class TargetMaskLost(DecoderLayer):
    """The decoder's self-attention is not masked."""

    formulas = _TargetMaskLost


class _CausalCross(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        look_ahead = np.tri(x.shape[1], memory.shape[1], dtype=bool)
        return super().decoder_layer(
            p, x, memory, mask, look_ahead if memory_mask is None else memory_mask & look_ahead
        )


@mutant(breaks=("every-target-token-sees-the-whole-source", "gradient-reaches-every-source-token"))
class CrossAttentionCausal(DecoderLayer):
    """Cross-attention is causal, too: target token i sees the source tokens up to i only."""

    formulas = _CausalCross


@mutant(breaks=("pre-norm-decoder-layer-formula",))
class DecoderResidualFromTheNormalised(DecoderLayer):
    """Pre-norm decoder layers take the residual after the norm."""

    formulas = _ResidualFromTheNorm


class _MemoryNormed(Layers):
    def decoder_layer(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        memory = self.norm(part(p, "norm2"), memory) if self.norm_first else memory
        return super().decoder_layer(p, x, memory, mask, memory_mask)


@mutant(breaks=("pre-norm-decoder-layer-formula",))
class MemoryNormedAgain(DecoderLayer):
    """Pre-norm applies the norm of the cross-attention to the memory, too."""

    formulas = _MemoryNormed


# --- stacks ---------------------------------------------------------------------------------------


def _tied(params: Mapping[str, Array], source: int) -> dict[str, Array]:
    """Every layer with the parameters of layer `source` (counted from the end if negative)."""
    layer = list(layers_of(params))[source]
    return {
        name: layer[name.split(".", 2)[2]] if name.startswith("layers.") else value for name, value in params.items()
    }


@mutant(breaks=("layers-have-parameters-of-their-own", "encoder-applies-its-layers-in-order"), known_as="M09")
class EncoderLayersShared(Encoder):
    """[layer] * n: all layers are one object, which keeps what was loaded last."""

    def load(self, params: Mapping[str, Array]) -> None:
        super().load(_tied(params, -1))


@mutant(breaks=("layers-have-parameters-of-their-own", "decoder-gives-every-layer-the-memory"))
class DecoderLayersShared(Decoder):
    """[layer] * n in the decoder."""

    def load(self, params: Mapping[str, Array]) -> None:
        super().load(_tied(params, 0))


class _LastLayerSkipped(Layers):
    def encoder(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        for layer in list(layers_of(p))[:-1]:
            x = self.encoder_layer(layer, x, mask)
        return self.final_norm(p, x)


@mutant(breaks=("encoder-applies-its-layers-in-order",))
class LastLayerSkipped(Encoder):
    """The loop ends one layer early."""

    formulas = _LastLayerSkipped


class _NeighboursMixed(Layers):
    def encoder_layer(self, p: Params, x: Array, mask: Array | None = None) -> Array:
        return super().encoder_layer(p, x + 0.1 * np.roll(x, 1, axis=1), mask)


@mutant(breaks=("only-attention-mixes-positions", "encoder-applies-its-layers-in-order"))
class NeighboursMixed(Encoder):
    """Each layer begins with a small convolution over neighbouring tokens."""

    formulas = _NeighboursMixed


class _NoFinalNorm(Layers):
    def final_norm(self, p: Params, x: Array) -> Array:
        return x


@mutant(breaks=("encoder-applies-its-layers-in-order", "pre-norm-output-needs-a-final-norm"))
class FinalNormMissing(Encoder):
    """The final norm is built and not applied."""

    formulas = _NoFinalNorm


class _FinalNormAddsResidual(Layers):
    def final_norm(self, p: Params, x: Array) -> Array:
        return x + super().final_norm(p, x) if "norm.weight" in p else x


@mutant(breaks=("final-norm-of-a-post-norm-stack-changes-little", "encoder-applies-its-layers-in-order"))
class FinalNormWithResidual(Encoder):
    """The final norm is added to its input."""

    formulas = _FinalNormAddsResidual


class _MemoryFromTheLayerBefore(Layers):
    def decoder(
        self, p: Params, x: Array, memory: Array, mask: Array | None = None, memory_mask: Array | None = None
    ) -> Array:
        for layer in layers_of(p):
            x = self.decoder_layer(layer, x, memory, mask, memory_mask)
            memory = memory + x.mean(1, keepdims=True)
        return self.final_norm(p, x)


@mutant(breaks=("decoder-gives-every-layer-the-memory",))
class MemoryChangesFromLayerToLayer(Decoder):
    """Each decoder layer hands a memory of its own to the next."""

    formulas = _MemoryFromTheLayerBefore
