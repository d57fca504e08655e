"""Mixtral: LLaMA whose feed-forward networks are mixtures of experts, with a sliding window (Jiang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass, field

from minigrad import nn
from transformer.feedforward import GatedFeedForward
from transformer.models.family import Name, activation
from transformer.models.rotary import NAMES, RotaryConfig, RotaryLM
from transformer.moe import MixtureOfExperts


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(RotaryConfig):
    model_type = "mixtral"

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    rms_norm_eps: float = 1e-5
    rope_parameters: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 1000000.0})
    sliding_window: int | None = None
    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.001

    def network(self) -> nn.Module:
        d, d_ff, silu = self.hidden_size, self.intermediate_size, activation(self.hidden_act)
        experts = self.num_local_experts, self.num_experts_per_tok
        return MixtureOfExperts(d, *experts, lambda: GatedFeedForward(d, d_ff, silu))

    def windows(self) -> list[int | None]:
        return [self.sliding_window] * self.num_hidden_layers

    def network_shapes(self) -> dict[str, tuple[int, ...]]:
        mixture = f"model.layers.{self.num_hidden_layers - 1}.block_sparse_moe"
        return {
            f"{mixture}.gate.weight": (self.num_local_experts, self.hidden_size),
            f"{mixture}.experts.{self.num_local_experts - 1}.w1.weight": (self.intermediate_size, self.hidden_size),
        }


class Mixtral(RotaryLM):
    """Mixtral with its language-model head; for its balancing loss see `transformer.moe`.

    Raises ValueError where heads do not divide, and unless 1 <= num_experts_per_tok <= num_local_experts.
    """

    config_class = MixtralConfig
    architectures = {"MixtralForCausalLM": {}}
    names = (
        *NAMES,
        Name("model.layers.{}.block_sparse_moe.gate.weight", "layers.{}.feed_forward.router.weight"),
        *(
            Name(
                f"model.layers.{{}}.block_sparse_moe.experts.{{}}.{theirs}.weight",
                f"layers.{{}}.feed_forward.experts.{{}}.{ours}.weight",
            )
            for theirs, ours in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))
        ),
    )
