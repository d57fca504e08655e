"""LLaMA: rotary positions, RMSNorm, SwiGLU, grouped-query attention (Touvron et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigrad import nn
from transformer.feedforward import GatedFeedForward
from transformer.models.family import activation
from transformer.models.rotary import RotaryConfig, RotaryLM


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(RotaryConfig):
    model_type = "llama"

    attention_bias: bool = False
    mlp_bias: bool = False

    def attention(self) -> dict[str, Any]:
        return {"bias": self.attention_bias}

    def network(self) -> nn.Module:
        return GatedFeedForward(self.hidden_size, self.intermediate_size, activation(self.hidden_act), self.mlp_bias)


class Llama(RotaryLM):
    """LLaMA with its language-model head."""

    config_class = LlamaConfig
    architectures = {"LlamaForCausalLM": {}}
