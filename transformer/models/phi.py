"""Phi: attention and network side by side behind one norm, half of each head rotated (Gunasekar et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from transformer.feedforward import FeedForward
from transformer.layers import OneNormLayer
from transformer.models.family import Name, activation
from transformer.models.rotary import SHARE, RopeConfig, RotaryLM
from transformer.places import Start


@dataclass(frozen=True, kw_only=True)
class PhiConfig(RopeConfig):
    model_type = "phi"

    vocab_size: int = 51200
    hidden_size: int = 2048
    intermediate_size: int = 8192
    num_hidden_layers: int = 24
    num_key_value_heads: int | None = None
    resid_pdrop: float = 0.0
    embd_pdrop: float = 0.0
    hidden_act: str = "gelu_new"
    layer_norm_eps: float = 1e-5
    rope_parameters: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0, SHARE: 0.5})
    qk_layernorm: bool = False

    @property
    def kv_heads(self) -> int:
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    def attention(self) -> dict[str, Any]:
        head_norm = (lambda d: nn.LayerNorm(d, self.layer_norm_eps)) if self.qk_layernorm else None
        return {"bias": True, "head_norm": head_norm}

    def norm(self) -> nn.Module:
        return nn.LayerNorm(self.hidden_size, self.layer_norm_eps)

    def network(self) -> nn.Module:
        return FeedForward(self.hidden_size, self.intermediate_size, activation(self.hidden_act))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        layer, d = f"model.layers.{self.num_hidden_layers - 1}", self.hidden_size
        return {
            "model.embed_tokens.weight": (self.vocab_size, d),
            f"{layer}.self_attn.k_proj.weight": (self.kv_heads * self.d_head, d),
            f"{layer}.mlp.fc1.weight": (self.intermediate_size, d),
        }


class Phi(RotaryLM):
    """Phi (1, 1.5 and 2) with its language-model head, which has a bias."""

    config_class = PhiConfig
    architectures = {"PhiForCausalLM": {}}
    names = (
        Name("model.embed_tokens.weight", "token_embedding.weight"),
        Name("model.layers.{}.input_layernorm.*", "layers.{}.norm1.*"),
        *(Name(f"model.layers.{{}}.self_attn.{p}_proj.*", f"layers.{{}}.self_attn.{p}_proj.*") for p in "qkv"),
        Name("model.layers.{}.self_attn.dense.*", "layers.{}.self_attn.out_proj.*"),
        *(Name(f"model.layers.{{}}.self_attn.{p}_layernorm.*", f"layers.{{}}.self_attn.{p}_norm.*") for p in "qk"),
        *(Name(f"model.layers.{{}}.mlp.fc{i}.*", f"layers.{{}}.feed_forward.linear{i}.*") for i in (1, 2)),
        Name("model.final_layernorm.*", "norm.*"),
        Name("lm_head.*", "lm_head.*"),
    )

    def __init__(self, config: PhiConfig) -> None:
        super().__init__(config, OneNormLayer)
        self.embedding_dropout = nn.Dropout(config.embd_pdrop)
        self.lm_head.bias = nn.Parameter(mg.zeros(config.vocab_size))

    def embed(self, ids: Tensor, start: Start, positions: Tensor | None) -> Tensor:
        return self.embedding_dropout(self.token_embedding(ids))

    @staticmethod
    def dropout(config: Any) -> float:
        return config.resid_pdrop
