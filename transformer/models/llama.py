"""LLaMA: rotary positions, RMSNorm, SwiGLU, grouped-query attention (Touvron et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from reprlib import repr as short
from typing import Any, Self

import numpy as np

from minigrad import nn
from transformer.attention import MultiHeadAttention
from transformer.feedforward import GatedFeedForward
from transformer.layers import Layer
from transformer.models.base import CausalLM
from transformer.models.family import (
    CheckpointError,
    Config,
    Family,
    Name,
    activation,
    initialise,
)
from transformer.positions import RoPE, interpolation_by_wavelength

ROPE_NUMBERS = {  # what rope_parameters of each type must say
    "default": ("rope_theta",),
    "linear": ("rope_theta", "factor"),
    "llama3": ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True, kw_only=True)
class RotaryConfig(Config):
    """What LLaMA and Mixtral have in common."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_parameters: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    attention_bias: bool = False
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """As Config's; rope_theta and rope_scaling, as older files say it, become rope_parameters."""
        settings = dict(settings)
        older = {"rope_theta": settings.pop("rope_theta", cls().rope_parameters["rope_theta"])}
        scaling = settings.pop("rope_scaling", None) or {}
        given = settings.get("rope_parameters", scaling)
        if not isinstance(given, dict):
            raise CheckpointError(f"config: rope_parameters or rope_scaling must be a table, got {short(given)}")
        config = super().from_dict({**settings, "rope_parameters": {**older, **given}})
        config.interpolation()
        return config

    def to_dict(self) -> dict[str, Any]:
        """As Config's, with rope_theta and rope_scaling for older readers."""
        scaling = {name: value for name, value in self.rope_parameters.items() if name != "rope_theta"}
        plain = self.rope_parameters.get("rope_type", "default") == "default" and "type" not in scaling
        older = {"rope_theta": self.rope_parameters["rope_theta"], "rope_scaling": None if plain else scaling}
        return {**super().to_dict(), **older}

    def interpolation(self) -> float | np.ndarray:
        """By how much RoPE slows its pairs. Raises CheckpointError for scalings that are not built here."""
        given = {"factor": 1.0, **self.rope_parameters}
        kind = given.get("rope_type", given.get("type", "default"))
        if not isinstance(kind, str) or kind not in ROPE_NUMBERS:
            raise CheckpointError(
                f"config: RoPE of type {short(kind)} is not built here, only {', '.join(ROPE_NUMBERS)}"
            )
        for name in ROPE_NUMBERS[kind]:
            number: Any = given.get(name)
            if type(number) not in (int, float) or not 0 < number < math.inf:
                raise CheckpointError(
                    f"config: {name} of rope_parameters must be a number above 0, got {short(number)}"
                )
        if kind == "llama3":
            theta, *numbers = (given[name] for name in ROPE_NUMBERS[kind])
            return interpolation_by_wavelength(self.d_head, theta, *numbers)
        return float(given["factor"]) if kind == "linear" else 1.0

    @property
    def kv_heads(self) -> int:
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def d_head(self) -> int:
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    def shapes(self) -> dict[str, tuple[int, ...]]:
        attention = f"model.layers.{self.num_hidden_layers - 1}.self_attn"
        return {
            "model.embed_tokens.weight": (self.vocab_size, self.hidden_size),
            f"{attention}.q_proj.weight": (self.num_attention_heads * self.d_head, self.hidden_size),
            f"{attention}.k_proj.weight": (self.kv_heads * self.d_head, self.hidden_size),
        }


NAMES = (
    Name("model.embed_tokens.weight", "token_embedding.weight"),
    Name("model.layers.{}.input_layernorm.weight", "layers.{}.norm1.weight"),
    Name("model.layers.{}.self_attn.q_proj.*", "layers.{}.self_attn.q_proj.*"),
    Name("model.layers.{}.self_attn.k_proj.*", "layers.{}.self_attn.k_proj.*"),
    Name("model.layers.{}.self_attn.v_proj.*", "layers.{}.self_attn.v_proj.*"),
    Name("model.layers.{}.self_attn.o_proj.*", "layers.{}.self_attn.out_proj.*"),
    Name("model.layers.{}.post_attention_layernorm.weight", "layers.{}.norm2.weight"),
    Name("model.norm.weight", "norm.weight"),
    Name("lm_head.weight", "lm_head.weight"),
)


class RotaryLM(CausalLM, Family):
    """A decoder of pre-norm layers with RMSNorm and rotary attention; `feed_forward` makes each layer's network."""

    ignored = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)

    def __init__(self, config: RotaryConfig, feed_forward: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.config, self.max_len = config, config.max_position_embeddings
        d = config.hidden_size
        rope = RoPE(config.d_head, self.max_len, config.rope_parameters["rope_theta"], "half", config.interpolation())
        self.token_embedding = nn.Embedding(config.vocab_size, d, config.pad_token_id)
        self.layers = nn.ModuleList(
            Layer(
                MultiHeadAttention(
                    d, config.num_attention_heads, config.kv_heads, config.attention_bias, config.attention_dropout,
                    rope, config.d_head,
                ),
                feed_forward(),
                lambda: nn.RMSNorm(d, config.rms_norm_eps),
                norm_first=True,
            )
            for _ in range(config.num_hidden_layers)
        )  # fmt: skip
        self.norm = nn.RMSNorm(d, config.rms_norm_eps)
        self.lm_head = nn.Linear(d, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.token_embedding.weight
        initialise(self, config.initializer_range)


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(RotaryConfig):
    model_type = "llama"

    mlp_bias: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        network = f"model.layers.{self.num_hidden_layers - 1}.mlp"
        return {**super().shapes(), f"{network}.gate_proj.weight": (self.intermediate_size, self.hidden_size)}


class Llama(RotaryLM):
    """LLaMA with its language-model head. Raises ValueError where heads do not divide."""

    config_class = LlamaConfig
    architectures = {"LlamaForCausalLM": {}}
    prefix = "model."
    names = (
        *NAMES,
        Name("model.layers.{}.mlp.gate_proj.*", "layers.{}.feed_forward.gate_proj.*"),
        Name("model.layers.{}.mlp.up_proj.*", "layers.{}.feed_forward.up_proj.*"),
        Name("model.layers.{}.mlp.down_proj.*", "layers.{}.feed_forward.down_proj.*"),
    )

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(
            config,
            lambda: GatedFeedForward(
                config.hidden_size, config.intermediate_size, activation(config.hidden_act), config.mlp_bias
            ),
        )
