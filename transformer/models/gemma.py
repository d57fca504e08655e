"""Gemma: LLaMA whose norms multiply by one more than their weights, and whose embeddings are scaled (Team 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from transformer.models.rotary import RotaryConfig, RotaryLM
from transformer.places import Start


class OffsetRMSNorm(nn.Module):
    """RMSNorm times 1 + weight: weights start, and stay, near zero."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(mg.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight + 1.0, self.eps)


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(RotaryConfig):
    model_type = "gemma"
    fixed = {"use_bidirectional_attention": None}

    vocab_size: int = 256000
    hidden_size: int = 3072
    intermediate_size: int = 24576
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 16
    head_dim: int | None = 256
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """As RotaryConfig's; the first files say gelu, and mean its approximation by tanh."""
        old = settings.get("hidden_act") == "gelu"
        return super().from_dict({**settings, "hidden_act": "gelu_pytorch_tanh"} if old else settings)

    def attention(self) -> dict[str, Any]:
        return {"bias": self.attention_bias}

    def norm(self) -> nn.Module:
        return OffsetRMSNorm(self.hidden_size, self.rms_norm_eps)


class Gemma(RotaryLM):
    """Gemma with its language-model head."""

    config_class: ClassVar[type[RotaryConfig]] = GemmaConfig
    architectures = {"GemmaForCausalLM": {}}

    def embed(self, ids: Tensor, start: Start, positions: Tensor | None) -> Tensor:
        return self.token_embedding(ids) * self.config.hidden_size**0.5
