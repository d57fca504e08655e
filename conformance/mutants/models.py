"""Mutants of the full encoder-decoder and of the decoder-only model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject
from conformance.adapters.reference.models import DecoderLM, EncoderDecoder
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import feed_forward as ff
from conformance.reference import models as f
from conformance.reference.attention import attention, causal_mask
from conformance.reference.layers import Params, layers_of, part
from conformance.reference.norms import layer_norm
from conformance.reference.positions import rope, sinusoid

# --- masks of the encoder-decoder -----------------------------------------------------------------


class _TargetPadOnQueries(f.EncoderDecoder):
    def target_mask(self, tgt: Array) -> Array:
        return (tgt != self.pad_id)[:, None, :, None] & causal_mask(tgt.shape[1])


@mutant(breaks=("target-padding-is-ignored",), known_as="M02")
class TargetPadOnTheQueryAxis(EncoderDecoder):
    """The target's padding mask stands on the query axis: a pad inside stays visible as a key."""

    formulas = _TargetPadOnQueries


class _TargetPadVisible(f.EncoderDecoder):
    def target_mask(self, tgt: Array) -> Array:
        return causal_mask(tgt.shape[1])[None, None]


@mutant(breaks=("target-padding-is-ignored",))
class TargetPadVisible(EncoderDecoder):
    """The target mask is causal and nothing more."""

    formulas = _TargetPadVisible


class _SourceMaskInverted(f.EncoderDecoder):
    def source_mask(self, src: Array) -> Array:
        return ~super().source_mask(src)


@mutant(
    breaks=(
        "source-padding-is-ignored",
        "encoder-decoder-formula",
        "target-depends-on-the-source",
    ),
    known_as="M03",
)
class SourceMaskInverted(EncoderDecoder):
    """The padding mask keeps the padding and hides the words."""

    formulas = _SourceMaskInverted


class _CrossUnmasked(f.EncoderDecoder):
    def decode(self, p: Params, tgt: Array, memory: Array, memory_mask: Array) -> Array:
        return super().decode(p, tgt, memory, np.ones_like(memory_mask))


@mutant(breaks=("source-padding-is-ignored", "encoder-decoder-formula"))
class CrossAttentionSeesPadding(EncoderDecoder):
    """The source mask is used in the encoder and not in cross-attention."""

    formulas = _CrossUnmasked


class _EncoderUnmasked(f.EncoderDecoder):
    def encode(self, p: Params, src: Array) -> Array:
        return self.encoder(part(p, "encoder"), self.embed(p["src_embedding.weight"], src))


@mutant(breaks=("source-padding-is-ignored", "encoder-decoder-formula"))
class EncoderSeesPadding(EncoderDecoder):
    """The source mask is used in cross-attention and not in the encoder."""

    formulas = _EncoderUnmasked


class _MaskOfTheFirst(f.EncoderDecoder):
    def source_mask(self, src: Array) -> Array:
        return np.broadcast_to(super().source_mask(src)[:1], (len(src), 1, 1, src.shape[1]))


@mutant(breaks=("encoder-decoder-formula",))
class MaskOfTheFirstSentence(EncoderDecoder):
    """The first sentence's padding mask serves the whole batch."""

    formulas = _MaskOfTheFirst


class _MaskOfAll(f.EncoderDecoder):
    def source_mask(self, src: Array) -> Array:
        mask = super().source_mask(src)
        return np.broadcast_to(mask.all(0, keepdims=True), mask.shape)


@mutant(breaks=("a-source-of-padding-harms-no-other-sentence", "encoder-decoder-formula"))
class PadOfAnyHidesForAll(EncoderDecoder):
    """A position that is padding in one sentence is hidden in all of them."""

    formulas = _MaskOfAll


class _FutureVisible(f.EncoderDecoder):
    def target_mask(self, tgt: Array) -> Array:
        return (tgt != self.pad_id)[:, None, None, :]


@mutant(breaks=("target-is-causal", "one-pass-equals-step-by-step", "encoder-decoder-formula"))
class TargetSeesTheFuture(EncoderDecoder):
    """The target's padding mask overwrites its causal mask."""

    formulas = _FutureVisible


# --- embeddings, memory and head of the encoder-decoder -------------------------------------------


