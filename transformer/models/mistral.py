"""Mistral: LLaMA whose tokens attend to the last few thousand only (Jiang et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from transformer.models.rotary import RotaryConfig, RotaryLM


@dataclass(frozen=True, kw_only=True)
class MistralConfig(RotaryConfig):
    model_type = "mistral"

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    sliding_window: int | None = 4096

    def windows(self) -> list[int | None]:
        return [self.sliding_window] * self.num_hidden_layers


class Mistral(RotaryLM):
    """Mistral with its language-model head."""

    config_class = MistralConfig
    architectures = {"MistralForCausalLM": {}}
