"""T5: an encoder-decoder with relative position biases, RMSNorm, unscaled attention (Raffel et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from transformer.models.family import Config, Name
from transformer.models.relative_seq2seq import RelativeSeq2Seq


@dataclass(frozen=True, kw_only=True)
class T5Config(Config):
    """scale_decoder_outputs: hidden states times 1/sqrt(d_model) before the head; tie_word_embeddings unless given."""

    model_type = "t5"

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    initializer_factor: float = 1.0
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool = True
    pad_token_id: int | None = 0

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        config = super().from_dict(settings)
        if "scale_decoder_outputs" not in settings:
            return replace(config, scale_decoder_outputs=config.tie_word_embeddings)
        return config

    @property
    def decoder_layers(self) -> int:
        return self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers

    def shapes(self) -> dict[str, tuple[int, ...]]:
        encoder, decoder = f"encoder.block.{self.num_layers - 1}", f"decoder.block.{self.decoder_layers - 1}"
        inner, table = self.num_heads * self.d_kv, (self.relative_attention_num_buckets, self.num_heads)
        return {
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": table,
            "shared.weight": (self.vocab_size, self.d_model),
            f"{encoder}.layer.0.SelfAttention.q.weight": (inner, self.d_model),
            f"{encoder}.layer.1.DenseReluDense.wo.weight": (self.d_model, self.d_ff),
            f"{decoder}.layer.0.SelfAttention.q.weight": (inner, self.d_model),
        }


def _names(side: str, sublayers: tuple[tuple[str, str], ...]) -> list[Name]:
    """Of one stack: what stands at layer.0, layer.1, ... of each block, and what we call it."""
    names = [
        Name(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", f"{side}_bias.weight"),
        Name(f"{side}.final_layer_norm.weight", f"{side}_norm.weight"),
    ]
    for i, (theirs, ours) in enumerate(sublayers):
        block, layer = f"{side}.block.{{}}.layer.{i}", f"{side}_layers.{{}}"
        names.append(Name(f"{block}.layer_norm.weight", f"{layer}.norm{i + 1}.weight"))
        if ours == "feed_forward":
            pairs = [
                ("wi", "linear1"),
                ("wo", "linear2"),
                ("wi_0", "gate_proj"),
                ("wi_1", "up_proj"),
                ("wo", "down_proj"),
            ]
        else:
            pairs = [("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")]
        names += [Name(f"{block}.{theirs}.{a}.weight", f"{layer}.{ours}.{b}.weight") for a, b in pairs]
    return names


class T5(RelativeSeq2Seq):
    """T5 with its language-model head."""

    config_class = T5Config
    architectures = {"T5ForConditionalGeneration": {}, "T5Model": {}, "T5WithLMHeadModel": {}}
    ignored = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
    renamed = ((r"^(encoder|decoder)\.embed_tokens\.weight$", "shared.weight"),)
    names = (
        Name("shared.weight", "token_embedding.weight"),
        *_names("encoder", (("SelfAttention", "self_attn"), ("DenseReluDense", "feed_forward"))),
        *_names("decoder", (("SelfAttention", "self_attn"), ("EncDecAttention", "cross_attn"),
                            ("DenseReluDense", "feed_forward"))),
        Name("lm_head.weight", "lm_head.weight"),
    )  # fmt: skip
