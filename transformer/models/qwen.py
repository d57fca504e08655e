"""Qwen2: LLaMA with biases in queries, keys and values; Qwen3: with norms on them instead (Yang et al. 2024, 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigrad import nn
from transformer.models.family import Name
from transformer.models.layer_kinds import windows
from transformer.models.rotary import RotaryConfig, RotaryLM


@dataclass(frozen=True, kw_only=True)
class Qwen2Config(RotaryConfig):
    """The first max_window_layers layers, or those that layer_types says so of, look back all the way."""

    model_type = "qwen2"

    vocab_size: int = 151936
    intermediate_size: int = 22016
    num_key_value_heads: int | None = 32
    max_position_embeddings: int = 32768
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: list | None = None

    def attention(self) -> dict[str, Any]:
        return {"bias": True, "out_bias": False}

    def windows(self) -> list[int | None]:
        window, n = self.sliding_window if self.use_sliding_window else None, self.num_hidden_layers
        if self.layer_types is not None:
            return windows(self.layer_types, window, n)
        return [window if i >= self.max_window_layers else None for i in range(n)]


class Qwen2(RotaryLM):
    """Qwen2 (and Qwen2.5) with its language-model head."""

    config_class = Qwen2Config
    architectures = {"Qwen2ForCausalLM": {}}


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(Qwen2Config):
    model_type = "qwen3"

    head_dim: int | None = 128
    attention_bias: bool = False

    def attention(self) -> dict[str, Any]:
        return {"bias": self.attention_bias, "head_norm": lambda d: nn.RMSNorm(d, self.rms_norm_eps)}


class Qwen3(RotaryLM):
    """Qwen3 with its language-model head."""

    config_class = Qwen3Config
    architectures = {"Qwen3ForCausalLM": {}}
    names = (
        *RotaryLM.names,
        Name("model.layers.{}.self_attn.q_norm.weight", "layers.{}.self_attn.q_norm.weight"),
        Name("model.layers.{}.self_attn.k_norm.weight", "layers.{}.self_attn.k_norm.weight"),
    )