class _EmbeddingDivided(f.EncoderDecoder):
    def embed(self, table: Array, ids: Array) -> Array:
        return super().embed(table / table.shape[1], ids)


@mutant(breaks=("embeddings-are-scaled-by-sqrt-d-model", "encoder-decoder-formula"), known_as="M05")
class EmbeddingDividedBySqrtD(EncoderDecoder):
    """Embeddings are divided by sqrt(d_model), not multiplied."""

    formulas = _EmbeddingDivided


class _EmbeddingUnscaled(f.EncoderDecoder):
    def embed(self, table: Array, ids: Array) -> Array:
        return super().embed(table / np.sqrt(table.shape[1]), ids)


@mutant(breaks=("embeddings-are-scaled-by-sqrt-d-model", "encoder-decoder-formula"))
class EmbeddingUnscaled(EncoderDecoder):
    """The factor sqrt(d_model) is missing."""

    formulas = _EmbeddingUnscaled


class _ScaledAfterPositions(f.EncoderDecoder):
    def embed(self, table: Array, ids: Array) -> Array:
        d = table.shape[1]
        return (table[ids] + sinusoid(np.arange(ids.shape[1]), d)) * np.sqrt(d)


@mutant(breaks=("embeddings-are-scaled-by-sqrt-d-model", "encoder-decoder-formula"))
class PositionsScaledToo(EncoderDecoder):
    """The factor multiplies the sum of embedding and position code."""

    formulas = _ScaledAfterPositions


class _PositionsFromTheEnd(f.EncoderDecoder):
    def embed(self, table: Array, ids: Array) -> Array:
        d, n = table.shape[1], ids.shape[1]
        return table[ids] * np.sqrt(d) + sinusoid(np.arange(n)[::-1], d)


@mutant(breaks=("one-pass-equals-step-by-step", "encoder-decoder-formula"))
class PositionsCountFromTheEnd(EncoderDecoder):
    """The last token has position 0, so that codes move when the sequence grows."""

    formulas = _PositionsFromTheEnd


@mutant(breaks=("pad-row-starts-at-zero",), known_as="M07")
class PadRowOverwritten(EncoderDecoder):
    """Xavier initialisation after padding_idx overwrites the zero row."""

    def initialise(self) -> Arrays:
        return ReferenceSubject.initialise(self)


@mutant(breaks=("source-and-target-embed-separately", "encoder-decoder-formula"))
class TablesShared(EncoderDecoder):
    """Both sides use the target's table."""

    def load(self, params: Mapping[str, Array]) -> None:
        source, target = params["src_embedding.weight"], params["tgt_embedding.weight"]
        super().load({**params, "src_embedding.weight": np.resize(target, source.shape)})


class _MemoryLost(f.EncoderDecoder):
    def decode(self, p: Params, tgt: Array, memory: Array, memory_mask: Array) -> Array:
        return super().decode(p, tgt, np.zeros_like(memory), memory_mask)


@mutant(breaks=("target-depends-on-the-source", "decoder-reads-the-top-of-the-encoder"))
class MemoryLost(EncoderDecoder):
    """The decoder receives zeros for the encoder's output."""

    formulas = _MemoryLost


class _MemoryBelowTheTop(f.EncoderDecoder):
    def encode(self, p: Params, src: Array) -> Array:
        x, stack = self.embed(p["src_embedding.weight"], src), part(p, "encoder")
        for layer in list(layers_of(stack))[:-1]:
            x = self.encoder_layer(layer, x, self.source_mask(src))
        return self.final_norm(stack, x)


@mutant(breaks=("decoder-reads-the-top-of-the-encoder", "encoder-decoder-formula"))
class MemoryBelowTheTop(EncoderDecoder):
    """The decoder reads the encoder before its last layer."""

    formulas = _MemoryBelowTheTop


class _NoFinalNorms(f.EncoderDecoder):
    def final_norm(self, p: Params, x: Array) -> Array:
        return x


@mutant(breaks=("decoder-reads-the-top-of-the-encoder", "encoder-decoder-formula"))
class StacksWithoutFinalNorm(EncoderDecoder):
    """Neither stack applies its final norm."""

    formulas = _NoFinalNorms


