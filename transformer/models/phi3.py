"""Phi-3: LLaMA with fused matrices, dropout, and positions that reach far by LongRoPE (Abdin et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from transformer.models.family import Name
from transformer.models.rotary import NAMES, RotaryConfig, RotaryLM


@dataclass(frozen=True, kw_only=True)
class Phi3Config(RotaryConfig):
    model_type = "phi3"

    vocab_size: int = 32064
    hidden_size: int = 3072
    intermediate_size: int = 8192
    resid_pdrop: float = 0.0
    embd_pdrop: float = 0.0
    max_position_embeddings: int = 4096
    original_max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-5
    sliding_window: int | None = None
    pad_token_id: int | None = 32000

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """As RotaryConfig's; the trained length, which stands beside the table of LongRoPE, is put into it."""
        settings = dict(settings)
        for name in ("rope_parameters", "rope_scaling"):
            table = settings.get(name)
            if isinstance(table, dict) and {table.get("type"), table.get("rope_type")} & {"longrope", "su", "yarn"}:
                trained = settings.get("original_max_position_embeddings", 4096)
                rest = {key: value for key, value in table.items() if key != "type"}
                settings[name] = {"original_max_position_embeddings": trained, **rest, "rope_type": "longrope"}
        return super().from_dict(settings)

    def windows(self) -> list[int | None]:
        return [self.sliding_window] * self.num_hidden_layers

    def shapes(self) -> dict[str, tuple[int, ...]]:
        layer, d = f"model.layers.{self.num_hidden_layers - 1}", self.hidden_size
        rows = (self.num_attention_heads + 2 * self.kv_heads) * self.d_head
        return {
            "model.embed_tokens.weight": (self.vocab_size, d),
            f"{layer}.self_attn.qkv_proj.weight": (rows, d),
            f"{layer}.mlp.gate_up_proj.weight": (2 * self.intermediate_size, d),
        }


class Phi3(RotaryLM):
    """Phi-3 (and Phi-4) with its language-model head."""

    config_class = Phi3Config
    architectures = {"Phi3ForCausalLM": {}}
    names = (
        *(name for name in NAMES if name.theirs.split(".")[-2] not in ("q_proj", "k_proj", "v_proj")),
        Name("model.layers.{}.self_attn.qkv_proj.*", *(f"layers.{{}}.self_attn.{p}_proj.*" for p in "qkv")),
        Name("model.layers.{}.mlp.gate_up_proj.*", *(f"layers.{{}}.feed_forward.{p}_proj.*" for p in ("gate", "up"))),
        Name("model.layers.{}.mlp.down_proj.*", "layers.{}.feed_forward.down_proj.*"),
    )

    @staticmethod
    def dropout(config: Any) -> float:
        return config.resid_pdrop
