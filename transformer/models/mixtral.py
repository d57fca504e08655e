"""Mixtral: LLaMA whose feed-forward networks are mixtures of experts, with a sliding window (Jiang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass, field

from transformer.feedforward import GatedFeedForward
from transformer.models.family import Name, activation
from transformer.models.llama import NAMES, RotaryConfig, RotaryLM
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

    def shapes(self) -> dict[str, tuple[int, ...]]:
        mixture = f"model.layers.{self.num_hidden_layers - 1}.block_sparse_moe"
        return {
            **super().shapes(),
            f"{mixture}.gate.weight": (self.num_local_experts, self.hidden_size),
            f"{mixture}.experts.{self.num_local_experts - 1}.w1.weight": (self.intermediate_size, self.hidden_size),
        }


class Mixtral(RotaryLM):
    """Mixtral with its language-model head; for its balancing loss see `transformer.moe`.

    Raises ValueError where heads do not divide, and unless 1 <= num_experts_per_tok <= num_local_experts.
    """

    config_class = MixtralConfig
    architectures = {"MixtralForCausalLM": {}}
    prefix = "model."
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

    def __init__(self, config: MixtralConfig) -> None:
        d, d_ff, silu = config.hidden_size, config.intermediate_size, activation(config.hidden_act)
        super().__init__(
            config,
            lambda: MixtureOfExperts(
                d, config.num_local_experts, config.num_experts_per_tok, lambda: GatedFeedForward(d, d_ff, silu)
            ),
        )
        self.window = config.sliding_window