class _LogProbabilities(f.EncoderDecoder):
    def head(self, p: Params, x: Array) -> Array:
        logits = super().head(p, x)
        highest = logits.max(-1, keepdims=True)
        return logits - highest - np.log(np.exp(logits - highest).sum(-1, keepdims=True))


@mutant(breaks=("model-returns-logits", "encoder-decoder-formula"))
class ReturnsLogProbabilities(EncoderDecoder):
    """The model ends with a log-softmax."""

    formulas = _LogProbabilities


# --- how the encoder-decoder starts ---------------------------------------------------------------


@mutant(breaks=("matrices-start-xavier-uniform",))
class StartsFromFanInOnly(EncoderDecoder):
    """Matrices are uniform within 1/sqrt(fan_in), the default of a linear layer."""

    def initialise(self) -> Arrays:
        rng, weights = np.random.default_rng(1), super().initialise()
        for name, value in weights.items():
            if value.ndim > 1:
                weights[name] = rng.uniform(-1, 1, value.shape) / value.shape[1] ** 0.5
        return weights


@mutant(breaks=("matrices-start-xavier-uniform",))
class StartsXavierNormal(EncoderDecoder):
    """Matrices start from the normal form of Xavier."""

    def initialise(self) -> Arrays:
        rng, weights = np.random.default_rng(1), super().initialise()
        for name, value in weights.items():
            if value.ndim > 1:
                weights[name] = rng.standard_normal(value.shape) * (2 / sum(value.shape)) ** 0.5
        return weights


@mutant(breaks=("vectors-keep-their-default-start",))
class NormsStartRandom(EncoderDecoder):
    """One-dimensional parameters are drawn at random, too."""

    def initialise(self) -> Arrays:
        rng, weights = np.random.default_rng(1), super().initialise()
        return {name: value if value.ndim > 1 else rng.uniform(-1, 1, value.shape) for name, value in weights.items()}


