"""Gemma 2: norms around every sublayer, scores and logits below a cap, windows in every other layer (Team 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigrad import Tensor, nn
from transformer.feedforward import GatedFeedForward
from transformer.layers import SandwichLayer
from transformer.models.family import Name, activation
from transformer.models.gemma import Gemma, OffsetRMSNorm
from transformer.models.layer_kinds import windows
from transformer.models.rotary import RotaryConfig, RotaryLM


@dataclass(frozen=True, kw_only=True)
class Gemma2Config(RotaryConfig):
    model_type = "gemma2"
    fixed = {"use_bidirectional_attention": None}

    vocab_size: int = 256000
    hidden_size: int = 2304
    intermediate_size: int = 9216
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int | None = 4
    head_dim: int | None = 256
    hidden_activation: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    attention_bias: bool = False
    query_pre_attn_scalar: int = 256
    sliding_window: int | None = 4096
    layer_types: list | None = None
    final_logit_softcapping: float | None = 30.0
    attn_logit_softcapping: float | None = 50.0
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0

    def attention(self) -> dict[str, Any]:
        scale = self.query_pre_attn_scalar**-0.5
        return {"bias": self.attention_bias, "scale": scale, "softcap": self.attn_logit_softcapping}

    def norm(self) -> nn.Module:
        return OffsetRMSNorm(self.hidden_size, self.rms_norm_eps)

    def network(self) -> nn.Module:
        return GatedFeedForward(self.hidden_size, self.intermediate_size, activation(self.hidden_activation))

    def windows(self) -> list[int | None]:
        kinds = self.layer_types or ["sliding_attention", "full_attention"] * self.num_hidden_layers
        return windows(kinds if self.layer_types else kinds[: self.num_hidden_layers], self.sliding_window,
                       self.num_hidden_layers)  # fmt: skip


class Gemma2(Gemma):
    """Gemma 2 with its language-model head."""

    config_class = Gemma2Config
    architectures = {"Gemma2ForCausalLM": {}}
    norms = {"post_attention_layernorm": 3, "pre_feedforward_layernorm": 2, "post_feedforward_layernorm": 4}
    names = (
        *(name for name in RotaryLM.names if not name.ours[0].endswith("norm2.weight")),
        *(Name(f"model.layers.{{}}.{theirs}.weight", f"layers.{{}}.norm{i}.weight") for theirs, i in norms.items()),
    )

    def __init__(self, config: Gemma2Config) -> None:
        super().__init__(config, SandwichLayer)

    def logits(self, x: Tensor) -> Tensor:
        cap, found = self.config.final_logit_softcapping, self.lm_head(x)
        return found if cap is None else (found / cap).tanh() * cap
