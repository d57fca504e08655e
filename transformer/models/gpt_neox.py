"""GPT-NeoX (Pythia): attention and network side by side, a part of each head rotated (Black et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from minigrad import Tensor, nn
from transformer.feedforward import FeedForward
from transformer.layers import Layer, ParallelLayer
from transformer.models.family import Name, activation
from transformer.models.rotary import RopeConfig, RotaryLM
from transformer.places import Start


@dataclass(frozen=True, kw_only=True)
class GPTNeoXConfig(RopeConfig):
    model_type = "gpt_neox"

    vocab_size: int = 50432
    hidden_size: int = 6144
    intermediate_size: int = 24576
    num_hidden_layers: int = 44
    num_attention_heads: int = 64
    hidden_act: str = "gelu"
    rope_parameters: dict = field(
        default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    )
    hidden_dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    use_parallel_residual: bool = True
    attention_bias: bool = True

    def to_dict(self) -> dict[str, Any]:
        """As RopeConfig's, with the names of its own that readers of rope_scaling look for."""
        rope = self.rope_parameters
        older = {"rotary_emb_base": rope["rope_theta"], "rotary_pct": rope.get("partial_rotary_factor", 1.0)}
        return {**super().to_dict(), **older}

    def attention(self) -> dict[str, Any]:
        return {"bias": self.attention_bias}

    def norm(self) -> nn.Module:
        return nn.LayerNorm(self.hidden_size, self.layer_norm_eps)

    def network(self) -> nn.Module:
        return FeedForward(self.hidden_size, self.intermediate_size, activation(self.hidden_act))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        layer, d = f"gpt_neox.layers.{self.num_hidden_layers - 1}", self.hidden_size
        return {
            "gpt_neox.embed_in.weight": (self.vocab_size, d),
            f"{layer}.attention.query_key_value.weight": (3 * d, d),
            f"{layer}.mlp.dense_h_to_4h.weight": (self.intermediate_size, d),
        }


class GPTNeoX(RotaryLM):
    """GPT-NeoX with its language-model head."""

    config_class = GPTNeoXConfig
    architectures = {"GPTNeoXForCausalLM": {}}
    prefix = "gpt_neox."
    ignored = (r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",)
    renamed = ((r"^lm_head\.weight$", "embed_out.weight"),)
    names = (
        Name("gpt_neox.embed_in.weight", "token_embedding.weight"),
        Name("gpt_neox.layers.{}.input_layernorm.*", "layers.{}.norm1.*"),
        Name("gpt_neox.layers.{}.post_attention_layernorm.*", "layers.{}.norm2.*"),
        Name("gpt_neox.layers.{}.attention.query_key_value.*",
             *(f"layers.{{}}.self_attn.{p}_proj.*" for p in "qkv"), by_head=True),
        Name("gpt_neox.layers.{}.attention.dense.*", "layers.{}.self_attn.out_proj.*"),
        Name("gpt_neox.layers.{}.mlp.dense_h_to_4h.*", "layers.{}.feed_forward.linear1.*"),
        Name("gpt_neox.layers.{}.mlp.dense_4h_to_h.*", "layers.{}.feed_forward.linear2.*"),
        Name("gpt_neox.final_layer_norm.*", "norm.*"),
        Name("embed_out.weight", "lm_head.weight"),
    )  # fmt: skip

    def __init__(self, config: GPTNeoXConfig) -> None:
        super().__init__(config, ParallelLayer if config.use_parallel_residual else Layer)
        self.embedding_dropout = nn.Dropout(config.hidden_dropout)

    def embed(self, ids: Tensor, start: Start, positions: Tensor | None) -> Tensor:
        return self.embedding_dropout(self.token_embedding(ids))

    @staticmethod
    def dropout(config: Any) -> float:
        return config.hidden_dropout