@mutant(breaks=("model-drops-in-training-only",))
class ModelDropsInEvaluation(EncoderDecoder):
    """Dropout is active from the start and stays so."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        self.training = True
        return super().forward(p, **inputs)


@mutant(breaks=("model-drops-in-training-only",))
class ModelNeverDrops(EncoderDecoder):
    """The rate is stored and not used."""

    def train(self, mode: bool = True) -> None:
        self.training = False


# --- the decoder-only model -----------------------------------------------------------------------


class _NoPositions(f.DecoderLM):
    def rotate(self, query: Array, key: Array, start: int) -> tuple[Array, Array]:
        return query, key


@mutant(breaks=("decoder-lm-knows-the-order-within-one-layer", "decoder-lm-formula"), known_as="M12")
class LanguageModelWithoutPositions(DecoderLM):
    """No position information: RoPE is announced and not applied."""

    formulas = _NoPositions


class _NoFinalNorm(f.DecoderLM):
    def step(self, p: Params, ids: Array, cache: Any = None) -> tuple[Array, list[f.Past]]:
        x, grown = self.embed(p, ids), []
        for i, layer in enumerate(layers_of(p)):
            x, past = self.layer(layer, x, None if cache is None else cache[i])
            grown.append(past)
        return self.head(p, x), grown


@mutant(breaks=("decoder-lm-formula",), known_as="M13")
class LanguageModelWithoutFinalNorm(DecoderLM):
    """The final norm is missing."""

    formulas = _NoFinalNorm


class _NoMask(f.DecoderLM):
    def visible(self, n_query: int, n_key: int) -> Array:
        return np.ones((n_query, n_key), bool)


@mutant(breaks=("decoder-lm-is-causal", "decoder-lm-formula"))
class LanguageModelWithoutMask(DecoderLM):
    """Attention is not masked."""

    formulas = _NoMask


class _SelfHidden(f.DecoderLM):
    def visible(self, n_query: int, n_key: int) -> Array:
        mask = np.tri(n_query, n_key, n_key - n_query - 1, dtype=bool)
        mask[0, 0] = True
        return mask


@mutant(breaks=("decoder-lm-formula",))
class LanguageModelHidesTheToken(DecoderLM):
    """Each position but the first sees only the tokens before it, not its own."""

    formulas = _SelfHidden


class _HeadsTiled(f.DecoderLM):
    def share(self, heads: Array) -> Array:
        return np.tile(heads, (1, self.n_heads // self.n_kv_heads, 1, 1))


@mutant(breaks=("decoder-lm-formula",))
class LanguageModelTilesItsHeads(DecoderLM):
    """Key and value heads are tiled: query head i uses head i mod n_kv_heads."""

    formulas = _HeadsTiled


class _EmbeddingScaled(f.DecoderLM):
    def embed(self, p: Params, ids: Array) -> Array:
        return super().embed(p, ids) * p["token_embedding.weight"].shape[1] ** 0.5


@mutant(breaks=("decoder-lm-formula",))
class LanguageModelScalesItsEmbedding(DecoderLM):
    """Embeddings are multiplied by sqrt(d_model), as in the encoder-decoder."""

    formulas = _EmbeddingScaled


class _PostNorm(f.DecoderLM):
    def layer(self, p: Params, x: Array, past: f.Past) -> tuple[Array, f.Past]:
        attended, past = self.attention(part(p, "attn"), x, past)
        x = self.norm(part(p, "attn_norm"), x + attended)
        return self.norm(part(p, "ffn_norm"), x + self.feed_forward(part(p, "ffn"), x)), past


@mutant(breaks=("decoder-lm-formula",))
class LanguageModelPostNorm(DecoderLM):
    """The norms follow the sublayers."""

    formulas = _PostNorm


class _LayerNorms(f.DecoderLM):
    def norm(self, p: Params, x: Array) -> Array:
        return layer_norm(x, p["weight"], np.zeros_like(p["weight"]), 1e-6)


@mutant(breaks=("decoder-lm-formula",))
class LanguageModelWithLayerNorm(DecoderLM):
    """The norms subtract the mean."""

    formulas = _LayerNorms


class _ValuesRotated(f.DecoderLM):
    def attention(self, p: Params, x: Array, past: f.Past) -> tuple[Array, f.Past]:
        heads = [self.n_heads, self.n_kv_heads, self.n_kv_heads]
        query, key, value = (
            rope(f.split_heads(ff.linear(x, p[f"{name}_proj.weight"]), n), pairing=self.pairing or "half")
            for name, n in zip("qkv", heads, strict=True)
        )
        out, _ = attention(query, self.share(key), self.share(value), self.visible(x.shape[1], x.shape[1]))
        return ff.linear(f.merge_heads(out), p["out_proj.weight"]), (key, value)


@mutant(breaks=("values-are-not-rotated", "decoder-lm-formula"))
class ValuesRotated(DecoderLM):
    """RoPE turns the values, too."""

    formulas = _ValuesRotated


@mutant(breaks=("head-shares-the-embedding", "decoder-lm-formula"))
class HeadUntiedByLoading(DecoderLM):
    """Loading replaces the embedding and leaves the head at the old table."""

    def load(self, params: Mapping[str, Array]) -> None:
        head = self.weights.get("lm_head.weight", self.weights["token_embedding.weight"])
        self.weights = {**{name: np.asarray(a, self.dtype) for name, a in params.items()}, "lm_head.weight": head}


@mutant(breaks=("decoder-lm-formula",))
class HeadTiedAlways(DecoderLM):
    """An untied head is loaded and the embedding used."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward({name: a for name, a in p.items() if name != "lm_head.weight"}, **inputs)


@mutant(breaks=("decoder-lm-has-no-bias-and-no-cross-attention",))
class LanguageModelWithBias(DecoderLM):
    """The query projections have a bias (which starts at zero)."""

    def initialise(self) -> Arrays:
        biases = {
            f"layers.{i}.attn.q_proj.bias": np.zeros(self.config["d_model"]) for i in range(self.config["n_layers"])
        }
        return {**super().initialise(), **biases}

    def load(self, params: Mapping[str, Array]) -> None:
        super().load({**self.weights, **params})


@mutant(breaks=("decoder-lm-refuses-more-than-max-len",))
class LanguageModelCutsItsInput(DecoderLM):
    """What exceeds max_len is cut off silently."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return super().forward(p, ids=inputs["ids"][:, : self.config["max_len"]])


@mutant(breaks=("linear-weights-start-normal-0-02",))
class LanguageModelStartsXavier(DecoderLM):
    """Matrices start Xavier-uniform."""

    def initialise(self) -> Arrays:
        return ReferenceSubject.initialise(self)
